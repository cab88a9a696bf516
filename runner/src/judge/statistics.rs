//! From the files to the statistics of a leaf.

use std::borrow::Cow;

use modelfarm_matrix::leaf::{LeafKind, LeafStatistics};

use super::decode;
use super::element;
use super::error::JudgeError;
use super::logits::{RowAgreement, is_logits};
use super::sums::Sums;
use super::tensors::{Leaf, TensorFile};

/// Elements read at once from each file.
const PIECE: usize = 1 << 16;
/// Rows longer than this are not compared as distributions: no vocabulary is.
const LONGEST_ROW: usize = 1 << 22;

/// The three files of a judgement.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) reference: TensorFile,
    pub(crate) yardstick: TensorFile,
    pub(crate) outputs: TensorFile,
}

/// The same leaf in the three files; the shapes are equal.
#[derive(Debug, Clone)]
pub(crate) struct SameLeaf {
    pub(crate) name: String,
    pub(crate) reference: Leaf,
    pub(crate) yardstick: Leaf,
    pub(crate) outputs: Leaf,
}

/// What of a row (along the innermost dimension) counts.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Part<'a> {
    Whole,
    Nothing,
    /// The elements that are marked; there is a mark for each.
    Places(&'a [bool]),
}

impl Part<'_> {
    /// The elements of a row that count.
    fn of<'r, T: Copy>(self, row: &'r [T]) -> Cow<'r, [T]> {
        match self {
            Part::Whole => Cow::Borrowed(row),
            Part::Nothing => Cow::Borrowed(&[]),
            Part::Places(marks) => {
                Cow::Owned(row.iter().zip(marks).filter_map(|(value, counts)| counts.then_some(*value)).collect())
            }
        }
    }
}

/// What counts of each row, by its number; all of it where there is no filter.
pub(crate) type RowFilter<'a> = Option<&'a dyn Fn(usize) -> Part<'a>>;

impl SameLeaf {
    /// How it is judged.
    pub(crate) fn kind(&self) -> LeafKind {
        if self.yardstick.is_floating() { LeafKind::Distance } else { LeafKind::Exact }
    }

    /// The magnitude from which its numbers count as out of range.
    pub(crate) fn limit(&self) -> f64 {
        element::range_limit(decode::largest(self.yardstick.dtype))
    }

    /// Statistics without a sum in them yet.
    pub(crate) fn blank(&self) -> LeafStatistics {
        LeafStatistics {
            name: self.name.clone(),
            shape: self.outputs.shape.iter().map(|&length| length as u64).collect(),
            dtype: self.outputs.dtype.to_string(),
            kind: self.kind(),
            count: 0,
            left_out: 0,
            sum_ref_squared: 0.0,
            sum_device_squared: 0.0,
            sum_ref: 0.0,
            sum_device: 0.0,
            sum_error_squared: 0.0,
            sum_device_ref: 0.0,
            max_abs_error: 0.0,
            nonfinite_mismatches: 0,
            sum_yardstick_error_squared: 0.0,
            yardstick_max_abs_error: 0.0,
            yardstick_gain_error: 0.0,
            yardstick_mean_error: 0.0,
            top1_agreement: None,
            kl_divergence: None,
            unequal: 0,
        }
    }
}

/// Statistics of a floating leaf, over what `rows` lets through.
pub(crate) fn distance(files: &mut Files, leaf: &SameLeaf, rows: RowFilter) -> Result<LeafStatistics, JudgeError> {
    let limit = leaf.limit();
    let mut sums = Sums::default();
    let mut agreement = RowAgreement::default();
    let row = leaf.outputs.last_dimension();
    let agrees = is_logits(&leaf.name) && (2..=LONGEST_ROW).contains(&row);
    let by_row = rows.is_some() || agrees;
    let piece = if by_row { whole_rows(row) } else { PIECE };
    let mut judged = 0;
    let (mut reference, mut yardstick, mut device) = (Vec::new(), Vec::new(), Vec::new());
    let mut start = 0;
    while start < leaf.outputs.count {
        let count = piece.min(leaf.outputs.count - start);
        files.reference.read_floats(&leaf.reference, start, count, &mut reference)?;
        files.yardstick.read_floats(&leaf.yardstick, start, count, &mut yardstick)?;
        files.outputs.read_floats(&leaf.outputs, start, count, &mut device)?;
        if by_row {
            let triples = reference.chunks(row).zip(yardstick.chunks(row)).zip(device.chunks(row));
            for (place, ((reference, yardstick), device)) in triples.enumerate() {
                let part = rows.map_or(Part::Whole, |part_of| part_of(start / row + place));
                let (reference, yardstick, device) = (part.of(reference), part.of(yardstick), part.of(device));
                judged += device.len();
                sums.add(&reference, &yardstick, &device, limit);
                if agrees {
                    agreement.add(&reference, &device, limit);
                }
            }
        } else {
            judged += count;
            sums.add(&reference, &yardstick, &device, limit);
        }
        start += count;
    }
    let statistics = with_sums(leaf.blank(), &sums, &agreement);
    Ok(LeafStatistics { left_out: (leaf.outputs.count - judged) as u64, ..statistics })
}

