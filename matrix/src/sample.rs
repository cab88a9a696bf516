//! A part of all models that is a plan of its own: one each night, and all of them in turn.

use std::fmt;
use std::str::FromStr;

use crate::model::ModelId;
use crate::plan::{hash_of_name, part_and_count};

/// One of `count` samples of the models.
///
/// Other than a [`Shard`](crate::plan::Shard), which is a part of a run that is complete with all of them, a sample is a
/// selection: its run is complete by itself. The two split by different parts of a name's hash, so that the shards of a sample
/// are of about one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    index: u32,
    count: u32,
}

impl Sample {
    /// Whether a model belongs to this sample. It depends on the model's name alone, so a new model moves no other.
    pub fn holds(self, model: &ModelId) -> bool {
        hash_of_name(model)[1] % u64::from(self.count) == u64::from(self.index - 1)
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.count)
    }
}

/// A text that is no sample.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a sample: expected I/N with 1 <= I <= N <= 10000, such as 3/14")]
pub struct InvalidSample(String);

impl FromStr for Sample {
    type Err = InvalidSample;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (index, count) = part_and_count(text).ok_or_else(|| InvalidSample(text.chars().take(80).collect()))?;
        Ok(Self { index, count })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn models() -> Vec<ModelId> {
        (0..700).map(|number| format!("zoo/tiny-{number}").parse().unwrap()).collect()
    }

    #[test]
    fn every_model_is_in_one_sample_and_none_is_much_larger_than_another() {
        let mut sizes = [0; 14];
        for model in models() {
            let holding: Vec<usize> =
                (1..=14).filter(|&index| Sample { index, count: 14 }.holds(&model)).map(|i| i as usize).collect();
            assert_eq!(holding.len(), 1, "{model} is in {holding:?}");
            sizes[holding[0] - 1] += 1;
        }
        assert!(sizes.iter().all(|size| (25..=80).contains(size)), "{sizes:?}");
    }

    #[test]
    fn a_sample_is_spread_over_shards() {
        // Were both taken from the same number, half of four shards would hold nothing of a fourteenth.
        let sample: Sample = "3/14".parse().unwrap();
        let mut shards = [0; 4];
        for model in models().iter().filter(|model| sample.holds(model)) {
            shards[usize::try_from(hash_of_name(model)[0] % 4).unwrap()] += 1;
        }
        assert!(shards.iter().all(|size| *size > 0), "{shards:?}");
    }

    #[test]
    fn a_sample_is_read_from_its_text() {
        assert_eq!("14/14".parse::<Sample>().unwrap().to_string(), "14/14");
        for wrong in ["0/14", "15/14", "3", "a/b", "1/0", "1/10001"] {
            assert!(wrong.parse::<Sample>().unwrap_err().to_string().contains("3/14"), "{wrong}");
        }
    }
}
