//! A day of the calendar, without a clock or a time zone.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A text that is no date.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not a date: expected a day of the calendar as YYYY-MM-DD, such as 2027-01-31", .0.escape_debug())]
pub struct InvalidDate(String);

/// A day of the Gregorian calendar, of the years 0001 to 9999.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Date {
    // In this order the derived comparison is that of the calendar.
    year: u16,
    month: u8,
    day: u8,
}

fn days_in(year: u16, month: u8) -> u8 {
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

impl FromStr for Date {
    type Err = InvalidDate;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidDate(text.chars().take(80).collect());
        let parts: Vec<&str> = text.split('-').collect();
        let [year, month, day] = parts[..] else { return Err(invalid()) };
        let number = |part: &str, digits: usize| -> Option<u16> {
            let plain = part.len() == digits && part.bytes().all(|byte| byte.is_ascii_digit());
            plain.then(|| part.parse().ok()).flatten()
        };
        let (Some(year), Some(month), Some(day)) = (number(year, 4), number(month, 2), number(day, 2)) else {
            return Err(invalid());
        };
        // Two digits fit a byte.
        let (month, day) = (month as u8, day as u8);
        let exists = year >= 1 && (1..=12).contains(&month) && (1..=days_in(year, month)).contains(&day);
        exists.then_some(Self { year, month, day }).ok_or_else(invalid)
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{:04}-{:02}-{:02}", self.year, self.month, self.day))
    }
}

impl Serialize for Date {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Date {
    /// Reads TOML's own date as well as a text, because people write both.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = match toml::Value::deserialize(deserializer)? {
            toml::Value::String(text) => text,
            toml::Value::Datetime(date) => date.to_string(),
            other => other.to_string(),
        };
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_days_of_the_calendar_are_dates() {
        for good in ["2027-01-31", "2028-02-29", "2000-02-29", "0001-01-01", "9999-12-31"] {
            assert_eq!(good.parse::<Date>().unwrap().to_string(), good);
        }
        for bad in [
            "2027-02-29",
            "1900-02-29",
            "2027-13-01",
            "2027-00-10",
            "2027-04-31",
            "2027-11-31",
            "2027-1-31",
            "27-01-31",
            "0000-01-01",
            "",
            "-",
        ] {
            assert!(bad.parse::<Date>().is_err(), "{bad}");
        }
        let error = "next\nweek".parse::<Date>().unwrap_err().to_string();
        assert!(error.contains("YYYY-MM-DD") && !error.contains('\n'), "{error}");
    }

    #[test]
    fn a_date_of_toml_and_a_text_are_both_dates() {
        #[derive(Debug, Deserialize)]
        struct Holder {
            day: Date,
        }
        let read = |value: &str| toml::from_str::<Holder>(&format!("day = {value}")).map(|holder| holder.day.to_string());
        assert_eq!(read("2027-01-31").unwrap(), "2027-01-31");
        assert_eq!(read("\"2027-01-31\"").unwrap(), "2027-01-31");
        for bad in ["2027-01-31T08:00:00Z", "20270131", "\"soon\"", "[1]"] {
            assert!(read(bad).unwrap_err().message().contains("is not a date"), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn dates_compare_as_their_texts_and_come_back(a in "[0-9]{4}-[0-1][0-9]-[0-3][0-9]", b in "[0-9]{4}-[0-1][0-9]-[0-3][0-9]") {
            if let (Ok(one), Ok(other)) = (a.parse::<Date>(), b.parse::<Date>()) {
                prop_assert_eq!(one.cmp(&other), a.cmp(&b));
                prop_assert_eq!(one.to_string(), a);
            }
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in "\\PC{0,20}") {
            let _ = text.parse::<Date>();
        }
    }
}
