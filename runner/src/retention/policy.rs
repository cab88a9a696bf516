//! How long things stay after their last use.

use std::str::FromStr;

use super::item::Kind;

/// A time without use, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Age(i64);

const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;

impl Age {
    /// So many days.
    pub const fn days(days: i64) -> Self {
        Self(days * DAY)
    }

    /// In milliseconds.
    pub const fn ms(self) -> i64 {
        self.0
    }
}

impl std::fmt::Display for Age {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 % DAY {
            0 => write!(f, "{}d", self.0 / DAY),
            _ => write!(f, "{}h", self.0 / HOUR),
        }
    }
}

/// What is no age.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no age; expected a number of hours, days or weeks, such as 12h, 30d or 8w")]
pub struct NotAge(String);

impl FromStr for Age {
    type Err = NotAge;

    fn from_str(text: &str) -> Result<Self, NotAge> {
        let wrong = || NotAge(text.chars().take(40).collect());
        let unit = match text.chars().next_back() {
            Some('h') => HOUR,
            Some('d') => DAY,
            Some('w') => 7 * DAY,
            _ => return Err(wrong()),
        };
        let number = &text[..text.len() - 1];
        if !number.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(wrong());
        }
        number.parse().ok().and_then(|count: i64| count.checked_mul(unit)).map(Age).ok_or_else(wrong)
    }
}

/// `30d` for every kind, or `environment=90d` for one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OlderThan {
    /// Which kind; every one where none is named.
    pub kind: Option<Kind>,
    /// How old.
    pub age: Age,
}

impl FromStr for OlderThan {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, age) = match text.split_once('=') {
            Some((kind, age)) => (Some(kind.parse::<Kind>().map_err(|error| error.to_string())?), age),
            None => (None, text),
        };
        Ok(Self { kind, age: age.parse().map_err(|error: NotAge| error.to_string())? })
    }
}

/// How long each kind stays after its last use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    all: Option<Age>,
    of: std::collections::BTreeMap<Kind, Age>,
}

impl Policy {
    /// The defaults, with some of them replaced; of several for one kind the last counts.
    pub fn new(replaced: &[OlderThan]) -> Self {
        let mut policy = Self::default();
        for OlderThan { kind, age } in replaced {
            match kind {
                Some(kind) => drop(policy.of.insert(*kind, *age)),
                None => policy.all = Some(*age),
            }
        }
        policy
    }

    /// The age of a kind. What is made again within seconds goes sooner than what takes an hour of downloads.
    pub fn age(&self, kind: Kind) -> Age {
        let default = match kind {
            // Long enough that who looks into a crash still finds it.
            Kind::Leftover => Age::days(1),
            Kind::Reference | Kind::CompiledProgram | Kind::HubSnapshot | Kind::HubContent => Age::days(30),
            Kind::Interposer | Kind::WorkerSource | Kind::FixtureSource => Age::days(30),
            Kind::Environment | Kind::Tool => Age::days(60),
        };
        self.of.get(&kind).copied().or(self.all).unwrap_or(default)
    }

    /// The longest age of any kind.
    pub fn longest(&self) -> Age {
        Kind::ALL.iter().map(|kind| self.age(*kind)).max().unwrap_or(Age::days(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_read_and_told() {
        for (text, told) in [("0d", "0d"), ("12h", "12h"), ("48h", "2d"), ("8w", "56d")] {
            assert_eq!(text.parse::<Age>().unwrap().to_string(), told);
        }
        for wrong in ["", "d", "30", "-1d", "1.5d", "1m", "99999999999999999d", "30 d", "ä"] {
            assert!(wrong.parse::<Age>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn one_kind_is_replaced_or_all() {
        let policy = Policy::new(&["7d".parse().unwrap(), "environment=90d".parse().unwrap()]);
        assert_eq!(policy.age(Kind::Environment), Age::days(90));
        assert_eq!(policy.age(Kind::Leftover), Age::days(7));
        assert_eq!(policy.longest(), Age::days(90));
        assert_eq!(Policy::new(&[]).age(Kind::Leftover), Age::days(1));
        let error = "environmant=1d".parse::<OlderThan>().unwrap_err();
        assert!(error.contains("did you mean `environment`"), "{error}");
    }
}
