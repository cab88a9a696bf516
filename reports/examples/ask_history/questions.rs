//! What people and a dashboard ask of a long history.

use modelfarm_matrix::case::CaseId;
use modelfarm_reports::query::{CaseFilter, HistoryFilter, Question, ResultFilter, Since};
use modelfarm_reports::store::{Store, StoreError};

const DAY_MS: i64 = 86_400_000;

modelfarm_matrix::words! {
    /// A question.
    pub enum Asked ("question") {
        /// `query regressions --architecture A --since 7d`.
        RegressionsOfArchitecture => "regressions of an architecture since 7d",
        /// `query regressions`.
        Regressions => "regressions of the whole matrix",
        /// `query regressions --since 7d`.
        RegressionsSinceAWeek => "regressions of the whole matrix since 7d",
        /// `query flakes`.
        Flakes => "flakes",
        /// `query hosts`.
        Hosts => "hosts",
        /// `query standing --model ID`.
        StandingOfModel => "standing of a model",
        /// `query standing --architecture A`.
        StandingOfArchitecture => "standing of an architecture",
        /// `query standing`.
        Standing => "standing of all",
        /// `query pass-rate --architecture A --mode M --since 90d`.
        PassRateOfArchitecture => "pass rate of an architecture in 90d",
        /// `query pass-rate`.
        PassRate => "pass rate of all in 90d",
        /// `query pass-rate --since 365d`.
        PassRateOfAYear => "pass rate of all in 365d",
        /// `query repairs --architecture A`.
        RepairsOfArchitecture => "repairs of an architecture in 365d",
        /// `query repairs`.
        Repairs => "repairs of all in 365d",
        /// `query versions --architecture A`.
        VersionsOfArchitecture => "passing versions of an architecture",
        /// `query versions`.
        Versions => "passing versions of all",
        /// `query failures`.
        Failures => "failures of a run",
        /// `query architectures`.
        Architectures => "architectures of a run",
        /// `query runs --limit 30`.
        Runs => "30 runs",
        /// `query runs`.
        AllRuns => "all runs",
        /// `query results --run R`.
        ResultsOfRun => "results of a run",
        /// `query results --run R --architecture A`.
        ResultsOfArchitecture => "results of an architecture in a run",
        /// `query results --case ID`.
        ResultsOfCase => "results of a case in all runs",
        /// `show CASE`.
        CaseHistory => "one case's history with details",
        /// What `expect check` asks.
        KnownCases => "known cases",
    }
}

/// What the questions are about.
pub struct Subject {
    run: String,
    /// A year before the newest run, and so on.
    newest_start: i64,
    architecture: String,
    model: String,
    case: CaseId,
}

impl Subject {
    /// A case of `architecture` in the newest complete run.
    pub async fn of(store: &Store, architecture: &str) -> Result<Self, Box<dyn std::error::Error>> {
        let newest = store.comparison(&Question::default()).await?.after;
        let filter = ResultFilter {
            run: Some(newest.run_id.clone()),
            cases: of_architecture(architecture),
            limit: Some(1),
            final_only: true,
            ..ResultFilter::default()
        };
        let rows = store.results(&filter).await?;
        let row = rows.first().ok_or_else(|| format!("the newest complete run asks no case of {architecture}"))?;
        Ok(Self {
            run: newest.run_id,
            newest_start: newest.started_at.parse::<jiff::Timestamp>()?.as_millisecond(),
            architecture: architecture.to_owned(),
            model: row.model.to_string(),
            case: row.case_id.clone(),
        })
    }

    fn in_days(&self, days: i64, cases: CaseFilter) -> HistoryFilter {
        HistoryFilter { matrix: None, from: self.newest_start - days * DAY_MS, cases }
    }

    fn of_run(&self, cases: CaseFilter) -> ResultFilter {
        ResultFilter { run: Some(self.run.clone()), cases, final_only: true, ..ResultFilter::default() }
    }
}

fn of_architecture(architecture: &str) -> CaseFilter {
    CaseFilter { architectures: vec![architecture.to_owned()], ..CaseFilter::default() }
}

impl Asked {
    /// Asks; returns the number of rows of the answer.
    pub async fn ask(self, store: &Store, about: &Subject) -> Result<usize, StoreError> {
        let all = CaseFilter::default;
        let architecture = || of_architecture(&about.architecture);
        let model = || CaseFilter { models: vec![about.model.clone()], ..CaseFilter::default() };
        let a_week = || Some(Since::Ago(7 * DAY_MS));
        let compared = |since, cases| Question { since, cases, ..Question::default() };
        Ok(match self {
            Asked::RegressionsOfArchitecture => store.comparison(&compared(a_week(), architecture())).await?.rows.len(),
            Asked::Regressions => store.comparison(&compared(None, all())).await?.rows.len(),
            Asked::RegressionsSinceAWeek => store.comparison(&compared(a_week(), all())).await?.rows.len(),
            Asked::Flakes => store.flakes(None, 30).await?.len(),
            Asked::Hosts => store.host_flakes(None, 30).await?.len(),
            Asked::StandingOfModel => store.standing(&about.in_days(3650, model())).await?.len(),
            Asked::StandingOfArchitecture => store.standing(&about.in_days(3650, architecture())).await?.len(),
            Asked::Standing => store.standing(&about.in_days(3650, all())).await?.len(),
            Asked::PassRateOfArchitecture => store.pass_rate(&about.in_days(90, architecture())).await?.len(),
            Asked::PassRate => store.pass_rate(&about.in_days(90, all())).await?.len(),
            Asked::PassRateOfAYear => store.pass_rate(&about.in_days(365, all())).await?.len(),
            Asked::RepairsOfArchitecture => store.repairs(&about.in_days(365, architecture())).await?.len(),
            Asked::Repairs => store.repairs(&about.in_days(365, all())).await?.len(),
            Asked::VersionsOfArchitecture => store.passing_versions(&about.in_days(365, architecture())).await?.len(),
            Asked::Versions => store.passing_versions(&about.in_days(365, all())).await?.len(),
            Asked::Failures => store.failures(&about.of_run(all()), false).await?.len(),
            Asked::Architectures => store.architectures(&about.of_run(all())).await?.len(),
            Asked::Runs => store.runs(Some(30)).await?.len(),
            Asked::AllRuns => store.runs(None).await?.len(),
            Asked::ResultsOfRun => store.results(&about.of_run(all())).await?.len(),
            Asked::ResultsOfArchitecture => store.results(&about.of_run(architecture())).await?.len(),
            Asked::ResultsOfCase => {
                let cases = CaseFilter { ids: vec![about.case.clone()], ..CaseFilter::default() };
                store.results(&ResultFilter { cases, ..ResultFilter::default() }).await?.len()
            }
            Asked::CaseHistory => store.attempts_of(about.case.as_str(), None).await?.len(),
            Asked::KnownCases => store.known_cases().await?.len(),
        })
    }
}
