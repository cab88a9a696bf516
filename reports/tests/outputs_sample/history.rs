//! The nights before a sample run; with a text, each of its strings that a stranger may choose is that text.

use modelfarm_matrix::axes::Mode;
use modelfarm_matrix::change::Change;
use modelfarm_matrix::outcome::{Outcome, Standing};
use modelfarm_matrix::rhythm::NightState;
use modelfarm_reports::page::RunHistory;
use modelfarm_reports::query::{
    CaseStrip, ChangeRow, ComparedRun, Comparison, FailureGroup, FlakeRow, HostRow, NightRow, PackageChange, Side, StripNight,
    Strips,
};
use modelfarm_reports::rows::ResultRow;
use modelfarm_reports::step_summary::Before;

const NIGHTS: usize = 30;

/// What was before the rows of a run.
pub fn history_of(rows: &[ResultRow], text: Option<&str>) -> RunHistory {
    RunHistory {
        before: before(rows, text),
        failures: failures(rows, text),
        strips: strips(rows, text),
        flakes: rows.iter().take(3).map(|row| flake(row, text)).collect(),
        hosts: vec![host(text, "ci-runner-7", true), host(text, "ci-runner-8", false)],
        runs: Vec::new(),
    }
}

fn chosen(text: Option<&str>, otherwise: impl Into<String>) -> String {
    text.map_or_else(|| otherwise.into(), str::to_owned)
}

/// A night before in which everything passed that fails now, with other packages.
pub fn before(rows: &[ResultRow], text: Option<&str>) -> Before {
    let day = |day: usize| format!("2026-11-{day:02}T02:17:00.000Z");
    let side = |outcome, at: String| Side {
        run_id: chosen(text, "019ad6a2-0000-7f3e-9d0b-5a7a03e9860d"),
        outcome,
        started_at: chosen(text, at),
        environment_id: Some(chosen(text, "torchtpu-4c1f9e")),
        revision: Some(chosen(text, "r1")),
    };
    let changed = PackageChange {
        package: chosen(text, "torch-tpu"),
        from: Some(chosen(text, "0.1.1")),
        to: text.is_none().then(|| "0.1.2".to_owned()),
    };
    let change = |row: &ResultRow| {
        let change = match row.outcome.standing() {
            Standing::Fail => Change::Regressed,
            Standing::Pass => Change::Fixed,
            Standing::Inconclusive => Change::Undecided,
        };
        ChangeRow {
            case_id: row.case_id.clone(),
            architecture: row.architecture.clone(),
            model: row.model.clone(),
            target: row.target.clone(),
            mode: row.mode,
            workload: row.workload,
            dtype: row.dtype,
            change: if text.is_some() { Change::Regressed } else { change },
            before: Some(side(Outcome::Pass, day(29))),
            after: Some(side(row.outcome, day(30))),
            first: Some(side(row.outcome, day(30))),
            signature: Some(chosen(text, "RuntimeError: view(): cannot create a view of shape <n>")),
            environment_changes: vec![changed.clone(); if text.is_some() { 7 } else { 1 }],
            model_changed: Some(text.is_some()),
            host_changed: Some(text.is_some()),
            confirmed: Some(true),
            flake_rate: None,
        }
    };
    let told = rows.iter().filter(|row| text.is_some() || row.outcome != Outcome::Pass);
    let run = ComparedRun {
        run_id: chosen(text, "019ad6a2-0000-7f3e-9d0b-5a7a03e9860d"),
        started_at: chosen(text, day(29)),
        is_complete: text.is_none(),
    };
    let night = |day: u32, state| NightRow {
        due_at: format!("2026-11-{day}T02:17:00.000Z"),
        state,
        matrix: chosen(text, "smoke"),
        run_id: Some(chosen(text, "r")),
        planned: None,
        finished: None,
    };
    let comparison = Comparison {
        matrix: chosen(text, "smoke"),
        before: run.clone(),
        is_old_enough: true,
        after: run,
        in_both: rows.len() as u64,
        still_passing: 0,
        rows: told.map(change).collect(),
    };
    let nights = vec![night(30, NightState::Complete), night(29, NightState::Partial), night(28, NightState::Missing)];
    Before { comparison: Some(comparison), nights }
}

fn flake(row: &ResultRow, text: Option<&str>) -> FlakeRow {
    FlakeRow {
        case_id: row.case_id.clone(),
        architecture: row.architecture.clone(),
        model: row.model.clone(),
        target: row.target.clone(),
        mode: row.mode,
        workload: row.workload,
        runs: 30,
        tries: 34,
        failed: 5,
        rate: 0.157,
        failed_on: [(chosen(text, "ci-runner-7"), 5)].into(),
        last_failed_at: Some(chosen(text, "2026-11-28T02:17:00.000Z")),
    }
}

fn host(text: Option<&str>, name: &str, stands_out: bool) -> HostRow {
    HostRow { host: chosen(text, name), tries: 340, failed: 40, expected: 4.2, excess: 17.5, stands_out }
}

fn failures(rows: &[ResultRow], text: Option<&str>) -> Vec<FailureGroup> {
    let failed = rows.iter().filter(|row| row.outcome.standing() == Standing::Fail);
    let group = |row: &ResultRow| FailureGroup {
        signature: Some(chosen(text, row.signature.clone().unwrap_or_else(|| "mismatch".to_owned()))),
        outcome: row.outcome,
        fault: row.fault,
        cases: 1,
        architectures: 7,
        models: 1,
        downloads: 123_456,
        unexpected: 1,
        targets: vec![chosen(text, row.target.clone())],
        modes: Mode::ALL.to_vec(),
        first_seen: chosen(text, "2026-10-01T02:17:00.000Z"),
        last_seen: chosen(text, "2026-11-30T02:17:00.000Z"),
        sample_architectures: vec![row.architecture.clone(), chosen(text, "elsewhere")],
        sample_cases: vec![row.case_id.to_string(), chosen(text, "0123456789abcdef")],
        predicate: format!("signature = '{}'", chosen(text, "x").replace('\'', "''")),
    };
    failed.map(group).collect()
}

fn strips(rows: &[ResultRow], text: Option<&str>) -> Strips {
    let night = |place: usize| StripNight {
        run_id: chosen(text, format!("r{place}")),
        started_at: chosen(text, format!("2026-11-{:02}T02:17:00.000Z", place + 1)),
    };
    let outcome = |row: &ResultRow, night: usize| match (night + row.model.as_str().len()) % 11 {
        0 => None,
        1 => Some(Outcome::InfraError),
        2 if row.mode == Mode::Compiled => Some(Outcome::Crash),
        _ if night + 1 == NIGHTS => Some(row.outcome),
        _ => Some(Outcome::Pass),
    };
    let strip = |row: &ResultRow| CaseStrip {
        case_id: row.case_id.clone(),
        architecture: row.architecture.clone(),
        model: row.model.clone(),
        target: row.target.clone(),
        mode: row.mode,
        workload: row.workload,
        dtype: row.dtype,
        outcomes: (0..NIGHTS).map(|night| outcome(row, night)).collect(),
    };
    Strips { nights: (0..NIGHTS).map(night).collect(), cases: rows.iter().map(strip).collect() }
}
