//! What is asked is answered, as the command line would, a page at a time; what is not understood is refused.

use modelfarm_reports::rows::RunState;
use serde_json::{Value, json};

use crate::client::{get, get_with};
use crate::samples::case;
use crate::served::{HOSTILE, on_every_kind, on_sqlite, over_nothing};

#[tokio::test]
async fn rows_are_those_that_were_asked_for() {
    for served in on_every_kind().await {
        let ask = async |path: &str| get(served.address, path).await;
        let results = ask("/api/v1/results?run=latest~1&model=zoo/tiny-2&model=zoo/tiny-3&outcome=runtime_error").await;
        assert_eq!(results.column("model"), [json!("zoo/tiny-2")]);
        assert_eq!(ask("/api/v1/results").await.column("attempt").len(), 7);
        assert_eq!(ask("/api/v1/results?mode=compiled").await.json(), json!([]));
        assert_eq!(ask("/api/v1/runs").await.column("state"), [json!("running"), json!("complete"), json!("complete")]);
        let run = ask(&format!("/api/v1/runs/{}", &served.second)).await.json();
        assert_eq!((&run["pass"], &run["fail"], &run["inconclusive"]), (&json!(1), &json!(1), &json!(1)));

        let changes = ask("/api/v1/regressions?matrix=smoke").await.json();
        let row = changes.as_array().unwrap().iter().find(|row| row["change"] == "regressed").unwrap();
        assert_eq!((&row["model"], &row["confirmed"]), (&json!("zoo/tiny-2"), &json!(true)));
        assert_eq!(row["environment_changes"], json!([{"package": "torch", "from": "2.14.0", "to": "2.15.0"}]));
        assert_eq!(ask("/api/v1/regressions?change=fixed").await.json(), json!([]));
        let compared = ask("/api/v1/comparison").await.json();
        assert_eq!(compared["changes"], json!({"regressed": 1, "undecided": 1}));
        let named = ask("/api/v1/comparison?run=latest~1&matrix=smoke").await.json();
        assert_eq!(named["after"], compared["after"]);
        assert_eq!((&compared["before"]["run_id"], &compared["is_bad"]), (&json!(served.first), &json!(true)));

        assert_eq!(ask("/api/v1/failures?run=latest~1").await.column("signature"), [json!(HOSTILE)]);
        assert_eq!(ask("/api/v1/failures?run=latest~1&inconclusive=true").await.column("cases").len(), 2);
        assert_eq!(ask("/api/v1/architectures?run=latest~1").await.column("pass"), [json!(1)]);
        let broken: Vec<Value> = ask("/api/v1/standing").await.json().as_array().unwrap().clone();
        assert_eq!(broken.iter().filter(|row| row["standing"] == "broken").count(), 1);
        assert_eq!(ask("/api/v1/pass-rate?since=2d").await.column("pass").len(), 3);
        assert_eq!(ask("/api/v1/repairs").await.column("open"), [json!(1)]);
        assert_eq!(ask("/api/v1/versions").await.column("architecture"), [json!("llama")]);
        assert_eq!(ask("/api/v1/environments").await.column("environment_id").len(), 2);
        assert_eq!(ask("/api/v1/nights").await.column("state"), [json!("complete")]);

        let case = case(2).id();
        let details = ask(&format!("/api/v1/cases/{case}")).await;
        assert_eq!(details.column("outcome"), [json!("runtime_error"), json!("pass")]);
        assert_eq!(details.json()[0]["leaves"].as_array().unwrap().len(), 3);
        assert_eq!(ask(&format!("/api/v1/cases/{case}?limit=1")).await.column("outcome").len(), 1);
        let attempt = ask(&format!("/api/v1/runs/{}/cases/{case}/attempts/1", served.first)).await.json();
        assert_eq!((&attempt["outcome"], &attempt["run_id"]), (&json!("pass"), &json!(served.first)));
    }
}

