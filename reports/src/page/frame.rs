//! What stands around every page: its title, the way to the report's folder, and which run it is about.

use serde::Serialize;

use super::ReportInput;
use crate::figures::instant;
use crate::visible_text::one_line;

/// What every page has; flattened into its view.
#[derive(Debug, Serialize)]
pub(super) struct Frame {
    title: String,
    /// The way from the page to the report's folder.
    root: &'static str,
    farm_version: String,
    generated_at: String,
    matrix: String,
    run_id: String,
}

impl Frame {
    /// The frame of a page about `what`; `root` leads from it to the report's folder.
    pub(super) fn new(input: &ReportInput<'_>, what: &str, root: &'static str) -> Self {
        Self {
            title: format!("{} · modelfarm", one_line(what, 96)),
            root,
            farm_version: one_line(input.farm_version, 60),
            generated_at: instant(input.generated_at),
            matrix: one_line(&input.run.matrix, 100),
            run_id: one_line(&input.run.run_id, 60),
        }
    }
}
