//! Whom is answered, and what every answer says to a browser.

use modelfarm_reports::server::{ServerOptions, serve};
use modelfarm_reports::store::Store;

use crate::client::{get, get_with, raw, send};
use crate::databases::{open, sqlite};
use crate::served::{on_loopback, on_sqlite};

#[tokio::test]
async fn another_name_for_this_machine_is_not_answered() {
    let served = on_sqlite().await;
    let port = served.address.port();
    for host in ["127.0.0.1", "localhost", "LOCALHOST", "[::1]", "localhost.", &format!("localhost:{port}"), "127.0.0.1:1"] {
        assert_eq!(get_with(served.address, "/healthz", &[("Host", host)]).await.status, 200, "{host}");
    }
    for host in
        ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "evil@localhost", "", "127.0.0.2", "0.0.0.0"]
    {
        let answer = get_with(served.address, "/healthz", &[("Host", host)]).await;
        assert_eq!(answer.status, 421, "{host}");
        assert!(answer.body.contains("--allow-host"), "{}", answer.body);
    }
    let both = get_with(served.address, "/healthz", &[("Host", "localhost"), ("Host", "evil.example")]).await;
    assert!(both.status >= 400, "{}", both.status);
    let none = raw(served.address, b"GET /healthz HTTP/1.0\r\n\r\n").await;
    assert_eq!(none.status, 421);
    let whole = "http://evil.example/healthz";
    assert_eq!(get_with(served.address, whole, &[("Host", "localhost")]).await.status, 421);
}

#[tokio::test]
async fn a_name_that_was_allowed_is_answered() {
    let database = sqlite();
    open(&database).await.close().await;
    let options = ServerOptions { allowed_hosts: vec!["Farm.Example".into()], ..on_loopback() };
    let server = serve(Store::open_read_only(&database.url).await.unwrap(), &options).await.unwrap();
    for (host, status) in [("farm.example", 200), ("FARM.example:443", 200), ("localhost", 200), ("evil.example", 421)] {
        assert_eq!(get_with(server.address(), "/healthz", &[("Host", host)]).await.status, status, "{host}");
    }
    let everywhere = ServerOptions { listen: "0.0.0.0:0".parse().unwrap(), allowed_hosts: Vec::new() };
    assert!(everywhere.is_public() && !options.is_public());
    let server = serve(Store::open_read_only(&database.url).await.unwrap(), &everywhere).await.unwrap();
    let here = std::net::SocketAddr::from(([127, 0, 0, 1], server.address().port()));
    assert_eq!(get_with(here, "/healthz", &[("Host", "any.example")]).await.status, 200);
}

#[tokio::test]
async fn every_answer_is_guarded_in_the_browser() {
    let served = on_sqlite().await;
    for path in
        ["/", "/style.css", "/api/v1/runs", "/api/v1/runs?x=1", "/feed.atom", "/nothing", "/api/v1/runs/latest~1/events/stream"]
    {
        let answer = get(served.address, path).await;
        let policy = answer.header("content-security-policy");
        assert!(policy.starts_with("default-src 'none';") && policy.contains("frame-ancestors 'none'"), "{path}: {policy}");
        assert!(!policy.contains("unsafe") && !policy.contains('*'), "{path}: {policy}");
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{path}");
        assert_eq!(answer.header("referrer-policy"), "no-referrer", "{path}");
        assert_eq!(answer.header("cross-origin-opener-policy"), "same-origin", "{path}");
        assert_eq!(answer.header("cross-origin-embedder-policy"), "require-corp", "{path}");
        assert_eq!(answer.header("cross-origin-resource-policy"), "same-origin", "{path}");
        assert!(!answer.headers.keys().any(|name| name.starts_with("access-control")), "{path}");
        assert!(!answer.header("cache-control").is_empty(), "{path}");
    }
}

#[tokio::test]
async fn nothing_can_be_asked_but_to_read() {
    let served = on_sqlite().await;
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND"] {
        for path in ["/api/v1/runs", "/", "/nothing"] {
            let answer = send(served.address, method, path, &[]).await;
            assert_eq!((answer.status, answer.header("allow")), (405, "GET, HEAD"), "{method} {path}");
        }
    }
    for path in ["/api/v1/runs", "/", "/feed.atom", "/api/v1/runs/ffff", "/api/v1/results?format=csv"] {
        let (get, head) = (get(served.address, path).await, send(served.address, "HEAD", path, &[]).await);
        assert_eq!((head.status, head.body.as_str()), (get.status, ""), "{path}");
        for name in ["content-type", "content-length", "etag"] {
            assert_eq!(head.header(name), get.header(name), "{path} {name}");
        }
        assert!(get.header("content-length").parse::<u64>().unwrap() > 0, "{path}");
    }
}

#[tokio::test]
async fn the_start_page_names_the_newest_run_and_runs_no_script() {
    let served = on_sqlite().await;
    let page = get(served.address, "/").await;
    assert!(page.header("content-type").starts_with("text/html"));
    assert!(page.body.contains(served.going.run_id()) && page.body.contains("/api/v1/openapi.json"), "{}", page.body);
    assert!(!page.body.contains("<script") && !page.body.contains("style="));
    assert!(get(served.address, "/style.css").await.header("content-type").starts_with("text/css"));
}
