//! An Atom feed of what regressed in the newest complete runs.

use std::io;
use std::sync::Arc;

use quick_xml::Writer;
use quick_xml::events::{BytesDecl, BytesText, Event};

use crate::query::{ChangeRow, Comparison, Question as Compare, Side};
use crate::server::Server;
use crate::server::answer::Answer;
use crate::server::question::Question;
use crate::server::refusal::Refusal;
use crate::store::StoreError;
use crate::visible_text::visible;

pub(in crate::server) const FEED: &str = "application/atom+xml; charset=utf-8";

/// The newest complete runs of which the feed tells.
const RUNS: u64 = 7;
/// The most entries of one run: what is more is one cause, and the API tells of all.
const ENTRIES_OF_A_RUN: usize = 100;

pub(in crate::server) async fn feed(server: Arc<Server>, question: Question) -> Result<Answer, Refusal> {
    let matrix = question.text("matrix");
    let mut comparisons = Vec::new();
    for run in server.store.complete_runs(matrix, RUNS).await? {
        match server.store.comparison(&Compare { run: Some(run), ..Compare::default() }).await {
            Ok(comparison) => comparisons.push(comparison),
            // The first run of a matrix has nothing to be compared with.
            Err(StoreError::NoCompleteRun { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let text = written(&comparisons).map_err(Refusal::unwritable)?;
    Ok(Answer::text(FEED, text))
}

fn written(comparisons: &[Comparison]) -> io::Result<Vec<u8>> {
    let mut writer = Writer::new(Vec::new());
    writer.write_event(Event::Decl(BytesDecl::new("1.0", Some("utf-8"), None)))?;
    let feed = writer.create_element("feed").with_attribute(("xmlns", "http://www.w3.org/2005/Atom"));
    feed.write_inner_content(|writer| {
        text(writer, "id", "tag:modelfarm,2026:regressions")?;
        text(writer, "title", "modelfarm: regressions")?;
        let newest = comparisons.iter().map(|comparison| comparison.after.started_at.as_str()).max();
        text(writer, "updated", newest.unwrap_or("1970-01-01T00:00:00Z"))?;
        writer.create_element("author").write_inner_content(|writer| text(writer, "name", "modelfarm"))?;
        writer.create_element("link").with_attributes([("rel", "self"), ("href", "/feed.atom")]).write_empty()?;
        for comparison in comparisons {
            let bad = comparison.rows.iter().filter(|row| row.change.is_bad());
            for row in bad.take(ENTRIES_OF_A_RUN) {
                entry(writer, comparison, row)?;
            }
        }
        Ok(())
    })?;
    Ok(writer.into_inner())
}

/// One case in one run: its id stays as it is, whatever is found out about it later.
fn entry(writer: &mut Writer<Vec<u8>>, comparison: &Comparison, row: &ChangeRow) -> io::Result<()> {
    let (run, case) = (&comparison.after.run_id, &row.case_id);
    let confirmed = match row.confirmed {
        Some(true) => "confirmed",
        Some(false) => "not seen again",
        None => "not tried again",
    };
    let change = row.change.as_str().replace('_', " ");
    writer.create_element("entry").write_inner_content(|writer| {
        text(writer, "id", &format!("tag:modelfarm,2026:regression/{run}/{case}"))?;
        text(writer, "title", &format!("{change} ({confirmed}): {} {} {} {}", row.model, row.target, row.mode, row.workload))?;
        text(writer, "updated", &comparison.after.started_at)?;
        let link = format!("/api/v1/cases/{case}");
        writer.create_element("link").with_attributes([("rel", "alternate"), ("href", link.as_str())]).write_empty()?;
        for term in [row.change.as_str(), confirmed, row.architecture.as_str()] {
            writer.create_element("category").with_attribute(("term", visible(term).as_ref())).write_empty()?;
        }
        text(writer, "summary", &summary(comparison, row, confirmed))
    })?;
    Ok(())
}

fn summary(comparison: &Comparison, row: &ChangeRow, confirmed: &str) -> String {
    let side = |side: &Option<Side>| side.as_ref().map_or("nothing", |side| side.outcome.as_str()).to_owned();
    let mut parts = vec![
        format!(
            "{} of the matrix {}: {} before, {} now; {confirmed}.",
            row.architecture,
            comparison.matrix,
            side(&row.before),
            side(&row.after)
        ),
        format!("Run {} against {}.", comparison.after.run_id, comparison.before.run_id),
    ];
    if let Some(first) = &row.first {
        parts.push(format!("It has failed in each run since {}.", first.started_at));
    }
    if let Some(signature) = &row.signature {
        parts.push(format!("It says: {}", signature.chars().take(500).collect::<String>()));
    }
    let version = |version: &Option<String>| version.clone().unwrap_or_else(|| "none".to_owned());
    let changed: Vec<String> = row
        .environment_changes
        .iter()
        .take(20)
        .map(|change| format!("{} {} → {}", change.package, version(&change.from), version(&change.to)))
        .collect();
    if !changed.is_empty() {
        parts.push(format!("Packages that differ: {}.", changed.join(", ")));
    }
    if row.model_changed == Some(true) {
        parts.push("The model's revision differs.".to_owned());
    }
    parts.join(" ")
}

/// An element with a text; what XML cannot hold, and what hides, is made visible.
fn text(writer: &mut Writer<Vec<u8>>, name: &str, content: &str) -> io::Result<()> {
    writer.create_element(name).write_text_content(BytesText::new(&visible(content)))?;
    Ok(())
}
