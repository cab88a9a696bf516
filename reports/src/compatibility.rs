//! COMPATIBILITY.md: what works, by architecture, and what stands in the way.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use modelfarm_matrix::axes::{Mode, Workload};
use modelfarm_matrix::cause::Causes;
use modelfarm_matrix::exclusion::{Exclusion, Exclusions};
use modelfarm_matrix::fault::Fault;
use modelfarm_matrix::outcome::Standing;

use crate::figures::{count, counted, percent};
use crate::markdown_text::{code, plain};
use crate::query::{Counts, FailureGroup};
use crate::rows::{ResultRow, RunRow};

/// Causes that are told.
const CAUSES: usize = 10;

type Column = (String, Workload, Mode);

/// The document of one run or several: `rows` are their attempts that count, `groups` their failures, `exclusions` what no run of
/// the fixtures can hold.
pub fn compatibility(
    runs: &[RunRow],
    rows: &[ResultRow],
    groups: &[FailureGroup],
    causes: &Causes,
    exclusions: &Exclusions,
) -> String {
    let mut text = String::from("# Compatibility\n\n");
    write_runs(&mut text, runs, rows);
    write_totals(&mut text, rows);
    write_causes(&mut text, groups, causes);
    write_architectures(&mut text, rows);
    write_exclusions(&mut text, rows, exclusions);
    text
}

fn write_runs(text: &mut String, runs: &[RunRow], rows: &[ResultRow]) {
    let architectures: BTreeSet<&str> = rows.iter().map(|row| row.architecture.as_str()).collect();
    let _ = writeln!(
        text,
        "{} of {}, written by `modelfarm report --compatibility`. `p/c` is passed of conclusive cases; `+n` are cases that say \
         nothing about the target.\n",
        counted(rows.len() as u64, "case"),
        counted(architectures.len() as u64, "architecture"),
    );
    for run in runs {
        let environments = run.environments.join(", ");
        let _ = writeln!(
            text,
            "- run {} of {}: {}, {} of {} final, started {}, environment {}",
            code(&run.run_id, 40),
            code(&run.matrix, 60),
            run.state,
            count(run.finished),
            counted(run.planned, "planned case"),
            plain(&run.started_at),
            code(&environments, 120),
        );
    }
    text.push('\n');
}

fn write_totals(text: &mut String, rows: &[ResultRow]) {
    let mut columns: BTreeMap<Column, (Counts, BTreeSet<&str>, BTreeSet<&str>)> = BTreeMap::new();
    for row in rows {
        let (counts, all, not_passed) = columns.entry(column(row)).or_default();
        counts.add(row.outcome, 1);
        all.insert(&row.architecture);
        if row.outcome.standing() != Standing::Pass {
            not_passed.insert(&row.architecture);
        }
    }
    text.push_str("## By target, workload and mode\n\n");
    text.push_str(
        "| target | workload | mode | passed | of conclusive cases | | inconclusive | architectures that pass whole | of |\n",
    );
    text.push_str("|:--|:--|:--|--:|--:|--:|--:|--:|--:|\n");
    for ((target, workload, mode), (counts, all, not_passed)) in &columns {
        let conclusive = counts.pass + counts.fail;
        let _ = writeln!(
            text,
            "| {} | {workload} | {mode} | {} | {} | {} | {} | {} | {} |",
            code(target, 60),
            count(counts.pass),
            count(conclusive),
            percent(counts.pass, conclusive),
            count(counts.inconclusive),
            count((all.len() - not_passed.len()) as u64),
            count(all.len() as u64),
        );
    }
    text.push('\n');
}

fn write_causes(text: &mut String, groups: &[FailureGroup], causes: &Causes) {
    text.push_str("## The largest causes of failure, by architectures blocked\n\n");
    if groups.is_empty() {
        text.push_str("No case failed.\n\n");
    }
    for (number, group) in groups.iter().take(CAUSES).enumerate() {
        let modes: Vec<&str> = group.modes.iter().map(|mode| mode.as_str()).collect();
        let _ = writeln!(
            text,
            "{}. **{}** ({}), {} in {}: {}",
            number + 1,
            plain(group.outcome.as_str()),
            group.fault.map_or("no fault assigned", Fault::as_str),
            counted(group.architectures, "architecture"),
            counted(group.cases, "case"),
            modes.join(", "),
        );
        let message = group.signature.as_deref().unwrap_or("nothing was said");
        let _ = writeln!(text, "   - message: {}", code(message, 200));
        let names: Vec<String> = group.sample_architectures.iter().map(|name| code(name, 60)).collect();
        let more = group.architectures.saturating_sub(names.len() as u64);
        let more = if more > 0 { format!(" and {} more", count(more)) } else { String::new() };
        let _ = writeln!(text, "   - architectures: {}{more}; a case: `{}`", names.join(" "), first(&group.sample_cases));
        match group.signature.as_deref().and_then(|signature| causes.of(signature)) {
            Some(cause) => {
                let issue = cause.issue.as_ref().map(|issue| format!(" ({issue})")).unwrap_or_default();
                let _ = writeln!(text, "   - {}{issue}", cause.explanation.trim().replace('\n', " "));
            }
            None => text.push_str("   - not explained yet\n"),
        }
    }
    if groups.len() > CAUSES {
        let rest: u64 = groups[CAUSES..].iter().map(|group| group.cases).sum();
        let more = counted((groups.len() - CAUSES) as u64, "more group");
        let _ = writeln!(text, "\nand {more} of {} together: `modelfarm query failures` lists them.", counted(rest, "case"));
    }
    text.push('\n');
}

