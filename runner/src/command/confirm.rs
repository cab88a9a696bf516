//! `modelfarm confirm`: tries what regressed again, in the environment of before and in that of now.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use modelfarm_matrix::case::CaseId;
use modelfarm_matrix::change::{Change, Night, Reading};
use modelfarm_matrix::matrix_file::Matrix;
use modelfarm_matrix::outcome::Outcome;
use modelfarm_matrix::retrial::RetrialPurpose;
use modelfarm_reports::fair_cut::cut_fairly;
use modelfarm_reports::query::{ChangeRow, Question, Side};
use modelfarm_reports::store::{Confirmation, Retrial, Store, StoreError};
use modelfarm_reports::table::TableRow;
use serde::Serialize;

use super::Farm;
use super::prepare::{self, MatrixText};
use super::printing::print_rows;
use super::retrying::Retrying;
use crate::cli::Output;
use crate::exit::{ExitCode, Failure};
use crate::progress;

/// What is confirmed, and how.
pub struct Wanted<'a> {
    /// Which comparison, and which of its cases.
    pub question: Question,
    /// The matrix that the runs were of.
    pub matrix: &'a Path,
    /// How often each case is tried in each environment.
    pub tries: u32,
    /// Of more regressions than this only so many are tried.
    pub at_most: usize,
    /// Models at a time.
    pub jobs: Option<usize>,
    /// More targets, where the runs had a file of them.
    pub targets_file: Option<&'a Path>,
}

/// A case that was tried again.
#[derive(Debug, Serialize)]
struct ConfirmationRow {
    case_id: CaseId,
    model: String,
    target: String,
    mode: String,
    before_environment: String,
    before_outcomes: Vec<Outcome>,
    after_environment: String,
    after_outcomes: Vec<Outcome>,
    confirmed: Option<bool>,
}

impl TableRow for ConfirmationRow {
    const COLUMNS: &'static [&'static str] = &[
        "case_id",
        "model",
        "target",
        "mode",
        "before_environment",
        "before_outcomes",
        "after_environment",
        "after_outcomes",
        "confirmed",
    ];
    const SHOWN: &'static [&'static str] =
        &["case_id", "model", "target", "mode", "before_outcomes", "after_outcomes", "confirmed"];
}

/// The environments of before and now, of cases that are tried together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Sides {
    before: String,
    after: String,
}

