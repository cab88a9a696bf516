//! The judge before real files: a small numerical model in several arithmetics, and every way to be wrong.

mod defects;
mod generation;
mod gradients;
mod health;
mod hostile_files;
mod numerical_model;
mod padding;
mod properties;
mod special_values;
mod structure;
mod tensor_writer;

use std::path::Path;
use std::sync::LazyLock;

use modelfarm_matrix::axes::{Dtype, Precision, Workload};
use modelfarm_matrix::outcome::Outcome;

use super::{JudgeError, JudgeFiles, Judgement, Padding, Policy, Question, judge, rejudge};
use numerical_model::{Arithmetic, Implementation};
use tensor_writer::Leaves;

fn question(workload: Workload, dtype: Dtype, precision: Precision) -> Question {
    Question { workload, dtype, precision }
}

fn forward(dtype: Dtype, precision: Precision) -> Question {
    question(Workload::Forward, dtype, precision)
}

/// Reference and yardstick of the numerical model, and what a right device makes of it.
#[derive(Clone)]
struct Bench {
    question: Question,
    reference: Leaves,
    yardstick: Leaves,
    device: Leaves,
}

impl Bench {
    fn new(dtype: Dtype, precision: Precision) -> Self {
        let arithmetic = Arithmetic::of(dtype, precision);
        let run = |arithmetic, implementation| numerical_model::run(dtype, arithmetic, implementation);
        Self {
            question: forward(dtype, precision),
            reference: run(Arithmetic::Float64, Implementation::Cpu),
            yardstick: run(arithmetic, Implementation::Cpu),
            device: run(arithmetic, Implementation::Device),
        }
    }

    fn float32() -> Self {
        static BENCH: LazyLock<Bench> = LazyLock::new(|| Bench::new(Dtype::Float32, Precision::Highest));
        BENCH.clone()
    }

    fn bfloat16() -> Self {
        static BENCH: LazyLock<Bench> = LazyLock::new(|| Bench::new(Dtype::Bfloat16, Precision::Highest));
        BENCH.clone()
    }

    fn float32_at_medium() -> Self {
        static BENCH: LazyLock<Bench> = LazyLock::new(|| Bench::new(Dtype::Float32, Precision::Medium));
        BENCH.clone()
    }

    /// The judgement of the device's leaves after `change`.
    fn judge_changed(&self, change: impl FnOnce(&mut Leaves)) -> Judgement {
        let mut outputs = self.device.clone();
        change(&mut outputs);
        judge_leaves(&self.reference, &self.yardstick, &outputs, &self.question).unwrap()
    }

    fn outcome_of(&self, change: impl FnOnce(&mut Leaves)) -> Outcome {
        self.judge_changed(change).outcome
    }
}

/// Judges leaves through real files, and again from the statistics alone: the two must agree.
fn judge_leaves(
    reference: &Leaves,
    yardstick: &Leaves,
    outputs: &Leaves,
    question: &Question,
) -> Result<Judgement, JudgeError> {
    let folder = tempfile::tempdir().unwrap();
    judge_in(folder.path(), reference, yardstick, outputs, None, question)
}

fn judge_in(
    folder: &Path,
    reference: &Leaves,
    yardstick: &Leaves,
    outputs: &Leaves,
    padding: Option<Padding>,
    question: &Question,
) -> Result<Judgement, JudgeError> {
    let files = JudgeFiles {
        reference: reference.write(folder, "reference"),
        yardstick: yardstick.write(folder, "yardstick"),
        repeat: None,
        outputs: outputs.write(folder, "outputs"),
        padding,
    };
    let judgement = judge(&files, question, &Policy::current())?;
    assert_eq!(judgement.outcome == Outcome::Pass, judgement.message.is_none());
    if let Some(again) = rejudge(&judgement.leaves, judgement.flip.as_ref(), question, &Policy::current()) {
        assert_eq!(again.outcome, judgement.outcome);
        assert_eq!(again.message, judgement.message);
        assert_eq!(again.metrics, judgement.metrics);
        let stored = serde_json::to_string(&judgement.leaves).unwrap();
        let leaves: Vec<modelfarm_matrix::leaf::LeafStatistics> = serde_json::from_str(&stored).unwrap();
        let stored = rejudge(&leaves, judgement.flip.as_ref(), question, &Policy::current()).unwrap();
        assert_eq!(stored.outcome, judgement.outcome, "after a round trip through JSON");
    }
    Ok(judgement)
}
