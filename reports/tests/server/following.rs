//! Events are told as they are recorded, in order, once, and from where the client was.

use std::net::SocketAddr;
use std::time::Duration;

use modelfarm_matrix::event::Event;
use modelfarm_matrix::outcome::Stage;
use modelfarm_reports::rows::RunState;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use crate::client::{get, get_with};
use crate::samples::{case, passed};
use crate::served::{Served, on_every_kind, on_sqlite};

/// A client that follows a stream.
struct Follower {
    lines: Lines<BufReader<OwnedReadHalf>>,
    _writing: OwnedWriteHalf,
}

/// What was told.
#[derive(Debug, PartialEq)]
struct Told {
    id: Option<u64>,
    kind: String,
    data: Value,
}

impl Follower {
    async fn new(address: SocketAddr, run: &str, last: Option<u64>) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        let (reading, mut writing) = stream.into_split();
        let last = last.map(|id| format!("Last-Event-ID: {id}\r\n")).unwrap_or_default();
        let request = format!("GET /api/v1/runs/{run}/events/stream HTTP/1.1\r\nHost: {address}\r\n{last}\r\n");
        writing.write_all(request.as_bytes()).await.unwrap();
        let mut lines = BufReader::new(reading).lines();
        assert_eq!(lines.next_line().await.unwrap().unwrap(), "HTTP/1.1 200 OK");
        Self { lines, _writing: writing }
    }

    /// The next event; none when the stream ends.
    async fn next(&mut self) -> Option<Told> {
        let mut told = Told { id: None, kind: "message".into(), data: Value::Null };
        loop {
            let line = tokio::time::timeout(Duration::from_secs(20), self.lines.next_line()).await;
            let line = line.expect("nothing is told").unwrap()?;
            match line.split_once(": ") {
                Some(("id", id)) => told.id = Some(id.parse().unwrap()),
                Some(("event", kind)) => told.kind = kind.into(),
                Some(("data", data)) => told.data = serde_json::from_str(data).unwrap(),
                // An empty line ends an event; the others are of the head, or lengths of pieces.
                _ if line.is_empty() && !told.data.is_null() => return Some(told),
                _ => {}
            }
        }
    }
}

async fn stage(served: &Served, stage: Stage) -> u64 {
    let event = Event::StageEntered { case_id: case(2).id(), attempt: 1, stage };
    served.store.append_event(&served.going, &event).await.unwrap()
}

#[tokio::test]
async fn what_is_recorded_is_told_until_the_run_ends() {
    for served in on_every_kind().await {
        let mut follower = Follower::new(served.address, "latest", None).await;
        let first = follower.next().await.unwrap();
        assert_eq!((first.id, &first.data["type"]), (Some(1), &json!("attempt_finished")));
        for entered in [Stage::Load, Stage::Place, Stage::Execute] {
            let number = stage(&served, entered).await;
            let told = follower.next().await.unwrap();
            assert_eq!((told.id, &told.data["stage"]), (Some(number), &json!(entered.as_str())));
            assert_eq!(told.data["sequence"], number);
        }
        let number = served.store.finish_attempt(&served.going, &passed(&case(2))).await.unwrap();
        let told = follower.next().await.unwrap();
        assert_eq!((told.id, &told.data["outcome"]), (Some(number), &json!("pass")));
        served.store.end_shard(&served.going, RunState::Interrupted).await.unwrap();
        let end = follower.next().await.unwrap();
        assert_eq!(end, Told { id: None, kind: "end".into(), data: json!({"state": "interrupted"}) });
    }
}

#[tokio::test]
async fn a_client_goes_on_after_the_last_event_that_it_has() {
    let served = on_sqlite().await;
    for entered in [Stage::Load, Stage::Place] {
        stage(&served, entered).await;
    }
    let mut follower = Follower::new(served.address, served.going.run_id(), Some(2)).await;
    assert_eq!(follower.next().await.unwrap().id, Some(3));
    drop(follower);
    let path = format!("/api/v1/runs/{}/events?after=2", served.going.run_id());
    assert_eq!(get(served.address, &path).await.column("sequence"), [json!(3)]);
    served.store.end_shard(&served.going, RunState::Partial).await.unwrap();
    // One that comes again after the end is told to stay away.
    let stream = format!("/api/v1/runs/{}/events/stream", served.going.run_id());
    let again = get_with(served.address, &stream, &[("Last-Event-ID", "3")]).await;
    assert_eq!(again.status, 204);
    for wrong in ["x", "-1", "99999999999999999999", "1.5"] {
        assert_eq!(get_with(served.address, &stream, &[("Last-Event-ID", wrong)]).await.status, 400, "{wrong}");
    }
    let whole = get(served.address, &stream).await;
    assert_eq!((whole.status, whole.header("content-type")), (200, "text/event-stream"));
    assert_eq!(whole.body.matches("\nid: ").count() + usize::from(whole.body.starts_with("id: ")), 3, "{}", whole.body);
}

#[tokio::test]
async fn more_readers_than_places_are_sent_away_and_a_place_is_free_again() {
    let served = on_sqlite().await;
    let mut followers = Vec::new();
    for _ in 0..64 {
        followers.push(Follower::new(served.address, "latest", None).await);
    }
    let stream = "/api/v1/runs/latest/events/stream";
    let one_more = get(served.address, stream).await;
    assert_eq!((one_more.status, one_more.header("retry-after")), (429, "5"));
    assert_eq!(get(served.address, "/healthz").await.status, 200, "others are answered");
    assert!(get(served.address, "/metrics").await.body.contains("modelfarm_event_streams 64\n"));
    followers.pop();
    // The server sees that the client is gone when it next writes or looks.
    for _ in 0..40 {
        tokio::time::sleep(Duration::from_millis(250)).await;
        if get(served.address, "/metrics").await.body.contains("modelfarm_event_streams 63\n") {
            Follower::new(served.address, "latest", None).await;
            return;
        }
    }
    panic!("the place of a reader that is gone is not free");
}
