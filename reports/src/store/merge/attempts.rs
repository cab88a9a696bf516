//! Taking attempts over, a page of a run at a time.

use std::collections::{BTreeMap, BTreeSet};

use super::super::attempt_columns::{attempt_detail, cells, result_columns};
use super::super::cell::{Cell, values};
use super::super::finishing::{count_finals, mark_finals};
use super::super::row_batch::insert_rows;
use super::super::statement::built;
use super::super::table_columns::{ATTEMPT_DETAILS, ATTEMPTS};
use super::super::{Row, StoreError, Transaction};
use super::examined::{Examined, examine};
use super::keys::{Keys, MergedRun};
use super::{Merge, PAGE};

impl Merge {
    pub(super) async fn attempts(&mut self, run: &MergedRun, cases: &Keys) -> Result<(), StoreError> {
        let mut is_changed = false;
        let mut next = Page::after(&mut self.from, run, Place::BEGINNING).await?;
        while let Some(page) = next {
            let end = page.end();
            // The source reads on while this store writes.
            let (taken, following) =
                tokio::join!(page.choose_and_take(&mut self.into, run, cases), Page::after(&mut self.from, run, end));
            let taken = taken?;
            self.report.attempts_new += taken.new;
            self.report.attempts_present += taken.present;
            self.report.attempts_conflicting += taken.conflicting;
            is_changed |= taken.rows > 0;
            next = following?;
        }
        if is_changed {
            count_finals(&mut self.into, run.key).await?;
        }
        Ok(())
    }
}

/// Where an attempt stands among those of its run in the source: the tries of a case follow each other.
#[derive(Debug, Clone, Copy)]
struct Place {
    case_key: i64,
    attempt: i64,
}

impl Place {
    const BEGINNING: Place = Place { case_key: i64::MIN, attempt: i64::MIN };
}

/// What a merge has to know of an attempt of the source.
struct Arrival {
    place: Place,
    attempt_id: String,
    started_at: i64,
    is_retried: bool,
}

impl Arrival {
    fn read(row: &Row) -> Result<Self, StoreError> {
        // What cannot be read here could not be read later, when it would spoil every query.
        attempt_detail(row)?;
        Ok(Self {
            place: Place { case_key: row.int("case_key")?, attempt: row.int("attempt")? },
            attempt_id: row.text("attempt_id")?,
            started_at: row.int("started_at")?,
            is_retried: row.int("is_retried")? != 0,
        })
    }
}

/// Attempts of a run of the source, one after the other; at least one.
struct Page {
    /// Where the page before ended.
    begin: Place,
    first: Examined<Arrival>,
    others: Vec<Examined<Arrival>>,
}

impl Page {
    /// The next page; none at the end of the run.
    async fn after(from: &mut Transaction, run: &MergedRun, begin: Place) -> Result<Option<Self>, StoreError> {
        let page = built(concat!(
            "SELECT ",
            result_columns!(),
            ", a.attempt_id, a.case_key, a.is_retried, d.expectation_reason, d.evidence, d.facts, d.output, d.leaves",
            " FROM attempts a JOIN cases c ON c.case_key = a.case_key JOIN runs r ON r.run_key = a.run_key",
            " JOIN attempt_details d ON d.attempt_key = a.attempt_key WHERE a.run_key = "
        ));
        let page = page.bind(run.source_key).text(" AND (a.case_key, a.attempt) > (");
        let page = page.bind(begin.case_key).text(", ").bind(begin.attempt);
        let page = page.text(") ORDER BY a.case_key, a.attempt LIMIT ").bind(PAGE);
        let mut rows = examine(from.all(page).await?, Arrival::read).await?.into_iter();
        Ok(rows.next().map(|first| Self { begin, first, others: rows.collect() }))
    }

    fn end(&self) -> Place {
        self.others.last().unwrap_or(&self.first).facts.place
    }

    fn all(&self) -> impl Iterator<Item = &Examined<Arrival>> {
        std::iter::once(&self.first).chain(&self.others)
    }

    async fn choose_and_take(self, into: &mut Transaction, run: &MergedRun, cases: &Keys) -> Result<TakenOver, StoreError> {
        let mut arrivals = Vec::with_capacity(self.others.len() + 1);
        for arrival in self.all() {
            arrivals.push((arrival, cases.of(&arrival.row)?));
        }
        // A case whose tries began in the page before has attempts here, also of a run that is new.
        let is_continued = self.first.facts.place.case_key == self.begin.case_key;
        let asked = if run.is_new { usize::from(is_continued) } else { arrivals.len() };
        let unknown = arrivals.iter().take(asked).map(|(_, case_key)| *case_key).collect();
        let choice = Choice::of(&arrivals, &standing(into, run.key, unknown).await?);
        let taken = TakenOver { rows: choice.taken.len(), ..choice.counted };
        choice.carry_out(into, run.key).await?;
        Ok(taken)
    }
}

