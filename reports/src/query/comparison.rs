//! What changed between two runs: for each case what became of it, since when, and what else changed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

use modelfarm_matrix::axes::{Dtype, Mode, Workload};
use modelfarm_matrix::case::CaseId;
use modelfarm_matrix::change::{Change, FlakeRate, Night, Reading, change};
use modelfarm_matrix::model::ModelId;
use modelfarm_matrix::outcome::{Outcome, Standing};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::case_filter::narrow;
use super::complete_runs::{KnownRun, baseline_of, history, named_run, newest_run};
use super::package_change::{PackageChange, Pair, package_changes};
use super::since::Since;
use crate::store::statement::{built, sql};
use crate::store::{Row, Store, StoreError, Transaction, decompress, rfc3339};
use modelfarm_matrix::case_filter::CaseFilter;

/// So many complete runs before the baseline tell whether a case flakes.
pub const WINDOW: u32 = 30;
/// Cases in one statement.
const AT_ONCE: usize = 500;
const CLOCKS_DIFFER_MS: i64 = 86_400_000;

/// Which runs are compared, and of which cases.
#[derive(Debug, Clone, Default)]
pub struct Question {
    /// The newer run; the newest complete one where none is named.
    pub run: Option<String>,
    /// Of this matrix, where no run is named.
    pub matrix: Option<String>,
    /// The older run; the complete one before where nothing is said.
    pub since: Option<Since>,
    /// Complete runs before the baseline that tell whether a case flakes; `WINDOW` where nothing is said.
    pub window: Option<u32>,
    /// Of these cases.
    pub cases: CaseFilter,
}

/// A run in a comparison.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ComparedRun {
    /// The run.
    pub run_id: String,
    /// Start, RFC 3339 in UTC.
    pub started_at: String,
    /// Whether every planned case of it is final. What a run that is not complete lacks has not vanished.
    pub is_complete: bool,
}

/// What one run saw of a case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Side {
    /// The run.
    pub run_id: String,
    /// What counted in it.
    pub outcome: Outcome,
    /// Start of that attempt, RFC 3339 in UTC.
    pub started_at: String,
    /// The environment.
    pub environment_id: Option<String>,
    /// The model's commit.
    pub revision: Option<String>,
}

/// What became of a case: the JSON of `query regressions`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ChangeRow {
    /// The case.
    pub case_id: CaseId,
    /// `config.model_type`.
    pub architecture: String,
    /// The repository.
    pub model: ModelId,
    /// The target.
    pub target: String,
    /// How the backend executed.
    pub mode: Mode,
    /// What was run.
    pub workload: Workload,
    /// The compute dtype.
    pub dtype: Dtype,
    /// What became of it.
    pub change: Change,
    /// The baseline: the newest run up to it that said something of the target.
    pub before: Option<Side>,
    /// The newer run.
    pub after: Option<Side>,
    /// The first run of those that ended with the newer one and all said the same of the target.
    pub first: Option<Side>,
    /// The masked message of the newer run.
    pub signature: Option<String>,
    /// Packages whose version differs between the two attempts.
    pub environment_changes: Vec<PackageChange>,
    /// Whether the model's revision differs between the two attempts; none where either is unknown.
    pub model_changed: Option<bool>,
    /// Whether the host differs between the two attempts.
    pub host_changed: Option<bool>,
    /// Whether trying again in both environments showed the change: none where nobody tried.
    pub confirmed: Option<bool>,
    /// Tries that failed of those in the window, where the case flakes.
    pub flake_rate: Option<f64>,
}

/// Two runs, compared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The matrix of the newer run.
    pub matrix: String,
    /// The baseline.
    pub before: ComparedRun,
    /// Whether the baseline is as old as was asked for; else it is the oldest that there is.
    pub is_old_enough: bool,
    /// The newer run.
    pub after: ComparedRun,
    /// Cases in both runs.
    pub in_both: u64,
    /// Cases in both that passed and pass.
    pub still_passing: u64,
    /// What became of the others, and of those in one run alone.
    pub rows: Vec<ChangeRow>,
}

impl Comparison {
    /// How many cases became so.
    pub fn count(&self, change: Change) -> usize {
        self.rows.iter().filter(|row| row.change == change).count()
    }

    /// Whether a nightly job should fail: something regressed or is a new failure, and nobody found that it is not so.
    pub fn is_bad(&self) -> bool {
        self.rows.iter().any(|row| row.change.is_bad() && row.confirmed != Some(false))
    }
}

