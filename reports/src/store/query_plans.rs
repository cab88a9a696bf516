//! How the databases carry statements out. For tests: what is asked of a history of years may not read all of its attempts.

#[path = "../../examples/ask_history/questions.rs"]
mod questions;

use std::cell::RefCell;

use modelfarm_matrix::attempt::{Attempt, Metrics};
use modelfarm_matrix::case::Case;
use modelfarm_matrix::event::Event;
use modelfarm_matrix::expectation::Verdict;
use modelfarm_matrix::fault::Evidence;
use modelfarm_matrix::outcome::{Check, Outcome, Stage};
use serde_json::json;

use super::{Confirmation, NewRun, PastRun, PastTry, Retrial, Store};
use crate::query::{Artifact, AttemptPlace, CaseFilter, ResultFilter};
use questions::{Asked, Subject};

/// A statement, and the steps in which it is carried out.
struct Plan {
    statement: String,
    steps: Vec<String>,
}

/// Large tables, as this crate's statements name them.
const LARGE: [&str; 10] = ["attempts", "a", "last", "l", "n", "f", "attempt_details", "d", "events", "e"];

impl Plan {
    /// Whether it reads a large table, or an index of one, from end to end.
    fn reads_everything(&self) -> bool {
        let mut steps = self.steps.iter().map(|step| step.trim_start_matches([' ', '-', '>'])).peekable();
        while let Some(step) = steps.next() {
            let scanned = match step.strip_prefix("SCAN ") {
                Some(sqlite) => sqlite.split(' ').next(),
                // PostgreSQL: `Seq Scan on attempts a  (cost=...)`, and an index without a condition on the next line.
                None if step.contains("Seq Scan on ") => scanned_table(step),
                None if step.contains("Scan using ") => {
                    let is_narrow = steps.peek().is_some_and(|next| next.starts_with("Index Cond: "));
                    if is_narrow { None } else { scanned_table(step) }
                }
                None => None,
            };
            if scanned.is_some_and(|table| LARGE.contains(&table)) {
                return true;
            }
        }
        false
    }

    /// Whether it sorts what it read.
    fn sorts(&self) -> bool {
        self.steps.iter().any(|step| step.starts_with("USE TEMP B-TREE FOR ORDER BY"))
    }
}

/// The table that a step of PostgreSQL's names after `on`.
fn scanned_table(step: &str) -> Option<&str> {
    step.split(" on ").nth(1)?.split(' ').next()
}

thread_local! {
    static NOTED: RefCell<Option<Vec<Plan>>> = const { RefCell::new(None) };
}

pub(super) fn are_noted() -> bool {
    NOTED.with_borrow(Option::is_some)
}

pub(super) fn note(statement: String, steps: Vec<String>) {
    NOTED.with_borrow_mut(|noted| noted.get_or_insert_default().push(Plan { statement, steps }));
}

/// The plans of every statement of some work on this thread.
async fn plans_of<T>(work: impl Future<Output = T>) -> (T, Vec<Plan>) {
    NOTED.set(Some(Vec::new()));
    let result = work.await;
    (result, NOTED.take().unwrap_or_default())
}

fn case(number: usize) -> Case {
    let canonical =
        format!("v1/zoo/tiny-{number}/LlamaForCausalLM/transformers/real/forward/default/float32/highest/eager/tpu/compiled");
    canonical.parse().unwrap()
}

fn attempt(number: usize) -> Attempt {
    Attempt {
        case: case(number),
        attempt: 1,
        architecture: "llama".into(),
        revision: None,
        check: Check::Execute,
        outcome: Outcome::Crash,
        stage: Stage::Execute,
        fault: None,
        evidence: Evidence::default(),
        verdict: Verdict::UnexpectedFail,
        expectation_reason: None,
        signature: Some("crash".into()),
        message: None,
        traceback: None,
        output_tail: None,
        started_at: 1000,
        duration_ms: 10,
        farm_overhead_ms: Some(1.0),
        host: "host-a".into(),
        environment_id: Some("e1".into()),
        inputs_hash: None,
        reference_key: None,
        metrics: Metrics::default(),
        leaves: Vec::new(),
        facts: json!({}),
    }
}