/// What became of a page.
#[derive(Debug, Clone, Copy, Default)]
struct TakenOver {
    new: u64,
    present: u64,
    conflicting: u64,
    rows: usize,
}

/// An attempt that is here.
struct Standing {
    attempt_key: i64,
    attempt_id: String,
    started_at: i64,
}

/// The attempts of cases of a run that are here, by case and number.
async fn standing(
    into: &mut Transaction,
    run_key: i64,
    cases: BTreeSet<i64>,
) -> Result<BTreeMap<(i64, i64), Standing>, StoreError> {
    let mut standing = BTreeMap::new();
    if cases.is_empty() {
        return Ok(standing);
    }
    let here = built("SELECT attempt_key, case_key, attempt, attempt_id, started_at FROM attempts WHERE run_key = ");
    for row in into.all(here.bind(run_key).and_in("case_key", cases)).await? {
        let (attempt_key, attempt_id, started_at) = (row.int("attempt_key")?, row.text("attempt_id")?, row.int("started_at")?);
        standing.insert((row.int("case_key")?, row.int("attempt")?), Standing { attempt_key, attempt_id, started_at });
    }
    Ok(standing)
}

/// What is to become of a page.
#[derive(Default)]
struct Choice<'a> {
    counted: TakenOver,
    taken: Vec<Taken<'a>>,
    /// Keys of attempts here that give way.
    replaced: Vec<i64>,
    /// Cases that have attempts here and get more: which one counts is told by the database.
    joined: BTreeSet<i64>,
}

/// An attempt that is taken over.
struct Taken<'a> {
    arrival: &'a Examined<Arrival>,
    /// Its case here.
    case_key: i64,
    /// Whether it counts, as far as this page tells.
    is_final: bool,
}

impl<'a> Choice<'a> {
    /// Decides about attempts, each with the key of its case here.
    fn of(arrivals: &[(&'a Examined<Arrival>, i64)], standing: &BTreeMap<(i64, i64), Standing>) -> Self {
        let known: BTreeSet<i64> = standing.keys().map(|(case_key, _)| *case_key).collect();
        let mut last: BTreeMap<i64, i64> = BTreeMap::new();
        for (arrival, case_key) in arrivals {
            let last = last.entry(*case_key).or_insert(i64::MIN);
            *last = arrival.facts.place.attempt.max(*last);
        }
        let mut choice = Self::default();
        for &(arrival, case_key) in arrivals {
            let Arrival { place, attempt_id, started_at, is_retried } = &arrival.facts;
            match standing.get(&(case_key, place.attempt)) {
                None => choice.counted.new += 1,
                Some(here) if here.attempt_id == *attempt_id => {
                    choice.counted.present += 1;
                    continue;
                }
                Some(here) => {
                    choice.counted.conflicting += 1;
                    if (started_at, attempt_id) < (&here.started_at, &here.attempt_id) {
                        continue;
                    }
                    choice.replaced.push(here.attempt_key);
                }
            }
            if known.contains(&case_key) {
                choice.joined.insert(case_key);
            }
            let is_final = !is_retried && last.get(&case_key) == Some(&place.attempt);
            choice.taken.push(Taken { arrival, case_key, is_final });
        }
        choice
    }

    async fn carry_out(self, into: &mut Transaction, run_key: i64) -> Result<(), StoreError> {
        if !self.replaced.is_empty() {
            // Their details and artifacts go with them.
            into.execute(built("DELETE FROM attempts WHERE 1 = 1").and_in("attempt_key", self.replaced)).await?;
        }
        let mut rows = Vec::with_capacity(self.taken.len());
        for Taken { arrival, case_key, is_final } in &self.taken {
            let mut row = values![run_key, *case_key, *is_final];
            for cell in cells(&arrival.row, &ATTEMPTS.columns[row.len()..]) {
                row.push(cell?);
            }
            rows.push(row);
        }
        let mut keys = BTreeMap::new();
        for row in insert_rows(into, &ATTEMPTS, rows).await? {
            keys.insert(row.text("attempt_id")?, row.int("attempt_key")?);
        }
        let mut details = Vec::with_capacity(self.taken.len());
        for Taken { arrival, .. } in &self.taken {
            let mut row = vec![Cell::Int(keys.get(&arrival.facts.attempt_id).copied())];
            for cell in cells(&arrival.row, &ATTEMPT_DETAILS.columns[row.len()..]) {
                row.push(cell?);
            }
            details.push(row);
        }
        insert_rows(into, &ATTEMPT_DETAILS, details).await?;
        mark_finals(into, run_key, self.joined).await
    }
}
