//! The sums of one leaf, taken in one pass.

use super::element::{self, Element};

/// Elements that are added plainly before they go into the compensated total.
const BLOCK: usize = 512;
/// A float64 leaf may hold numbers whose squares overflow. Clamped so far out they fail as they should, and stay finite in JSON.
const LARGEST_SQUARABLE: f64 = 1e140;

/// A sum that loses nothing to its length (Neumaier 1974).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Total {
    sum: f64,
    lost: f64,
}

impl Total {
    pub(crate) fn add(&mut self, value: f64) {
        let sum = self.sum + value;
        self.lost += if self.sum.abs() >= value.abs() { (self.sum - sum) + value } else { (value - sum) + self.sum };
        self.sum = sum;
    }

    pub(crate) fn value(&self) -> f64 {
        self.sum + self.lost
    }
}

/// Sums over the elements that have a distance.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sums {
    pub(crate) count: u64,
    pub(crate) ref_squared: Total,
    pub(crate) device_squared: Total,
    pub(crate) reference: Total,
    pub(crate) device: Total,
    pub(crate) error_squared: Total,
    pub(crate) device_ref: Total,
    pub(crate) max_abs_error: f64,
    pub(crate) nonfinite_mismatches: u64,
    pub(crate) yardstick_error_squared: Total,
    pub(crate) yardstick_ref: Total,
    pub(crate) yardstick_error: Total,
    pub(crate) yardstick_max_abs_error: f64,
}

impl Sums {
    /// Adds elements; `limit` is the leaf's [`element::range_limit`].
    pub(crate) fn add(&mut self, reference: &[f64], yardstick: &[f64], device: &[f64], limit: f64) {
        let blocks = reference.chunks(BLOCK).zip(yardstick.chunks(BLOCK)).zip(device.chunks(BLOCK));
        for ((reference, yardstick), device) in blocks {
            self.add_block(reference, yardstick, device, limit);
        }
    }

    fn add_block(&mut self, reference: &[f64], yardstick: &[f64], device: &[f64], limit: f64) {
        let mut count = 0;
        let (mut rr, mut dd, mut r, mut d, mut ee, mut dr) = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0);
        let (mut yy, mut yr, mut ye) = (0.0, 0.0, 0.0);
        let (mut max_error, mut max_yardstick_error) = (self.max_abs_error, self.yardstick_max_abs_error);
        for ((&reference, &yardstick), &device) in reference.iter().zip(yardstick).zip(device) {
            match element::compare(reference, yardstick, device, limit) {
                Element::Measured => {}
                Element::SameKind => continue,
                Element::OtherKind => {
                    self.nonfinite_mismatches += 1;
                    continue;
                }
            }
            let device = device.clamp(-LARGEST_SQUARABLE, LARGEST_SQUARABLE);
            let yardstick = yardstick.clamp(-LARGEST_SQUARABLE, LARGEST_SQUARABLE);
            let (error, yardstick_error) = (device - reference, yardstick - reference);
            count += 1;
            rr += reference * reference;
            dd += device * device;
            r += reference;
            d += device;
            ee += error * error;
            dr += device * reference;
            yy += yardstick_error * yardstick_error;
            yr += yardstick * reference;
            ye += yardstick_error;
            max_error = f64::max(max_error, error.abs());
            max_yardstick_error = f64::max(max_yardstick_error, yardstick_error.abs());
        }
        self.count += count;
        self.ref_squared.add(rr);
        self.device_squared.add(dd);
        self.reference.add(r);
        self.device.add(d);
        self.error_squared.add(ee);
        self.device_ref.add(dr);
        self.yardstick_error_squared.add(yy);
        self.yardstick_ref.add(yr);
        self.yardstick_error.add(ye);
        self.max_abs_error = max_error;
        self.yardstick_max_abs_error = max_yardstick_error;
    }
}