/// The attempt of a case that counts in one run.
struct Final {
    outcome: Outcome,
    architecture: String,
    retried: bool,
}

impl Store {
    /// Compares two runs of one matrix. Cases that passed and pass are only counted.
    ///
    /// # Errors
    /// A run is not there, or no complete run is old enough to be the baseline.
    pub async fn comparison(&self, question: &Question) -> Result<Comparison, StoreError> {
        let mut transaction = self.database.read().await?;
        let after = match &question.run {
            Some(reference) => named_run(&mut transaction, reference).await?,
            None => newest_run(&mut transaction, question.matrix.as_deref()).await?,
        };
        let (before, is_old_enough) = baseline_of(&mut transaction, &after, question.since.as_ref()).await?;
        compare(&mut transaction, question, &before, &after, is_old_enough).await
    }
}

async fn compare(
    transaction: &mut Transaction,
    question: &Question,
    before: &KnownRun,
    after: &KnownRun,
    is_old_enough: bool,
) -> Result<Comparison, StoreError> {
    let old = finals(transaction, question, before).await?;
    let new = finals(transaction, question, after).await?;
    let told = |case: &i64| -> bool {
        match (old.get(case), new.get(case)) {
            (Some(was), Some(is)) => was.outcome != Outcome::Pass || is.outcome != Outcome::Pass || is.retried,
            _ => true,
        }
    };
    let all: BTreeSet<i64> = old.keys().chain(new.keys()).copied().collect();
    let in_both = all.iter().filter(|case| old.contains_key(case) && new.contains_key(case)).count();
    let wanted: Vec<i64> = all.into_iter().filter(told).collect();
    let still_passing = in_both - wanted.iter().filter(|case| old.contains_key(case) && new.contains_key(case)).count();
    let window = question.window.unwrap_or(WINDOW);
    let runs = history(transaction, before, after, window).await?;
    let baseline = runs.iter().position(|run| run.run_key == before.run_key).unwrap_or_default();
    let planned = if after.is_complete { None } else { Some(planned_cases(transaction, after).await?) };
    let mut nights = nights(transaction, &runs, &wanted).await?;
    let facts = case_facts(transaction, &wanted).await?;
    let mut signatures = signatures(transaction, after, &wanted).await?;
    let mut rows = Vec::new();
    let (mut pairs, mut keys) = (Vec::new(), Vec::new());
    for case in wanted {
        let (Some(facts), seen) = (facts.get(&case), nights.remove(&case).unwrap_or_default()) else { continue };
        let is_planned = match &planned {
            None => new.contains_key(&case),
            Some(planned) => planned.contains(facts.canonical.as_str()),
        };
        if is_planned && !new.contains_key(&case) {
            continue; // a run that is not complete has not come to it
        }
        let since = seen.iter().take_while(|night| night.run <= baseline).count();
        let told: Vec<Night> = seen.iter().map(|night| night.night.clone()).collect();
        let recent = seen.iter().take_while(|night| night.run + (window as usize) < runs.len() - 1).count();
        let recent = recent.min(told.len().saturating_sub(1));
        let Some(change) = change(&told, since.saturating_sub(1), recent, is_planned).filter(|_| is_planned || since > 0)
        else {
            continue;
        };
        // Of nights that are all after the baseline none is the baseline.
        let change = match change {
            Change::Regressed | Change::StillFailing if since == 0 => Change::NewFailure,
            Change::Fixed if since == 0 => Change::NewPass,
            other => other,
        };
        let side = |index: usize, night: &Seen| Side {
            run_id: runs[index].run_id.clone(),
            outcome: night.last,
            started_at: rfc3339(night.started_at),
            environment_id: night.environment_id.clone(),
            revision: night.revision.clone(),
        };
        let was = seen[..since].iter().rfind(|night| night.night.reading() != Reading::Silent).or(seen[..since].last());
        let is = if is_planned { seen.last() } else { None };
        let first = is.map(|is| {
            let standing = is.last.standing();
            let row = seen.iter().rev().take_while(|night| night.last.standing() == standing);
            row.last().unwrap_or(is)
        });
        pairs.push((was.and_then(|night| night.environment_id.clone()), is.and_then(|night| night.environment_id.clone())));
        keys.push(case);
        let both = was.zip(is);
        let flakes = matches!(change, Change::Flaky).then(|| {
            let tries = told.iter().flat_map(|night| &night.outcomes).filter_map(|outcome| match outcome.standing() {
                Standing::Pass => Some(true),
                Standing::Fail => Some(false),
                Standing::Inconclusive => None,
            });
            FlakeRate::of(tries).of_failing()
        });
        let newest = new.get(&case).or(old.get(&case));
        rows.push(ChangeRow {
            case_id: facts.case_id.clone(),
            architecture: newest.map(|last| last.architecture.clone()).unwrap_or_default(),
            model: facts.model.clone(),
            target: facts.target.clone(),
            mode: facts.mode,
            workload: facts.workload,
            dtype: facts.dtype,
            change,
            before: was.map(|night| side(night.run, night)),
            after: is.map(|night| side(night.run, night)),
            first: first.map(|night| side(night.run, night)),
            signature: signatures.remove(&case),
            environment_changes: Vec::new(),
            model_changed: both.and_then(|(was, is)| Some(was.revision.as_ref()? != is.revision.as_ref()?)),
            host_changed: both.map(|(was, is)| was.host != is.host),
            confirmed: None,
            flake_rate: flakes,
        });
    }
    let confirmed = confirmations(transaction, &keys).await?;
    let changes = package_changes(transaction, &pairs).await?;
    for (((row, changes), pair), key) in rows.iter_mut().zip(changes).zip(pairs).zip(keys) {
        row.environment_changes = changes;
        row.confirmed = confirmed.get(&(key, pair)).copied().flatten();
    }
    rows.sort_by(|a, b| {
        let key = |row: &ChangeRow| (row.change, row.architecture.clone(), row.model.as_str().to_owned(), row.mode);
        key(a).cmp(&key(b)).then_with(|| a.case_id.as_str().cmp(b.case_id.as_str()))
    });
    let compared = |run: &KnownRun| ComparedRun {
        run_id: run.run_id.clone(),
        started_at: rfc3339(run.started_at),
        is_complete: run.is_complete,
    };
    Ok(Comparison {
        matrix: after.matrix.clone(),
        before: compared(before),
        is_old_enough,
        after: compared(after),
        in_both: in_both as u64,
        still_passing: still_passing as u64,
        rows,
    })
}

