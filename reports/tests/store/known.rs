//! The cases that expectations are held against.

use modelfarm_matrix::attempt::Attempt;
use modelfarm_matrix::axes::Harness;
use modelfarm_matrix::known_case::{KnownCase, Repository, Seen};
use modelfarm_matrix::model::{Model, ModelSource};
use modelfarm_matrix::outcome::Outcome;
use modelfarm_reports::rows::RunState;
use modelfarm_reports::store::NewRun;

use crate::databases::{every_kind, open};
use crate::samples::{case, cases, failed, new_run, passed};

fn model(tags: &[&str]) -> Model {
    Model {
        id: case(0).model,
        revision: Some("0".repeat(40)),
        source: ModelSource::Hub,
        architecture: "llama".into(),
        class: case(0).class,
        harness: Harness::Transformers,
        tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
        downloads: 7,
    }
}

fn run_of(number: u32, planned: usize) -> NewRun {
    NewRun {
        run_id: format!("0000000{number}-0000-7000-8000-000000000000"),
        plan_id: format!("{number}123456789abcdef"),
        ..new_run(&cases(planned))
    }
}

#[tokio::test]
async fn each_case_tells_its_newest_result_and_that_of_a_complete_run() {
    for database in every_kind().await {
        let store = open(&database).await;
        assert_eq!(store.known_cases().await.unwrap(), []);
        store.record_model(&model(&["smoke"])).await.unwrap();
        let at = |started_at: i64, attempt: Attempt| Attempt { started_at, ..attempt };

        let whole = store.begin_run(&run_of(1, 2)).await.unwrap();
        store.finish_attempt(&whole, &at(1000, passed(&case(0)))).await.unwrap();
        store.finish_attempt(&whole, &at(1001, failed(&case(1)))).await.unwrap();
        store.end_shard(&whole, RunState::Complete).await.unwrap();

        // Two runs later that are not complete, whatever their shards said when they ended.
        for number in [2, 3] {
            let half = store.begin_run(&run_of(number, 3)).await.unwrap();
            let renamed = Attempt { architecture: "llama2".into(), ..failed(&case(0)) };
            store.finish_attempt(&half, &at(1000 * i64::from(number), renamed)).await.unwrap();
            store.finish_attempt_before_retry(&half, &at(1000 * i64::from(number), failed(&case(2)))).await.unwrap();
            store.end_shard(&half, RunState::Complete).await.unwrap();
        }

        let seen = |attempt: &Attempt| Some(Seen { outcome: attempt.outcome, fault: attempt.fault });
        let (pass, failure) = (seen(&passed(&case(0))), seen(&failed(&case(0))));
        let known = |number: usize, architecture: &str, tags: &[&str], newest, in_complete_run| KnownCase {
            case: case(number),
            repository: Some(Repository { architecture: architecture.into(), tags: model(tags).tags }),
            newest,
            in_complete_run,
        };
        assert_eq!(
            store.known_cases().await.unwrap(),
            [
                known(0, "llama2", &["smoke"], failure, pass),
                known(1, "llama", &[], failure, failure),
                // Its one try is to be followed by another.
                known(2, "llama", &[], None, None),
            ]
        );
        assert_eq!(pass.unwrap().outcome, Outcome::Pass);

        let planned = store.planned_cases("latest").await.unwrap();
        let told: Vec<_> = planned.iter().map(|known| (known.case.clone(), known.repository.is_some())).collect();
        assert_eq!(told, [(case(0), true), (case(1), false), (case(2), false)]);
        assert!(planned.iter().all(|known| known.newest.is_none()));
        assert!(store.planned_cases("latest~9").await.is_err());
    }
}
