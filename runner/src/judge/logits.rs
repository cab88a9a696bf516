//! What logits are compared by besides their distance: the winner of each row, and the distribution that it stands for.

use super::sums::Total;

/// Whether a leaf holds logits, by its name: `logits`, `decoder.logits`, `start_logits`, `router_logits.3`.
pub(crate) fn is_logits(name: &str) -> bool {
    name.split('.').any(|part| part == "logits" || part.ends_with("_logits"))
}

/// Agreement of rows of logits.
#[derive(Debug, Clone, Default)]
pub(crate) struct RowAgreement {
    rows: u64,
    agreeing: u64,
    divergence: Total,
}

impl RowAgreement {
    /// Adds one row. Rows that hold anything but ordinary numbers have no softmax to compare and are left out.
    pub(crate) fn add(&mut self, reference: &[f64], device: &[f64], limit: f64) {
        let ordinary = |row: &[f64]| row.iter().all(|value| value.abs() < limit);
        let (Some(best_reference), Some(best_device)) = (largest(reference), largest(device)) else { return };
        if !ordinary(reference) || !ordinary(device) {
            return;
        }
        self.rows += 1;
        // Where the reference has two equal winners either is right.
        self.agreeing += u64::from(reference[best_device] == reference[best_reference]);
        self.divergence.add(divergence(reference, device, reference[best_reference], device[best_device]));
    }

    /// Share of the rows whose largest element stands at the same place.
    pub(crate) fn top1(&self) -> Option<f64> {
        (self.rows > 0).then(|| self.agreeing as f64 / self.rows as f64)
    }

    /// Mean Kullback-Leibler divergence in nats a row.
    pub(crate) fn mean_divergence(&self) -> Option<f64> {
        (self.rows > 0).then(|| self.divergence.value() / self.rows as f64)
    }
}

/// The place of the largest element, the first of several.
pub(crate) fn largest(row: &[f64]) -> Option<usize> {
    let mut best = 0;
    for (place, value) in row.iter().enumerate() {
        if *value > row[best] {
            best = place;
        }
    }
    (!row.is_empty()).then_some(best)
}

/// Σ p·(log p − log q) for p = softmax(reference) and q = softmax(device).
fn divergence(reference: &[f64], device: &[f64], max_reference: f64, max_device: f64) -> f64 {
    let (mut sum_p, mut sum_q, mut weighted) = (0.0, 0.0, 0.0);
    for (r, d) in reference.iter().zip(device) {
        let (r, d) = (r - max_reference, d - max_device);
        let p = r.exp();
        sum_p += p;
        sum_q += d.exp();
        weighted += p * (r - d);
    }
    // Rounding may leave a divergence of nothing slightly below zero.
    (weighted / sum_p - sum_p.ln() + sum_q.ln()).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_logits() {
        for name in ["logits", "decoder.logits", "start_logits", "router_logits.3"] {
            assert!(is_logits(name), "{name}");
        }
        for name in ["last_hidden_state", "gradient.logits_scale", "mylogits"] {
            assert!(!is_logits(name), "{name}");
        }
    }

    #[test]
    fn divergence_of_a_known_pair() {
        // p = (3/4, 1/4), q = (1/2, 1/2): 3/4·ln(3/2) + 1/4·ln(1/2).
        let mut rows = RowAgreement::default();
        rows.add(&[3f64.ln(), 0.0], &[0.0, 0.0], 1e30);
        let expected = 0.75 * 1.5f64.ln() + 0.25 * 0.5f64.ln();
        assert!((rows.mean_divergence().unwrap() - expected).abs() < 1e-15);
        assert_eq!(rows.top1(), Some(1.0));
    }

    #[test]
    fn a_constant_added_to_a_row_changes_no_distribution() {
        let mut rows = RowAgreement::default();
        rows.add(&[1.0, 2.0, 3.0], &[11.0, 12.0, 13.0], 1e30);
        assert!(rows.mean_divergence().unwrap() < 1e-15);
    }

    #[test]
    fn rows_without_a_softmax_are_left_out() {
        let mut rows = RowAgreement::default();
        rows.add(&[f64::NEG_INFINITY, 1.0], &[f64::NEG_INFINITY, 1.0], 1e30);
        rows.add(&[0.0, 1.0], &[f64::NAN, 1.0], 1e30);
        rows.add(&[], &[], 1e30);
        assert_eq!(rows.top1(), None);
        rows.add(&[0.0, 1.0], &[1.0, 0.0], 1e30);
        rows.add(&[1.0, 1.0], &[0.0, 1.0], 1e30);
        assert_eq!(rows.top1(), Some(0.5));
    }
}