fn new_run(number: usize) -> NewRun {
    NewRun {
        run_id: format!("0000000{number}-0000-7000-8000-000000000000"),
        matrix: "nightly".into(),
        selection: String::new(),
        plan_id: "plan".into(),
        planned_cases: (0..5).map(|number| case(number).canonical()).collect(),
        shard: "1/1".into(),
        host: "host-a".into(),
        pid: 1,
        facts: json!({}),
    }
}

fn past_run(number: usize) -> PastRun {
    PastRun {
        run: new_run(number),
        started_at: 1000,
        ended_at: 2000,
        is_interrupted: false,
        environments: Vec::new(),
        models: Vec::new(),
        tries: (0..5).map(|number| PastTry { attempt: attempt(number), is_retried: false }).collect(),
    }
}

/// Runs an expression, and examines how each of its statements is carried out.
macro_rules! assert_reads_little {
    ($($work:expr),+ $(,)?) => {
        $(
            let (result, plans) = plans_of($work).await;
            result.unwrap();
            assert!(!plans.is_empty(), "{} runs no statement", stringify!($work));
            for plan in &plans {
                assert!(!plan.reads_everything(), "{}: {}\n{:#?}", stringify!($work), plan.statement, plan.steps);
            }
        )+
    };
}

#[tokio::test]
async fn no_question_about_a_run_or_a_case_reads_all_attempts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("farm.db");
    let store = Store::create_or_migrate_file(&path).await.unwrap();
    for number in 1..=3 {
        store.record_past_run(&past_run(number)).await.unwrap();
    }
    let run = store.begin_run(&new_run(4)).await.unwrap();
    let id = case(0).id();
    let last = NewRun { run_id: "00000004".into(), ..new_run(4) }.run_id;
    let artifact = Artifact { kind: "outputs".into(), host: "host-a".into(), path: "out".into(), bytes: 1 };
    let retrial = Retrial { environment_id: "e1".into(), revision: None, outcomes: vec![Outcome::Pass] };
    let confirmation = Confirmation::new(id.clone(), retrial.clone(), retrial, None);
    let of_run = ResultFilter { run: Some("latest".into()), ..ResultFilter::default() };
    let of = |cases: CaseFilter| ResultFilter { cases, ..ResultFilter::default() };
    let of_case = of(CaseFilter { ids: vec![id.clone()], ..CaseFilter::default() });
    let of_architecture = of(CaseFilter { architectures: vec!["llama".into()], ..CaseFilter::default() });
    let page = ResultFilter { limit: Some(2), ..ResultFilter::default() };
    let place = AttemptPlace { run_id: last.clone(), case_id: id.clone(), attempt: 1 };
    let next_page = ResultFilter { after: Some(place.clone()), ..page.clone() };
    let next_of_case = ResultFilter { after: Some(place), limit: Some(2), ..of_case.clone() };
    assert_reads_little![
        store.record_past_run(&past_run(5)),
        store.finish_attempt_before_retry(&run, &attempt(0)),
        store.finish_attempt(&run, &Attempt { attempt: 2, ..attempt(0) }),
        store.add_farm_overhead(&run, &id, 2, 1.0),
        store.record_artifact(&run, id.as_str(), 2, &artifact),
        store.append_event(&run, &Event::RunFinished { interrupted: false }),
        store.final_cases(&run),
        store.last_attempts(&run),
        store.earlier_durations(&run),
        store.environments_used_since(1),
        store.record_confirmation(&confirmation),
        store.confirmations_of(&id),
        store.run("latest"),
        store.runs(None),
        store.events("latest", 0, 10),
        store.final_attempts("latest"),
        store.artifacts_of(&last, id.as_str(), 2),
        store.attempts_of(id.as_str(), None),
        store.attempts_of(&format!("{last}/{id}"), None),
        store.attempts_of(&format!("{last}/{id}/2"), None),
        store.attempts_of(&format!("{id}/1"), None),
        store.results(&of_run),
        store.results(&of_case),
        store.results(&of_architecture),
        store.results(&page),
        store.results(&next_page),
        store.results(&next_of_case),
        store.revision(),
        store.run_state("latest"),
        store.run_count(),
        store.runs_behind(1, Some(2)),
        store.complete_runs(Some("nightly"), 2),
        store.outcome_counts("latest"),
    ];
    // And the question about everything shows that a plan which reads everything is seen.
    let (_, plans) = plans_of(store.results(&ResultFilter::default())).await;
    assert!(plans.iter().any(|plan| plan.reads_everything() && plan.sorts()));
}