/// What counts in a run, by the case's key.
async fn finals(transaction: &mut Transaction, question: &Question, run: &KnownRun) -> Result<HashMap<i64, Final>, StoreError> {
    let query = built(
        "SELECT a.case_key, a.attempt, a.outcome, a.architecture \
         FROM attempts a JOIN cases c ON c.case_key = a.case_key WHERE a.is_final = 1 AND a.run_key = ",
    );
    let rows = transaction.all(narrow(&question.cases, query.bind(run.run_key))).await?;
    let read = |row: &Row| -> Result<(i64, Final), StoreError> {
        let last =
            Final { outcome: row.word("outcome")?, architecture: row.text("architecture")?, retried: row.int("attempt")? > 1 };
        Ok((row.int("case_key")?, last))
    };
    rows.iter().map(read).collect()
}

/// The masked messages of a run's attempts that count, of those of some cases that say one.
async fn signatures(transaction: &mut Transaction, run: &KnownRun, cases: &[i64]) -> Result<HashMap<i64, String>, StoreError> {
    let mut found = HashMap::new();
    for cases in cases.chunks(AT_ONCE) {
        let query =
            built("SELECT case_key, signature FROM attempts WHERE signature IS NOT NULL AND is_final = 1 AND run_key = ");
        for row in transaction.all(query.bind(run.run_key).and_in("case_key", cases.iter().copied())).await? {
            found.insert(row.int("case_key")?, row.text("signature")?);
        }
    }
    Ok(found)
}

/// What the newest trial of some cases in two environments came to.
async fn confirmations(transaction: &mut Transaction, cases: &[i64]) -> Result<HashMap<(i64, Pair), Option<bool>>, StoreError> {
    let mut found = HashMap::new();
    for cases in cases.chunks(AT_ONCE) {
        let query = built("SELECT case_key, before_environment, after_environment, confirmed FROM confirmations WHERE 1 = 1");
        let query = query.and_in("case_key", cases.iter().copied()).text(" ORDER BY at, confirmation_id");
        for row in transaction.all(query).await? {
            let pair = (row.optional_text("before_environment")?, row.optional_text("after_environment")?);
            found.insert((row.int("case_key")?, pair), row.optional_int("confirmed")?.map(|confirmed| confirmed == 1));
        }
    }
    Ok(found)
}

