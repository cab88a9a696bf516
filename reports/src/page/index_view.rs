//! What the index shows.

use std::collections::BTreeMap;

use modelfarm_matrix::event::Tally;
use modelfarm_matrix::expectation::Verdict;
use modelfarm_matrix::model::ModelId;
use serde::Serialize;

use super::changes_view::{ChangesView, UnsoundNight, unsound_nights};
use super::failures_view::{GroupView, group_view};
use super::frame::Frame;
use super::health_view::HealthView;
use super::links::Links;
use super::matrix_view::{TargetMatrix, matrices};
use super::nested_facts::{Fact, nested_facts};
use super::trend_view::TrendView;
use super::{CaseTries, EnvironmentFacts, ReportInput};
use crate::fair_cut::cut_fairly;
use crate::figures::{count, counted, instant, milliseconds, milliseconds_between};
use crate::run_figures::RunFigures;
use crate::verdict_mark::{VerdictMark, legend, verdict_mark};
use crate::visible_text::one_line;

/// Rows of the tables of unexpected and of declared results; every case is on its model's page too.
const MOST_LISTED: usize = 1000;

/// Groups of failures on the index; the page of failures has all.
const MOST_GROUPS: usize = 5;

/// What the index shows.
#[derive(Serialize)]
pub(super) struct IndexView {
    #[serde(flatten)]
    frame: Frame,
    started_at: String,
    took: Option<String>,
    health: HealthView,
    unsound_nights: Vec<UnsoundNight>,
    changes: Option<ChangesView>,
    groups: Vec<GroupView>,
    groups_counted: String,
    trend: Option<TrendView>,
    unexpected: ResultList,
    declared: ResultList,
    legend: Vec<VerdictMark>,
    matrices: Vec<TargetMatrix>,
    models: Vec<ModelRow>,
    models_counted: String,
    run_facts: Vec<Fact>,
    host_facts: Vec<Fact>,
    environments: Vec<EnvironmentView>,
}

/// A list of results that may be cut.
#[derive(Serialize)]
struct ResultList {
    total: u64,
    counted: String,
    rows: Vec<ListedResult>,
    left_out: Option<String>,
}

#[derive(Serialize)]
struct ListedResult {
    mark: VerdictMark,
    outcome: String,
    stage: &'static str,
    fault: &'static str,
    architecture: String,
    model: String,
    link: String,
    what: String,
    target: String,
    mode: &'static str,
    message: String,
    reason: String,
    tries: Option<String>,
}

#[derive(Serialize)]
struct ModelRow {
    model: String,
    link: String,
    architecture: String,
    class: String,
    harness: &'static str,
    revision: String,
    pass: String,
    conclusive: String,
    inconclusive: String,
    unexpected: String,
    mark: VerdictMark,
}

#[derive(Serialize)]
struct EnvironmentView {
    id: String,
    name: String,
    packages: Vec<Fact>,
    facts: Vec<Fact>,
}

impl IndexView {
    pub(super) fn new(input: &ReportInput<'_>, cases: &[CaseTries<'_>], links: &Links) -> Self {
        let run = input.run;
        let figures = RunFigures::new(run, cases.iter().map(|case| &case.last.row));
        let models = models(cases, links);
        let took = run.ended_at.as_deref().and_then(|end| milliseconds_between(&run.started_at, end));
        Self {
            frame: Frame::new(input, &run.matrix, ""),
            started_at: instant(&run.started_at),
            took: took.map(milliseconds),
            health: HealthView::new(&figures),
            unsound_nights: unsound_nights(&input.history.before.nights),
            changes: input.history.before.comparison.as_ref().map(|compared| ChangesView::new(compared, links, None)),
            groups: input
                .history
                .failures
                .iter()
                .take(MOST_GROUPS)
                .map(|group| group_view(group, input.causes, links))
                .collect(),
            groups_counted: counted(input.history.failures.len() as u64, "group"),
            trend: TrendView::new(&input.history.strips),
            unexpected: result_list(cases, links, |verdict| verdict.is_unexpected()),
            declared: result_list(cases, links, |verdict| {
                matches!(verdict, Verdict::ExpectedFail | Verdict::ExpectedInconclusive)
            }),
            legend: legend(),
            matrices: matrices(cases, links),
            models_counted: counted(models.len() as u64, "model"),
            models,
            run_facts: run_facts(input, &figures),
            host_facts: nested_facts(&run.facts),
            environments: input.environments.iter().map(environment).collect(),
        }
    }
}

