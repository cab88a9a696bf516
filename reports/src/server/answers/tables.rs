//! The columns of what the server alone answers with.

use super::changes::Compared;
use crate::query::StoredEvent;
use crate::rows::{AttemptDetail, ResultRow};
use crate::table::TableRow;

/// As a table an attempt is its row: what is known besides is too long for a cell.
impl TableRow for AttemptDetail {
    const COLUMNS: &'static [&'static str] = ResultRow::COLUMNS;
    const SHOWN: &'static [&'static str] = ResultRow::SHOWN;
}

impl TableRow for StoredEvent {
    const COLUMNS: &'static [&'static str] = &[
        "sequence",
        "at",
        "shard",
        "type",
        "case_id",
        "attempt",
        "model",
        "stage",
        "outcome",
        "unexpected",
        "planned",
        "already_final",
        "interrupted",
    ];
    const SHOWN: &'static [&'static str] = Self::COLUMNS;
}

impl TableRow for Compared {
    const COLUMNS: &'static [&'static str] = &[
        "matrix",
        "before.run_id",
        "before.started_at",
        "is_old_enough",
        "after.run_id",
        "after.started_at",
        "after.is_complete",
        "in_both",
        "still_passing",
        "changes",
        "is_bad",
    ];
    const SHOWN: &'static [&'static str] = Self::COLUMNS;
}
