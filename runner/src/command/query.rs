//! `modelfarm query`.

use modelfarm_matrix::change::Change;
use modelfarm_matrix::outcome::Outcome;
use modelfarm_reports::query::{
    ArchitectureRow, CaseFilter, ChangeRow, Comparison, HistoryFilter, Question, ResultFilter, Rhythm, Since,
};
use modelfarm_reports::store::{Store, now_ms};

use super::Farm;
use super::printing::print_rows;
use crate::cli::{Query, Selection};
use crate::exit::{ExitCode, Failure};
use crate::fixture_architectures::{architectures, beside_fixtures};
use crate::{fixture_build, progress};

/// Asks the store; never creates or migrates it.
pub async fn query(farm: &Farm, what: Query) -> Result<ExitCode, Failure> {
    let store = Store::open_read_only(&farm.database).await?;
    match what {
        Query::Results { run, outcomes, all_attempts, selection, output } => {
            let filter = ResultFilter { limit: output.limit, final_only: !all_attempts, ..filter(run, outcomes, &selection)? };
            print_rows(&store.results(&filter).await?, &output)?;
        }
        Query::Failures { run, inconclusive, outcomes, selection, output } => {
            let groups = store.failures(&filter(Some(run), outcomes, &selection)?, inconclusive).await?;
            print_rows(&groups, &output)?;
        }
        Query::Architectures { run, attempted, selection, output } => {
            let wanted = |row: &ArchitectureRow| !attempted && asks_for(&selection, row);
            let of_run = store.architectures(&filter(Some(run), Vec::new(), &selection)?).await?;
            let (cases, all) = (of_run.len(), beside_fixtures(of_run, of_fixtures(farm)?, wanted));
            print_rows(&all, &output)?;
            let left_out = all.len() - cases;
            progress::line(&format!(
                "{} architectures: {cases} with a case here, {left_out} left out of the fixtures",
                all.len()
            ));
        }
        Query::Regressions { run, matrix, since, window, changes, selection, output } => {
            let question = question(run, matrix, since, window, &selection)?;
            let comparison = store.comparison(&question).await?;
            let wanted = |row: &&ChangeRow| changes.is_empty() || changes.contains(&row.change);
            let rows: Vec<ChangeRow> = comparison.rows.iter().filter(wanted).cloned().collect();
            print_rows(&rows, &output)?;
            tell_what_was_compared(&comparison);
            if comparison.is_bad() {
                return Ok(ExitCode::Unexpected);
            }
        }
        Query::Nights { matrix, every, since, output } => {
            let now = now_ms();
            let from = since.at_most(now).ok_or_else(no_run)?;
            let nights = store.nights(&Rhythm { matrix, every, from, now }).await?;
            let shown =
                output.limit.map_or(nights.len(), |limit| nights.len().min(usize::try_from(limit).unwrap_or(usize::MAX)));
            print_rows(&nights[..shown], &output)?;
            if nights.first().is_some_and(|newest| !newest.state.is_sound()) {
                return Ok(ExitCode::Unexpected);
            }
        }
        Query::Flakes { matrix, window, output } => print_rows(&store.flakes(matrix.as_deref(), window).await?, &output)?,
        Query::Hosts { matrix, window, output } => print_rows(&store.host_flakes(matrix.as_deref(), window).await?, &output)?,
        Query::Standing { matrix, since, selection, output } => {
            print_rows(&store.standing(&history(matrix, &since, &selection)?).await?, &output)?;
        }
        Query::PassRate { matrix, since, selection, output } => {
            print_rows(&store.pass_rate(&history(matrix, &since, &selection)?).await?, &output)?;
        }
        Query::Repairs { matrix, since, selection, output } => {
            print_rows(&store.repairs(&history(matrix, &since, &selection)?).await?, &output)?;
        }
        Query::Versions { matrix, since, selection, output } => {
            print_rows(&store.passing_versions(&history(matrix, &since, &selection)?).await?, &output)?;
        }
        Query::Runs { output } => print_rows(&store.runs(output.limit).await?, &output)?,
        Query::Environments { output } => print_rows(&store.environments(output.limit).await?, &output)?,
    }
    Ok(ExitCode::Fine)
}

/// Whether a selection asks for an architecture that has no case: what is left out is so for every target, mode and workload.
fn asks_for(selection: &Selection, row: &ArchitectureRow) -> bool {
    let Selection { cases, models, architectures, harnesses, targets: _, modes: _, workloads: _, shard: _, sample: _ } =
        selection;
    cases.is_empty()
        && models.is_empty()
        && (architectures.is_empty() || architectures.contains(&row.architecture))
        && (harnesses.is_empty() || row.harness.iter().any(|harness| harnesses.contains(harness)))
}

/// The architectures of the fixtures that are built here, and those that are left out of them.
fn of_fixtures(farm: &Farm) -> Result<Vec<ArchitectureRow>, Failure> {
    let folder = fixture_build::folder(&farm.state);
    let built = if folder.is_dir() { modelfarm_fixtures::built(&folder) } else { Ok(Vec::new()) };
    // Results are worth showing without the fixtures that they may be of.
    let built = built.unwrap_or_else(|error| {
        tracing::warn!(%error, "the fixtures cannot be read: nothing is known of their health");
        Vec::new()
    });
    Ok(architectures(&built, &super::fixtures::exclusions()?))
}

/// Which runs were compared, and what came of it, for a person.
fn tell_what_was_compared(comparison: &Comparison) {
    let Comparison { matrix, before, is_old_enough, after, in_both, still_passing, rows } = comparison;
    let young = if *is_old_enough { "" } else { ", the oldest complete one: none is as old as was asked for" };
    let partial = if after.is_complete { "" } else { ", which is not complete" };
    progress::line(&format!(
        "{matrix}: run {} of {}{partial} against {} of {}{young}",
        after.run_id, after.started_at, before.run_id, before.started_at
    ));
    let counts: Vec<String> = Change::ALL
        .iter()
        .map(|change| (change, rows.iter().filter(|row| row.change == *change).count()))
        .filter(|(_, count)| *count > 0)
        .map(|(change, count)| format!("{count} {change}"))
        .collect();
    let counts = if counts.is_empty() { "nothing changed".to_owned() } else { counts.join(", ") };
    progress::line(&format!("{in_both} cases in both, {still_passing} pass as before; {counts}"));
}

/// The comparison that a person asks for.
pub(super) fn question(
    run: Option<String>,
    matrix: Option<String>,
    since: Option<Since>,
    window: u32,
    selection: &Selection,
) -> Result<Question, Failure> {
    let cases = cases(selection)?;
    Ok(Question { run, matrix, since, window: Some(window), cases })
}

fn history(matrix: Option<String>, since: &Since, selection: &Selection) -> Result<HistoryFilter, Failure> {
    let cases = cases(selection)?;
    let from = since.at_most(now_ms()).ok_or_else(no_run)?;
    Ok(HistoryFilter { matrix, from, cases })
}

fn no_run() -> Failure {
    Failure::usage("--since takes a date or a duration here, such as 2026-11-01 or 90d")
}

fn filter(run: Option<String>, outcomes: Vec<Outcome>, selection: &Selection) -> Result<ResultFilter, Failure> {
    Ok(ResultFilter { run, cases: cases(selection)?, outcomes, final_only: true, ..ResultFilter::default() })
}

fn cases(selection: &Selection) -> Result<CaseFilter, Failure> {
    if selection.shard.is_some() || selection.sample.is_some() {
        let message = "--shard and --sample say what a run takes; a query asks by --run, --model, --architecture and the like";
        return Err(Failure::usage(message));
    }
    Ok(selection.cases())
}
