//! A server over a database with two nights, of which the second saw a regression, and a run that is going.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use modelfarm_matrix::attempt::Attempt;
use modelfarm_matrix::case::Case;
use modelfarm_matrix::outcome::Outcome;
use modelfarm_reports::rows::RunState;
use modelfarm_reports::server::{RunningServer, ServerOptions, serve};
use modelfarm_reports::store::{Confirmation, Environment, NewRun, Retrial, RunHandle, Store, now_ms};

use crate::databases::{TestDatabase, every_kind, open};
use crate::samples::{case, failed, new_run, passed};

/// What a hostile model said: a formula, the end of a script, a control character and one that turns the line around.
pub const HOSTILE: &str = "=cmd|' /C calc'!A0 </summary><script>\u{1b}[31m\u{202e}\"{x}";

/// A server with what it serves.
pub struct Served {
    pub address: SocketAddr,
    pub server: RunningServer,
    /// To record with.
    pub store: Store,
    /// The first night, in which all passed.
    pub first: String,
    /// The second, in which case 2 regressed.
    pub second: String,
    /// The one that is going, and has one attempt of case 1.
    pub going: RunHandle,
    _database: TestDatabase,
}

/// The options of a server on a free port of this machine.
pub fn on_loopback() -> ServerOptions {
    ServerOptions { listen: SocketAddr::from(([127, 0, 0, 1], 0)), allowed_hosts: Vec::new() }
}

/// A server over a store that was opened for reading only, on a database of each kind.
pub async fn on_every_kind() -> Vec<Served> {
    let mut all = Vec::new();
    for database in every_kind().await {
        all.push(over(database).await);
    }
    all
}

/// A server over one SQLite database.
pub async fn on_sqlite() -> Served {
    over(crate::databases::sqlite()).await
}

/// A server over a database that holds nothing.
pub async fn over_nothing() -> (RunningServer, TestDatabase) {
    let database = crate::databases::sqlite();
    open(&database).await.close().await;
    let store = Store::open_read_only(&database.url).await.unwrap();
    (serve(store, &on_loopback()).await.unwrap(), database)
}

async fn over(database: TestDatabase) -> Served {
    let store = open(&database).await;
    environment(&store, "e1", "2.14.0").await;
    environment(&store, "e2", "2.15.0").await;
    let cases = [case(1), case(2), case(3)];
    let first = night(&store, &cases, "e1", &[passed(&cases[0]), passed(&cases[1]), passed(&cases[2])]).await;
    let hostile = Attempt { signature: Some(HOSTILE.into()), message: Some(HOSTILE.into()), ..failed(&cases[1]) };
    let silent = Attempt { outcome: Outcome::InfraError, ..failed(&cases[2]) };
    let second = night(&store, &cases, "e2", &[passed(&cases[0]), hostile, silent]).await;
    store.record_confirmation(&confirmation(&cases[1], Some(true))).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(3)).await;
    let going = store.begin_run(&new_run(&cases)).await.unwrap();
    store.finish_attempt(&going, &Attempt { started_at: now_ms(), ..passed(&cases[0]) }).await.unwrap();
    let reading = Store::open_read_only(&database.url).await.unwrap();
    let server = serve(reading, &on_loopback()).await.unwrap();
    Served { address: server.address(), server, store, first, second, going, _database: database }
}

/// That a case was tried again in both environments.
pub fn confirmation(case: &Case, confirmed: Option<bool>) -> Confirmation {
    let retrial = |id: &str, outcome| Retrial { environment_id: id.into(), revision: None, outcomes: vec![outcome; 4] };
    Confirmation::new(case.id(), retrial("e1", Outcome::Pass), retrial("e2", Outcome::RuntimeError), confirmed)
}

async fn night(store: &Store, cases: &[Case], environment: &str, attempts: &[Attempt]) -> String {
    // Runs begin in different milliseconds, as nights do.
    tokio::time::sleep(std::time::Duration::from_millis(3)).await;
    let run = store.begin_run(&NewRun { plan_id: "a".repeat(16), ..new_run(cases) }).await.unwrap();
    for attempt in attempts {
        let attempt = Attempt { environment_id: Some(environment.into()), started_at: now_ms(), ..attempt.clone() };
        store.finish_attempt(&run, &attempt).await.unwrap();
    }
    store.end_shard(&run, RunState::Complete).await.unwrap();
    run.run_id().to_owned()
}

/// Records an environment.
pub async fn environment(store: &Store, id: &str, torch: &str) {
    let packages = BTreeMap::from([("torch".to_owned(), torch.to_owned())]);
    let (name, requirements) = ("torchtpu".to_owned(), format!("torch=={torch}\n"));
    let environment = Environment { environment_id: id.into(), name, packages, requirements, created_at: 1 };
    store.record_environment(&environment).await.unwrap();
}
