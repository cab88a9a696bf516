//! The events of a run: typed, ordered, stored before anybody else sees them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::case::CaseId;
use crate::outcome::{Outcome, Stage, Standing};

/// Something that happened in a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event {
    /// A shard (or the whole run) began.
    RunStarted {
        /// Cases that this shard will take.
        planned: u64,
        /// Cases that an earlier start of the same run already finished.
        already_final: u64,
    },
    /// A try of a case began.
    AttemptStarted {
        /// The case.
        case_id: CaseId,
        /// Number of the try.
        attempt: u32,
    },
    /// A model's shared work (download, reference) entered a stage.
    ModelStage {
        /// The repository.
        model: String,
        /// The stage.
        stage: Stage,
    },
    /// A try entered a stage.
    StageEntered {
        /// The case.
        case_id: CaseId,
        /// Number of the try.
        attempt: u32,
        /// The stage.
        stage: Stage,
    },
    /// A try ended and its row is committed.
    AttemptFinished {
        /// The case.
        case_id: CaseId,
        /// Number of the try.
        attempt: u32,
        /// What was observed.
        outcome: Outcome,
        /// Where it ended.
        stage: Stage,
        /// Whether it is an unexpected one.
        unexpected: bool,
    },
    /// The shard has nothing left to do.
    RunFinished {
        /// True where a signal ended it early.
        interrupted: bool,
    },
}

/// Counts of final cases; the unit is cases, not attempts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Cases that passed.
    pub pass: u64,
    /// Cases that failed.
    pub fail: u64,
    /// Cases that say nothing about the target.
    pub inconclusive: u64,
    /// Cases whose verdict is an unexpected one.
    pub unexpected: u64,
}

impl Tally {
    /// Counts one more final case.
    pub fn add(&mut self, outcome: Outcome, unexpected: bool) {
        match outcome.standing() {
            Standing::Pass => self.pass += 1,
            Standing::Fail => self.fail += 1,
            Standing::Inconclusive => self.inconclusive += 1,
        }
        self.unexpected += u64::from(unexpected);
    }

    /// All cases counted.
    pub fn total(&self) -> u64 {
        self.pass + self.fail + self.inconclusive
    }
}
