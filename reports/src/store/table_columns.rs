//! The columns of tables that are written and copied as a whole.

use std::sync::{Arc, LazyLock};

use super::cell::Kind::{self, Bytes, Int, Real, Text};
use super::statement::{Statement, composed};

/// A table's columns apart from its surrogate keys, in the order in which they are bound.
pub(crate) struct TableColumns {
    pub(crate) columns: &'static [(&'static str, Kind)],
    insert: LazyLock<Arc<str>>,
}

impl TableColumns {
    /// `INSERT INTO table (columns) VALUES ($1, ...)`.
    pub(crate) fn insert(&self) -> Statement {
        composed(&self.insert)
    }
}

macro_rules! table_columns {
    ($(#[$meta:meta])* $name:ident, $table:literal, [$($column:literal $kind:ident),+ $(,)?], $tail:literal) => {
        $(#[$meta])*
        pub(crate) static $name: TableColumns = TableColumns {
            columns: &[$(($column, $kind)),+],
            insert: LazyLock::new(|| {
                let columns = [$($column),+];
                let values: Vec<String> = (1..=columns.len()).map(|number| format!("${number}")).collect();
                format!("INSERT INTO {} ({}) VALUES ({}) {}", $table, columns.join(", "), values.join(", "), $tail).into()
            }),
        };
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
    "RETURNING attempt_key"
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
    "ON CONFLICT (case_id) DO NOTHING"
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
