//! Taking events over, a page of a run at a time.

use std::collections::{BTreeMap, BTreeSet};

use modelfarm_matrix::event::Event;

use super::super::StoreError;
use super::super::attempt_columns::cells;
use super::super::cell::values;
use super::super::row_batch::insert_rows;
use super::super::statement::{built, sql};
use super::super::table_columns::EVENTS;
use super::keys::{MergedRun, Shards};
use super::{Merge, PAGE};

impl Merge {
    pub(super) async fn events(&mut self, run: &MergedRun, shards: &Shards) -> Result<(), StoreError> {
        let mut sequence = run.last_sequence;
        let mut last = i64::MIN;
        loop {
            let page = sql("SELECT sequence, shard_key, origin_sequence, at, case_id, attempt, type, payload \
                            FROM events WHERE run_key = $1 AND sequence > $2 ORDER BY sequence LIMIT $3");
            let rows = self.from.all(page.bind(run.source_key).bind(last).bind(PAGE)).await?;
            let mut arrivals = Vec::with_capacity(rows.len());
            let mut unknown: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
            for row in &rows {
                last = row.int("sequence")?;
                row.json::<Event>("payload")?;
                let (shard_key, origin) = (shards.of(row)?, row.int("origin_sequence")?);
                arrivals.push((shard_key, origin, row));
                if !shards.is_new(shard_key) {
                    unknown.entry(shard_key).or_default().push(origin);
                }
            }
            if rows.is_empty() {
                break;
            }
            let here = self.events_here(unknown).await?;
            let mut taken = Vec::with_capacity(rows.len());
            for (shard_key, origin, row) in arrivals {
                if here.contains(&(shard_key, origin)) {
                    self.report.events_present += 1;
                    continue;
                }
                sequence += 1;
                self.report.events_new += 1;
                let mut event = values![run.key, sequence, shard_key];
                for cell in cells(row, &EVENTS.columns[event.len()..]) {
                    event.push(cell?);
                }
                taken.push(event);
            }
            insert_rows(&mut self.into, &EVENTS, taken).await?;
        }
        if sequence > run.last_sequence {
            let keep = sql("UPDATE runs SET last_sequence = $1 WHERE run_key = $2");
            self.into.execute(keep.bind(sequence).bind(run.key)).await?;
        }
        Ok(())
    }

    /// Which of these events, by shard and number, are here.
    async fn events_here(&mut self, asked: BTreeMap<i64, Vec<i64>>) -> Result<BTreeSet<(i64, i64)>, StoreError> {
        let mut here = BTreeSet::new();
        for (shard_key, origins) in asked {
            let find = built("SELECT origin_sequence FROM events WHERE shard_key = ").bind(shard_key);
            for row in self.into.all(find.and_in("origin_sequence", origins)).await? {
                here.insert((shard_key, row.int("origin_sequence")?));
            }
        }
        Ok(here)
    }
}
