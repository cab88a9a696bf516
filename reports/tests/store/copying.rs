//! A whole history from one database to another, of any kind.

use modelfarm_matrix::model::{Model, ModelSource};
use modelfarm_matrix::outcome::Outcome;
use modelfarm_reports::query::Artifact;
use modelfarm_reports::store::{CachedReference, Confirmation, Environment, NewRun, PastRun, PastTry, Retrial, Store};

use crate::databases::{TestDatabase, every_kind, open};
use crate::past_the_store::PastTheStore;
use crate::samples::{case, cases, failed, new_run, passed, past_run};

/// A store with something of everything.
async fn fill(store: &Store) {
    for night in 1..=3 {
        let run = NewRun { run_id: format!("0000000{night}-0000-7000-8000-000000000000"), ..new_run(&cases(300)) };
        let tries = (0..300).map(|number| {
            let sample = if number % 7 == night { failed(&case(number)) } else { passed(&case(number)) };
            PastTry { attempt: sample, is_retried: false }
        });
        let environment = Environment {
            environment_id: format!("e{night}"),
            name: "torchtpu".into(),
            packages: [("torch".to_owned(), "2.15.0".to_owned())].into(),
            requirements: "torch==2.15.0".into(),
            created_at: 1,
        };
        let model = Model {
            id: "zoo/tiny-0".parse().unwrap(),
            revision: Some(format!("r{night}")),
            source: ModelSource::Fixtures,
            architecture: "llama".into(),
            class: "LlamaForCausalLM".into(),
            harness: case(0).harness,
            tags: vec!["tiny".into()],
            downloads: 5,
        };
        let past = past_run(run, tries.collect());
        store.record_past_run(&PastRun { environments: vec![environment], models: vec![model], ..past }).await.unwrap();
    }
    let run = store.begin_run(&new_run(&cases(2))).await.unwrap();
    store.finish_attempt_before_retry(&run, &failed(&case(0))).await.unwrap();
    let artifact = |kind: &str| Artifact { kind: kind.into(), host: "host-a".into(), path: "out/1".into(), bytes: 9 };
    for kind in ["outputs", "program"] {
        store.record_artifact(&run, case(0).id().as_str(), 1, &artifact(kind)).await.unwrap();
    }
    let reference = CachedReference {
        key: "k".into(),
        host: "host-a".into(),
        path: "references/k".into(),
        bytes: 7,
        created_at: 1,
        last_used_at: 2,
        facts: serde_json::json!({"dtype": "float32"}),
    };
    store.record_reference(&reference).await.unwrap();
    let retrial = |outcome| Retrial { environment_id: "e1".into(), revision: None, outcomes: vec![outcome; 4] };
    for confirmed in [Some(true), Some(false), None] {
        let confirmation = Confirmation::new(case(0).id(), retrial(Outcome::Pass), retrial(Outcome::Mismatch), confirmed);
        store.record_confirmation(&confirmation).await.unwrap();
    }
}

async fn content(database: &TestDatabase) -> Vec<String> {
    PastTheStore::to(&database.url).await.content().await
}

#[tokio::test]
async fn a_copy_holds_everything_and_a_second_copy_finds_it_present() {
    for source in every_kind().await {
        let store = open(&source).await;
        fill(&store).await;
        store.close().await;
        let original = content(&source).await;
        for kind in
            ["plan", "run", "shard", "attempt", "event", "environment", "model", "reference", "artifact", "confirmation"]
        {
            assert!(original.iter().any(|line| line.split('|').next() == Some(kind)), "{kind}");
        }
        for target in every_kind().await {
            let (from, into) = (Store::open_read_only(&source.url).await.unwrap(), open(&target).await);
            let first = into.merge_store(&from).await.unwrap();
            assert_eq!((first.runs_new, first.attempts_new, first.confirmations_new), (4, 901, 3));
            assert_eq!(content(&target).await, original);
            let second = into.merge_store(&from).await.unwrap();
            assert_eq!((second.runs_new, second.attempts_new, second.events_new, second.confirmations_new), (0, 0, 0, 0));
            assert_eq!((second.runs_present, second.attempts_present, second.confirmations_present), (4, 901, 3));
            assert_eq!(second.events_present, first.events_new);
            assert_eq!(content(&target).await, original);
        }
    }
}
