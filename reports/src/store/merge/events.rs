//! Taking events over, a page of a run at a time.

use std::collections::{BTreeMap, BTreeSet};

use modelfarm_matrix::event::Event;

use super::super::attempt_columns::cells;
use super::super::cell::values;
use super::super::row_batch::insert_rows;
use super::super::statement::{built, sql};
use super::super::table_columns::EVENTS;
use super::super::{Row, StoreError, Transaction};
use super::examined::{Examined, examine};
use super::keys::{MergedRun, Shards};
use super::{Merge, PAGE};

impl Merge {
    pub(super) async fn events(&mut self, run: &MergedRun, shards: &Shards) -> Result<(), StoreError> {
        let mut sequence = run.last_sequence;
        let mut next = page_after(&mut self.from, run, i64::MIN).await?;
        while let Some(end) = next.last().map(|arrival| arrival.facts.sequence) {
            // The source reads on while this store writes.
            let (taken, following) =
                tokio::join!(take(&mut self.into, run, shards, &next, sequence), page_after(&mut self.from, run, end));
            let taken = taken?;
            self.report.events_new += taken;
            self.report.events_present += next.len() as u64 - taken;
            sequence += i64::try_from(taken).unwrap_or_default();
            next = following?;
        }
        if sequence > run.last_sequence {
            let keep = sql("UPDATE runs SET last_sequence = $1 WHERE run_key = $2");
            self.into.execute(keep.bind(sequence).bind(run.key)).await?;
        }
        Ok(())
    }
}

/// What a merge has to know of an event of the source.
struct Arrival {
    sequence: i64,
    /// Its number in the database that it comes from.
    origin: i64,
}

impl Arrival {
    fn read(row: &Row) -> Result<Self, StoreError> {
        row.json::<Event>("payload")?;
        Ok(Self { sequence: row.int("sequence")?, origin: row.int("origin_sequence")? })
    }
}

/// Events of a run of the source behind a number, in their order.
async fn page_after(from: &mut Transaction, run: &MergedRun, sequence: i64) -> Result<Vec<Examined<Arrival>>, StoreError> {
    let page = sql("SELECT sequence, shard_key, origin_sequence, at, case_id, attempt, type, payload \
                    FROM events WHERE run_key = $1 AND sequence > $2 ORDER BY sequence LIMIT $3");
    let rows = from.all(page.bind(run.source_key).bind(sequence).bind(PAGE)).await?;
    examine(rows, Arrival::read).await
}

/// Writes those that are not here, with numbers that go on from the last; returns how many.
async fn take(
    into: &mut Transaction,
    run: &MergedRun,
    shards: &Shards,
    page: &[Examined<Arrival>],
    last_sequence: i64,
) -> Result<u64, StoreError> {
    let mut names = Vec::with_capacity(page.len());
    let mut unknown: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    for arrival in page {
        let (shard_key, origin) = (shards.of(&arrival.row)?, arrival.facts.origin);
        names.push((shard_key, origin));
        if !shards.is_new(shard_key) {
            unknown.entry(shard_key).or_default().push(origin);
        }
    }
    let here = here(into, unknown).await?;
    let mut sequence = last_sequence;
    let mut taken = Vec::with_capacity(page.len());
    for (arrival, name) in page.iter().zip(names).filter(|(_, name)| !here.contains(name)) {
        sequence += 1;
        let mut event = values![run.key, sequence, name.0];
        for cell in cells(&arrival.row, &EVENTS.columns[event.len()..]) {
            event.push(cell?);
        }
        taken.push(event);
    }
    let count = taken.len() as u64;
    insert_rows(into, &EVENTS, taken).await?;
    Ok(count)
}

/// Which of these events, by shard and number, are here.
async fn here(into: &mut Transaction, asked: BTreeMap<i64, Vec<i64>>) -> Result<BTreeSet<(i64, i64)>, StoreError> {
    let mut here = BTreeSet::new();
    for (shard_key, origins) in asked {
        let find = built("SELECT origin_sequence FROM events WHERE shard_key = ").bind(shard_key);
        for row in into.all(find.and_in("origin_sequence", origins)).await? {
            here.insert((shard_key, row.int("origin_sequence")?));
        }
    }
    Ok(here)
}
