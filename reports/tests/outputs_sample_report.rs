//! The whole report of realistic runs: its size, its time, its structure and its agreement with itself.
//!
//! `MODELFARM_SAMPLE_REPORT=DIR cargo test -p modelfarm-reports --test outputs_sample_report` keeps the pages for the eye.

#![allow(clippy::unwrap_used, reason = "a test may fail by a panic")]

mod outputs_sample;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use modelfarm_matrix::expectation::Verdict;
use modelfarm_matrix::outcome::Outcome;
use modelfarm_reports::final_summary::final_summary;
use modelfarm_reports::junit::junit_xml;
use modelfarm_reports::page::write_report;
use modelfarm_reports::rows::RunState;
use modelfarm_reports::step_summary::{Before, step_summary};
use outputs_sample::{Sample, run_of, sample};

fn write(sample: &Sample, name: &str) -> (PathBuf, Option<tempfile::TempDir>) {
    match std::env::var_os("MODELFARM_SAMPLE_REPORT") {
        Some(folder) => {
            let out = PathBuf::from(folder).join(name);
            write_report(&out, &sample.input()).unwrap();
            fs::write(out.join("junit.xml"), junit_xml(&sample.run, &sample.attempts).unwrap()).unwrap();
            fs::write(out.join("summary.md"), step_summary(&sample.run, &sample.rows(), &Before::default())).unwrap();
            fs::write(out.join("final.txt"), final_summary(&sample.run, &sample.rows())).unwrap();
            (out, None)
        }
        None => {
            let folder = tempfile::tempdir().unwrap();
            write_report(folder.path(), &sample.input()).unwrap();
            (folder.path().to_owned(), Some(folder))
        }
    }
}

fn pages(folder: &Path) -> Vec<PathBuf> {
    let mut pages = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            pages.extend(pages_of(&path));
        } else if path.extension().is_some_and(|extension| extension == "html") {
            pages.push(path);
        }
    }
    pages
}

fn pages_of(folder: &Path) -> Vec<PathBuf> {
    pages(folder)
}

/// Pages are well-formed XML on purpose, so that a strict parser can prove their structure.
fn parse(text: &str) -> roxmltree::Document<'_> {
    let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
    roxmltree::Document::parse_with_options(text, options).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn every_link_leads_somewhere_and_nothing_comes_from_elsewhere() {
    let sample = sample(40);
    let (out, _folder) = write(&sample, "forty");
    let pages = pages(&out);
    let models: std::collections::BTreeSet<_> = sample.attempts.iter().map(|attempt| &attempt.row.model).collect();
    let architectures: std::collections::BTreeSet<_> =
        sample.attempts.iter().map(|attempt| &attempt.row.architecture).collect();
    // Beside them the index, failures, flakes and runs.
    assert_eq!(pages.len(), models.len() + architectures.len() + 4);
    let mut links = 0;
    for page in &pages {
        let text = fs::read_to_string(page).unwrap();
        let document = parse(&text);
        for link in document.descendants().filter_map(|node| node.attribute("href")) {
            if link == "data:," {
                continue;
            }
            let (file, place) = link.split_once('#').map_or((link, None), |(file, place)| (file, Some(place)));
            let target = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            // Only the few distinct files of the index are worth reading again and again.
            assert!(target.exists(), "{link} on {page:?}");
            if let Some(place) = place
                && links % 50 == 0
            {
                let text = fs::read_to_string(&target).unwrap();
                assert!(text.contains(&format!("id=\"{place}\"")), "{link} on {page:?}");
            }
            links += 1;
        }
    }
    assert!(links > 1_000, "{links}");
}

#[test]
fn the_page_says_how_far_a_partial_run_came() {
    let mut sample = sample(4);
    sample.run = run_of(&sample.attempts, RunState::Partial, 32);
    let (out, _folder) = write(&sample, "partial");
    let index = fs::read_to_string(out.join("index.html")).unwrap();
    let planned = sample.run.planned;
    assert!(index.contains(&format!("{} of {planned} planned cases final", planned - 32)), "{planned}");
    assert!(index.contains("32 missing, and nothing below counts them"));
    assert!(final_summary(&sample.run, &sample.rows()).contains("partial: "));
    assert!(step_summary(&sample.run, &sample.rows(), &Before::default()).contains("**partial**"));
}

#[test]
fn an_empty_run_has_pages_too() {
    let mut sample = sample(0);
    sample.attempts.clear();
    sample.run = run_of(&[], RunState::Interrupted, 12);
    let (out, _folder) = write(&sample, "empty");
    let index = fs::read_to_string(out.join("index.html")).unwrap();
    assert!(index.contains("0 of 12 planned cases final (0 %)"));
    assert!(junit_xml(&sample.run, &sample.attempts).unwrap().contains("tests=\"0\""));
    assert!(final_summary(&sample.run, &[]).contains("0 of 0 conclusive cases (–)"));
}