/// Tries the regressed cases of a comparison again in both environments; exit code 1 where one is confirmed, 3 where there is no run to
/// compare with.
pub async fn confirm(farm: &Farm, wanted: &Wanted<'_>, output: &Output) -> Result<ExitCode, Failure> {
    let _in_use = farm.create_state()?;
    let store = Arc::new(Store::create_or_migrate(&farm.database).await?);
    let text = MatrixText::read(wanted.matrix)?;
    let named = Matrix::parse(&text.file, &text.text, &prepare::targets(wanted.targets_file)?)
        .map_err(|error| Failure::usage(error.to_string()))?;
    let question = match wanted.question.run {
        Some(_) => wanted.question.clone(),
        None => Question { matrix: Some(named.name.clone()), ..wanted.question.clone() },
    };
    let comparison = match store.comparison(&question).await {
        Err(error @ StoreError::NoCompleteRun { .. }) => return Err(Failure::nothing(format!("failed to {error}"))),
        compared => compared?,
    };
    if named.name != comparison.matrix {
        return Err(Failure::usage(format!(
            "the run is of the matrix `{}`, and {} is `{}`; name its file with --matrix",
            comparison.matrix, text.file, named.name
        )));
    }
    let regressed: Vec<&ChangeRow> = comparison.rows.iter().filter(|row| row.change == Change::Regressed).collect();
    let all = regressed.len();
    // A package that breaks everything is confirmed by some of each kind.
    let tried = cut_fairly(regressed, wanted.at_most, |row| (row.signature.clone(), row.architecture.clone()));
    let mut groups: BTreeMap<Sides, Vec<&ChangeRow>> = BTreeMap::new();
    for row in &tried {
        let environment = |side: &Option<Side>| side.as_ref().and_then(|side| side.environment_id.clone());
        match (environment(&row.before), environment(&row.after)) {
            (Some(before), Some(after)) => groups.entry(Sides { before, after }).or_default().push(row),
            _ => progress::line(&format!("{}: not tried: the environment of one side is not known", row.case_id)),
        }
    }
    let mut rows = Vec::new();
    for (sides, cases) in groups {
        let ids: Vec<CaseId> = cases.iter().map(|row| row.case_id.clone()).collect();
        let retrying = Retrying {
            farm,
            store: &store,
            matrix: &text,
            tries: wanted.tries,
            jobs: wanted.jobs,
            targets_file: wanted.targets_file,
            what: RetrialPurpose::Confirm,
        };
        let mut ready = retrying.cases(&ids).await?;
        let before = retrying.in_environment(&mut ready, retrying.made_again(&sides.before).await?).await?;
        let after = retrying.in_environment(&mut ready, retrying.made_again(&sides.after).await?).await?;
        ready.close().await;
        for row in cases {
            let of = |side: &BTreeMap<CaseId, Vec<Outcome>>| side.get(&row.case_id).cloned().unwrap_or_default();
            let (before_outcomes, after_outcomes) = (of(&before), of(&after));
            let confirmed = verdict(&before_outcomes, &after_outcomes);
            let retrial = |environment_id: &String, side: &Option<Side>, outcomes: &[Outcome]| Retrial {
                environment_id: environment_id.clone(),
                revision: side.as_ref().and_then(|side| side.revision.clone()),
                outcomes: outcomes.to_vec(),
            };
            let confirmation = Confirmation::new(
                row.case_id.clone(),
                retrial(&sides.before, &row.before, &before_outcomes),
                retrial(&sides.after, &row.after, &after_outcomes),
                confirmed,
            );
            store.record_confirmation(&confirmation).await?;
            rows.push(ConfirmationRow {
                case_id: row.case_id.clone(),
                model: row.model.to_string(),
                target: row.target.clone(),
                mode: row.mode.to_string(),
                before_environment: sides.before.clone(),
                before_outcomes,
                after_environment: sides.after.clone(),
                after_outcomes,
                confirmed,
            });
        }
    }
    print_rows(&rows, output)?;
    let confirmed = rows.iter().filter(|row| row.confirmed == Some(true)).count();
    progress::line(&format!("{all} regressed, {} tried again, {confirmed} confirmed", rows.len()));
    Store::clone(&store).close().await;
    Ok(if confirmed > 0 { ExitCode::Unexpected } else { ExitCode::Fine })
}

/// Both sides have to agree: before, every try passes, and now every try fails. A side that says nothing leaves it open.
fn verdict(before: &[Outcome], after: &[Outcome]) -> Option<bool> {
    let reading = |outcomes: &[Outcome]| Night { outcomes: outcomes.to_vec(), ground: 0 }.reading();
    match (reading(before), reading(after)) {
        (Reading::Silent, _) | (_, Reading::Silent) => None,
        (Reading::Passed, Reading::Failed) => Some(true),
        _ => Some(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_two_sides_that_agree_confirm() {
        use Outcome::{InfraError, Mismatch, Pass};
        assert_eq!(verdict(&[Pass; 4], &[Mismatch; 4]), Some(true));
        assert_eq!(verdict(&[Pass; 4], &[Pass; 4]), Some(false), "it cannot be seen again");
        assert_eq!(verdict(&[Pass; 4], &[Mismatch, Pass, Mismatch, Mismatch]), Some(false), "it flakes now");
        assert_eq!(verdict(&[Pass, Mismatch, Pass, Pass], &[Mismatch; 4]), Some(false), "it flaked before");
        assert_eq!(verdict(&[Pass; 4], &[InfraError; 4]), None);
        assert_eq!(verdict(&[], &[Mismatch]), None);
    }
}
