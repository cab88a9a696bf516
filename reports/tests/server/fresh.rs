//! An answer is sent once while nothing changes, and never after something did.

use modelfarm_matrix::attempt::Attempt;
use modelfarm_matrix::event::Event;
use modelfarm_reports::rows::RunState;

use crate::client::{get, get_with};
use crate::samples::{case, new_run, passed};
use crate::served::{confirmation, environment, on_every_kind, on_sqlite};

const RESULTS: &str = "/api/v1/results";

#[tokio::test]
async fn what_is_known_is_not_sent_again() {
    let served = on_sqlite().await;
    for path in [
        RESULTS,
        "/api/v1/results?format=csv",
        "/feed.atom",
        "/badge/llama.json",
        "/api/v1/openapi.json",
        "/api/v1/regressions",
    ] {
        let first = get(served.address, path).await;
        let tag = first.header("etag").to_owned();
        assert!(tag.starts_with('"') && tag.len() == 18, "{path}: {tag}");
        assert_eq!(first.header("cache-control"), "no-cache");
        for known in [tag.clone(), format!("W/{tag}"), format!("\"x\", {tag}"), "*".to_owned()] {
            let again = get_with(served.address, path, &[("If-None-Match", &known)]).await;
            assert_eq!((again.status, again.body.as_str(), again.header("etag")), (304, "", tag.as_str()), "{path} {known}");
        }
        let other = get_with(served.address, path, &[("If-None-Match", "\"0123456789abcdef\"")]).await;
        assert_eq!((other.status, &other.body), (200, &first.body), "{path}");
        // From memory, and the same.
        assert_eq!(get(served.address, path).await.body, first.body, "{path}");
    }
    for path in ["/metrics", "/healthz"] {
        let answer = get(served.address, path).await;
        assert_eq!((answer.header("etag"), answer.header("cache-control")), ("", "no-store"), "{path}");
    }
}

#[tokio::test]
async fn different_questions_have_different_tags() {
    let served = on_sqlite().await;
    let mut tags = std::collections::BTreeMap::new();
    for path in [
        RESULTS,
        "/api/v1/results?format=csv",
        "/api/v1/results?limit=1",
        "/api/v1/results?mode=compiled",
        "/api/v1/results?mode=compiled&mode=strict-eager",
        "/api/v1/results?model=compiled",
        "/api/v1/runs",
        "/api/v1/runs/latest",
        "/api/v1/runs/latest~1",
    ] {
        let tag = get(served.address, path).await.header("etag").to_owned();
        assert_eq!(tags.insert(tag, path), None, "{path}");
    }
    let asked = get(served.address, "/api/v1/results?mode=compiled&limit=7").await;
    let turned = get(served.address, "/api/v1/results?limit=7&mode=compiled").await;
    assert_eq!(asked.header("etag"), turned.header("etag"));
}

#[tokio::test]
async fn whatever_is_recorded_makes_answers_new() {
    for served in on_every_kind().await {
        let store = &served.store;
        let mut tag = get(served.address, RESULTS).await.header("etag").to_owned();
        let mut assert_new = async |what: &str| {
            let answer = get_with(served.address, RESULTS, &[("If-None-Match", &tag)]).await;
            assert_eq!(answer.status, 200, "after {what}");
            assert_ne!(answer.header("etag"), tag, "after {what}");
            tag = answer.header("etag").to_owned();
            answer.column("model").len()
        };
        store.finish_attempt(&served.going, &passed(&case(2))).await.unwrap();
        assert_eq!(assert_new("an attempt").await, 8);
        let again = Attempt { attempt: 2, ..passed(&case(2)) };
        store.finish_attempt_before_retry(&served.going, &again).await.unwrap();
        assert_eq!(assert_new("an attempt that is to be tried again").await, 7);
        store.append_event(&served.going, &Event::RunFinished { interrupted: false }).await.unwrap();
        assert_new("an event").await;
        store.record_confirmation(&confirmation(&case(1), None)).await.unwrap();
        assert_new("a confirmation").await;
        environment(store, "e3", "2.16.0").await;
        assert_new("an environment").await;
        store.end_shard(&served.going, RunState::Partial).await.unwrap();
        assert_new("the end of a shard").await;
        store.begin_run(&new_run(&[case(1)])).await.unwrap();
        assert_new("the beginning of a run").await;
    }
}

#[tokio::test]
async fn a_run_that_ends_is_told_at_once() {
    let served = on_sqlite().await;
    assert_eq!(get(served.address, "/api/v1/runs/latest").await.json()["state"], "running");
    served.store.end_shard(&served.going, RunState::Interrupted).await.unwrap();
    assert_eq!(get(served.address, "/api/v1/runs/latest").await.json()["state"], "interrupted");
}
