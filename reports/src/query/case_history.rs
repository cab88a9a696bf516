//! Which cases a question about time is about, and how they turned: the rows of nights that all passed, or all failed.

use std::collections::BTreeMap;

use modelfarm_matrix::axes::{Dtype, Mode, Workload};
use modelfarm_matrix::case::CaseId;
use modelfarm_matrix::model::ModelId;
use modelfarm_matrix::outcome::{Outcome, Standing};
use modelfarm_matrix::works::Works;

use super::case_filter::select_cases;
use crate::store::statement::{Statement, built};
use crate::store::{Row, StoreError, Transaction};
use modelfarm_matrix::case_filter::CaseFilter;

/// Cases in one statement.
const AT_ONCE: usize = 500;

/// Which cases, and from when.
#[derive(Debug, Clone, Default)]
pub struct HistoryFilter {
    /// Runs of this matrix; none means every one.
    pub matrix: Option<String>,
    /// Attempts that started at or after this, UTC milliseconds.
    pub from: i64,
    /// Of these cases.
    pub cases: CaseFilter,
}

impl HistoryFilter {
    /// Adds when and of which matrix to a statement over the attempts `a` of some cases, which `history_cases` selected: each is told
    /// whole, also where a model changed its architecture.
    pub(crate) fn narrow(&self, statement: Statement, cases: &[i64]) -> Statement {
        let query = statement.text(" AND a.started_at >= ").bind(self.from).and_in("a.case_key", cases.iter().copied());
        match &self.matrix {
            Some(matrix) => {
                query.text(" AND a.run_key IN (SELECT r.run_key FROM runs r WHERE r.matrix = ").bind(matrix).text(")")
            }
            None => query,
        }
    }
}

/// A case, as questions about time tell it.
#[derive(Debug, Clone)]
pub(crate) struct HistoryCase {
    pub(crate) case_id: CaseId,
    pub(crate) model: ModelId,
    pub(crate) target: String,
    pub(crate) mode: Mode,
    pub(crate) workload: Workload,
    pub(crate) dtype: Dtype,
}

/// The cases that a filter lets through, by their keys.
pub(crate) async fn history_cases(
    transaction: &mut Transaction,
    filter: &HistoryFilter,
) -> Result<BTreeMap<i64, HistoryCase>, StoreError> {
    let query = select_cases(&filter.cases, "c.case_key, c.case_id, c.model, c.target, c.mode, c.workload, c.dtype");
    let read = |row: &Row| -> Result<(i64, HistoryCase), StoreError> {
        let case = HistoryCase {
            case_id: row.word("case_id")?,
            model: row.word("model")?,
            target: row.text("target")?,
            mode: row.word("mode")?,
            workload: row.word("workload")?,
            dtype: row.word("dtype")?,
        };
        Ok((row.int("case_key")?, case))
    };
    transaction.all(query).await?.iter().map(read).collect()
}

/// The first night of a row of nights that passed, or of one that failed. What says nothing of the target is passed over.
#[derive(Debug, Clone)]
pub(crate) struct Turn {
    pub(crate) works: Works,
    pub(crate) night: CountedNight,
    /// The last night before it, which ended otherwise; none for the first of all.
    pub(crate) before: Option<CountedNight>,
    /// Its place among the nights that say something, from 1.
    place: u64,
}

/// What counted in one run.
#[derive(Debug, Clone)]
pub(crate) struct CountedNight {
    pub(crate) run_key: i64,
    pub(crate) started_at: i64,
    pub(crate) environment_id: Option<String>,
}

/// How a case turned, oldest first.
pub(crate) struct TurningCase {
    pub(crate) case: HistoryCase,
    /// The newest attempt's.
    pub(crate) architecture: String,
    /// What the newest night that says something came to.
    pub(crate) outcome: Outcome,
    /// At least one.
    pub(crate) turns: Vec<Turn>,
    /// Nights that say something.
    nights: u64,
}

impl TurningCase {
    /// The turn since which it stands as it does.
    pub(crate) fn newest(&self) -> &Turn {
        &self.turns[self.turns.len() - 1]
    }

    /// Nights since then that say something.
    pub(crate) fn nights_since(&self) -> u64 {
        self.nights + 1 - self.newest().place
    }
}

/// How the cases that a filter lets through turned, by architecture, model, target and mode; a case of which nothing is known is left out.
///
/// The database finds the turns, so that a year of nights on which nothing changed is not carried here; and it numbers the nights
/// of those cases alone that turned, which costs it several times what counting does.
pub(crate) async fn turning_cases(
    transaction: &mut Transaction,
    filter: &HistoryFilter,
) -> Result<Vec<TurningCase>, StoreError> {
    let cases = history_cases(transaction, filter).await?;
    let keys: Vec<i64> = cases.keys().copied().collect();
    let mut found: BTreeMap<i64, TurningCase> = BTreeMap::new();
    let mut turned = Vec::new();
    for keys in keys.chunks(AT_ONCE) {
        for row in transaction.all(summaries_of(filter, keys)).await? {
            let key = row.int("case_key")?;
            let Some(case) = cases.get(&key) else { continue };
            match steady(case, &row)? {
                Some(steady) => drop(found.insert(key, steady)),
                None => turned.push(key),
            }
        }
    }
    for keys in turned.chunks(AT_ONCE) {
        for row in transaction.all(turns_of(filter, keys)).await? {
            let key = row.int("case_key")?;
            let Some(case) = cases.get(&key) else { continue };
            let turning = found.entry(key).or_insert_with(|| TurningCase {
                case: case.clone(),
                architecture: String::new(),
                outcome: Outcome::Pass,
                turns: Vec::new(),
                nights: 0,
            });
            turning.add(&row)?;
        }
    }
    let mut found: Vec<TurningCase> = found.into_values().collect();
    found.sort_by(|a, b| {
        let key = |turning: &TurningCase| (turning.case.target.clone(), turning.case.mode);
        (&a.architecture, a.case.model.as_str(), key(a), a.case.case_id.as_str()).cmp(&(
            &b.architecture,
            b.case.model.as_str(),
            key(b),
            b.case.case_id.as_str(),
        ))
    });
    Ok(found)
}

