//! Padded positions: what stands there is nobody's result, and no target is judged by it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::error::{JudgeError, Role};
use super::statistics::{Part, SameLeaf};
use super::tensors::TensorFile;

/// More masks than any model has.
const MOST_MASKS: usize = 64;
/// No batch has more positions.
const MOST_POSITIONS: usize = 1 << 20;

/// What the worker padded: the inputs of a reference, and which of its leaves have the positions of which mask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Padding {
    /// The file of the inputs, which holds the masks.
    inputs: PathBuf,
    masks: Vec<MaskedLeaves>,
}

/// One mask, and the leaves that it is for.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct MaskedLeaves {
    mask: String,
    leaves: BTreeSet<String>,
}

impl Padding {
    /// What the facts of a reference say of its inputs. None where they say nothing, or nothing that can be understood: then
    /// every position is judged.
    pub fn of(inputs: &Path, facts: &Map<String, Value>) -> Option<Self> {
        let masks: Vec<MaskedLeaves> = Deserialize::deserialize(facts.get("padding")?).ok()?;
        (1..=MOST_MASKS).contains(&masks.len()).then(|| Self { inputs: inputs.to_owned(), masks })
    }

    /// Reads the masks. One that is missing, is no whole numbers of (batch, length), or leaves out a row as a whole is no mask,
    /// and leaves out nothing.
    pub(crate) fn read(&self) -> Result<PaddedLeaves, JudgeError> {
        let mut file = TensorFile::open(Role::Inputs, &self.inputs)?;
        let mut by_leaf = BTreeMap::new();
        for masked in &self.masks {
            let Some(mask) = file.leaves().get(&masked.mask).cloned() else { continue };
            let &[batch, length] = mask.shape.as_slice() else { continue };
            if mask.is_floating() || !(1..=MOST_POSITIONS).contains(&mask.count) {
                continue;
            }
            let mut values = Vec::new();
            file.read_integers(&mask, 0, mask.count, &mut values)?;
            let positions = Positions { batch, length, real: values.iter().map(|&value| value != 0).collect() };
            if positions.real.chunks(length).all(|row| row.contains(&true)) {
                let positions = Rc::new(positions);
                by_leaf.extend(masked.leaves.iter().map(|leaf| (leaf.clone(), Rc::clone(&positions))));
            }
        }
        Ok(PaddedLeaves { by_leaf })
    }
}

/// Which positions of which leaves are padded.
#[derive(Debug, Clone, Default)]
pub(crate) struct PaddedLeaves {
    by_leaf: BTreeMap<String, Rc<Positions>>,
}

impl PaddedLeaves {
    pub(crate) fn read(padding: Option<&Padding>) -> Result<Self, JudgeError> {
        padding.map_or_else(|| Ok(Self::default()), Padding::read)
    }

    /// The positions of a leaf, where its outer dimensions are those of its mask.
    pub(crate) fn of(&self, leaf: &SameLeaf) -> Option<PaddedRows> {
        let positions = self.by_leaf.get(&leaf.name)?;
        match leaf.outputs.shape.as_slice() {
            &[batch, length, ref inner @ ..] if (batch, length) == (positions.batch, positions.length) => {
                // Rows of a leaf are along its innermost dimension; that of a leaf of two is a row of positions.
                let rows_at_each = inner.split_last().map(|(_, outer)| outer.iter().product());
                Some(PaddedRows { positions: Rc::clone(positions), rows_at_each })
            }
            _ => None,
        }
    }
}

/// A mask, read.
#[derive(Debug)]
struct Positions {
    batch: usize,
    length: usize,
    real: Vec<bool>,
}

/// The rows of one leaf by its mask.
#[derive(Debug)]
pub(crate) struct PaddedRows {
    positions: Rc<Positions>,
    /// How many rows each position has; none where a row has many positions.
    rows_at_each: Option<usize>,
}

impl PaddedRows {
    /// What of a row counts.
    pub(crate) fn part(&self, row: usize) -> Part<'_> {
        let Positions { length, real, .. } = &*self.positions;
        match self.rows_at_each {
            Some(rows) if real.get(row / rows.max(1)).copied().unwrap_or(true) => Part::Whole,
            Some(_) => Part::Nothing,
            None => real.get(row * length..(row + 1) * length).map_or(Part::Whole, Part::Places),
        }
    }
}
