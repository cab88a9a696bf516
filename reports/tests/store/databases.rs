//! The databases that tests run on.

use std::path::Path;

use modelfarm_reports::store::Store;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};
use tempfile::TempDir;

use crate::postgres_server::{PostgresServer, server};

/// A new, empty database that vanishes with this value.
pub struct TestDatabase {
    pub url: String,
    place: Place,
}

enum Place {
    File { _folder: TempDir },
    Server { server: &'static PostgresServer, name: String },
}

impl TestDatabase {
    /// The file of a SQLite database.
    pub fn file(&self) -> &Path {
        Path::new(self.url.strip_prefix("sqlite://").unwrap())
    }
}

/// A new SQLite file.
pub fn sqlite() -> TestDatabase {
    let folder = tempfile::tempdir().unwrap();
    TestDatabase {
        url: format!("sqlite://{}", folder.path().join("farm.db").display()),
        place: Place::File { _folder: folder },
    }
}

/// A new database on PostgreSQL, where that is installed.
pub async fn postgres() -> Option<TestDatabase> {
    let server = server()?;
    let name = format!("modelfarm_test_{}", uuid::Uuid::now_v7().simple());
    on_server(server, format!("CREATE DATABASE {name}")).await;
    Some(TestDatabase { url: server.url(&name), place: Place::Server { server, name } })
}

/// A database of each kind: SQLite, and PostgreSQL where that is installed.
pub async fn every_kind() -> Vec<TestDatabase> {
    std::iter::once(sqlite()).chain(postgres().await).collect()
}

pub async fn open(database: &TestDatabase) -> Store {
    Store::create_or_migrate(&database.url).await.unwrap()
}

async fn on_server(server: &PostgresServer, statement: String) {
    let mut connection = PgConnection::connect(&server.url("postgres")).await.unwrap();
    connection.execute(AssertSqlSafe(statement)).await.unwrap();
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        let Place::Server { server, name } = &self.place else { return };
        let (server, drop) = (*server, format!("DROP DATABASE {name} WITH (FORCE)"));
        // A test's own runtime cannot wait in here.
        let dropping = std::thread::spawn(move || {
            tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(on_server(server, drop));
        });
        let _ = dropping.join();
    }
}
