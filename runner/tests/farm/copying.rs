//! A history moves from one database to another.

use modelfarm_matrix::event::Event;
use modelfarm_reports::store::{NewRun, Store};

use crate::postgres_server::server;
use crate::setup::modelfarm;

/// Runs `db copy`; returns its exit code and everything it said.
fn copy(from: &str, into: &str) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().unwrap();
    let output = modelfarm(folder.path()).args(["--database", from, "db", "copy", into]).output().unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "a copy needs no state folder");
    (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}

/// Records a run without any case.
pub async fn one_run(url: &str) {
    let store = Store::create_or_migrate(url).await.unwrap();
    let new = NewRun {
        run_id: NewRun::new_id(),
        matrix: "smoke".into(),
        selection: String::new(),
        plan_id: "0123456789abcdef".into(),
        planned_cases: Vec::new(),
        shard: "1/1".into(),
        host: "host-a".into(),
        pid: 1,
        facts: serde_json::json!({}),
    };
    let run = store.begin_run(&new).await.unwrap();
    store.append_event(&run, &Event::RunFinished { interrupted: false }).await.unwrap();
    store.close().await;
}

#[tokio::test]
async fn a_history_is_copied_from_any_database_to_any_other() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| format!("sqlite://{}", folder.path().join(name).display());
    let server = server();
    let mut urls = vec![file("first.db"), file("second.db")];
    urls.extend(server.map(|server| server.url("postgres")));
    urls.push(file("last.db"));
    one_run(&urls[0]).await;
    for pair in urls.windows(2) {
        let (code, said) = copy(&pair[0], &pair[1]);
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains(": 1 runs new, 0 known; ") && said.contains("; 1 events new, 0 known; "), "{said}");
        let (code, said) = copy(&pair[0], &pair[1]);
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains(": 0 runs new, 1 known; ") && said.contains("; 0 events new, 1 known; "), "{said}");
    }
    for url in &urls {
        let store = Store::open_read_only(url).await.unwrap();
        assert_eq!(store.runs(None).await.unwrap().len(), 1, "{}", store.name());
        store.close().await;
    }
}

#[tokio::test]
async fn a_copy_of_nothing_or_to_itself_is_refused_and_makes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| format!("sqlite://{}", folder.path().join(name).display());
    let (code, said) = copy(&file("missing.db"), &file("target.db"));
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("missing.db: there is none"), "{said}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);

    one_run(&file("farm.db")).await;
    for itself in [file("farm.db"), file("./farm.db")] {
        let (code, said) = copy(&file("farm.db"), &itself);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains("it is the database itself"), "{said}");
    }
    let (code, said) = copy("postgres://me:secret@host/farm", "postgres://me:secret@host/farm");
    assert!(code == Some(2) && said.contains("me@host") && !said.contains("secret"), "{said}");
    let (code, said) = copy(&file("farm.db"), "mysql://me:secret@host/farm");
    assert!(code == Some(2) && said.contains("expected sqlite://PATH") && !said.contains("secret"), "{said}");
}
