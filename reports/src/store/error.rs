//! What can go wrong with a store, as fragments that fit "failed to ...".

use std::path::PathBuf;

use sqlx::error::ErrorKind;

/// Why the store did not do what it was asked to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The URL names no known kind of database.
    #[error(
        "read the database URL `{0}`: expected sqlite://PATH, such as sqlite://.modelfarm/farm.db, or postgres://USER@HOST/NAME"
    )]
    Url(String),
    /// Nothing is there.
    #[error(
        "open the database {0}: there is none; `modelfarm run` or `modelfarm demo` makes one, `--state-dir` names another folder"
    )]
    Missing(String),
    /// The file is no database, or is damaged.
    #[error(
        "read the database {database}: it is damaged or not a database ({detail}); move it away or restore a copy, \
         and use `modelfarm db merge` to take over what other files hold"
    )]
    Corrupt {
        /// Which.
        database: String,
        /// What the database says.
        detail: String,
    },
    /// A database of something else.
    #[error("use the database {0}: it holds other tables and none of modelfarm's; name another file or an empty database")]
    Foreign(String),
    /// A newer program wrote it.
    #[error(
        "use the database {database}: its schema {found} is newer than {known}, the newest this program knows; \
         update modelfarm, or name another database"
    )]
    NewerSchema {
        /// Which.
        database: String,
        /// Its version.
        found: i64,
        /// The newest known version.
        known: i64,
    },
    /// An older program wrote it.
    #[error("use the database {database}: its schema {found} is older than {known}; run `modelfarm db migrate` first")]
    OlderSchema {
        /// Which.
        database: String,
        /// Its version.
        found: i64,
        /// The version that is needed.
        known: i64,
    },
    /// The operating system lets nobody in.
    #[error("open the database {database}: {detail}; check the permissions of the file and its folder")]
    Permission {
        /// Which.
        database: String,
        /// What the system says.
        detail: String,
    },
    /// No room is left.
    #[error("write to the database {0}: the disk is full; everything recorded so far is kept, make room and use `--resume`")]
    DiskFull(String),
    /// It cannot be written to.
    #[error("write to the database {0}: it or its folder is read-only; everything recorded so far is kept")]
    ReadOnly(String),
    /// Somebody else holds it for too long.
    #[error("write to the database {0}: another process has held it for over half a minute; end that process or try again")]
    Busy(String),
    /// A store that was opened for reading was asked to write.
    #[error("write to the database {0}: it was opened for reading only")]
    OpenedReadOnly(String),
    /// The run exists with another plan.
    #[error(
        "continue run {run_id}: it was started with plan {stored} and this is plan {given}; \
         use the same matrix, options and models, or a new --run-id"
    )]
    PlanDiffers {
        /// The run.
        run_id: String,
        /// Its plan.
        stored: String,
        /// The plan given.
        given: String,
    },
    /// The run id is no UUID.
    #[error("use the run id `{0}`: expected a UUID such as 01927c5e-7a2b-7c3d-8e4f-5a6b7c8d9e0f")]
    RunId(String),
    /// No such run.
    #[error("find the run `{reference}`: expected a run id, its beginning, `latest` or `latest~N`; {hint}")]
    NoSuchRun {
        /// What was asked for.
        reference: String,
        /// What there is.
        hint: String,
    },
    /// More than one run begins so.
    #[error("find the run `{reference}`: it is the beginning of {}", .candidates.join(" and "))]
    AmbiguousRun {
        /// What was asked for.
        reference: String,
        /// Some runs that begin so.
        candidates: Vec<String>,
    },
    /// Nothing to compare with, or nothing that could be compared.
    #[error(
        "find a complete run{}{}: there is none; `modelfarm query runs` lists what there is, and a run is complete when \
         every planned case is final", .matrix.as_ref().map(|matrix| format!(" of the matrix `{matrix}`")).unwrap_or_default(),
        .before.as_ref().map(|time| format!(" before {time}")).unwrap_or_default()
    )]
    NoCompleteRun {
        /// Of which matrix, where it matters.
        matrix: Option<String>,
        /// Before which time, RFC 3339.
        before: Option<String>,
    },
    /// No such case or attempt.
    #[error(
        "find `{0}`: expected a case id of 16 hexadecimal digits or its beginning, a canonical case string, \
         or an attempt as RUN/CASE/NUMBER; `modelfarm query results` lists them"
    )]
    NoSuchCase(String),
    /// More than one case begins so.
    #[error("find the case `{0}`: more than one case id begins so; give more digits")]
    AmbiguousCase(String),
    /// The attempt is recorded already.
    #[error("record attempt {attempt} of case {case_id}: the run has it already")]
    AttemptExists {
        /// The case.
        case_id: String,
        /// The number of the try.
        attempt: u32,
    },
    /// Some of the attempts are recorded already.
    #[error("record attempts of run {0}: the run has some of them already; record each attempt of a run once")]
    AttemptsExist(String),
    /// A stored value is none that this program knows.
    #[error("read column {column} of the database: {detail}")]
    Value {
        /// The column.
        column: &'static str,
        /// What is wrong with it.
        detail: String,
    },
    /// A migration failed.
    #[error("migrate the database {database} to schema {version}: {source}")]
    Migration {
        /// Which.
        database: String,
        /// To which version.
        version: i64,
        /// Why.
        source: sqlx::Error,
    },
    /// The folder of the database could not be made.
    #[error("create the folder {}: {source}", .path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Everything else.
    #[error("use the database {database}: {source}")]
    Database {
        /// Which.
        database: String,
        /// Why.
        source: sqlx::Error,
    },
}

impl StoreError {
    /// Sorts a driver's error into what a person can do about it.
    pub(crate) fn from_driver(database: &str, source: sqlx::Error) -> Self {
        let name = || database.to_owned();
        let detail = |text: &str| text.chars().take(300).collect::<String>();
        match &source {
            sqlx::Error::Database(error) => {
                let code = error.code().unwrap_or_default();
                if error.try_downcast_ref::<sqlx::sqlite::SqliteError>().is_some() {
                    let extended: i32 = code.parse().unwrap_or(0);
                    return match extended & 0xff {
                        5 | 6 => StoreError::Busy(name()),
                        8 => StoreError::ReadOnly(name()),
                        11 | 26 => StoreError::Corrupt { database: name(), detail: detail(error.message()) },
                        13 => StoreError::DiskFull(name()),
                        3 | 14 | 23 => StoreError::Permission { database: name(), detail: detail(error.message()) },
                        _ => StoreError::Database { database: name(), source },
                    };
                }
                match code.as_ref() {
                    "53100" => StoreError::DiskFull(name()),
                    "25006" => StoreError::ReadOnly(name()),
                    "28000" | "28P01" | "42501" => StoreError::Permission { database: name(), detail: detail(error.message()) },
                    "3D000" => StoreError::Missing(name()),
                    _ => StoreError::Database { database: name(), source },
                }
            }
            sqlx::Error::PoolTimedOut => StoreError::Busy(name()),
            _ => StoreError::Database { database: name(), source },
        }
    }

    /// Whether a uniqueness was violated.
    pub(crate) fn is_unique_violation(&self) -> bool {
        let StoreError::Database { source: sqlx::Error::Database(error), .. } = self else { return false };
        error.kind() == ErrorKind::UniqueViolation
    }
}
