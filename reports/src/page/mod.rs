//! The static HTML report: an index with the whole run, pages of failures, flakes and runs, a page an architecture and a page a model.
//!
//! It works from a folder without a server, makes no request, runs no script and says so in its content security policy.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may fail by a panic"))]

mod architecture_view;
mod changes_view;
pub(crate) mod engine;
mod failures_view;
mod flakes_view;
mod frame;
mod health_view;
mod index_view;
mod leaf_view;
mod links;
mod matrix_view;
mod model_view;
mod nested_facts;
mod runs_view;
mod site_folder;
mod strip_view;
mod trend_view;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use modelfarm_matrix::case::CaseId;
use modelfarm_matrix::cause::Causes;
use serde_json::Value;

use crate::query::{FailureGroup, FlakeRow, HostRow, Strips};
use crate::rows::{AttemptDetail, RunRow};
use crate::step_summary::Before;
pub use site_folder::SiteError;

/// Everything that a report is made of.
#[derive(Debug, Clone, Copy)]
pub struct ReportInput<'a> {
    /// The run.
    pub run: &'a RunRow,
    /// Every attempt of the run, in any order; of a case with several the one with the highest number is final.
    pub attempts: &'a [AttemptDetail],
    /// The environments that the attempts ran in.
    pub environments: &'a [EnvironmentFacts],
    /// What is known beside the run itself.
    pub history: &'a RunHistory,
    /// Explanations of failure groups.
    pub causes: &'a Causes,
    /// What to give `--matrix` to run a case of this run again.
    pub matrix_file: &'a str,
    /// What outputs were measured against.
    pub gates: &'a Gates,
    /// When the report is made, RFC 3339 in UTC.
    pub generated_at: &'a str,
    /// The farm's version.
    pub farm_version: &'a str,
}

/// What is known beside a run itself.
#[derive(Debug, Clone, Default)]
pub struct RunHistory {
    /// What changed since the complete run before it, and which nights came.
    pub before: Before,
    /// Its failures in groups, those that block most first.
    pub failures: Vec<FailureGroup>,
    /// What its cases came to in the nights before it.
    pub strips: Strips,
    /// Cases that flake, the most often failing first.
    pub flakes: Vec<FlakeRow>,
    /// Hosts, those on which most fails first.
    pub hosts: Vec<HostRow>,
    /// The newest runs of the store, newest first.
    pub runs: Vec<RunRow>,
}

/// An environment as the report tells of it.
#[derive(Debug, Clone, PartialEq)]
pub struct EnvironmentFacts {
    /// Its id, as the attempts name it.
    pub id: String,
    /// Its name, such as `torchtpu`.
    pub name: String,
    /// Package versions by name.
    pub packages: BTreeMap<String, String>,
    /// What else is known: fingerprint, plugin, Python, ...
    pub facts: Value,
}

/// The judge's gates, as the policy of the run has them.
#[derive(Debug, Clone, PartialEq)]
pub struct Gates {
    /// The policy's version.
    pub policy: String,
    /// RMSE(device) may be at most this many times max(RMSE(yardstick), floor).
    pub rmse_multiple: f64,
    /// The floor: this many times eps(compute dtype) × RMS(reference leaf).
    pub floor_epsilons: f64,
}

impl Default for Gates {
    /// The first policy.
    fn default() -> Self {
        Self { policy: "1".to_owned(), rmse_multiple: 3.0, floor_epsilons: 4.0 }
    }
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportSummary {
    /// The page to open.
    pub index: PathBuf,
    /// Pages written, the index included.
    pub pages: usize,
    /// Bytes written.
    pub bytes: u64,
    /// Pages of an earlier report of this folder that this one has not, and that were removed.
    pub removed: usize,
}

/// A report could not be written.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// A template failed: a defect of this program.
    #[error("render the page `{page}`: {source}")]
    Render {
        /// The page.
        page: String,
        /// Why.
        source: tera::Error,
    },
    /// A file could not be written.
    #[error("write the report: {0}")]
    Write(#[from] SiteError),
}

/// Writes the report of a run to the folder `out`, or updates the one that is there.
///
/// Every file is complete before the first replaces an old one, and the index comes last: a full disk leaves an old report as it
/// was, and an index never points to pages that are not there.
///
/// # Errors
/// [`SiteError`] where the folder cannot be written, or holds an `index.html` that no report wrote.
pub fn write_report(out: &Path, input: &ReportInput<'_>) -> Result<ReportSummary, ReportError> {
    let engine = engine::Engine::new();
    let cases = final_and_earlier(input.attempts);
    let links = links::Links::new(cases.iter().map(|case| &case.last.row));
    let strips = strip_view::CaseStrips::new(&input.history.strips);
    let mut site = site_folder::SiteFolder::open(out)?;
    site.add("style.css", engine::STYLE)?;
    for (model, cases) in by_model(&cases) {
        let page = links.page(model);
        let view = model_view::ModelView::new(input, &links, &strips, model, &cases);
        site.add(&page, &engine.render("model.html", &page, &view)?)?;
    }
    let mut of_architecture: BTreeMap<&str, Vec<&CaseTries<'_>>> = BTreeMap::new();
    for case in &cases {
        of_architecture.entry(&case.last.row.architecture).or_default().push(case);
    }
    for (architecture, page) in links.architectures() {
        let cases = of_architecture.get(architecture).map_or(&[][..], Vec::as_slice);
        let view = architecture_view::ArchitectureView::new(input, &links, &strips, architecture, cases);
        site.add(page, &engine.render("architecture.html", page, &view)?)?;
    }
    let view = failures_view::FailuresView::new(input, &links);
    site.add("failures.html", &engine.render("failures.html", "failures.html", &view)?)?;
    let view = flakes_view::FlakesView::new(input, &links);
    site.add("flakes.html", &engine.render("flakes.html", "flakes.html", &view)?)?;
    site.add("runs.html", &engine.render("runs.html", "runs.html", &runs_view::RunsView::new(input))?)?;
    let view = index_view::IndexView::new(input, &cases, &links);
    site.add("index.html", &engine.render("index.html", "index.html", &view)?)?;
    Ok(site.publish()?)
}

/// The tries of one case.
#[derive(Debug, Clone)]
struct CaseTries<'a> {
    /// The final one.
    last: &'a AttemptDetail,
    /// Those before it, oldest first.
    earlier: Vec<&'a AttemptDetail>,
}

/// Groups attempts by case, in reading order.
fn final_and_earlier(attempts: &[AttemptDetail]) -> Vec<CaseTries<'_>> {
    let mut tries: BTreeMap<&CaseId, Vec<&AttemptDetail>> = BTreeMap::new();
    for attempt in attempts {
        tries.entry(&attempt.row.case_id).or_default().push(attempt);
    }
    let mut cases = Vec::with_capacity(tries.len());
    for mut tries in tries.into_values() {
        tries.sort_by_key(|attempt| attempt.row.attempt);
        if let Some(last) = tries.pop() {
            cases.push(CaseTries { last, earlier: tries });
        }
    }
    cases.sort_by_cached_key(|case| crate::run_figures::in_reading_order(&case.last.row));
    cases
}

/// Groups cases by model.
fn by_model<'a, 'b>(cases: &'b [CaseTries<'a>]) -> BTreeMap<&'a modelfarm_matrix::model::ModelId, Vec<&'b CaseTries<'a>>> {
    let mut models: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for case in cases {
        models.entry(&case.last.row.model).or_default().push(case);
    }
    models
}
