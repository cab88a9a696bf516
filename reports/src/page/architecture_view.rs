//! What an architecture's page shows: how it stands in each mode, night by night, and its cases.

use std::collections::BTreeMap;

use modelfarm_matrix::axes::{Dtype, Mode, Workload};
use modelfarm_matrix::event::Tally;
use serde::Serialize;

use super::changes_view::ChangesView;
use super::frame::Frame;
use super::links::Links;
use super::strip_view::{CaseStrips, NightTally, StripView};
use super::{CaseTries, ReportInput};
use crate::figures::{count, counted, percent};
use crate::run_figures::tally_summary;
use crate::verdict_mark::{VerdictMark, verdict_mark};
use crate::visible_text::one_line;

/// What an architecture's page shows.
#[derive(Serialize)]
pub(super) struct ArchitectureView {
    #[serde(flatten)]
    frame: Frame,
    architecture: String,
    summary: String,
    nights: String,
    modes: Vec<ModeRow>,
    cases: Vec<CaseRow>,
    changes: Option<ChangesView>,
}

#[derive(Serialize)]
struct ModeRow {
    target: String,
    mode: &'static str,
    what: String,
    passed: String,
    rate: String,
    strip: Option<StripView>,
}

#[derive(Serialize)]
struct CaseRow {
    mark: VerdictMark,
    outcome: String,
    model: String,
    link: String,
    what: String,
    target: String,
    mode: &'static str,
    message: String,
    strip: Option<StripView>,
}

impl ArchitectureView {
    pub(super) fn new(
        input: &ReportInput<'_>,
        links: &Links,
        strips: &CaseStrips<'_>,
        architecture: &str,
        cases: &[&CaseTries<'_>],
    ) -> Self {
        let mut tally = Tally::default();
        for case in cases {
            tally.add(case.last.row.outcome, case.last.row.verdict.is_unexpected());
        }
        let rows = cases.iter().map(|case| {
            let row = &case.last.row;
            CaseRow {
                mark: verdict_mark(row.verdict),
                outcome: row.outcome.to_string().replace('_', " "),
                model: row.model.to_string(),
                link: links.case(&row.model, &row.case_id),
                what: format!("{} · {}", row.workload, row.dtype),
                target: one_line(&row.target, 60),
                mode: row.mode.as_str(),
                message: row.message.as_ref().or(row.signature.as_ref()).map_or(String::new(), |text| one_line(text, 240)),
                strip: strips.view(&row.case_id),
            }
        });
        Self {
            frame: Frame::new(input, architecture, "../"),
            architecture: one_line(architecture, 96),
            summary: tally_summary(&tally),
            nights: counted(strips.nights().len() as u64, "night"),
            modes: modes(strips, cases),
            cases: rows.collect(),
            changes: input
                .history
                .before
                .comparison
                .as_ref()
                .map(|compared| ChangesView::new(compared, links, Some(architecture))),
        }
    }
}

type Column<'a> = (&'a str, Workload, Dtype, Mode);

fn modes(strips: &CaseStrips<'_>, cases: &[&CaseTries<'_>]) -> Vec<ModeRow> {
    let nights = strips.nights();
    let mut groups: BTreeMap<Column<'_>, (Tally, Vec<NightTally>)> = BTreeMap::new();
    for case in cases {
        let row = &case.last.row;
        let column = (row.target.as_str(), row.workload, row.dtype, row.mode);
        let (tally, tallies) =
            groups.entry(column).or_insert_with(|| (Tally::default(), vec![NightTally::default(); nights.len()]));
        tally.add(row.outcome, row.verdict.is_unexpected());
        for (night, outcome) in tallies.iter_mut().zip(strips.outcomes(&row.case_id).unwrap_or_default()) {
            if let Some(outcome) = outcome {
                night.add(*outcome);
            }
        }
    }
    let row = |((target, workload, dtype, mode), (tally, tallies)): (Column<'_>, (Tally, Vec<NightTally>))| {
        let conclusive = tally.pass + tally.fail;
        ModeRow {
            target: one_line(target, 60),
            mode: mode.as_str(),
            what: format!("{workload} · {dtype}"),
            passed: format!("{} of {}", count(tally.pass), counted(conclusive, "conclusive case")),
            rate: percent(tally.pass, conclusive),
            strip: (nights.len() > 1).then(|| StripView::new(nights, &tallies)),
        }
    };
    groups.into_iter().map(row).collect()
}
