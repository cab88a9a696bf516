//! Taking attempts over, a page of a run at a time.

use std::collections::{BTreeMap, BTreeSet};

use super::super::attempt_columns::{attempt_detail, cells, result_columns};
use super::super::cell::{Cell, values};
use super::super::finishing::{count_finals, mark_finals};
use super::super::row_batch::insert_rows;
use super::super::statement::built;
use super::super::table_columns::{ATTEMPT_DETAILS, ATTEMPTS};
use super::super::{Row, StoreError};
use super::keys::{Keys, MergedRun};
use super::{Merge, PAGE};

impl Merge {
    pub(super) async fn attempts(&mut self, run: &MergedRun, cases: &Keys) -> Result<(), StoreError> {
        // The tries of a case follow each other, so that a case of a new run is in one page, or in pages that follow each other.
        let mut last = (i64::MIN, i64::MIN);
        let mut is_changed = false;
        loop {
            let page = built(concat!(
                "SELECT ",
                result_columns!(),
                ", a.attempt_id, a.case_key, a.is_retried, d.expectation_reason, d.evidence, d.facts, d.output, d.leaves",
                " FROM attempts a JOIN cases c ON c.case_key = a.case_key JOIN runs r ON r.run_key = a.run_key",
                " JOIN attempt_details d ON d.attempt_key = a.attempt_key WHERE a.run_key = "
            ));
            let page = page.bind(run.source_key).text(" AND (a.case_key, a.attempt) > (").bind(last.0).text(", ").bind(last.1);
            let page = page.text(") ORDER BY a.case_key, a.attempt LIMIT ").bind(PAGE);
            let rows = self.from.all(page).await?;
            let arrivals = rows.iter().map(|row| Arrival::read(row, cases)).collect::<Result<Vec<_>, _>>()?;
            let (Some(first), Some(newest)) = (rows.first(), rows.last()) else { break };
            let unknown: BTreeSet<i64> = match run.is_new {
                false => arrivals.iter().map(|arrival| arrival.case_key).collect(),
                true if first.int("case_key")? == last.0 => arrivals.iter().map(|arrival| arrival.case_key).take(1).collect(),
                true => BTreeSet::new(),
            };
            last = (newest.int("case_key")?, newest.int("attempt")?);
            let choice = Choice::of(arrivals, self.standing(run.key, unknown).await?);
            self.report.attempts_new += choice.new;
            self.report.attempts_present += choice.present;
            self.report.attempts_conflicting += choice.conflicting;
            is_changed |= !choice.taken.is_empty();
            self.take(run.key, choice).await?;
        }
        if is_changed {
            count_finals(&mut self.into, run.key).await?;
        }
        Ok(())
    }

    /// The attempts of cases of a run that are here.
    async fn standing(&mut self, run_key: i64, cases: BTreeSet<i64>) -> Result<Vec<Standing>, StoreError> {
        if cases.is_empty() {
            return Ok(Vec::new());
        }
        let here = built("SELECT attempt_key, case_key, attempt, attempt_id, started_at FROM attempts WHERE run_key = ");
        let here = here.bind(run_key).and_in("case_key", cases);
        self.into.all(here).await?.iter().map(Standing::read).collect()
    }

