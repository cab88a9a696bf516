//! One element of three files: whether it has a distance, or must be the same kind of special value.

/// Beyond this a number is no measurement but a mark, such as the smallest finite number that masks a logit. Its square would
/// drown every real element of its leaf.
const LARGEST_MEASUREMENT: f64 = 1e30;

/// What an element contributes to its leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Element {
    /// All three are ordinary numbers.
    Measured,
    /// Special, and rightly so.
    SameKind,
    /// NaN, infinite or out of range on one side only, or in another way.
    OtherKind,
}

/// The magnitude from which a leaf's numbers count as out of range, given the largest number of its dtype.
pub(crate) fn range_limit(largest: f64) -> f64 {
    (largest / 2.0).min(LARGEST_MEASUREMENT)
}

/// Compares the kinds of reference, yardstick and device. A special value is right where it is the reference's or, since a dtype
/// may overflow where float64 does not, the yardstick's.
pub(crate) fn compare(reference: f64, yardstick: f64, device: f64, limit: f64) -> Element {
    if is_measurement(reference, limit) {
        match (yardstick.is_finite(), device.is_finite()) {
            (true, true) => Element::Measured,
            (false, true) => Element::SameKind,
            (false, false) if same_kind(yardstick, device, limit) => Element::SameKind,
            _ => Element::OtherKind,
        }
    } else if same_kind(reference, device, limit) || same_kind(yardstick, device, limit) {
        Element::SameKind
    } else {
        Element::OtherKind
    }
}

fn is_measurement(value: f64, limit: f64) -> bool {
    value.is_finite() && value.abs() < limit
}

fn same_kind(expected: f64, found: f64, limit: f64) -> bool {
    if expected.is_nan() || found.is_nan() {
        expected.is_nan() && found.is_nan()
    } else if is_measurement(expected, limit) {
        found.is_finite()
    } else if expected.is_infinite() || found.is_infinite() {
        expected == found
    } else {
        // Half: the mark may be another dtype's smallest number, or have been rounded.
        expected.signum() == found.signum() && found.abs() >= limit / 2.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INF: f64 = f64::INFINITY;
    const F32: f64 = f32::MAX as f64;

    #[test]
    fn ordinary_numbers_are_measured() {
        assert_eq!(compare(1.0, 1.1, -5.0, range_limit(F32)), Element::Measured);
    }

    #[test]
    fn special_values_must_stand_where_the_references_do() {
        let limit = range_limit(F32);
        for (reference, device, expected) in [
            (f64::NAN, f64::NAN, Element::SameKind),
            (f64::NAN, 0.0, Element::OtherKind),
            (f64::NAN, INF, Element::OtherKind),
            (INF, INF, Element::SameKind),
            (INF, -INF, Element::OtherKind),
            (-INF, -F32, Element::OtherKind),
            (-f64::MAX, -F32, Element::SameKind),
            (-f64::MAX, F32, Element::OtherKind),
            (-f64::MAX, -INF, Element::OtherKind),
            (1.0, f64::NAN, Element::OtherKind),
            (1.0, INF, Element::OtherKind),
        ] {
            assert_eq!(compare(reference, reference, device, limit), expected, "{reference} {device}");
        }
    }

    #[test]
    fn an_overflow_of_the_yardstick_is_legitimate() {
        let limit = range_limit(65504.0);
        assert_eq!(compare(70000.0, INF, INF, limit), Element::SameKind);
        assert_eq!(compare(70000.0, INF, -INF, limit), Element::OtherKind);
        assert_eq!(compare(70000.0, INF, 65504.0, limit), Element::SameKind);
        assert_eq!(compare(1.0, f64::NAN, 1.0, limit), Element::SameKind);
        assert_eq!(compare(1.0, f64::NAN, INF, limit), Element::OtherKind);
    }
}
