//! Runs as `query runs` prints them: what a run came to, from the attempts that count and the life of its shards.

use std::collections::BTreeMap;

use modelfarm_matrix::event::Tally;
use modelfarm_matrix::expectation::Verdict;
use modelfarm_matrix::outcome::Outcome;
use serde_json::Value;

use super::run_reference::find_run;
use crate::rows::{RunRow, RunState};
use crate::store::liveness::is_alive;
use crate::store::statement::sql;
use crate::store::{Row, Store, StoreError, Transaction, now_ms, rfc3339};

impl Store {
    /// The newest runs, newest first.
    pub async fn runs(&self, limit: Option<u64>) -> Result<Vec<RunRow>, StoreError> {
        self.runs_behind(0, limit).await
    }

    /// The same without the newest `passed_over` runs.
    pub async fn runs_behind(&self, passed_over: u64, limit: Option<u64>) -> Result<Vec<RunRow>, StoreError> {
        let mut transaction = self.database.read().await?;
        let query = sql("SELECT run_key, run_id, matrix, selection, plan_id, planned, finished, started_at FROM runs \
                         ORDER BY started_at DESC, run_id DESC LIMIT $1 OFFSET $2");
        let mut rows = Vec::new();
        for row in transaction.all(query.bind(limit.unwrap_or(i64::MAX as u64)).bind(passed_over)).await? {
            rows.push(run_row(&mut transaction, &row).await?);
        }
        Ok(rows)
    }

    /// One run, by its id, the beginning of it, `latest` or `latest~N`.
    pub async fn run(&self, reference: &str) -> Result<RunRow, StoreError> {
        let mut transaction = self.database.read().await?;
        let found = find_run(&mut transaction, reference).await?;
        let query = sql(
            "SELECT run_key, run_id, matrix, selection, plan_id, planned, finished, started_at FROM runs WHERE run_key = $1",
        );
        let row = transaction.one(query.bind(found.run_key)).await?;
        run_row(&mut transaction, &row).await
    }
}

impl Store {
    /// How many runs there are.
    pub async fn run_count(&self) -> Result<u64, StoreError> {
        let mut transaction = self.database.read().await?;
        transaction.one(sql("SELECT COUNT(*) AS runs FROM runs")).await?.unsigned("runs")
    }

    /// How far a run came, without what `run` computes of its attempts.
    pub async fn run_state(&self, reference: &str) -> Result<RunState, StoreError> {
        let mut transaction = self.database.read().await?;
        let found = find_run(&mut transaction, reference).await?;
        let query = sql("SELECT run_key, planned, finished FROM runs WHERE run_key = $1");
        let row = transaction.one(query.bind(found.run_key)).await?;
        run_state(&mut transaction, &row).await
    }
}

/// One start of a shard, as it stands now.
struct Session {
    shard: String,
    host: String,
    started_at: i64,
    /// When it ended, or was last heard of; now for one that lives.
    last_at: i64,
    state: RunState,
    facts: Value,
}

async fn run_row(transaction: &mut Transaction, run: &Row) -> Result<RunRow, StoreError> {
    let run_key = run.int("run_key")?;
    let sessions = sessions(transaction, run_key).await?;
    let tally = tally(transaction, run_key).await?;
    let (planned, finished) = (run.unsigned("planned")?, run.unsigned("finished")?);
    let state = state(&sessions, planned, finished);
    let started_at = sessions.iter().map(|session| session.started_at).min().map_or_else(|| run.int("started_at"), Ok)?;
    let ended_at = match state {
        RunState::Running => None,
        _ => sessions.iter().map(|session| session.last_at).max(),
    };
    let active_ms = covered_ms(sessions.iter().map(|session| (session.started_at, session.last_at)).collect());
    let mut shards: Vec<String> = sessions.iter().map(|session| session.shard.clone()).collect();
    shards.sort_by_cached_key(|shard| (shard_number(shard), shard.clone()));
    shards.dedup();
    let mut hosts: Vec<String> = sessions.iter().map(|session| session.host.clone()).collect();
    hosts.sort();
    hosts.dedup();
    Ok(RunRow {
        run_id: run.text("run_id")?,
        matrix: run.text("matrix")?,
        selection: run.text("selection")?,
        plan_id: run.text("plan_id")?,
        state,
        started_at: rfc3339(started_at),
        ended_at: ended_at.map(rfc3339),
        planned,
        finished,
        pass: tally.pass,
        fail: tally.fail,
        inconclusive: tally.inconclusive,
        unexpected: tally.unexpected,
        farm_overhead_ms_median: median_overhead(transaction, run_key).await?,
        cases_per_hour: (finished > 0 && active_ms > 0).then(|| finished as f64 * 3_600_000.0 / active_ms as f64),
        shards,
        hosts,
        environments: environments(transaction, run_key).await?,
        facts: facts(&sessions),
    })
}

async fn sessions(transaction: &mut Transaction, run_key: i64) -> Result<Vec<Session>, StoreError> {
    let query = sql("SELECT shard, host, pid, started_at, heartbeat_at, ended_at, state, facts FROM run_shards \
                     WHERE run_key = $1 ORDER BY started_at, session_id");
    let mut sessions = Vec::new();
    for row in transaction.all(query.bind(run_key)).await? {
        let (host, heartbeat_at) = (row.text("host")?, row.int("heartbeat_at")?);
        let (state, last_at) = match row.optional_int("ended_at")? {
            Some(ended_at) => (row.word("state")?, ended_at),
            None if is_alive(&host, row.int("pid")?, heartbeat_at) => (RunState::Running, now_ms()),
            None => (RunState::Interrupted, heartbeat_at),
        };
        let (shard, started_at) = (row.text("shard")?, row.int("started_at")?);
        sessions.push(Session { shard, host, started_at, last_at, state, facts: row.json("facts")? });
    }
    Ok(sessions)
}

