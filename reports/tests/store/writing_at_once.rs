//! Several processes that write at once lose nothing.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use modelfarm_matrix::attempt::Attempt;
use modelfarm_matrix::event::Event;
use modelfarm_reports::query::ResultFilter;
use modelfarm_reports::rows::RunState;
use modelfarm_reports::store::{NewRun, Store};

use crate::databases::every_kind;
use crate::samples::{case, cases, failed, new_run, passed};

const RUN: &str = "01927c5e-7a2b-7c3d-8e4f-5a6b7c8d9e0f";
const WRITERS: usize = 4;

/// How many cases each writer has to itself: some hundred, or what a measurement asks for.
fn cases_a_writer() -> usize {
    std::env::var("MODELFARM_TEST_CASES_A_WRITER").map_or(150, |text| text.parse().unwrap())
}

/// Not a test of its own: one of the processes. Each takes a shard of one run, and all of them the first case, at numbers of their own.
#[tokio::test]
#[ignore = "started by the test below"]
async fn writer() {
    let Ok(url) = std::env::var("MODELFARM_TEST_WRITE_TO") else { return };
    let number: usize = std::env::var("MODELFARM_TEST_WRITER").unwrap().parse().unwrap();
    let count = cases_a_writer();
    let store = Store::create_or_migrate(&url).await.unwrap();
    let new = NewRun {
        run_id: RUN.into(),
        shard: format!("{}/{WRITERS}", number + 1),
        pid: std::process::id(),
        ..new_run(&cases(1 + WRITERS * count))
    };
    let run = store.begin_run(&new).await.unwrap();
    for attempt in (1..=count).filter(|attempt| attempt % WRITERS == number) {
        let attempt = Attempt { attempt: attempt as u32, ..failed(&case(0)) };
        store.finish_attempt(&run, &attempt).await.unwrap();
    }
    for case in (0..count).map(|index| case(1 + number * count + index)) {
        let started = Event::AttemptStarted { case_id: case.id(), attempt: 1 };
        store.append_event(&run, &started).await.unwrap();
        store.finish_attempt(&run, &passed(&case)).await.unwrap();
    }
    store.end_shard(&run, RunState::Complete).await.unwrap();
    store.close().await;
}

#[tokio::test]
async fn processes_that_write_at_once_lose_nothing() {
    let count = cases_a_writer();
    for database in every_kind().await {
        let started = std::time::Instant::now();
        let writers: Vec<_> = (0..WRITERS)
            .map(|number| {
                Command::new(std::env::current_exe().unwrap())
                    .args(["--exact", "writing_at_once::writer", "--ignored", "--nocapture", "--test-threads=1"])
                    .env("MODELFARM_TEST_WRITE_TO", &database.url)
                    .env("MODELFARM_TEST_WRITER", number.to_string())
                    .stdout(Stdio::null())
                    .stderr(Stdio::piped())
                    .spawn()
                    .unwrap()
            })
            .collect();
        for writer in writers {
            let output = writer.wait_with_output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        let seconds = started.elapsed().as_secs_f64();
        let store = Store::open_read_only(&database.url).await.unwrap();
        let all = store.results(&ResultFilter::default()).await.unwrap();
        assert_eq!(all.len(), count + WRITERS * count);
        let own: BTreeSet<_> = all.iter().filter(|row| row.case_id != case(0).id()).map(|row| &row.case_id).collect();
        assert_eq!(own.len(), WRITERS * count);
        let row = store.run(RUN).await.unwrap();
        let planned = 1 + WRITERS as u64 * count as u64;
        assert_eq!((row.state, row.planned, row.finished, row.pass), (RunState::Complete, planned, planned, planned - 1));
        assert_eq!(row.shards, ["1/4", "2/4", "3/4", "4/4"]);
        let shared = store.attempts_of(&format!("{RUN}/{}", case(0).id()), None).await.unwrap();
        assert_eq!(shared[0].row.attempt as usize, count, "the last of the case that all of them tried counts");
        // Numbers without a gap: no event is lost, and no number was given twice.
        let events = store.events(RUN, 0, u64::MAX).await.unwrap();
        let sequences: Vec<u64> = events.iter().map(|event| event.sequence).collect();
        assert_eq!(sequences, (1..=(count + 2 * WRITERS * count) as u64).collect::<Vec<_>>());
        println!("{}: {WRITERS} writers, {:.0} attempts/s together", store.name(), all.len() as f64 / seconds);
        store.close().await;
    }
}
