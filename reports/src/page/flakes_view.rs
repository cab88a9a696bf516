//! Cases that pass and fail by chance, and hosts on which more fails than elsewhere.

use serde::Serialize;

use super::ReportInput;
use super::frame::Frame;
use super::links::Links;
use crate::figures::{count, counted, instant, measured, percent};
use crate::visible_text::one_line;

/// Rows of the table of cases.
const MOST_LISTED: usize = 1000;

/// What the page of flakes shows.
#[derive(Serialize)]
pub(super) struct FlakesView {
    #[serde(flatten)]
    frame: Frame,
    summary: String,
    cases: Vec<FlakingCase>,
    left_out: Option<String>,
    hosts: Vec<HostView>,
}

#[derive(Serialize)]
struct FlakingCase {
    model: String,
    /// Empty where the run has no page of it.
    link: String,
    architecture: String,
    target: String,
    mode: &'static str,
    rate: String,
    failed: String,
    runs: String,
    hosts: String,
    last: String,
}

#[derive(Serialize)]
struct HostView {
    host: String,
    failed: String,
    expected: String,
    excess: String,
    stands_out: bool,
}

impl FlakesView {
    pub(super) fn new(input: &ReportInput<'_>, links: &Links) -> Self {
        let (flakes, hosts) = (&input.history.flakes, &input.history.hosts);
        let left_out = flakes.len().saturating_sub(MOST_LISTED) as u64;
        let cases = flakes.iter().take(MOST_LISTED).map(|row| {
            let hosts: Vec<String> = row.failed_on.iter().map(|(host, failed)| format!("{host} ({failed})")).collect();
            FlakingCase {
                model: row.model.to_string(),
                link: links.by_case_id(row.case_id.as_str()),
                architecture: one_line(&row.architecture, 96),
                target: one_line(&row.target, 60),
                mode: row.mode.as_str(),
                rate: format!("{:.1} %", row.rate * 100.0),
                failed: format!("{} of {}", count(row.failed), count(row.tries)),
                runs: count(row.runs),
                hosts: one_line(&hosts.join(", "), 300),
                last: row.last_failed_at.as_deref().map_or("–".to_owned(), instant),
            }
        });
        let hosts = hosts.iter().map(|row| HostView {
            host: one_line(&row.host, 100),
            failed: format!("{} of {} ({})", count(row.failed), count(row.tries), percent(row.failed, row.tries)),
            expected: measured(row.expected),
            excess: measured(row.excess),
            stands_out: row.stands_out,
        });
        Self {
            frame: Frame::new(input, "Flakes", ""),
            summary: match flakes.len() {
                1 => "1 case passes and fails by chance".to_owned(),
                number => format!("{} pass and fail by chance", counted(number as u64, "case")),
            },
            cases: cases.collect(),
            left_out: (left_out > 0).then(|| counted(left_out, "more case")),
            hosts: hosts.collect(),
        }
    }
}
