//! Failures in groups of one masked message.

use modelfarm_matrix::cause::Causes;
use serde::Serialize;

use super::ReportInput;
use super::frame::Frame;
use super::links::Links;
use crate::figures::{count, counted, instant};
use crate::query::FailureGroup;
use crate::visible_text::{beginning, one_line};

/// Groups on the page of all.
const MOST_GROUPS: usize = 500;

/// A group, as pages show it.
#[derive(Debug, Serialize)]
pub(super) struct GroupView {
    outcome: String,
    fault: &'static str,
    signature: String,
    architectures: String,
    models: String,
    cases: String,
    downloads: String,
    unexpected: String,
    has_unexpected: bool,
    targets: String,
    modes: String,
    first_seen: String,
    last_seen: String,
    explanation: String,
    named: Vec<NamedArchitecture>,
    more_architectures: u64,
    samples: Vec<Sample>,
    predicate: String,
}

#[derive(Debug, Serialize)]
struct NamedArchitecture {
    name: String,
    link: String,
}

#[derive(Debug, Serialize)]
struct Sample {
    case: String,
    link: String,
}

/// The page of all groups.
#[derive(Debug, Serialize)]
pub(super) struct FailuresView {
    #[serde(flatten)]
    frame: Frame,
    summary: String,
    groups: Vec<GroupView>,
    left_out: Option<String>,
}

impl FailuresView {
    pub(super) fn new(input: &ReportInput<'_>, links: &Links) -> Self {
        let all = &input.history.failures;
        let left_out = all.len().saturating_sub(MOST_GROUPS) as u64;
        let cases: u64 = all.iter().map(|group| group.cases).sum();
        Self {
            frame: Frame::new(input, "Failures", ""),
            summary: format!("{} in {}", counted(cases, "failed case"), counted(all.len() as u64, "group")),
            groups: all.iter().take(MOST_GROUPS).map(|group| group_view(group, input.causes, links)).collect(),
            left_out: (left_out > 0).then(|| counted(left_out, "smaller group")),
        }
    }
}

/// A group with its explanation, where one is known.
pub(super) fn group_view(group: &FailureGroup, causes: &Causes, links: &Links) -> GroupView {
    let named: Vec<NamedArchitecture> = group
        .sample_architectures
        .iter()
        .map(|name| NamedArchitecture { name: one_line(name, 96), link: links.architecture(name) })
        .collect();
    GroupView {
        outcome: group.outcome.to_string().replace('_', " "),
        fault: group.fault.map_or("–", |fault| fault.as_str()),
        signature: group.signature.as_ref().map_or("nothing was said".to_owned(), |text| beginning(text, 2_000)),
        architectures: counted(group.architectures, "architecture"),
        models: counted(group.models, "model"),
        cases: counted(group.cases, "case"),
        downloads: count(group.downloads),
        unexpected: count(group.unexpected),
        has_unexpected: group.unexpected > 0,
        targets: one_line(&group.targets.join(", "), 200),
        modes: group.modes.iter().map(|mode| mode.as_str()).collect::<Vec<_>>().join(", "),
        first_seen: instant(&group.first_seen),
        last_seen: instant(&group.last_seen),
        explanation: explanation(group, causes),
        more_architectures: group.architectures.saturating_sub(named.len() as u64),
        named,
        samples: group
            .sample_cases
            .iter()
            .map(|case| Sample { case: one_line(case, 20), link: links.by_case_id(case) })
            .collect(),
        predicate: beginning(&group.predicate, 4_000),
    }
}

fn explanation(group: &FailureGroup, causes: &Causes) -> String {
    let cause = group.signature.as_deref().and_then(|signature| causes.of(signature));
    cause.map_or(String::new(), |cause| one_line(&cause.explanation, 600))
}