#[test]
fn all_summaries_tell_the_same_numbers() {
    let sample = sample(40);
    let run = &sample.run;
    let rows = sample.rows();
    let index = {
        let (out, _folder) = write(&sample, "agreement");
        fs::read_to_string(out.join("index.html")).unwrap()
    };
    let conclusive = run.pass + run.fail;
    let terminal = final_summary(run, &rows);
    let markdown = step_summary(run, &rows, &Before::default());
    assert!(index.contains(&format!("{} of {conclusive} conclusive cases", run.pass)));
    assert!(terminal.contains(&format!("{} of {conclusive} conclusive cases", run.pass)), "{terminal}");
    assert!(markdown.contains(&format!("| pass | {} | {conclusive} conclusive cases |", run.pass)), "{markdown}");
    assert!(terminal.contains(&format!("{} of {} final cases", run.unexpected, run.finished)));
    assert!(markdown.contains(&format!("| unexpected | {} | {} final cases |", run.unexpected, run.finished)));

    let junit = quick_junit::Report::deserialize_from_str(&junit_xml(run, &sample.attempts).unwrap()).unwrap();
    assert_eq!(junit.tests as u64, run.finished);
    assert_eq!((junit.failures + junit.errors) as u64, run.unexpected);
    let skipped =
        rows.iter().filter(|row| row.verdict.as_str().starts_with("expected_") && row.verdict.as_str() != "expected_pass");
    assert_eq!(junit.skipped, skipped.count());
}

#[test]
fn an_unexpected_pass_is_as_visible_as_an_unexpected_failure() {
    let mut sample = sample(160);
    // More failures than any list shows, and one pass among them.
    let mut pass = None;
    for (number, attempt) in
        sample.attempts.iter_mut().filter(|attempt| attempt.row.verdict == Verdict::ExpectedPass).enumerate()
    {
        match number {
            700 => {
                attempt.row.verdict = Verdict::UnexpectedPass;
                attempt.expectation_reason = Some("was known to hang".into());
                pass = Some(attempt.row.clone());
            }
            0..1600 => (attempt.row.outcome, attempt.row.verdict) = (Outcome::Mismatch, Verdict::UnexpectedFail),
            _ => {}
        }
    }
    let pass = pass.unwrap();
    // The sample has one of its own.
    let own = sample
        .attempts
        .iter_mut()
        .find(|attempt| attempt.row.verdict == Verdict::UnexpectedPass && attempt.row.case_id != pass.case_id);
    own.unwrap().row.verdict = Verdict::ExpectedPass;
    sample.run = run_of(&sample.attempts, RunState::Complete, 0);
    let (run, rows) = (&sample.run, sample.rows());
    let case = pass.case_id.as_str();

    let terminal = final_summary(run, &rows);
    assert!(terminal.contains("fail, 1 pass, "), "{terminal}");
    assert!(
        terminal.contains(&format!("    ▲ {case} ")) && terminal.contains("passes, though a failure is declared"),
        "{terminal}"
    );
    let markdown = step_summary(run, &rows, &Before::default());
    assert!(markdown.lines().next().unwrap().contains("fail, 1 pass, "), "{markdown}");
    assert!(markdown.contains("| … pass, though a failure is declared | 1 |"), "{markdown}");
    assert!(markdown.lines().any(|line| line.starts_with("| ▲ |") && line.contains(case)), "{markdown}");
    let junit = junit_xml(run, &sample.attempts).unwrap();
    let test = junit.split("<testcase").find(|test| test.contains(case)).unwrap();
    assert!(test.contains("<failure") && test.contains("type=\"pass\"") && test.contains("was known to hang"), "{test}");

    let (out, _folder) = write(&sample, "unexpected-pass");
    let index = fs::read_to_string(out.join("index.html")).unwrap();
    let (_, section) = index.split_once("id=\"unexpected\"").unwrap();
    let (section, rest) = section.split_once("</section>").unwrap();
    assert!(section.contains("unexpected_pass") && section.contains("Declared: was known to hang"));
    assert!(section.contains("more result"), "the list is cut");
    assert!(index.contains("<rect class=\"p-gain\""));
    let architecture = format!("<th class=\"name\" scope=\"row\">{}</th>", pass.architecture);
    let matrix_row = rest.split("<tr").find(|row| row.contains(&architecture)).unwrap();
    assert!(!matrix_row.contains("class=\"clean\""), "no filter hides it: {matrix_row}");
}

#[test]
fn a_large_report_stays_small_and_fast() {
    // The larger one is timed with generous room: an unoptimised build on a shared machine.
    for (architectures, most_seconds) in [(40, 30), (160, 120)] {
        let sample = sample(architectures);
        let folder = tempfile::tempdir().unwrap();
        let start = Instant::now();
        let summary = write_report(folder.path(), &sample.input()).unwrap();
        let took = start.elapsed();
        let index = fs::metadata(&summary.index).unwrap().len();
        eprintln_figures(architectures, sample.attempts.len(), &summary, index, took);
        assert!(took < Duration::from_secs(most_seconds), "{took:?}");
        assert!(index < (architectures as u64) * (8 << 10), "{index}");
        assert!(summary.bytes / (summary.pages as u64) < 256 << 10, "{summary:?}");
        assert!(step_summary(&sample.run, &sample.rows(), &Before::default()).len() < 1 << 20);
    }
}

#[allow(clippy::print_stderr, reason = "figures for `cargo test -- --nocapture`")]
fn eprintln_figures(
    architectures: usize,
    attempts: usize,
    summary: &modelfarm_reports::page::ReportSummary,
    index: u64,
    took: Duration,
) {
    eprintln!(
        "{architectures} architectures, {attempts} attempts: {} pages, {} bytes, index {index} bytes, {took:?}",
        summary.pages, summary.bytes
    );
}
