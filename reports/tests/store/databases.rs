//! The databases that tests run on.

use modelfarm_reports::store::Store;
use tempfile::TempDir;

/// A new, empty database that vanishes with this value.
pub struct TestDatabase {
    pub url: String,
    _folder: TempDir,
}

/// A new SQLite file.
pub fn sqlite() -> TestDatabase {
    let folder = tempfile::tempdir().unwrap();
    TestDatabase { url: format!("sqlite://{}", folder.path().join("farm.db").display()), _folder: folder }
}

/// SQLite, and PostgreSQL where `MODELFARM_TEST_POSTGRES` is the URL of a database whose user may create databases.
pub async fn every_kind() -> Vec<TestDatabase> {
    let mut databases = vec![sqlite()];
    if let Ok(server) = std::env::var("MODELFARM_TEST_POSTGRES") {
        databases.push(postgres(&server).await);
    }
    databases
}

async fn postgres(server: &str) -> TestDatabase {
    use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};
    let name = format!("modelfarm_test_{}", uuid::Uuid::now_v7().simple());
    let mut connection = PgConnection::connect(server).await.unwrap();
    connection.execute(AssertSqlSafe(format!("CREATE DATABASE {name}"))).await.unwrap();
    let (base, _) = server.rsplit_once('/').unwrap();
    TestDatabase { url: format!("{base}/{name}"), _folder: tempfile::tempdir().unwrap() }
}

pub async fn open(database: &TestDatabase) -> Store {
    Store::create_or_migrate(&database.url).await.unwrap()
}