    /// Carries a choice out.
    async fn take(&mut self, run_key: i64, choice: Choice<'_>) -> Result<(), StoreError> {
        if !choice.replaced.is_empty() {
            // Their details and artifacts go with them.
            let delete = built("DELETE FROM attempts WHERE 1 = 1").and_in("attempt_key", choice.replaced.iter().copied());
            self.into.execute(delete).await?;
        }
        let mut rows = Vec::with_capacity(choice.taken.len());
        for Taken { arrival, is_final } in &choice.taken {
            let mut row = values![run_key, arrival.case_key, *is_final];
            for cell in cells(arrival.row, &ATTEMPTS.columns[row.len()..]) {
                row.push(cell?);
            }
            rows.push(row);
        }
        let mut keys = BTreeMap::new();
        for row in insert_rows(&mut self.into, &ATTEMPTS, rows).await? {
            keys.insert(row.text("attempt_id")?, row.int("attempt_key")?);
        }
        let mut details = Vec::with_capacity(choice.taken.len());
        for Taken { arrival, .. } in &choice.taken {
            let mut row = vec![Cell::Int(keys.get(&arrival.attempt_id).copied())];
            for cell in cells(arrival.row, &ATTEMPT_DETAILS.columns[row.len()..]) {
                row.push(cell?);
            }
            details.push(row);
        }
        insert_rows(&mut self.into, &ATTEMPT_DETAILS, details).await?;
        mark_finals(&mut self.into, run_key, choice.joined).await
    }
}

/// An attempt of the source, which can be read.
struct Arrival<'a> {
    row: &'a Row,
    /// Its case here.
    case_key: i64,
    attempt: i64,
    attempt_id: String,
    started_at: i64,
    is_retried: bool,
}

impl<'a> Arrival<'a> {
    fn read(row: &'a Row, cases: &Keys) -> Result<Self, StoreError> {
        // What cannot be read here could not be read later, when it would spoil every query.
        attempt_detail(row)?;
        Ok(Self {
            row,
            case_key: cases.of(row)?,
            attempt: row.int("attempt")?,
            attempt_id: row.text("attempt_id")?,
            started_at: row.int("started_at")?,
            is_retried: row.int("is_retried")? != 0,
        })
    }
}

/// An attempt that is here.
struct Standing {
    attempt_key: i64,
    case_key: i64,
    attempt: i64,
    attempt_id: String,
    started_at: i64,
}

impl Standing {
    fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(Self {
            attempt_key: row.int("attempt_key")?,
            case_key: row.int("case_key")?,
            attempt: row.int("attempt")?,
            attempt_id: row.text("attempt_id")?,
            started_at: row.int("started_at")?,
        })
    }
}

/// What becomes of a page.
#[derive(Default)]
struct Choice<'a> {
    new: u64,
    present: u64,
    conflicting: u64,
    taken: Vec<Taken<'a>>,
    /// Keys of attempts here that give way.
    replaced: Vec<i64>,
    /// Cases that have attempts here and get more: which one counts is told by the database.
    joined: BTreeSet<i64>,
}

/// An attempt that is taken over.
struct Taken<'a> {
    arrival: Arrival<'a>,
    /// Whether it counts, as far as this page tells.
    is_final: bool,
}

impl<'a> Choice<'a> {
    fn of(arrivals: Vec<Arrival<'a>>, standing: Vec<Standing>) -> Self {
        let known: BTreeSet<i64> = standing.iter().map(|here| here.case_key).collect();
        let by_number: BTreeMap<_, _> = standing.iter().map(|here| ((here.case_key, here.attempt), here)).collect();
        let mut last: BTreeMap<i64, i64> = BTreeMap::new();
        for arrival in &arrivals {
            let last = last.entry(arrival.case_key).or_insert(arrival.attempt);
            *last = arrival.attempt.max(*last);
        }
        let mut choice = Choice::default();
        for arrival in arrivals {
            match by_number.get(&(arrival.case_key, arrival.attempt)) {
                None => choice.new += 1,
                Some(here) if here.attempt_id == arrival.attempt_id => {
                    choice.present += 1;
                    continue;
                }
                Some(here) => {
                    choice.conflicting += 1;
                    if (arrival.started_at, &arrival.attempt_id) < (here.started_at, &here.attempt_id) {
                        continue;
                    }
                    choice.replaced.push(here.attempt_key);
                }
            }
            if known.contains(&arrival.case_key) {
                choice.joined.insert(arrival.case_key);
            }
            let is_final = !arrival.is_retried && last.get(&arrival.case_key) == Some(&arrival.attempt);
            choice.taken.push(Taken { arrival, is_final });
        }
        choice
    }
}
