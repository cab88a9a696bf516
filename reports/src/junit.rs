//! JUnit XML: one suite for each target and mode, one test case for each case.

use std::collections::BTreeMap;
use std::time::Duration;

use modelfarm_matrix::axes::Mode;
use modelfarm_matrix::case::CaseId;
use modelfarm_matrix::expectation::Verdict;
use quick_junit::{NonSuccessKind, Property, Report, TestCase, TestCaseStatus, TestRerun, TestSuite};

use crate::rows::{AttemptDetail, RunRow};
use crate::run_figures::in_reading_order;
use crate::visible_text::{beginning, ending, one_line};

/// A JUnit report could not be written.
#[derive(Debug, thiserror::Error)]
#[error("write JUnit XML: {0}")]
pub struct JunitError(#[from] quick_junit::SerializeError);

/// The JUnit XML of a run. Of a case with several tries the last one counts; earlier ones are its reruns.
///
/// | verdict | element |
/// |---|---|
/// | `expected_pass` | none: the test passes |
/// | `unexpected_fail`, `unexpected_pass` | `<failure type="{outcome}">` |
/// | `unexpected_inconclusive` | `<error type="{outcome}">`: nothing was learnt, and nobody said so before |
/// | `expected_fail`, `expected_inconclusive` | `<skipped>` with the declared reason |
///
/// So a CI job that reads it is red exactly where something was not as declared. Planned cases that are not final are no test
/// cases; the properties `planned` and `state` of every suite tell of them.
pub fn junit_xml(run: &RunRow, attempts: &[AttemptDetail]) -> Result<String, JunitError> {
    let mut tries: BTreeMap<&CaseId, Vec<&AttemptDetail>> = BTreeMap::new();
    for attempt in attempts {
        tries.entry(&attempt.row.case_id).or_default().push(attempt);
    }
    let mut cases: Vec<Vec<&AttemptDetail>> = tries.into_values().collect();
    for tries in &mut cases {
        tries.sort_by_key(|attempt| attempt.row.attempt);
    }
    cases.sort_by_cached_key(|tries| tries.last().map(|last| in_reading_order(&last.row)));

    let mut suites: BTreeMap<(&str, Mode), TestSuite> = BTreeMap::new();
    for tries in &cases {
        let Some((last, earlier)) = tries.split_last() else { continue };
        let suite = suites.entry((last.row.target.as_str(), last.row.mode)).or_insert_with(|| new_suite(run, last));
        let time = suite.time.unwrap_or_default() + duration(last);
        suite.set_time(time);
        suite.add_test_case(test_case(last, earlier));
    }
    let mut report = Report::new(format!("modelfarm {}", one_line(&run.matrix, 100)));
    report.set_time(suites.values().filter_map(|suite| suite.time).sum());
    report.add_test_suites(suites.into_values());
    Ok(report.to_string()?)
}

fn new_suite(run: &RunRow, first: &AttemptDetail) -> TestSuite {
    let mut suite = TestSuite::new(format!("{} {}", one_line(&first.row.target, 60), first.row.mode));
    let properties = [
        ("run_id", one_line(&run.run_id, 60)),
        ("plan_id", one_line(&run.plan_id, 80)),
        ("state", run.state.to_string()),
        ("planned", run.planned.to_string()),
        ("finished", run.finished.to_string()),
    ];
    suite.add_properties(properties.map(|(name, value)| Property::new(name, value)));
    suite
}

fn duration(attempt: &AttemptDetail) -> Duration {
    Duration::from_millis(attempt.row.duration_ms.max(0) as u64)
}

fn test_case(last: &AttemptDetail, earlier: &[&AttemptDetail]) -> TestCase {
    let row = &last.row;
    let message = message(last);
    let reason = last.expectation_reason.as_deref().map(|reason| one_line(reason, 500));
    let mut status = match row.verdict {
        Verdict::ExpectedPass => TestCaseStatus::success(),
        Verdict::UnexpectedFail | Verdict::UnexpectedPass => TestCaseStatus::non_success(NonSuccessKind::Failure),
        Verdict::UnexpectedInconclusive => TestCaseStatus::non_success(NonSuccessKind::Error),
        Verdict::ExpectedFail | Verdict::ExpectedInconclusive => TestCaseStatus::skipped(),
    };
    status.set_type(row.outcome.as_str());
    match row.verdict {
        Verdict::ExpectedPass => {}
        Verdict::ExpectedFail | Verdict::ExpectedInconclusive => {
            let reason = reason.unwrap_or_else(|| "no reason was recorded".to_owned());
            status.set_message(format!("{} in {}, as declared: {reason}", row.outcome, row.stage));
            status.set_description(message);
        }
        Verdict::UnexpectedPass => {
            let reason = reason.unwrap_or_else(|| "no reason was recorded".to_owned());
            status.set_message(format!("passes, though a failure is declared: {reason}"));
        }
        Verdict::UnexpectedFail | Verdict::UnexpectedInconclusive => {
            status.set_message(format!("{} in {}: {}", row.outcome, row.stage, one_line(&message, 500)));
            let traceback = last.traceback.as_deref().map(|traceback| ending(traceback, 8_000));
            status.set_description([Some(message), traceback].into_iter().flatten().collect::<Vec<_>>().join("\n\n"));
        }
    }
    status.add_reruns(earlier.iter().map(|attempt| {
        let mut rerun = TestRerun::new(NonSuccessKind::Failure);
        rerun.set_type(attempt.row.outcome.as_str());
        rerun.set_message(one_line(&self::message(attempt), 500));
        rerun
    }));
    let canonical = one_line(&row.case().canonical(), 1_000);
    let mut case = TestCase::new(canonical, status);
    case.set_classname(format!("{}.{}", one_line(&row.architecture, 96), one_line(&row.class, 96)));
    case.set_time(duration(last));
    case.add_property(Property::new("case_id", row.case_id.as_str()));
    case.add_property(Property::new("verdict", row.verdict.as_str()));
    if let Some(fault) = row.fault {
        case.add_property(Property::new("fault", fault.as_str()));
    }
    if row.verdict.is_unexpected()
        && let Some(tail) = &last.output_tail
    {
        case.set_system_err(ending(tail, 4_000));
    }
    case
}

fn message(attempt: &AttemptDetail) -> String {
    match attempt.row.message.as_ref().or(attempt.row.signature.as_ref()) {
        Some(message) => beginning(message, 2_000),
        None => "no message was recorded".to_owned(),
    }
}
