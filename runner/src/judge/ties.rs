//! Discrete choices that differ: whether the reference itself was sure of them.

use serde::{Deserialize, Serialize};

use modelfarm_matrix::leaf::LeafStatistics;

use super::error::JudgeError;
use super::statistics::{self, Files, Part, SameLeaf};
use super::tensors::{Leaf, TensorFile};

/// More tokens than any workload makes.
const MOST_TOKENS: usize = 1 << 20;
/// No vocabulary is longer.
const LONGEST_VOCABULARY: usize = 1 << 22;

/// The least excusable of the choices that differ from the reference's. With the leaves' statistics it is enough to judge again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Flip {
    /// The leaf that holds the choice.
    pub leaf: String,
    /// Where, for generated tokens.
    pub place: Option<Place>,
    /// By how much the reference preferred its own choice to the target's, in logits. None where that is not known, or where
    /// the target's choice contradicts its own logits.
    pub margin: Option<f64>,
    /// Whether the yardstick chose as the target did.
    pub shared_with_yardstick: bool,
}

/// A generated token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Row of the batch.
    pub row: u64,
    /// Step, from 0.
    pub step: u64,
}

impl Flip {
    /// Orders flips by how little excuse they have.
    fn severity(&self) -> f64 {
        match (self.shared_with_yardstick, self.margin) {
            (true, _) => -1.0,
            (false, Some(margin)) => margin,
            (false, None) => f64::INFINITY,
        }
    }
}

/// The flip with the least excuse.
pub(crate) fn worst(flips: impl IntoIterator<Item = Flip>) -> Option<Flip> {
    flips.into_iter().max_by(|a, b| a.severity().total_cmp(&b.severity()))
}

/// The flip of an exact leaf without logits of its own.
pub(crate) fn without_margin(statistics: &LeafStatistics, shared: u64) -> Option<Flip> {
    (statistics.unequal > 0).then(|| Flip {
        leaf: statistics.name.clone(),
        place: None,
        margin: None,
        shared_with_yardstick: shared == statistics.unequal,
    })
}

/// `tokens` [batch, steps] and `logits` [steps, batch, vocabulary], or the first two dimensions of these in one.
#[derive(Debug)]
pub(crate) struct Generation<'a> {
    logits: &'a SameLeaf,
    batch: usize,
    steps: usize,
    reference: Vec<i128>,
    yardstick: Vec<i128>,
    device: Vec<i128>,
}

impl<'a> Generation<'a> {
    /// Finds and reads the tokens; none where the leaves are not shaped like a generation.
    pub(crate) fn read(files: &mut Files, leaves: &'a [SameLeaf]) -> Result<Option<Self>, JudgeError> {
        let find = |name| leaves.iter().find(|leaf| leaf.name == name);
        let (Some(tokens), Some(logits)) = (find("tokens"), find("logits")) else { return Ok(None) };
        let &[batch, steps] = tokens.outputs.shape.as_slice() else { return Ok(None) };
        let fits = match *logits.outputs.shape.as_slice() {
            [first, second, vocabulary] => (first, second) == (steps, batch) && vocabulary <= LONGEST_VOCABULARY,
            [rows, vocabulary] => Some(rows) == steps.checked_mul(batch) && vocabulary <= LONGEST_VOCABULARY,
            _ => false,
        };
        let exact_tokens = !tokens.outputs.is_floating() && !tokens.reference.is_floating();
        if !fits || !exact_tokens || !logits.outputs.is_floating() || tokens.outputs.count > MOST_TOKENS {
            return Ok(None);
        }
        let whole = |file: &mut TensorFile, leaf: &Leaf| {
            let mut values = Vec::new();
            file.read_integers(leaf, 0, leaf.count, &mut values).map(|()| values)
        };
        Ok(Some(Self {
            logits,
            batch,
            steps,
            reference: whole(&mut files.reference, &tokens.reference)?,
            yardstick: whole(&mut files.yardstick, &tokens.yardstick)?,
            device: whole(&mut files.outputs, &tokens.outputs)?,
        }))
    }

    /// The first step at which a row's token is not the reference's.
    fn first_flip(&self, tokens: &[i128], row: usize) -> Option<usize> {
        let row = row * self.steps..(row + 1) * self.steps;
        self.reference[row.clone()].iter().zip(&tokens[row]).position(|(expected, found)| expected != found)
    }

    /// Statistics of the logits up to and including each row's first flip: what follows one has another text before it.
    pub(crate) fn logits_statistics(&self, files: &mut Files) -> Result<LeafStatistics, JudgeError> {
        let last: Vec<usize> = (0..self.batch)
            .map(|row| {
                let flips = [self.first_flip(&self.device, row), self.first_flip(&self.yardstick, row)];
                flips.into_iter().flatten().min().unwrap_or(self.steps)
            })
            .collect();
        let comparable = |row: usize| {
            if row / self.batch <= last[row % self.batch] { Part::Whole } else { Part::Nothing }
        };
        statistics::distance(files, self.logits, Some(&comparable))
    }

    /// The first flip of the row that has the least excuse.
    pub(crate) fn worst_flip(&self, files: &mut Files) -> Result<Option<Flip>, JudgeError> {
        let mut flips = Vec::new();
        for row in 0..self.batch {
            let Some(step) = self.first_flip(&self.device, row) else { continue };
            let at = row * self.steps + step;
            let shared = self.first_flip(&self.yardstick, row) == Some(step) && self.yardstick[at] == self.device[at];
            flips.push(Flip {
                leaf: "tokens".to_owned(),
                place: Some(Place { row: row as u64, step: step as u64 }),
                margin: self.margin(files, step * self.batch + row, self.reference[at], self.device[at])?,
                shared_with_yardstick: shared,
            });
        }
        Ok(worst(flips))
    }

    fn margin(&self, files: &mut Files, row: usize, expected: i128, found: i128) -> Result<Option<f64>, JudgeError> {
        let vocabulary = self.logits.outputs.last_dimension();
        let place = |token: i128| usize::try_from(token).ok().filter(|&place| place < vocabulary);
        let (Some(expected), Some(found)) = (place(expected), place(found)) else { return Ok(None) };
        let (start, mut reference, mut device) = (row * vocabulary, Vec::new(), Vec::new());
        files.reference.read_floats(&self.logits.reference, start, vocabulary, &mut reference)?;
        files.outputs.read_floats(&self.logits.outputs, start, vocabulary, &mut device)?;
        let margin = reference[expected] - reference[found];
        // A reference that prefers the other token by its logits has another reason for its choice, and so a target whose own
        // logits prefer the reference's token has none for its own.
        let excusable = margin >= 0.0 && margin.is_finite() && device[found] >= device[expected];
        Ok(excusable.then_some(margin))
    }
}