/// The canonical strings of the cases that a run is to take.
async fn planned_cases(transaction: &mut Transaction, run: &KnownRun) -> Result<BTreeSet<String>, StoreError> {
    let query = sql("SELECT p.cases FROM runs r JOIN plans p ON p.plan_id = r.plan_id WHERE r.run_key = $1");
    let cases = decompress("cases", &transaction.one(query.bind(run.run_key)).await?.bytes("cases")?)?;
    Ok(String::from_utf8_lossy(&cases).lines().map(str::to_owned).collect())
}

/// What a run saw of a case, with what it ran on.
struct Seen {
    /// The run, by its place in the history.
    run: usize,
    night: Night,
    /// What counted.
    last: Outcome,
    started_at: i64,
    environment_id: Option<String>,
    revision: Option<String>,
    host: String,
}

/// What each run of a history saw of some cases, oldest first.
async fn nights(
    transaction: &mut Transaction,
    runs: &[KnownRun],
    cases: &[i64],
) -> Result<HashMap<i64, Vec<Seen>>, StoreError> {
    let places: HashMap<i64, usize> = runs.iter().enumerate().map(|(place, run)| (run.run_key, place)).collect();
    // The clocks of shards differ; the index only has to leave most of the past out.
    let oldest = runs.iter().map(|run| run.started_at).min().unwrap_or_default() - CLOCKS_DIFFER_MS;
    let mut found: BTreeMap<(i64, usize), Vec<(i64, Seen)>> = BTreeMap::new();
    for cases in cases.chunks(AT_ONCE) {
        let query = built(
            "SELECT a.case_key, a.run_key, a.attempt, a.outcome, a.started_at, a.environment_id, a.revision, a.host \
             FROM attempts a WHERE a.started_at >= ",
        );
        let query = query.bind(oldest).and_in("a.case_key", cases.iter().copied());
        for row in transaction.all(query).await? {
            let Some(run) = places.get(&row.int("run_key")?).copied() else { continue };
            let (environment_id, revision) = (row.optional_text("environment_id")?, row.optional_text("revision")?);
            let mut ground = DefaultHasher::new();
            (&environment_id, &revision).hash(&mut ground);
            let outcome: Outcome = row.word("outcome")?;
            let seen = Seen {
                run,
                night: Night { outcomes: vec![outcome], ground: ground.finish() },
                last: outcome,
                started_at: row.int("started_at")?,
                environment_id,
                revision,
                host: row.text("host")?,
            };
            found.entry((row.int("case_key")?, run)).or_default().push((row.int("attempt")?, seen));
        }
    }
    let mut nights: HashMap<i64, Vec<Seen>> = HashMap::new();
    for ((case, _), mut tries) in found {
        tries.sort_by_key(|(attempt, _)| *attempt);
        let outcomes = tries.iter().map(|(_, seen)| seen.last).collect();
        let Some((_, mut last)) = tries.pop() else { continue };
        last.night.outcomes = outcomes;
        nights.entry(case).or_default().push(last);
    }
    Ok(nights)
}

/// What a case is, beside its attempts.
struct CaseFacts {
    case_id: CaseId,
    canonical: String,
    model: ModelId,
    target: String,
    mode: Mode,
    workload: Workload,
    dtype: Dtype,
}

async fn case_facts(transaction: &mut Transaction, cases: &[i64]) -> Result<HashMap<i64, CaseFacts>, StoreError> {
    let mut facts = HashMap::new();
    for cases in cases.chunks(AT_ONCE) {
        let query = built("SELECT case_key, case_id, canonical, model, target, mode, workload, dtype FROM cases WHERE 1 = 1");
        for row in transaction.all(query.and_in("case_key", cases.iter().copied())).await? {
            let case = CaseFacts {
                case_id: row.word("case_id")?,
                canonical: row.text("canonical")?,
                model: row.word("model")?,
                target: row.text("target")?,
                mode: row.word("mode")?,
                workload: row.word("workload")?,
                dtype: row.word("dtype")?,
            };
            facts.insert(row.int("case_key")?, case);
        }
    }
    Ok(facts)
}
