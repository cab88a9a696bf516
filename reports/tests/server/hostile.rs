//! Whatever is asked, the answer is none of an error of the server, and the server goes on.

use std::time::Duration;

use modelfarm_matrix::attempt::Attempt;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::client::{get, raw};
use crate::samples::{case, passed};
use crate::served::{on_every_kind, on_sqlite};

#[tokio::test]
async fn hostile_values_are_refused_or_find_nothing() {
    for served in on_every_kind().await {
        let long = "a".repeat(5000);
        let many = "mode=compiled&".repeat(51);
        for path in [
            &format!("/api/v1/results?model={long}"),
            &format!("/api/v1/results?{long}=1"),
            &format!("/api/v1/runs/{long}"),
            &format!("/badge/{long}.json"),
            &format!("/api/v1/results?{many}"),
            "/api/v1/results?model=%00",
            "/api/v1/results?model=%1b%5b31m%e2%80%ae",
            "/api/v1/results?model=%ff%fe",
            "/api/v1/results?%ff=1",
            "/api/v1/runs/%ff",
            "/badge/%ff.json",
            "/badge/%00.json",
            "/badge/..%2f..%2fetc%2fpasswd.json",
            "/api/v1/results?model='%20OR%201=1--",
            "/api/v1/results?run=%25",
            "/api/v1/results?run=____",
            "/api/v1/cases/%25",
            "/api/v1/results?limit=18446744073709551616",
            "/api/v1/results?limit=-1",
            "/api/v1/results?limit=1e3",
            "/api/v1/results?limit=%2b5",
            "/api/v1/results?limit=",
            "/api/v1/results?limit=1001",
            "/api/v1/runs?cursor=999999999",
            "/api/v1/runs?cursor=18446744073709551615",
            "/api/v1/runs/latest/events?after=9223372036854775807",
            "/api/v1/runs/latest/events?after=9223372036854775808",
            "/api/v1/runs/latest~99999999999",
            "/api/v1/runs/latest~-1",
            "/api/v1/flakes?window=0",
            "/api/v1/standing?since=99999d",
            "/api/v1/standing?since=9999-12-31",
            "/api/v1/standing?since=0000-01-01",
            "/api/v1/regressions?since=0001-01-01",
            "/api/v1/nights?since=99999w&every=99999w",
            "/api/v1/results?cursor=ffffffff-ffff-ffff-ffff-ffffffffffff.ffffffffffffffff.1",
            "/api/v1/results?cursor=..",
            "/api/v1/results?&&&=&=&",
            "/api/v1/results?=",
            "/../../etc/passwd",
            "/style.css/../../../etc/passwd",
            "/%2e%2e/%2e%2e/etc/passwd",
        ] {
            let answer = get(served.address, path).await;
            let shown: String = path.chars().take(90).collect();
            assert!(answer.status < 500, "{shown}: {} {}", answer.status, answer.body);
            assert!(!answer.body.contains(['\u{1b}', '\u{202e}', '\0']) && !answer.body.contains("root:"), "{shown}");
            assert!(answer.body.len() < 20_000, "{shown} is answered with {} bytes", answer.body.len());
        }
        for (path, status) in [
            (format!("/api/v1/results?model={long}"), 400),
            (format!("/api/v1/results?{many}"), 400),
            ("/api/v1/results?model=%ff%fe".to_owned(), 400),
            ("/api/v1/runs/%ff".to_owned(), 400),
            ("/api/v1/results?limit=-1".to_owned(), 400),
            ("/api/v1/results?limit=1001".to_owned(), 400),
            ("/api/v1/results?limit=1000".to_owned(), 200),
            ("/api/v1/results?model=%00".to_owned(), 200),
            ("/api/v1/runs?cursor=999999999".to_owned(), 200),
            ("/api/v1/runs/latest~-1".to_owned(), 404),
        ] {
            assert_eq!(get(served.address, &path).await.status, status, "{}", &path[..path.len().min(90)]);
        }
    }
}

