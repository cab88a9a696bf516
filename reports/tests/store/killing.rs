//! `kill -9` of a process that writes: what it said was recorded is there, and the run goes on.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use modelfarm_matrix::event::Event;
use modelfarm_reports::query::ResultFilter;
use modelfarm_reports::rows::RunState;
use modelfarm_reports::store::{NewRun, Store};

use crate::databases::{TestDatabase, every_kind};
use crate::samples::{case, cases, new_run, passed};

const RUN: &str = "01927c5e-7a2b-7c3d-8e4f-5a6b7c8d9e0f";
const CASES: usize = 60;

fn run() -> NewRun {
    NewRun { run_id: RUN.into(), pid: std::process::id(), ..new_run(&cases(CASES)) }
}

/// Not a test of its own: the process that is killed. It says each case after it is recorded.
#[tokio::test]
#[ignore = "started by the test below"]
async fn writer() {
    let Ok(url) = std::env::var("MODELFARM_TEST_WRITE_TO") else { return };
    let store = Store::create_or_migrate(&url).await.unwrap();
    let run = store.begin_run(&run()).await.unwrap();
    let already = store.final_cases(&run).await.unwrap();
    for number in (0..CASES).filter(|number| !already.contains(&case(*number).id())) {
        let started = Event::AttemptStarted { case_id: case(number).id(), attempt: 1 };
        store.append_event(&run, &started).await.unwrap();
        store.finish_attempt(&run, &passed(&case(number))).await.unwrap();
        println!("recorded {}", case(number).id());
        std::io::stdout().flush().unwrap();
    }
    store.end_shard(&run, RunState::Complete).await.unwrap();
}

fn start(url: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "killing::writer", "--ignored", "--nocapture", "--test-threads=1"])
        .env("MODELFARM_TEST_WRITE_TO", url)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[tokio::test]
async fn nothing_that_was_recorded_is_lost() {
    for database in every_kind().await {
        Store::create_or_migrate(&database.url).await.unwrap().close().await;
        kill_until_all_is_recorded(&database).await;
    }
}

async fn kill_until_all_is_recorded(database: &TestDatabase) {
    let mut recorded = BTreeSet::new();
    let mut kills = 0;
    loop {
        let mut child = start(&database.url);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        // A little further each time, then somewhere inside the next write.
        let wanted = kills % 7;
        let note = |line: String, recorded: &mut BTreeSet<String>| {
            if let Some(id) = line.strip_prefix("recorded ").or_else(|| line.split("recorded ").nth(1)) {
                assert!(recorded.insert(id.trim().to_owned()), "{id} was recorded twice");
                return 1;
            }
            0
        };
        let mut seen = 0;
        while seen <= wanted
            && let Some(line) = lines.next()
        {
            seen += note(line, &mut recorded);
        }
        std::thread::sleep(std::time::Duration::from_micros(kills * 317 % 2000));
        child.kill().unwrap();
        for line in lines {
            note(line, &mut recorded);
        }
        let ended_by_itself = child.wait().unwrap().success();
        let store = Store::open_read_only(&database.url).await.unwrap();
        let rows = store.results(&ResultFilter::default()).await.unwrap();
        let stored: BTreeSet<String> = rows.iter().map(|row| row.case_id.to_string()).collect();
        assert_eq!(stored.len(), rows.len(), "a case is final twice");
        assert!(recorded.is_subset(&stored), "a recorded case is lost");
        // A kill may come between the commit and the word of it.
        recorded = stored;
        let row = store.run(RUN).await.unwrap();
        assert_eq!(row.finished as usize, recorded.len());
        if ended_by_itself || recorded.len() == CASES {
            assert_eq!(row.state, RunState::Complete);
            break;
        }
        assert_eq!(row.state, RunState::Interrupted);
        kills += 1;
    }
    assert!(kills >= 8, "the writer was killed {kills} times only");
}