/// Elements read at once where rows must not be cut.
fn whole_rows(row: usize) -> usize {
    row * (PIECE / row.max(1)).max(1)
}

fn with_sums(blank: LeafStatistics, sums: &Sums, agreement: &RowAgreement) -> LeafStatistics {
    let count = sums.count.max(1) as f64;
    let ref_squared = sums.ref_squared.value();
    let yardstick_gain = if ref_squared > 0.0 { sums.yardstick_ref.value() / ref_squared - 1.0 } else { 0.0 };
    LeafStatistics {
        count: sums.count,
        sum_ref_squared: ref_squared,
        sum_device_squared: sums.device_squared.value(),
        sum_ref: sums.reference.value(),
        sum_device: sums.device.value(),
        sum_error_squared: sums.error_squared.value(),
        sum_device_ref: sums.device_ref.value(),
        max_abs_error: sums.max_abs_error,
        nonfinite_mismatches: sums.nonfinite_mismatches,
        sum_yardstick_error_squared: sums.yardstick_error_squared.value(),
        yardstick_max_abs_error: sums.yardstick_max_abs_error,
        yardstick_gain_error: yardstick_gain.abs(),
        yardstick_mean_error: (sums.yardstick_error.value() / count).abs(),
        top1_agreement: agreement.top1(),
        kl_divergence: agreement.mean_divergence(),
        ..blank
    }
}

/// Statistics of a leaf that is compared exactly, over what `rows` lets through, and how many of the unequal elements are the
/// yardstick's too.
pub(crate) fn exact(files: &mut Files, leaf: &SameLeaf, rows: RowFilter) -> Result<(LeafStatistics, u64), JudgeError> {
    let mut sums = Sums::default();
    let (mut unequal, mut shared, mut judged) = (0, 0, 0);
    let row = leaf.outputs.last_dimension();
    let piece = if rows.is_some() { whole_rows(row) } else { PIECE };
    let (mut reference, mut yardstick, mut device) = (Vec::new(), Vec::new(), Vec::new());
    let mut start = 0;
    while start < leaf.outputs.count {
        let count = piece.min(leaf.outputs.count - start);
        files.reference.read_integers(&leaf.reference, start, count, &mut reference)?;
        files.yardstick.read_integers(&leaf.yardstick, start, count, &mut yardstick)?;
        files.outputs.read_integers(&leaf.outputs, start, count, &mut device)?;
        if let Some(part_of) = rows {
            for values in [&mut reference, &mut yardstick, &mut device] {
                let parts = values.chunks(row).enumerate().map(|(place, values)| part_of(start / row + place).of(values));
                *values = parts.collect::<Vec<_>>().concat();
            }
        }
        judged += device.len();
        for ((reference, yardstick), device) in reference.iter().zip(&yardstick).zip(&device) {
            unequal += u64::from(reference != device);
            shared += u64::from(reference != device && yardstick == device);
        }
        let as_floats = |values: &[i128]| values.iter().map(|&value| value as f64).collect::<Vec<_>>();
        sums.add(&as_floats(&reference), &as_floats(&yardstick), &as_floats(&device), f64::INFINITY);
        start += count;
    }
    let statistics = with_sums(leaf.blank(), &sums, &RowAgreement::default());
    Ok((LeafStatistics { unequal, left_out: (leaf.outputs.count - judged) as u64, ..statistics }, shared))
}

/// A leaf's name for a message.
pub(crate) fn shown(name: &str) -> Cow<'_, str> {
    let plain = name.len() <= 160 && !name.chars().any(char::is_control);
    if plain { Cow::Borrowed(name) } else { Cow::Owned(super::tensors::bounded(name)) }
}