fn first(cases: &[String]) -> &str {
    cases.first().map_or("", String::as_str)
}

fn write_architectures(text: &mut String, rows: &[ResultRow]) {
    let columns: BTreeSet<Column> = rows.iter().map(column).collect();
    let mut cells: BTreeMap<&str, BTreeMap<Column, Counts>> = BTreeMap::new();
    for row in rows {
        cells.entry(&row.architecture).or_default().entry(column(row)).or_default().add(row.outcome, 1);
    }
    text.push_str("## By architecture\n\n| architecture |");
    for (target, workload, mode) in &columns {
        let _ = write!(text, " {} {workload} {mode} |", code(target, 60));
    }
    text.push_str("\n|:--|");
    text.push_str(&":-:|".repeat(columns.len()));
    text.push('\n');
    for (architecture, counts) in &cells {
        let _ = write!(text, "| {} |", code(architecture, 80));
        for column in &columns {
            let cell = counts.get(column).map_or_else(|| "–".to_owned(), cell);
            let _ = write!(text, " {cell} |");
        }
        text.push('\n');
    }
}

fn write_exclusions(text: &mut String, rows: &[ResultRow], exclusions: &Exclusions) {
    let Exclusions { architectures, heads, generate: _ } = exclusions;
    let run: BTreeSet<&str> = rows.iter().map(|row| row.architecture.as_str()).collect();
    let run = architectures.keys().filter(|name| run.contains(name.as_str())).count();
    text.push_str("\n## Left out of the fixtures\n\n");
    let _ = writeln!(
        text,
        "{} and {} with a task head are left out; {} of the {} have cases above all the same, of models from elsewhere.\n",
        counted(architectures.len() as u64, "architecture"),
        counted_classes(heads.len() as u64),
        count(run as u64),
        counted(architectures.len() as u64, "architecture"),
    );
    if architectures.is_empty() && heads.is_empty() {
        return;
    }
    text.push_str("| left out | | why | what would bring it in |\n|:--|:--|:--|:--|\n");
    let mut write = |kind: &str, entries: &BTreeMap<String, Exclusion>| {
        for (name, Exclusion { reason, needs }) in entries {
            let _ = writeln!(text, "| {} | {kind} | {} | {} |", code(name, 80), cell_text(reason), cell_text(needs));
        }
    };
    write("architecture", architectures);
    write("class", heads);
}

fn counted_classes(number: u64) -> String {
    format!("{} {}", count(number), if number == 1 { "class" } else { "classes" })
}

/// The zoo's own words, on one line and within one cell.
fn cell_text(words: &str) -> String {
    words.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

/// A mark and figures: never a mark alone.
fn cell(counts: &Counts) -> String {
    let conclusive = counts.pass + counts.fail;
    let more = if counts.inconclusive > 0 { format!(" +{}", counts.inconclusive) } else { String::new() };
    match (conclusive, counts.fail) {
        (0, _) => format!("○{more}"),
        (_, 0) => format!("✓ {}/{conclusive}{more}", counts.pass),
        _ => format!("✗ {}/{conclusive}{more}", counts.pass),
    }
}

fn column(row: &ResultRow) -> Column {
    (row.target.clone(), row.workload, row.mode)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exclusion(reason: &str, needs: &str) -> Exclusion {
        Exclusion { reason: reason.into(), needs: needs.into() }
    }

    #[test]
    fn what_is_left_out_stands_at_the_end_with_its_count() {
        let exclusions = Exclusions {
            architectures: BTreeMap::from([
                ("bark".to_owned(), exclusion("has no\n forward", "a workload | or two")),
                ("dinat".to_owned(), exclusion("needs natten", "natten")),
            ]),
            heads: BTreeMap::from([("BertForX".to_owned(), exclusion("r", "n"))]),
            generate: BTreeMap::new(),
        };
        let text = compatibility(&[], &[], &[], &Causes::default(), &exclusions);
        assert!(
            text.contains("2 architectures and 1 class with a task head are left out; 0 of the 2 architectures have"),
            "{text}"
        );
        let (_, table) = text.split_once("|:--|:--|:--|:--|\n").unwrap();
        assert_eq!(
            table.lines().collect::<Vec<_>>(),
            [
                "| <code>bark</code> | architecture | has no forward | a workload \\| or two |",
                "| <code>dinat</code> | architecture | needs natten | natten |",
                "| <code>BertForX</code> | class | r | n |",
            ]
        );
        let text = compatibility(&[], &[], &[], &Causes::default(), &Exclusions::default());
        assert!(text.contains("0 architectures and 0 classes") && !text.contains("what would bring it in"), "{text}");
    }

    #[test]
    fn a_cell_says_its_denominator() {
        let of = |pass, fail, inconclusive| cell(&Counts { pass, fail, inconclusive });
        assert_eq!(of(3, 0, 0), "✓ 3/3");
        assert_eq!(of(2, 1, 4), "✗ 2/3 +4");
        assert_eq!(of(0, 0, 2), "○ +2");
    }
}