impl TurningCase {
    /// Takes the next row of `turns_of`: a turn, the last night, or both.
    fn add(&mut self, row: &Row) -> Result<(), StoreError> {
        let (outcome, place) = (row.word("outcome")?, row.unsigned("place")?);
        let works = works(outcome);
        if self.turns.last().is_none_or(|turn| turn.works != works) {
            let before = match row.optional_int("run_before")? {
                None => None,
                Some(run_key) => Some(CountedNight {
                    run_key,
                    started_at: row.int("started_before")?,
                    environment_id: row.optional_text("environment_before")?,
                }),
            };
            let night = CountedNight {
                run_key: row.int("run_key")?,
                started_at: row.int("started_at")?,
                environment_id: row.optional_text("environment_id")?,
            };
            self.turns.push(Turn { works, night, before, place });
        }
        self.architecture = row.text("architecture")?;
        self.outcome = outcome;
        self.nights = place;
        Ok(())
    }
}

fn works(outcome: Outcome) -> Works {
    match outcome {
        Outcome::Pass => Works::Works,
        _ => Works::Broken,
    }
}

/// Leaves attempts `a` out that say nothing of the target. Not by the outcomes that do: there is an index of outcomes, which a
/// database then prefers to that of the cases.
pub(crate) fn telling(statement: Statement) -> Statement {
    let silent = Outcome::ALL.iter().filter(|outcome| outcome.standing() == Standing::Inconclusive);
    statement.and_not_in("a.outcome", silent.map(|outcome| outcome.as_str()))
}

/// A case that always ended alike; none where it turned.
fn steady(case: &HistoryCase, row: &Row) -> Result<Option<TurningCase>, StoreError> {
    let (nights, passed) = (row.unsigned("nights")?, row.unsigned("passed")?);
    if passed > 0 && passed < nights {
        return Ok(None);
    }
    let night = CountedNight {
        run_key: row.int("run_key")?,
        started_at: row.int("started_at")?,
        environment_id: row.optional_text("environment_id")?,
    };
    let outcome = row.word("outcome")?;
    let turns = vec![Turn { works: works(outcome), night, before: None, place: 1 }];
    Ok(Some(TurningCase { case: case.clone(), architecture: row.text("architecture")?, outcome, turns, nights }))
}

/// Of each of some cases how many nights say something, how many of these passed, the first and the last.
fn summaries_of(filter: &HistoryFilter, cases: &[i64]) -> Statement {
    let query = built(
        "SELECT s.case_key, s.nights, s.passed, f.run_key, f.started_at, f.environment_id, l.outcome, l.architecture FROM \
         (SELECT a.case_key, COUNT(*) AS nights, COUNT(CASE WHEN a.outcome = 'pass' THEN 1 END) AS passed, \
         MIN(a.started_at) AS first_at, MAX(a.started_at) AS last_at FROM attempts a WHERE a.is_final = 1",
    );
    telling(filter.narrow(query, cases)).text(
        " GROUP BY a.case_key) s \
         JOIN attempts f ON f.case_key = s.case_key AND f.started_at = s.first_at AND f.is_final = 1 \
         JOIN attempts l ON l.case_key = s.case_key AND l.started_at = s.last_at AND l.is_final = 1",
    )
}

/// The turns of some cases, and the last night of each, by case and time.
fn turns_of(filter: &HistoryFilter, cases: &[i64]) -> Statement {
    let query = built(
        "SELECT t.case_key, t.run_key, t.started_at, t.outcome, t.environment_id, t.architecture, t.place, t.run_before, \
         t.started_before, t.environment_before FROM (SELECT a.case_key, a.run_key, a.started_at, a.outcome, a.environment_id, \
         a.architecture, ROW_NUMBER() OVER nights AS place, LAG(a.outcome) OVER nights AS outcome_before, \
         LAG(a.run_key) OVER nights AS run_before, LAG(a.started_at) OVER nights AS started_before, \
         LAG(a.environment_id) OVER nights AS environment_before, LEAD(a.run_key) OVER nights AS run_after \
         FROM attempts a WHERE a.is_final = 1",
    );
    telling(filter.narrow(query, cases)).text(
        " WINDOW nights AS (PARTITION BY a.case_key ORDER BY a.started_at, a.run_key)) t \
         WHERE t.run_after IS NULL OR t.outcome_before IS NULL OR (t.outcome = 'pass') <> (t.outcome_before = 'pass') \
         ORDER BY t.case_key, t.place",
    )
}
