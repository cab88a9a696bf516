//! Two concrete databases behind one small interface: SQLite with one writer, and PostgreSQL.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPoolOptions, PgRow};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteRow, SqliteSynchronous};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, PgPool, Postgres, Row as _, Sqlite, SqlitePool};

use super::cell::{Cell, Kind};
use super::database_url::DatabaseUrl;
use super::error::StoreError;
#[cfg(test)]
use super::query_plans;
use super::statement::{Statement, bind_cell, postgres_builder, sql, sqlite_builder};

/// How long a writer waits for another process's writer.
const BUSY: Duration = Duration::from_secs(35);
/// So many rows SQLite's thread reads before it waits for whoever asked: each wait is two switches between threads.
const ROWS_AHEAD: usize = 1000;
/// How long a server may take to answer.
const CONNECT_WITHIN: Duration = Duration::from_secs(20);
/// How long a task waits for the one writing connection.
const QUEUE: Duration = Duration::from_secs(120);

/// An open database.
#[derive(Debug, Clone)]
pub(crate) struct Database {
    /// Its URL without a password, for messages.
    pub(crate) name: String,
    pools: Pools,
}

#[derive(Debug, Clone)]
enum Pools {
    Sqlite { writer: Option<SqlitePool>, readers: SqlitePool },
    Postgres { pool: PgPool, read_only: bool },
}

/// Which database speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    Sqlite,
    Postgres,
}

impl Database {
    /// Opens for reading and writing; a SQLite file is created where there is none.
    pub(crate) async fn open_for_writing(url: &DatabaseUrl) -> Result<Self, StoreError> {
        let name = url.to_string();
        let pools = match url {
            DatabaseUrl::Sqlite(path) => {
                if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
                    std::fs::create_dir_all(folder).map_err(|source| StoreError::Folder { path: folder.to_owned(), source })?;
                }
                refuse_what_is_no_file(&name, path)?;
                // NORMAL in WAL: a commit survives the death of any process; only a power cut may take back the last ones,
                // and even then nothing is damaged. FULL would cost a disk flush for every event of a case.
                let options = SqliteConnectOptions::new()
                    .filename(path)
                    .create_if_missing(true)
                    .journal_mode(SqliteJournalMode::Wal)
                    .synchronous(SqliteSynchronous::Normal)
                    .foreign_keys(true)
                    .busy_timeout(BUSY)
                    .disable_statement_logging();
                let writer = SqlitePoolOptions::new()
                    .max_connections(1)
                    .acquire_timeout(QUEUE)
                    .idle_timeout(None)
                    .max_lifetime(None)
                    .connect_with(options)
                    .await
                    .map_err(|error| opening(&name, path, error))?;
                let readers = SqlitePoolOptions::new().max_connections(4).connect_lazy_with(
                    SqliteConnectOptions::new()
                        .filename(path)
                        .read_only(true)
                        .busy_timeout(BUSY)
                        .row_buffer_size(ROWS_AHEAD)
                        .disable_statement_logging(),
                );
                Pools::Sqlite { writer: Some(writer), readers }
            }
            DatabaseUrl::Postgres { url, .. } => Pools::Postgres { pool: postgres(&name, url, false).await?, read_only: false },
        };
        Ok(Self { name, pools })
    }

    /// Opens for reading; nothing is created.
    pub(crate) async fn open_for_reading(url: &DatabaseUrl) -> Result<Self, StoreError> {
        let name = url.to_string();
        let pools = match url {
            DatabaseUrl::Sqlite(path) => {
                match std::fs::metadata(path) {
                    Ok(_) => {}
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(StoreError::Missing(name)),
                    Err(error) => return Err(StoreError::Permission { database: name, detail: error.to_string() }),
                }
                refuse_what_is_no_file(&name, path)?;
                let options = SqliteConnectOptions::new()
                    .filename(path)
                    .read_only(true)
                    .busy_timeout(BUSY)
                    .immutable(lies_in_a_read_only_folder(path))
                    .row_buffer_size(ROWS_AHEAD)
                    .disable_statement_logging();
                let readers = SqlitePoolOptions::new()
                    .max_connections(4)
                    .connect_with(options)
                    .await
                    .map_err(|error| opening(&name, path, error))?;
                Pools::Sqlite { writer: None, readers }
            }
            DatabaseUrl::Postgres { url, .. } => Pools::Postgres { pool: postgres(&name, url, true).await?, read_only: true },
        };
        Ok(Self { name, pools })
    }

    /// A transaction that writes: alone in SQLite, so that it never fails half-way for want of the lock.
    pub(crate) async fn write(&self) -> Result<Transaction, StoreError> {
        let inner = match &self.pools {
            Pools::Sqlite { writer: Some(writer), .. } => writer.begin_with("BEGIN IMMEDIATE").await.map(Inner::Sqlite),
            Pools::Postgres { pool, read_only: false } => pool.begin().await.map(Inner::Postgres),
            _ => return Err(StoreError::OpenedReadOnly(self.name.clone())),
        };
        self.transaction(inner)
    }

    /// A transaction that reads: everything it reads is of one moment.
    pub(crate) async fn read(&self) -> Result<Transaction, StoreError> {
        let inner = match &self.pools {
            Pools::Sqlite { readers, .. } => readers.begin().await.map(Inner::Sqlite),
            Pools::Postgres { pool, .. } => {
                pool.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await.map(Inner::Postgres)
            }
        };
        self.transaction(inner)
    }

    fn transaction(&self, inner: Result<Inner, sqlx::Error>) -> Result<Transaction, StoreError> {
        match inner {
            Ok(inner) => Ok(Transaction { name: self.name.clone(), inner }),
            Err(error) => Err(StoreError::from_driver(&self.name, error)),
        }
    }

    /// Closes every connection; SQLite then folds its write-ahead log into the file.
    pub(crate) async fn close(&self) {
        match &self.pools {
            Pools::Sqlite { writer, readers } => {
                readers.close().await;
                if let Some(writer) = writer {
                    writer.close().await;
                }
            }
            Pools::Postgres { pool, .. } => pool.close().await,
        }
    }
}

