//! Times: UTC milliseconds in the database, RFC 3339 in every output.

use jiff::Timestamp;

/// Now, in UTC milliseconds since 1970.
pub fn now_ms() -> i64 {
    Timestamp::now().as_millisecond()
}

/// RFC 3339 in UTC with milliseconds, such as `2026-11-30T18:44:18.123Z`.
///
/// A time beyond the year 9999 becomes the last one that can be written.
pub fn rfc3339(ms: i64) -> String {
    let time = Timestamp::from_millisecond(ms).unwrap_or(if ms < 0 { Timestamp::MIN } else { Timestamp::MAX });
    format!("{time:.3}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_in_utc_with_milliseconds() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(1_796_064_258_123), "2026-11-30T18:44:18.123Z");
        assert!(rfc3339(i64::MAX).starts_with("9999-"));
        assert!(rfc3339(i64::MIN).starts_with("-"));
    }
}
