//! The badge, the feed and the metrics.

use serde_json::json;

use crate::client::get;
use crate::samples::case;
use crate::served::{confirmation, on_every_kind, on_sqlite};

#[tokio::test]
async fn a_badge_tells_the_newest_complete_run() {
    for served in on_every_kind().await {
        let badge = get(served.address, "/badge/llama.json").await.json();
        // One passed, one failed; what says nothing is told apart.
        let expected = json!({"schemaVersion": 1, "label": "llama", "message": "1/2 pass, 1 inconclusive", "color": "yellow"});
        assert_eq!(badge, expected);
        for (path, message) in [
            ("/badge/gpt2.json", "unknown"),
            ("/badge/llama.json?mode=compiled", "unknown"),
            ("/badge/llama.json?matrix=other", "unknown"),
            ("/badge/llama.json?target=tpu-emulated&mode=strict-eager", "1/2 pass, 1 inconclusive"),
        ] {
            assert_eq!(get(served.address, path).await.json()["message"], message, "{path}");
        }
        assert_eq!(get(served.address, "/badge/a%1b%22b.json").await.json()["label"], "a␛\"b");
    }
}

#[tokio::test]
async fn the_feed_has_an_entry_a_regression_whose_id_stays() {
    for served in on_every_kind().await {
        let answer = get(served.address, "/feed.atom").await;
        assert_eq!(answer.header("content-type"), "application/atom+xml; charset=utf-8");
        let document = roxmltree::Document::parse(&answer.body).unwrap_or_else(|error| panic!("{error}: {}", answer.body));
        let entries: Vec<_> = document.descendants().filter(|node| node.has_tag_name("entry")).collect();
        assert_eq!(entries.len(), 1);
        let text = |name: &str| {
            let node = entries[0].descendants().find(|node| node.tag_name().name() == name).unwrap();
            node.text().unwrap_or_default().to_owned()
        };
        let id = format!("tag:modelfarm,2026:regression/{}/{}", served.second, case(2).id());
        assert_eq!(text("id"), id);
        assert!(text("title").starts_with("regressed (confirmed): zoo/tiny-2"), "{}", text("title"));
        assert!(text("summary").contains("</summary><script>"), "it is text: {}", text("summary"));
        assert!(text("summary").contains("It has failed in each run since 20"), "{}", text("summary"));
        assert!(text("summary").contains("torch 2.14.0 → 2.15.0"), "{}", text("summary"));
        assert!(!answer.body.contains("<script>") && !answer.body.contains(['\u{1b}', '\u{202e}']));
        let elements: Vec<&str> = document.root_element().children().map(|node| node.tag_name().name()).collect();
        assert!(["id", "title", "updated", "author"].iter().all(|name| elements.contains(name)), "{elements:?}");

        served.store.record_confirmation(&confirmation(&case(2), Some(false))).await.unwrap();
        let later = get(served.address, "/feed.atom").await.body;
        assert!(later.contains(&id) && later.contains("not seen again"), "{later}");
    }
}

#[tokio::test]
async fn metrics_count_what_there_is() {
    for served in on_every_kind().await {
        get(served.address, "/api/v1/runs?limit=0").await;
        get(served.address, "/nowhere").await;
        let metrics = get(served.address, "/metrics").await;
        let cases = "modelfarm_cases{target=\"tpu-emulated\",mode=\"strict-eager\",outcome=";
        for line in [
            "modelfarm_runs 3",
            &format!("{cases}\"pass\"}} 1"),
            &format!("{cases}\"runtime_error\"}} 1"),
            &format!("{cases}\"infra_error\"}} 1"),
            "modelfarm_regressions{confirmed=\"yes\"} 1",
            "modelfarm_regressions{confirmed=\"no\"} 0",
            "modelfarm_regressions{confirmed=\"open\"} 0",
            "modelfarm_last_run_state{matrix=\"smoke\",state=\"running\"} 1",
            "modelfarm_last_run_state{matrix=\"smoke\",state=\"complete\"} 0",
            "modelfarm_last_run_planned_cases{matrix=\"smoke\"} 3",
            "modelfarm_requests_total{path=\"/api/v1/runs\",status=\"400\"} 1",
            "modelfarm_requests_total{path=\"other\",status=\"404\"} 1",
        ] {
            assert!(metrics.body.lines().any(|found| found == line), "{line} is not in\n{}", metrics.body);
        }
        let value = |name: &str| {
            let line = metrics.body.lines().find(|line| line.starts_with(name)).unwrap();
            line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()
        };
        assert!(value("modelfarm_database_bytes") > 10_000.0);
        assert!((0.0..600.0).contains(&value("modelfarm_last_run_age_seconds")));
        served.store.finish_attempt(&served.going, &crate::samples::passed(&case(2))).await.unwrap();
        served.store.record_confirmation(&confirmation(&case(2), Some(false))).await.unwrap();
        let later = get(served.address, "/metrics").await.body;
        assert!(later.contains("modelfarm_regressions{confirmed=\"no\"} 1\n"), "{later}");
        assert!(later.contains("modelfarm_last_run_finished_cases{matrix=\"smoke\"} 2\n"), "{later}");
    }
}

#[tokio::test]
async fn each_line_of_the_metrics_is_a_comment_or_a_sample_of_a_family_that_was_told() {
    let served = on_sqlite().await;
    let metrics = get(served.address, "/metrics").await;
    let mut family = String::new();
    for line in metrics.body.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            family = rest.split(' ').next().unwrap().to_owned();
        } else if !line.starts_with("# HELP ") {
            assert!(line.split(['{', ' ']).next() == Some(family.as_str()), "{line} is not of {family}");
            assert!(line.rsplit(' ').next().unwrap().parse::<f64>().is_ok(), "{line}");
        }
    }
}
