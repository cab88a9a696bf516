//! A connection of the test's own to a store's database.

use sqlx::postgres::PgConnection;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor};

pub enum PastTheStore {
    Sqlite(SqliteConnection),
    Postgres(PgConnection),
}

impl PastTheStore {
    pub async fn to(url: &str) -> Self {
        match url.strip_prefix("sqlite://") {
            Some(path) => Self::Sqlite(SqliteConnectOptions::new().filename(path).connect().await.unwrap()),
            None => Self::Postgres(PgConnection::connect(url).await.unwrap()),
        }
    }

    pub async fn execute(&mut self, statement: &str) -> Result<(), sqlx::Error> {
        let statement = AssertSqlSafe(statement.to_owned());
        match self {
            Self::Sqlite(connection) => connection.execute(statement).await.map(|_| ()),
            Self::Postgres(connection) => connection.execute(statement).await.map(|_| ()),
        }
    }
}