#[tokio::test]
async fn no_question_about_time_reads_all_attempts() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::create_or_migrate_file(&folder.path().join("farm.db")).await.unwrap();
    for number in 1..=3 {
        let past = past_run(number);
        store.record_past_run(&PastRun { started_at: 1000 * number as i64, ..past }).await.unwrap();
    }
    assert_answers_read_little(&store).await;
}

/// `.ci/bench/history` asks this of a year of nights, whose size and statistics may lead a database to other plans.
#[tokio::test]
#[ignore = "needs the URL of a long history in MODELFARM_TEST_HISTORY"]
async fn no_question_reads_all_attempts_of_a_long_history() {
    let url = std::env::var("MODELFARM_TEST_HISTORY").expect("the URL of a database with a long history");
    let store = Store::open_read_only(&url).await.unwrap();
    assert_answers_read_little(&store).await;
}

async fn assert_answers_read_little(store: &Store) {
    let about = Subject::of(store, "llama").await.unwrap();
    let mut reading_much = Vec::new();
    for asked in Asked::ALL {
        let (rows, plans) = plans_of(asked.ask(store, &about)).await;
        rows.unwrap();
        assert!(!plans.is_empty(), "`{asked}` runs no statement");
        let much = plans.iter().filter(|plan| plan.reads_everything());
        reading_much.extend(much.map(|plan| format!("{asked}: {}\n{:#?}", plan.statement, plan.steps)));
    }
    reading_much.dedup();
    assert!(reading_much.is_empty(), "{}", reading_much.join("\n"));
}

#[test]
fn a_plan_of_postgresql_that_reads_everything_is_seen() {
    let plan = |steps: &[&str]| Plan { statement: String::new(), steps: steps.iter().map(|step| (*step).to_owned()).collect() };
    for much in [
        &["Seq Scan on attempts a  (cost=0.00..1.00 rows=1 width=8)"][..],
        &["Gather  (cost=1)", "  ->  Parallel Seq Scan on attempts  (cost=1)"],
        &["Sort", "  ->  Index Only Scan using attempts_of_case on attempts a  (cost=1)", "  Filter: (is_final = 1)"],
    ] {
        assert!(plan(much).reads_everything(), "{much:?}");
    }
    for little in [
        &["Seq Scan on runs  (cost=1)"][..],
        &["  ->  Index Scan using attempts_of_case on attempts a  (cost=1)", "        Index Cond: (case_key = 1)"],
        &[
            "Bitmap Heap Scan on attempts a  (cost=1)",
            "  ->  Bitmap Index Scan on attempts_of_case  (cost=1)",
            "    Index Cond: (case_key = 1)",
        ],
    ] {
        assert!(!plan(little).reads_everything(), "{little:?}");
    }
}

#[tokio::test]
async fn a_merge_reads_each_page_from_where_the_last_ended() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source.db");
    let from = Store::create_or_migrate_file(&source).await.unwrap();
    from.record_past_run(&past_run(1)).await.unwrap();
    from.record_past_run(&past_run(2)).await.unwrap();
    from.close().await;
    let store = Store::create_or_migrate_file(&folder.path().join("farm.db")).await.unwrap();
    // Once where everything is new, and once where everything is here.
    for _ in 0..2 {
        let (report, plans) = plans_of(store.merge(&source)).await;
        assert_eq!(report.unwrap().attempts_conflicting, 0);
        let pages: Vec<&Plan> = plans.iter().filter(|plan| plan.statement.contains(" LIMIT ")).collect();
        assert!(pages.len() > 5, "{}", pages.len());
        for plan in &plans {
            assert!(!plan.reads_everything(), "{}\n{:#?}", plan.statement, plan.steps);
        }
        for page in pages {
            assert!(!page.sorts(), "{}\n{:#?}", page.statement, page.steps);
        }
    }
}
