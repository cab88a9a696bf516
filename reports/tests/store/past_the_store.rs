//! A connection of the test's own to a store's database.

use sqlx::postgres::PgConnection;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, Row};

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

    /// The lines that a query gives for each row: its columns as texts with `|` between them. A column that begins with `#` holds
    /// bytes.
    pub async fn lines(&mut self, columns: &[&str], from: &str) -> Vec<String> {
        let text = |column: &&str| match (column.strip_prefix('#'), &self) {
            (Some(bytes), Self::Sqlite(_)) => format!("lower(hex({bytes}))"),
            (Some(bytes), Self::Postgres(_)) => format!("encode({bytes}, 'hex')"),
            (None, _) => format!("COALESCE(CAST({column} AS TEXT), 'NULL')"),
        };
        let texts: Vec<String> = columns.iter().map(text).collect();
        let query = AssertSqlSafe(format!("SELECT {} FROM {from}", texts.join(" || '|' || ")));
        match self {
            Self::Sqlite(connection) => {
                let rows = sqlx::query(query).fetch_all(connection).await.unwrap();
                rows.iter().map(|row| row.get(0)).collect()
            }
            Self::Postgres(connection) => {
                let rows = sqlx::query(query).fetch_all(connection).await.unwrap();
                rows.iter().map(|row| row.get(0)).collect()
            }
        }
    }

    /// Everything in a store under the names that are the same in every store and every kind of database.
    pub async fn content(&mut self) -> Vec<String> {
        let mut all = Vec::new();
        for (columns, from) in CONTENT {
            all.extend(self.lines(columns, from).await);
        }
        all.sort();
        all
    }
}

const CONTENT: &[(&[&str], &str)] = &[
    (&["'plan'", "plan_id", "#cases", "created_at"], "plans"),
    (&["'run'", "run_id", "plan_id", "planned", "started_at", "matrix", "finished"], "runs"),
    (
        &[
            "'shard'",
            "r.run_id",
            "s.session_id",
            "s.shard",
            "s.host",
            "s.pid",
            "s.started_at",
            "s.heartbeat_at",
            "s.ended_at",
            "s.state",
            "s.facts",
        ],
        "run_shards s JOIN runs r ON r.run_key = s.run_key",
    ),
    (
        &[
            "'attempt'",
            "r.run_id",
            "c.canonical",
            "a.attempt_id",
            "a.attempt",
            "a.is_final",
            "a.is_retried",
            "a.architecture",
            "a.revision",
            "a.outcome",
            "a.verdict",
            "a.signature",
            "a.message",
            "a.started_at",
            "a.duration_ms",
            "a.host",
            "a.environment_id",
            "a.inputs_hash",
            "a.reference_key",
            "a.rmse_ratio",
            "a.graph_count",
            "d.expectation_reason",
            "#d.output",
            "#d.leaves",
            "d.facts",
            "d.evidence",
        ],
        "attempts a JOIN runs r ON r.run_key = a.run_key JOIN cases c ON c.case_key = a.case_key \
         JOIN attempt_details d ON d.attempt_key = a.attempt_key",
    ),
    (
        &["'event'", "s.session_id", "e.origin_sequence", "e.at", "e.case_id", "e.attempt", "e.type", "e.payload"],
        "events e JOIN run_shards s ON s.shard_key = e.shard_key",
    ),
    (&["'environment'", "environment_id", "name", "packages", "requirements", "created_at"], "environments"),
    (&["'model'", "model", "revision", "architecture", "class", "harness", "tags", "downloads", "seen_at"], "models"),
    (&["'reference'", "reference_key", "host", "path", "bytes", "last_used_at", "facts"], "model_references"),
    (
        &["'artifact'", "a.attempt_id", "f.kind", "f.host", "f.path", "f.bytes"],
        "artifacts f JOIN attempts a ON a.attempt_key = f.attempt_key",
    ),
    (
        &[
            "'confirmation'",
            "f.confirmation_id",
            "c.case_id",
            "f.before_environment",
            "f.before_revision",
            "f.before_outcomes",
            "f.after_environment",
            "f.after_revision",
            "f.after_outcomes",
            "f.confirmed",
            "f.at",
        ],
        "confirmations f JOIN cases c ON c.case_key = f.case_key",
    ),
];