async fn postgres(name: &str, url: &str, read_only: bool) -> Result<PgPool, StoreError> {
    let options = PgConnectOptions::from_str(url).map_err(|_| StoreError::Url(name.to_owned()))?;
    let options = options.application_name("modelfarm").disable_statement_logging();
    let options = if read_only { options.options([("default_transaction_read_only", "on")]) } else { options };
    // A pool tries again for half a minute, and then does not say why.
    let answer = tokio::time::timeout(CONNECT_WITHIN, options.connect()).await;
    let connection = answer.unwrap_or_else(|_| Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into())));
    let connection = connection.map_err(|error| StoreError::from_driver(name, error))?;
    connection.close().await.map_err(|error| StoreError::from_driver(name, error))?;
    PgPoolOptions::new().max_connections(8).connect_with(options).await.map_err(|error| StoreError::from_driver(name, error))
}

/// SQLite's own message for a folder or a device in the file's place says nothing.
fn refuse_what_is_no_file(name: &str, path: &Path) -> Result<(), StoreError> {
    match std::fs::metadata(path) {
        Ok(facts) if !facts.is_file() => {
            Err(StoreError::Corrupt { database: name.to_owned(), detail: "it is not a file".to_owned() })
        }
        _ => Ok(()),
    }
}

/// SQLite reads a WAL database in a folder that it cannot write to only when told that nobody else writes.
fn lies_in_a_read_only_folder(path: &Path) -> bool {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let log = PathBuf::from(format!("{}-wal", path.display()));
    let has_log = std::fs::metadata(log).is_ok_and(|facts| facts.len() > 0);
    !has_log && rustix::fs::access(folder, rustix::fs::Access::WRITE_OK).is_err()
}

fn opening(name: &str, path: &Path, error: sqlx::Error) -> StoreError {
    match StoreError::from_driver(name, error) {
        // SQLite cannot open a file and does not say why: the system does.
        StoreError::Permission { database, detail } => {
            let detail = std::fs::File::open(path).err().map_or(detail, |error| error.to_string());
            StoreError::Permission { database, detail }
        }
        other => other,
    }
}

/// A transaction; dropped without `commit`, it leaves everything as it was.
pub(crate) struct Transaction {
    name: String,
    inner: Inner,
}