/// Follows the links from one page to the next; returns the pages' rows.
async fn pages(address: std::net::SocketAddr, path: &str) -> Vec<Vec<Value>> {
    let (mut pages, mut next) = (Vec::new(), path.to_owned());
    while !next.is_empty() {
        let answer = get(address, &next).await;
        assert_eq!(answer.status, 200, "{next}: {}", answer.body);
        pages.push(answer.json().as_array().unwrap().clone());
        assert!(pages.len() < 50, "the pages of {path} never end");
        let link = answer.header("link").to_owned();
        next = link.strip_suffix(">; rel=\"next\"").and_then(|link| link.strip_prefix('<')).unwrap_or("").to_owned();
        assert_eq!(link.is_empty(), next.is_empty(), "{link}");
    }
    pages
}

#[tokio::test]
async fn pages_together_are_the_whole_and_each_is_as_long_as_asked() {
    for served in on_every_kind().await {
        // What is going changes from one answer to the next.
        served.store.end_shard(&served.going, RunState::Partial).await.unwrap();
        for path in [
            "/api/v1/results?",
            "/api/v1/results?all_attempts=true&target=tpu-emulated&",
            "/api/v1/results?run=latest~1&",
            "/api/v1/results?model=zoo/tiny-1&model=zoo/tiny-2&",
            "/api/v1/results?outcome=pass&",
            "/api/v1/runs?",
            "/api/v1/runs/latest~1/events?",
            "/api/v1/environments?",
            "/api/v1/standing?mode=strict-eager&mode=compiled&",
        ] {
            let whole = get(served.address, path.trim_end_matches(['?', '&'])).await.json().as_array().unwrap().clone();
            assert!(whole.len() > 1, "{path}");
            for limit in 1..=whole.len() + 1 {
                let pages = pages(served.address, &format!("{path}limit={limit}")).await;
                assert!(pages[..pages.len() - 1].iter().all(|page| page.len() == limit), "{path} {limit}");
                assert_eq!(pages.concat(), whole, "{path} {limit}");
            }
        }
    }
}

#[tokio::test]
async fn what_is_not_known_is_refused_with_what_is() {
    let served = on_sqlite().await;
    for (path, parameter, nearest) in [
        ("/api/v1/results?mode=strict_eager", "mode", Some("strict-eager")),
        ("/api/v1/results?mode=compiled&mode=zzz", "mode", None),
        ("/api/v1/results?architectur=llama", "architectur", Some("architecture")),
        ("/api/v1/results?outcome=passs", "outcome", Some("pass")),
        ("/api/v1/results?all_attempts=yes", "all_attempts", None),
        ("/api/v1/results?run=latest&run=latest", "run", None),
        ("/api/v1/results?case=12", "case", None),
        ("/api/v1/results?cursor=12", "cursor", None),
        ("/api/v1/results?format=csvv", "format", Some("csv")),
        ("/api/v1/regressions?change=regresed", "change", Some("regressed")),
        ("/api/v1/regressions?since=yesterday", "since", None),
        ("/api/v1/standing?since=latest", "since", None),
        ("/api/v1/nights?every=0d", "every", None),
        ("/api/v1/flakes?window=366", "window", None),
        ("/api/v1/runs?cursor=-1", "cursor", None),
        ("/metrics?format=json", "format", None),
    ] {
        let answer = get(served.address, path).await;
        assert_eq!(answer.status, 400, "{path}: {}", answer.body);
        let body = answer.json();
        assert_eq!(body["parameter"], parameter, "{path}: {body}");
        assert_eq!(body["nearest"].as_str(), nearest, "{path}: {body}");
        assert!(body["error"].as_str().unwrap().contains(parameter), "{path}: {body}");
    }
}