fn result_list(cases: &[CaseTries<'_>], links: &Links, wanted: impl Fn(Verdict) -> bool) -> ResultList {
    let mut found: Vec<&CaseTries<'_>> = cases.iter().filter(|case| wanted(case.last.row.verdict)).collect();
    found.sort_by_key(|case| std::cmp::Reverse(verdict_mark(case.last.row.verdict).urgency));
    let total = found.len() as u64;
    let shown = cut_fairly(found, MOST_LISTED, |case| case.last.row.verdict);
    let left_out = total - shown.len() as u64;
    let rows = shown.iter().map(|case| {
        let row = &case.last.row;
        ListedResult {
            mark: verdict_mark(row.verdict),
            outcome: row.outcome.to_string(),
            stage: row.stage.as_str(),
            fault: row.fault.map_or("–", |fault| fault.as_str()),
            architecture: one_line(&row.architecture, 96),
            model: row.model.to_string(),
            link: links.case(&row.model, &row.case_id),
            what: format!("{} · {}", row.workload, row.dtype),
            target: one_line(&row.target, 60),
            mode: row.mode.as_str(),
            message: row.message.as_ref().or(row.signature.as_ref()).map_or(String::new(), |text| one_line(text, 240)),
            reason: case.last.expectation_reason.as_ref().map_or(String::new(), |text| one_line(text, 240)),
            tries: (!case.earlier.is_empty()).then(|| format!("try {}", row.attempt)),
        }
    });
    ResultList {
        total,
        counted: count(total),
        rows: rows.collect(),
        left_out: (left_out > 0).then(|| counted(left_out, "more result")),
    }
}

fn models(cases: &[CaseTries<'_>], links: &Links) -> Vec<ModelRow> {
    let mut models: BTreeMap<(&str, &ModelId), Vec<&CaseTries<'_>>> = BTreeMap::new();
    for case in cases {
        models.entry((&case.last.row.architecture, &case.last.row.model)).or_default().push(case);
    }
    let rows = models.into_iter().filter_map(|((architecture, model), cases)| {
        let mut tally = Tally::default();
        for case in &cases {
            tally.add(case.last.row.outcome, case.last.row.verdict.is_unexpected());
        }
        let worst = cases.iter().max_by_key(|case| verdict_mark(case.last.row.verdict).urgency)?;
        let row = &worst.last.row;
        Some(ModelRow {
            model: model.to_string(),
            link: links.page(model),
            architecture: one_line(architecture, 96),
            class: one_line(&row.class, 96),
            harness: row.harness.as_str(),
            revision: row.revision.as_deref().map_or("–".to_owned(), |revision| revision.chars().take(12).collect()),
            pass: count(tally.pass),
            conclusive: count(tally.pass + tally.fail),
            inconclusive: count(tally.inconclusive),
            unexpected: count(tally.unexpected),
            mark: verdict_mark(row.verdict),
        })
    });
    rows.collect()
}

fn run_facts(input: &ReportInput<'_>, figures: &RunFigures<'_>) -> Vec<Fact> {
    let run = input.run;
    let list = |items: &[String]| match items {
        [] => "–".to_owned(),
        items => one_line(&items.join(", "), 500),
    };
    vec![
        Fact::new("run", one_line(&run.run_id, 60)),
        Fact::new("plan", one_line(&run.plan_id, 80)),
        Fact::new("matrix", one_line(&run.matrix, 100)),
        Fact::new("started", instant(&run.started_at)),
        Fact::new("ended", run.ended_at.as_deref().map_or("–".to_owned(), instant)),
        Fact::new("planned", counted(run.planned, "case")),
        Fact::new("retried", format!("{} of {}", count(figures.retried), counted(figures.tally.total(), "final case"))),
        Fact::new("attempts in this report", count(input.attempts.len() as u64)),
        Fact::new("shards", list(&run.shards)),
        Fact::new("hosts", list(&run.hosts)),
        Fact::new("environments", list(&run.environments)),
        Fact::new("judge's policy", one_line(&input.gates.policy, 60)),
        Fact::new("reported by", format!("modelfarm {}", one_line(input.farm_version, 60))),
    ]
}

fn environment(environment: &EnvironmentFacts) -> EnvironmentView {
    let packages = environment.packages.iter().take(1000);
    EnvironmentView {
        id: one_line(&environment.id, 100),
        name: one_line(&environment.name, 60),
        packages: packages.map(|(name, version)| Fact::new(&one_line(name, 80), one_line(version, 80))).collect(),
        facts: nested_facts(&environment.facts),
    }
}