enum Inner {
    Sqlite(sqlx::Transaction<'static, Sqlite>),
    Postgres(sqlx::Transaction<'static, Postgres>),
}

/// Runs a statement with one of sqlx's methods and maps the driver's error.
macro_rules! run {
    ($self:ident, $statement:ident, $method:ident, $map_sqlite:expr, $map_postgres:expr) => {{
        #[cfg(test)]
        $self.note_plan(&$statement).await?;
        let result = match (&mut $self.inner, $statement) {
            (Inner::Sqlite(transaction), Statement::Fixed(text, cells)) => {
                let mut query = sqlx::query::<Sqlite>(text);
                for cell in cells {
                    query = bind_cell!(query, cell);
                }
                transaction.$method(query).await.map($map_sqlite)
            }
            (Inner::Sqlite(transaction), Statement::Built(pieces)) => {
                transaction.$method(sqlite_builder(pieces).build()).await.map($map_sqlite)
            }
            (Inner::Postgres(transaction), Statement::Fixed(text, cells)) => {
                let mut query = sqlx::query::<Postgres>(text);
                for cell in cells {
                    query = bind_cell!(query, cell);
                }
                transaction.$method(query).await.map($map_postgres)
            }
            (Inner::Postgres(transaction), Statement::Built(pieces)) => {
                transaction.$method(postgres_builder(pieces).build()).await.map($map_postgres)
            }
        };
        result.map_err(|error| StoreError::from_driver(&$self.name, error))
    }};
}

impl Transaction {
    /// Which database speaks.
    pub(crate) fn dialect(&self) -> Dialect {
        match self.inner {
            Inner::Sqlite(_) => Dialect::Sqlite,
            Inner::Postgres(_) => Dialect::Postgres,
        }
    }

    /// Runs a statement; returns how many rows it changed.
    pub(crate) async fn execute(&mut self, statement: Statement) -> Result<u64, StoreError> {
        run!(self, statement, execute, |done| done.rows_affected(), |done| done.rows_affected())
    }

    /// All rows.
    pub(crate) async fn all(&mut self, statement: Statement) -> Result<Vec<Row>, StoreError> {
        run!(self, statement, fetch_all, |rows| rows.into_iter().map(Row::Sqlite).collect(), |rows| rows
            .into_iter()
            .map(Row::Postgres)
            .collect())
    }

    /// The first row, if there is one.
    pub(crate) async fn optional(&mut self, statement: Statement) -> Result<Option<Row>, StoreError> {
        run!(self, statement, fetch_optional, |row| row.map(Row::Sqlite), |row| row.map(Row::Postgres))
    }

    /// The one row.
    pub(crate) async fn one(&mut self, statement: Statement) -> Result<Row, StoreError> {
        run!(self, statement, fetch_one, Row::Sqlite, Row::Postgres)
    }

    /// Notes how the database carries a statement out, where a test asks for it. PostgreSQL is asked about questions alone.
    #[cfg(test)]
    async fn note_plan(&mut self, statement: &Statement) -> Result<(), StoreError> {
        if !query_plans::are_noted() {
            return Ok(());
        }
        let dialect = self.dialect();
        let steps: Vec<Row> = match (&mut self.inner, statement.explained(dialect)) {
            (Inner::Sqlite(transaction), Statement::Fixed(text, cells)) => {
                let mut query = sqlx::query::<Sqlite>(text);
                for cell in cells {
                    query = bind_cell!(query, cell);
                }
                transaction.fetch_all(query).await.map(|rows| rows.into_iter().map(Row::Sqlite).collect())
            }
            (Inner::Sqlite(transaction), Statement::Built(pieces)) => {
                let rows = transaction.fetch_all(sqlite_builder(pieces).build()).await;
                rows.map(|rows| rows.into_iter().map(Row::Sqlite).collect())
            }
            (Inner::Postgres(_), _) if !statement.shown().starts_with("SELECT") => return Ok(()),
            (Inner::Postgres(transaction), Statement::Fixed(text, cells)) => {
                let mut query = sqlx::query::<Postgres>(text);
                for cell in cells {
                    query = bind_cell!(query, cell);
                }
                transaction.fetch_all(query).await.map(|rows| rows.into_iter().map(Row::Postgres).collect())
            }
            (Inner::Postgres(transaction), Statement::Built(pieces)) => {
                let rows = transaction.fetch_all(postgres_builder(pieces).build()).await;
                rows.map(|rows| rows.into_iter().map(Row::Postgres).collect())
            }
        }
        .map_err(|error| StoreError::from_driver(&self.name, error))?;
        let column = match dialect {
            Dialect::Sqlite => "detail",
            Dialect::Postgres => "QUERY PLAN",
        };
        let steps = steps.iter().map(|step| step.text(column)).collect::<Result<_, _>>()?;
        query_plans::note(statement.shown(), steps);
        Ok(())
    }

    /// Waits until nobody else does this, and keeps others from it until the end. A SQLite writer is alone already.
    pub(crate) async fn lock(&mut self, what: Lock) -> Result<(), StoreError> {
        if self.dialect() == Dialect::Postgres {
            self.execute(sql("SELECT pg_advisory_xact_lock($1)").bind(what.number())).await?;
        }
        Ok(())
    }

    /// Runs a script of this program's own, such as a migration.
    pub(crate) async fn script(&mut self, script: String) -> Result<(), sqlx::Error> {
        let script = sqlx::raw_sql(AssertSqlSafe(script));
        match &mut self.inner {
            Inner::Sqlite(transaction) => script.execute(&mut **transaction).await.map(|_| ()),
            Inner::Postgres(transaction) => script.execute(&mut **transaction).await.map(|_| ()),
        }
    }

    /// Makes it so.
    pub(crate) async fn commit(self) -> Result<(), StoreError> {
        let result = match self.inner {
            Inner::Sqlite(transaction) => transaction.commit().await,
            Inner::Postgres(transaction) => transaction.commit().await,
        };
        result.map_err(|error| StoreError::from_driver(&self.name, error))
    }
}

/// What only one writer may do at a time.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Lock {
    /// Bringing the schema to another version.
    Migration,
    /// Taking another store over: two merges would each hold runs that the other waits for.
    Merge,
}

impl Lock {
    /// Any numbers will do as long as every version of this program uses the same.
    fn number(self) -> i64 {
        match self {
            Lock::Migration => 6_241_733_809_117,
            Lock::Merge => 6_241_733_809_118,
        }
    }
}

/// A row of either database.
pub(crate) enum Row {
    Sqlite(SqliteRow),
    Postgres(PgRow),
}

macro_rules! getter {
    ($(#[$meta:meta])* $name:ident, $optional:ident, $type:ty) => {
        $(#[$meta])*
        pub(crate) fn $optional(&self, column: &'static str) -> Result<Option<$type>, StoreError> {
            let value = match self {
                Row::Sqlite(row) => row.try_get::<Option<$type>, _>(column),
                Row::Postgres(row) => row.try_get::<Option<$type>, _>(column),
            };
            value.map_err(|error| StoreError::Value { column, detail: error.to_string() })
        }

        $(#[$meta])*
        pub(crate) fn $name(&self, column: &'static str) -> Result<$type, StoreError> {
            self.$optional(column)?
                .ok_or_else(|| StoreError::Value { column, detail: "it is NULL".to_owned() })
        }
    };
}

impl Row {
    getter!(/** An integer. */ int, optional_int, i64);
    getter!(/** A real number. */ real, optional_real, f64);
    getter!(/** A text. */ text, optional_text, String);
    getter!(/** Bytes. */ bytes, optional_bytes, Vec<u8>);

    /// An integer that cannot be negative.
    pub(crate) fn unsigned(&self, column: &'static str) -> Result<u64, StoreError> {
        let value = self.int(column)?;
        u64::try_from(value).map_err(|_| StoreError::Value { column, detail: format!("{value} is negative") })
    }

    /// A text that must be one of an enumeration's words, or parse otherwise.
    pub(crate) fn word<T>(&self, column: &'static str) -> Result<T, StoreError>
    where
        T: FromStr,
        T::Err: std::fmt::Display,
    {
        parse(column, &self.text(column)?)
    }

    /// The same where NULL is allowed.
    pub(crate) fn optional_word<T>(&self, column: &'static str) -> Result<Option<T>, StoreError>
    where
        T: FromStr,
        T::Err: std::fmt::Display,
    {
        self.optional_text(column)?.map(|text| parse(column, &text)).transpose()
    }

    /// A JSON text.
    pub(crate) fn json<T: serde::de::DeserializeOwned>(&self, column: &'static str) -> Result<T, StoreError> {
        serde_json::from_str(&self.text(column)?).map_err(|error| StoreError::Value { column, detail: error.to_string() })
    }

    /// The value as it is, to be bound again.
    pub(crate) fn cell(&self, column: &'static str, kind: Kind) -> Result<Cell, StoreError> {
        Ok(match kind {
            Kind::Int => Cell::Int(self.optional_int(column)?),
            Kind::Real => Cell::from(self.optional_real(column)?),
            Kind::Text => Cell::from(self.optional_text(column)?.as_deref()),
            Kind::Bytes => Cell::Bytes(self.optional_bytes(column)?),
        })
    }
}

fn parse<T>(column: &'static str, text: &str) -> Result<T, StoreError>
where
    T: FromStr,
    T::Err: std::fmt::Display,
{
    text.parse().map_err(|error: T::Err| StoreError::Value { column, detail: error.to_string() })
}
