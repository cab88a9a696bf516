//! What a comparison starts from: a run, a date, or a time before now.

use std::str::FromStr;

use jiff::civil::Date;
use jiff::tz::TimeZone;

/// Where a comparison starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Since {
    /// A run: its id, the beginning of it, `latest` or `latest~N`.
    Run(String),
    /// The newest complete run at or before the beginning of this day, in UTC.
    Day(Date),
    /// The newest complete run that is at least so many milliseconds older than the newer one.
    Ago(i64),
}

/// A text that is no start of a comparison.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no run, date or duration; expected something like latest~1, 2026-11-01, 7d or 12h")]
pub struct NotSince(String);

impl Since {
    /// The latest start of a run that may be the baseline of one that started at `after` (UTC milliseconds); none for a run.
    pub fn at_most(&self, after: i64) -> Option<i64> {
        match self {
            Since::Run(_) => None,
            Since::Day(day) => TimeZone::UTC.to_timestamp(day.at(0, 0, 0, 0)).ok().map(|start| start.as_millisecond()),
            Since::Ago(ms) => Some(after.saturating_sub(*ms)),
        }
    }
}

impl FromStr for Since {
    type Err = NotSince;

    fn from_str(text: &str) -> Result<Self, NotSince> {
        let text = text.trim();
        let wrong = || NotSince(text.chars().take(80).collect());
        if let Some(ms) = duration_ms(text) {
            return Ok(Since::Ago(ms));
        }
        if text.len() == 10 && text.bytes().filter(|byte| *byte == b'-').count() == 2 {
            return text.parse().map(Since::Day).map_err(|_| wrong());
        }
        let is_run =
            text.starts_with("latest") || (text.len() >= 4 && text.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-'));
        if is_run { Ok(Since::Run(text.to_owned())) } else { Err(wrong()) }
    }
}

/// `30m`, `12h`, `7d` or `2w` in milliseconds.
fn duration_ms(text: &str) -> Option<i64> {
    let unit = text.chars().next_back()?;
    let minutes: i64 = match unit {
        'm' => 1,
        'h' => 60,
        'd' => 24 * 60,
        'w' => 7 * 24 * 60,
        _ => return None,
    };
    let number = &text[..text.len() - unit.len_utf8()];
    let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    // A longer row of digits that ends in `d` is the beginning of a run's id.
    let number: i64 = number.parse().ok().filter(|_| digits && number.len() <= 5)?;
    number.checked_mul(minutes * 60_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_a_date_and_a_duration_are_told_apart() {
        assert_eq!("latest~1".parse(), Ok(Since::Run("latest~1".to_owned())));
        assert_eq!("01a23189-735b".parse(), Ok(Since::Run("01a23189-735b".to_owned())));
        assert_eq!("7d".parse(), Ok(Since::Ago(7 * 86_400_000)));
        assert_eq!("90m".parse(), Ok(Since::Ago(90 * 60_000)));
        assert_eq!("2026-11-01".parse::<Since>().unwrap().at_most(0), Some(1_793_491_200_000));
        assert_eq!(Since::Ago(5).at_most(12), Some(7));
        for wrong in ["", "d", "-7d", "7 d", "yesterday", "2026-13-01", "1.5h", "٣d"] {
            assert!(wrong.parse::<Since>().is_err(), "{wrong}");
        }
    }
}
