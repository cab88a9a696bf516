//! Questions to the store. Each file adds the functions of one question to [`Store`](crate::store::Store).

mod architectures;
mod attempts;
mod case_filter;
mod case_history;
mod comparison;
mod complete_runs;
mod environments;
mod events;
mod failures;
mod flakes;
mod known_cases;
mod nights;
mod outcome_counts;
mod package_change;
mod pass_rate;
mod passing_versions;
mod repair;
mod results;
mod run_reference;
mod runs;
mod since;
mod standing;
mod strips;

pub use architectures::{ArchitectureRow, Counts};
pub use attempts::Artifact;
pub use case_history::HistoryFilter;
pub use comparison::{ChangeRow, ComparedRun, Comparison, Question, Side, WINDOW};
pub use events::StoredEvent;
pub use failures::FailureGroup;
pub use flakes::{FlakeRow, HostRow};
pub use modelfarm_matrix::case_filter::CaseFilter;
pub use nights::{NightRow, Rhythm};
pub use outcome_counts::OutcomeCount;
pub use package_change::{PackageChange, differences};
pub use pass_rate::PassRateRow;
pub use passing_versions::PassingVersionsRow;
pub use repair::RepairRow;
pub use results::{AttemptPlace, NoAttemptPlace, ResultFilter};
pub use since::{NotSince, Since};
pub use standing::StandingRow;
pub use strips::{CaseStrip, StripNight, Strips};

pub(crate) use environments::{environment, model};