#[tokio::test]
async fn what_is_not_there_is_told_so() {
    let served = on_sqlite().await;
    let (case, run) = (case(2).id(), &served.first);
    for path in [
        "/api/v1/runs/latest~9",
        "/api/v1/runs/ffffffff-0000",
        "/api/v1/runs/nonsense",
        "/api/v1/runs/ffff/events",
        "/api/v1/runs/ffff/events/stream",
        "/api/v1/results?run=ffff",
        "/api/v1/regressions?matrix=other",
        "/api/v1/comparison?run=latest~1&matrix=other",
        "/api/v1/cases/ffffffffffffffff",
        "/api/v1/cases/xyz",
        &format!("/api/v1/runs/{run}/cases/{case}/attempts/2"),
        &format!("/api/v1/runs/{run}/cases/{case}/attempts/99999999999"),
        // A reference that holds others is none.
        &format!("/api/v1/cases/{run}%2F{case}%2F1"),
        &format!("/api/v1/runs/{run}%2F{case}/cases/{case}/attempts/1"),
        "/badge/llama",
        "/api",
        "/api/v1/",
        "//",
    ] {
        let answer = get(served.address, path).await;
        assert_eq!(answer.status, 404, "{path}: {}", answer.body);
        assert!(!answer.json()["error"].as_str().unwrap().is_empty());
    }
}

#[tokio::test]
async fn a_store_without_runs_is_empty_and_no_error() {
    let (server, _database) = over_nothing().await;
    for (path, status) in [
        ("/", 200),
        ("/api/v1/runs", 200),
        ("/api/v1/results", 200),
        ("/api/v1/nights", 200),
        ("/api/v1/standing", 200),
        ("/api/v1/environments", 200),
        ("/api/v1/regressions", 404),
        ("/api/v1/failures", 404),
        ("/api/v1/flakes", 404),
        ("/badge/llama.json", 200),
        ("/feed.atom", 200),
        ("/metrics", 200),
        ("/healthz", 200),
    ] {
        assert_eq!(get(server.address(), path).await.status, status, "{path}");
    }
    assert!(get(server.address(), "/badge/llama.json").await.body.contains("unknown"));
}

#[tokio::test]
async fn csv_is_the_same_rows_and_holds_no_formula() {
    let served = on_sqlite().await;
    let path = "/api/v1/results?run=latest~1";
    let by_word = get(served.address, &format!("{path}&format=csv")).await;
    let by_header = get_with(served.address, path, &[("Accept", "text/csv")]).await;
    assert_eq!((by_word.header("content-type"), &by_word.body), ("text/csv; charset=utf-8", &by_header.body));
    assert_eq!(by_header.header("vary"), "accept");
    let mut reader = csv::Reader::from_reader(by_word.body.as_bytes());
    let place = |name: &str, headers: &csv::StringRecord| headers.iter().position(|header| header == name).unwrap();
    let headers = reader.headers().unwrap().clone();
    let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    let json = get(served.address, path).await;
    assert_eq!(json.header("content-type"), "application/json");
    let models: Vec<&str> = rows.iter().map(|row| &row[place("model", &headers)]).collect();
    assert_eq!(json!(models), json!(json.column("model")));
    let signatures: Vec<&str> = rows.iter().map(|row| &row[place("signature", &headers)]).collect();
    assert!(signatures.iter().any(|text| text.starts_with("'=cmd")), "{signatures:?}");
    assert!(!by_word.body.contains(['\u{1b}', '\u{202e}']));
    assert!(!json.body.contains(['\u{1b}', '\u{202e}']) && json.body.contains("\\u202e"));

    for path in ["/api/v1/runs/latest?format=csv", "/api/v1/comparison?format=csv", "/api/v1/runs/latest/events?format=csv"] {
        let answer = get(served.address, path).await;
        assert!(answer.status == 200 && answer.body.lines().count() >= 2, "{path}: {}", answer.body);
    }
    assert!(get(served.address, "/api/v1/runs/latest/events?format=csv").await.body.contains(",attempt_finished,"));
    // A page of CSV goes on in CSV.
    let page = get(served.address, &format!("{path}&format=csv&limit=1")).await;
    assert!(page.header("link").contains("format=csv"), "{:?}", page.headers);
}
