//! How fast attempts are recorded and merged. A measurement, not a test: `cargo test -p modelfarm-reports --test store -- --ignored rate --nocapture`.

use std::time::Instant;

use modelfarm_matrix::event::Event;
use modelfarm_matrix::outcome::Stage;

use crate::databases::{every_kind, open, sqlite};
use crate::samples::{case, cases, new_run, passed};

#[tokio::test]
#[ignore = "a measurement"]
async fn rate() {
    const ATTEMPTS: usize = 2000;
    for database in every_kind().await {
        let store = open(&database).await;
        let run = store.begin_run(&new_run(&cases(ATTEMPTS))).await.unwrap();
        let begin = Instant::now();
        for number in 0..ATTEMPTS {
            store.finish_attempt(&run, &passed(&case(number))).await.unwrap();
        }
        let attempts = ATTEMPTS as f64 / begin.elapsed().as_secs_f64();
        let begin = Instant::now();
        for _ in 0..ATTEMPTS {
            let event = Event::StageEntered { case_id: case(0).id(), attempt: 1, stage: Stage::Load };
            store.append_event(&run, &event).await.unwrap();
        }
        let events = ATTEMPTS as f64 / begin.elapsed().as_secs_f64();
        let begin = Instant::now();
        let rows = store.results(&Default::default()).await.unwrap().len();
        let read = rows as f64 / begin.elapsed().as_secs_f64();
        let begin = Instant::now();
        store.runs(None).await.unwrap();
        let runs_ms = begin.elapsed().as_secs_f64() * 1000.0;
        println!(
            "{}: {attempts:.0} attempts/s, {events:.0} events/s, {read:.0} rows/s read, runs in {runs_ms:.1} ms",
            store.name()
        );
        let url = store.name().to_owned();
        store.close().await;
        if let Some(path) = url.strip_prefix("sqlite://") {
            let bytes = std::fs::metadata(path).unwrap().len();
            let target = sqlite();
            let into = open(&target).await;
            let begin = Instant::now();
            into.merge(path.as_ref()).await.unwrap();
            let merged = ATTEMPTS as f64 / begin.elapsed().as_secs_f64();
            println!("merge: {merged:.0} attempts/s with 2 events each; {} bytes an attempt on disk", bytes / ATTEMPTS as u64);
        }
    }
}