/// Complete only when every planned case of all shards is final; of each shard the last start counts.
fn state(sessions: &[Session], planned: u64, finished: u64) -> RunState {
    let last: BTreeMap<&str, RunState> = sessions.iter().map(|session| (session.shard.as_str(), session.state)).collect();
    if last.values().any(|state| *state == RunState::Running) {
        RunState::Running
    } else if finished >= planned {
        RunState::Complete
    } else if last.values().any(|state| *state == RunState::Interrupted) {
        RunState::Interrupted
    } else {
        RunState::Partial
    }
}

/// How far a run came, of which `run` holds key, planned and finished cases.
pub(super) async fn run_state(transaction: &mut Transaction, run: &Row) -> Result<RunState, StoreError> {
    let sessions = sessions(transaction, run.int("run_key")?).await?;
    Ok(state(&sessions, run.unsigned("planned")?, run.unsigned("finished")?))
}

/// Whether every planned case of all shards of a run is final.
pub(super) async fn is_complete(transaction: &mut Transaction, run_key: i64) -> Result<bool, StoreError> {
    let query =
        sql("SELECT r.planned, (SELECT COUNT(*) FROM attempts a WHERE a.run_key = r.run_key AND a.is_final = 1) AS finished \
                     FROM runs r WHERE r.run_key = $1");
    let run = transaction.one(query.bind(run_key)).await?;
    let sessions = sessions(transaction, run_key).await?;
    Ok(state(&sessions, run.unsigned("planned")?, run.unsigned("finished")?) == RunState::Complete)
}

async fn tally(transaction: &mut Transaction, run_key: i64) -> Result<Tally, StoreError> {
    let query = sql("SELECT outcome, verdict, COUNT(*) AS cases FROM attempts WHERE run_key = $1 AND is_final = 1 \
                     GROUP BY outcome, verdict");
    let mut tally = Tally::default();
    for row in transaction.all(query.bind(run_key)).await? {
        let (outcome, verdict): (Outcome, Verdict) = (row.word("outcome")?, row.word("verdict")?);
        for _ in 0..row.unsigned("cases")? {
            tally.add(outcome, verdict.is_unexpected());
        }
    }
    Ok(tally)
}

/// The median over the attempts that count; between the middle two where their number is even.
async fn median_overhead(transaction: &mut Transaction, run_key: i64) -> Result<Option<f64>, StoreError> {
    let count = sql("SELECT COUNT(farm_overhead_ms) AS measured FROM attempts WHERE run_key = $1 AND is_final = 1");
    let measured = transaction.one(count.bind(run_key)).await?.int("measured")?;
    if measured == 0 {
        return Ok(None);
    }
    let middle = sql("SELECT farm_overhead_ms FROM attempts WHERE run_key = $1 AND is_final = 1 \
                      AND farm_overhead_ms IS NOT NULL ORDER BY farm_overhead_ms LIMIT $2 OFFSET $3");
    let rows = transaction.all(middle.bind(run_key).bind(2 - measured % 2).bind((measured - 1) / 2)).await?;
    let values = rows.iter().map(|row| row.real("farm_overhead_ms")).collect::<Result<Vec<_>, _>>()?;
    Ok(Some(values.iter().sum::<f64>() / values.len() as f64))
}

async fn environments(transaction: &mut Transaction, run_key: i64) -> Result<Vec<String>, StoreError> {
    let query = sql("SELECT DISTINCT environment_id FROM attempts WHERE run_key = $1 AND environment_id IS NOT NULL \
                     ORDER BY environment_id");
    transaction.all(query.bind(run_key)).await?.iter().map(|row| row.text("environment_id")).collect()
}

/// The facts of the one host, or of each shard by its name where they differ.
fn facts(sessions: &[Session]) -> Value {
    let by_shard: BTreeMap<&str, &Value> = sessions.iter().map(|session| (session.shard.as_str(), &session.facts)).collect();
    let mut values = by_shard.values();
    match values.next() {
        None => Value::Null,
        Some(first) if values.all(|value| value == first) => (*first).clone(),
        Some(_) => Value::Object(by_shard.into_iter().map(|(shard, facts)| (shard.to_owned(), facts.clone())).collect()),
    }
}

/// The time in which at least one shard ran: pauses between a kill and a resume do not count, overlaps count once.
fn covered_ms(mut spans: Vec<(i64, i64)>) -> i64 {
    spans.sort_unstable();
    let (mut covered, mut end) = (0i64, i64::MIN);
    for (from, to) in spans {
        let from = from.max(end);
        if to > from {
            covered = covered.saturating_add(to.saturating_sub(from));
            end = to;
        }
    }
    covered
}

fn shard_number(shard: &str) -> u64 {
    shard.split('/').next().and_then(|number| number.parse().ok()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_do_not_count_and_overlaps_count_once() {
        assert_eq!(covered_ms(vec![(50, 60), (0, 10), (5, 20), (6, 7)]), 30);
        assert_eq!(covered_ms(vec![]), 0);
        assert_eq!(covered_ms(vec![(10, 5)]), 0);
    }

    #[test]
    fn shards_are_listed_by_number() {
        let mut shards = vec!["10/12", "2/12", "1/12"];
        shards.sort_by_key(|shard| shard_number(shard));
        assert_eq!(shards, ["1/12", "2/12", "10/12"]);
    }
}
