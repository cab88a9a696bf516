//! The columns of tables that are written and copied as a whole.

use std::fmt::Write;
use std::sync::Arc;

use super::cell::Kind::{self, Bytes, Int, Real, Text};
use super::database::Dialect;
use super::statement::{Statement, composed};

/// A table's columns apart from its surrogate keys, in the order in which they are bound.
pub(crate) struct TableColumns {
    table: &'static str,
    pub(crate) columns: &'static [(&'static str, Kind)],
    tail: &'static str,
}

impl TableColumns {
    /// `INSERT INTO table (columns) VALUES (...), ...` of so many rows, whose values are bound row after row.
    pub(crate) fn insert(&self, rows: usize, dialect: Dialect) -> Statement {
        let names: Vec<&str> = self.columns.iter().map(|(name, _)| *name).collect();
        let mut text = format!("INSERT INTO {} ({}) VALUES", self.table, names.join(", "));
        for row in 0..rows {
            text.push_str(if row == 0 { " (" } else { ", (" });
            for column in 0..names.len() {
                text.push_str(if column == 0 { "" } else { ", " });
                match dialect {
                    // SQLite looks a parameter with a number up among all before it: ten thousand would take a second.
                    Dialect::Sqlite => text.push('?'),
                    // Writing to a text cannot fail.
                    Dialect::Postgres => _ = write!(text, "${}", row * names.len() + column + 1),
                }
            }
            text.push(')');
        }
        text.push_str(self.tail);
        composed(Arc::from(text))
    }
}

macro_rules! table_columns {
    ($(#[$meta:meta])* $name:ident, $table:literal, [$($column:literal $kind:ident),+ $(,)?], $tail:literal) => {
        $(#[$meta])*
        pub(crate) static $name: TableColumns = TableColumns { table: $table, columns: &[$(($column, $kind)),+], tail: $tail };
    };
}

table_columns!(
    /// `attempts`, beginning with what differs from database to database: run, case and whether it is final.
    ATTEMPTS, "attempts",
    [
        "run_key" Int, "case_key" Int, "is_final" Int, "attempt_id" Text, "attempt" Int, "is_retried" Int,
        "architecture" Text, "revision" Text, "check_word" Text, "outcome" Text, "stage" Text, "fault" Text, "verdict" Text,
        "signature" Text, "message" Text, "started_at" Int, "duration_ms" Int, "farm_overhead_ms" Real, "host" Text,
        "environment_id" Text, "inputs_hash" Text, "reference_key" Text, "rmse_ratio" Real, "rel_l2" Real, "max_abs" Real,
        "pcc" Real, "cosine" Real, "gain_error" Real, "top1_agreement" Real, "graph_count" Int, "graph_break_count" Int,
        "recompile_count" Int, "compile_count" Int, "compile_ms" Real, "execute_count" Int, "h2d_bytes" Int, "d2h_bytes" Int,
        "peak_device_bytes" Int, "tokens_per_s" Real,
    ],
    " RETURNING attempt_key, attempt_id"
);

table_columns!(
    /// `attempt_details`.
    ATTEMPT_DETAILS, "attempt_details",
    ["attempt_key" Int, "expectation_reason" Text, "evidence" Text, "facts" Text, "output" Bytes, "leaves" Bytes],
    ""
);

table_columns!(
    /// `cases`; a case that is there already stays.
    CASES, "cases",
    [
        "case_id" Text, "canonical" Text, "model" Text, "class" Text, "harness" Text, "weights" Text, "workload" Text,
        "inputs" Text, "dtype" Text, "precision_word" Text, "attention" Text, "target" Text, "mode" Text,
    ],
    " ON CONFLICT (case_id) DO NOTHING"
);

table_columns!(
    /// `events`.
    EVENTS, "events",
    [
        "run_key" Int, "sequence" Int, "shard_key" Int, "origin_sequence" Int, "at" Int, "case_id" Text, "attempt" Int,
        "type" Text, "payload" Text,
    ],
    ""
);

table_columns!(
    /// `models`; later knowledge of the same revision replaces earlier. Equal times are told apart by content, so that the order
    /// of merges does not matter.
    MODELS, "models",
    [
        "model" Text, "revision" Text, "source" Text, "architecture" Text, "class" Text, "harness" Text, "tags" Text,
        "downloads" Int, "seen_at" Int,
    ],
    " ON CONFLICT (model, revision) DO UPDATE SET source = excluded.source, architecture = excluded.architecture, \
     class = excluded.class, harness = excluded.harness, tags = excluded.tags, downloads = excluded.downloads, \
     seen_at = excluded.seen_at \
     WHERE (excluded.seen_at, excluded.downloads, excluded.tags, excluded.architecture, excluded.class) \
     > (models.seen_at, models.downloads, models.tags, models.architecture, models.class)"
);

table_columns!(
    /// `model_references`; a later use replaces an earlier.
    MODEL_REFERENCES, "model_references",
    [
        "reference_key" Text, "host" Text, "path" Text, "bytes" Int, "created_at" Int, "last_used_at" Int, "facts" Text,
    ],
    " ON CONFLICT (reference_key, host) DO UPDATE SET path = excluded.path, bytes = excluded.bytes, \
     created_at = excluded.created_at, last_used_at = excluded.last_used_at, facts = excluded.facts \
     WHERE (excluded.last_used_at, excluded.created_at, excluded.path, excluded.facts) \
     > (model_references.last_used_at, model_references.created_at, model_references.path, model_references.facts)"
);

table_columns!(
    /// `artifacts`; one that is there already stays.
    ARTIFACTS, "artifacts",
    ["attempt_key" Int, "kind" Text, "host" Text, "path" Text, "bytes" Int],
    " ON CONFLICT (attempt_key, kind, host, path) DO NOTHING"
);

table_columns!(
    /// `confirmations`; one that is there already stays.
    CONFIRMATIONS, "confirmations",
    [
        "confirmation_id" Text, "case_key" Int, "before_environment" Text, "before_revision" Text, "before_outcomes" Text,
        "after_environment" Text, "after_revision" Text, "after_outcomes" Text, "confirmed" Int, "at" Int,
    ],
    " ON CONFLICT (confirmation_id) DO NOTHING"
);