#[test]
fn no_query_makes_the_server_fail() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let _inside = runtime.enter();
    let served = runtime.block_on(on_sqlite());
    let endpoint = proptest::sample::select(modelfarm_reports::server::served_paths());
    let name = prop_oneof![
        Just("limit"),
        Just("cursor"),
        Just("run"),
        Just("since"),
        Just("mode"),
        Just("matrix"),
        Just("case"),
        Just("model"),
        Just("after"),
        Just("window"),
        Just("every"),
        Just("format"),
        Just("outcome"),
    ];
    let value = prop_oneof![
        any::<String>(),
        any::<i64>().prop_map(|number| number.to_string()),
        "[0-9]{1,6}[mhdw]",
        "latest~[0-9]{1,12}",
        "[a-z_]{1,14}"
    ];
    let pairs = proptest::collection::vec((name, value), 0..4);
    let words = proptest::collection::vec("[a-zA-Z0-9~.%-]{1,20}", 3);
    let config = Config { cases: 300, failure_persistence: None, ..Config::default() };
    let tried = TestRunner::new(config).run(&(endpoint, pairs, words), |(endpoint, pairs, words)| {
        // Any of the values may stand in the path, or none that is there.
        let path = endpoint
            .replace("{run}", &words[0])
            .replace("{case}", &words[1])
            .replace("{attempt}", &words[2])
            .replace("{architecture}", &words[0]);
        let encoded = |text: &str| text.bytes().map(|byte| format!("%{byte:02x}")).collect::<String>();
        let query: Vec<String> = pairs.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
        let answer = runtime.block_on(get(served.address, &format!("{path}?{}", query.join("&"))));
        prop_assert!(answer.status < 500, "{} {}", answer.status, answer.body);
        Ok(())
    });
    tried.unwrap();
}

#[tokio::test]
async fn what_is_no_http_ends_its_connection_alone() {
    let served = on_sqlite().await;
    for request in [
        b"\x00\x01\x02\x03\r\n\r\n".to_vec(),
        b"GET /\xff HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".to_vec(),
        b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n".to_vec(),
    ] {
        let answer = raw(served.address, &request).await;
        assert!((400..500).contains(&answer.status), "{answer:?}");
    }
    // Of one that sends too much the rest is not read, so that its connection may be reset before it reads why.
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    let _ = stream.write_all(&[b"GET /?".to_vec(), vec![b'a'; 200_000]].concat()).await;
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut answer)).await.expect("it is not closed");
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 4"), "{}", String::from_utf8_lossy(&answer));
    // One that never finishes its request keeps nobody else from being answered.
    let mut idle = Vec::new();
    for _ in 0..40 {
        let mut stream = TcpStream::connect(served.address).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost:").await.unwrap();
        idle.push(stream);
    }
    assert_eq!(get(served.address, "/healthz").await.status, 200);
}

#[tokio::test]
async fn a_body_that_is_sent_along_changes_nothing() {
    let served = on_sqlite().await;
    let request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello";
    assert_eq!(raw(served.address, request).await.status, 200);
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut text = String::new();
    tokio::time::timeout(Duration::from_secs(20), stream.read_to_string(&mut text)).await.unwrap().unwrap();
    assert_eq!(text.matches("HTTP/1.1 200 OK").count(), 2, "{text}");
}

#[tokio::test]
async fn many_at_once_are_all_answered_while_others_record() {
    for served in on_every_kind().await {
        let asking: Vec<_> = (0..120)
            .map(|number| {
                let path = ["/api/v1/results", "/api/v1/regressions", "/metrics", "/api/v1/runs", "/feed.atom"][number % 5];
                let address = served.address;
                tokio::spawn(async move { get(address, &format!("{path}?matrix=smoke")).await.status })
            })
            .collect();
        for attempt in 1..=20 {
            let attempt = Attempt { attempt, ..passed(&case(3)) };
            served.store.finish_attempt_before_retry(&served.going, &attempt).await.unwrap();
        }
        for (number, asked) in asking.into_iter().enumerate() {
            // Some know no matrix, and say so.
            assert_eq!(asked.await.unwrap(), [400, 200, 400, 400, 200][number % 5], "{number}");
        }
        let after = get(served.address, "/api/v1/results?all_attempts=true&limit=1000").await;
        assert_eq!(after.column("attempt").len(), 7 + 20);
    }
}
