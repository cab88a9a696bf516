//! One hostile string in every field that a model can influence, through every output.

#![allow(clippy::unwrap_used, reason = "a test may fail by a panic")]

mod outputs_sample;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use modelfarm_matrix::expectation::Verdict;
use modelfarm_matrix::outcome::{Outcome, Stage};
use modelfarm_reports::final_summary::final_summary;
use modelfarm_reports::junit::junit_xml;
use modelfarm_reports::page::write_report;
use modelfarm_reports::rows::AttemptDetail;
use modelfarm_reports::step_summary::step_summary;
use outputs_sample::{Sample, before, history_of, run_of, sample};
use serde_json::json;

/// Markup, attribute and CDATA ends, template syntax, control and bidirectional characters, terminal sequences, a leading `=`,
/// mentions, references, links, table pipes, code fences and a megabyte more.
fn hostile() -> String {
    let head = "=cmd|'/C calc'!A0 </pre></details><script>alert(1)</script><img src=x onerror=alert(2)>\"' onmouseover=alert(3) x=\" \
                ]]> --> <!-- {{ 7 * 7 }} {% raw %} @octocat #123 GH-7 https://evil.example www.evil.example | a | b | ``` ~~~ `x` \
                [link](javascript:alert(4)) ![i](//evil.example/i.png) &lt;b&gt; &#x3c;b&#x3e; javascript:alert(5)\n\
                # heading\n| --- | --- |\n\u{1b}[31mred\u{1b}[0m\u{1b}]0;title\u{7}\u{1b}[2J\u{8}\u{0}\u{9b}31m\r over\
                \u{202e}gnp.exe\u{202c}\u{2066}\u{2069}\u{200b}\u{feff}\u{2028}\u{fffe}\u{ffff}\u{e0041}\u{ad}\u{85}";
    format!("{head}{}", "A\u{202e}<b>|`@x ".repeat((1 << 20) / 12))
}

/// Characters that no output may hold: they drive terminals, reorder lines or cannot be seen.
fn is_harmful(character: char) -> bool {
    (character.is_control() && !"\n\t".contains(character))
        || matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200b}' | '\u{200e}' | '\u{200f}'
            | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}' | '\u{ad}' | '\u{e0000}'..='\u{e007f}')
}

fn spoil(attempt: &mut AttemptDetail, text: &str, outcome: Outcome, verdict: Verdict) {
    let some = || Some(text.to_owned());
    let row = &mut attempt.row;
    (row.outcome, row.verdict, row.stage) = (outcome, verdict, Stage::Execute);
    row.message = some();
    row.signature = some();
    row.architecture = text.to_owned();
    row.class = text.to_owned();
    row.inputs = text.to_owned();
    row.attention = text.to_owned();
    row.target = text.to_owned();
    row.revision = some();
    row.host = text.to_owned();
    row.started_at = text.to_owned();
    row.environment_id = some();
    attempt.expectation_reason = some();
    attempt.traceback = some();
    attempt.output_tail = some();
    attempt.inputs_hash = some();
    attempt.reference_key = some();
    for leaf in &mut attempt.leaves {
        leaf.name = text.to_owned();
        leaf.dtype = text.to_owned();
    }
    attempt.facts = json!({
        text: text, "graph_breaks": [{"reason": text, "count": 1}, {"reason": {"deep": text}}, text], "stage_ms": {"load": text, "execute": 1e308},
        "list": [text, text], "nested": {"a": {"b": {"c": {"d": {"e": {"f": {"g": text}}}}}}}
    });
    attempt.evidence = json!({ "emulator_lacks": [text], text: true });
}

/// A run where four cases of one model are as hostile as their types allow, and one has an earlier try.
fn hostile_sample() -> Sample {
    let text = hostile();
    let mut sample = sample(1);
    sample.attempts.truncate(8);
    let verdicts = [
        (Outcome::Mismatch, Verdict::UnexpectedFail),
        (Outcome::Crash, Verdict::ExpectedFail),
        (Outcome::LoadError, Verdict::UnexpectedInconclusive),
        (Outcome::Gated, Verdict::ExpectedInconclusive),
        (Outcome::Pass, Verdict::UnexpectedPass),
        (Outcome::Pass, Verdict::ExpectedPass),
    ];
    for (attempt, (outcome, verdict)) in sample.attempts.iter_mut().zip(verdicts) {
        spoil(attempt, &text, outcome, verdict);
    }
    let mut earlier = sample.attempts[0].clone();
    sample.attempts[0].row.attempt = 2;
    earlier.row.attempt = 1;
    sample.attempts.push(earlier);
    sample.run = run_of(&sample.attempts, modelfarm_reports::rows::RunState::Partial, 3);
    sample.run.matrix = text.clone();
    sample.run.run_id = text.clone();
    sample.run.plan_id = text.clone();
    sample.run.started_at = text.clone();
    sample.run.hosts = vec![text.clone(), text.clone()];
    sample.run.facts = json!({ text.as_str(): text });
    for environment in &mut sample.environments {
        environment.id = text.clone();
        environment.name = text.clone();
        environment.packages = [(text.clone(), text.clone())].into();
        environment.facts = json!({ "x": text });
    }
    sample.history = history_of(&sample.rows(), Some(&text));
    sample.history.runs = vec![sample.run.clone()];
    sample
}

fn assert_harmless(name: &str, text: &str, most: usize) {
    assert!(text.len() < most, "{name} has {} bytes", text.len());
    if let Some(found) = text.chars().find(|c| is_harmful(*c)) {
        panic!("{name} holds U+{:04X}", u32::from(found));
    }
}

/// Proves the structure of a page: its elements, attributes and links are those of the templates alone.
fn assert_sound_page(path: &Path) {
    let name = path.display().to_string();
    let text = fs::read_to_string(path).unwrap();
    assert_harmless(&name, &text, 1 << 20);
    let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
    let document = roxmltree::Document::parse_with_options(&text, options).unwrap_or_else(|error| panic!("{name}: {error}"));
    let elements: BTreeSet<&str> =
        "html head meta title link body a header nav main footer section h1 h2 h3 h4 p b i code pre span div \
         small table thead tbody tr th td br ul li dl dt dd details summary figure figcaption svg rect path line polyline circle g text article input label"
            .split_whitespace()
            .collect();
    let attributes: BTreeSet<&str> =
        "lang charset http-equiv content name rel href class id role aria-label aria-hidden tabindex scope \
         rowspan colspan viewBox preserveAspectRatio x y width height type for open d cx cy r x1 y1 x2 y2 points text-anchor"
            .split_whitespace()
            .collect();
    for node in document.descendants() {
        assert!(!node.is_comment() && !node.is_pi(), "{name}: a comment came from somewhere");
        if !node.is_element() {
            continue;
        }
        let element = node.tag_name().name();
        assert!(elements.contains(element), "{name}: <{element}>");
        for attribute in node.attributes() {
            let value = attribute.value();
            assert!(attributes.contains(attribute.name()), "{name}: {}={value}", attribute.name());
            if attribute.name() == "href" {
                let within = value.chars().all(|c| c.is_ascii_alphanumeric() || "-_./#~".contains(c));
                assert!((within && !value.starts_with('/')) || value == "data:,", "{name}: href={value}");
            }
        }
    }
    let policy = document.descendants().find(|node| node.attribute("http-equiv") == Some("Content-Security-Policy"));
    assert!(policy.unwrap().attribute("content").unwrap().starts_with("default-src 'none';"));
}

#[test]
fn html_pages_keep_their_structure() {
    let sample = hostile_sample();
    let folder = tempfile::tempdir().unwrap();
    let mut input = sample.input();
    let text = hostile();
    let matrix_file: String = text.chars().take(2_000).collect();
    input.matrix_file = &matrix_file;
    input.farm_version = &text;
    let summary = write_report(folder.path(), &input).unwrap();
    assert_sound_page(&summary.index);
    let page = folder.path().join(format!("models/{}.html", sample.attempts[0].row.model));
    assert_sound_page(&page);
    let page = fs::read_to_string(page).unwrap();
    // The text itself is there, escaped: nothing is hidden from the person who reads it.
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
    assert!(page.contains("[U+202E]gnp.exe"));
    assert!(page.contains("more bytes]"));
    assert!(page.contains("␛]0;title␇"));
}

#[test]
fn junit_stays_xml() {
    let sample = hostile_sample();
    let xml = junit_xml(&sample.run, &sample.attempts).unwrap();
    assert_harmless("junit.xml", &xml, 1 << 20);
    let document = roxmltree::Document::parse(&xml).unwrap();
    let known = [
        "testsuites",
        "testsuite",
        "testcase",
        "properties",
        "property",
        "failure",
        "error",
        "skipped",
        "system-err",
        "flakyFailure",
        "rerunFailure",
    ];
    for node in document.descendants().filter(|node| node.is_element()) {
        assert!(known.contains(&node.tag_name().name()), "{}", node.tag_name().name());
    }
    let count = |name: &str| document.descendants().filter(|node| node.has_tag_name(name)).count();
    assert_eq!((count("testcase"), count("failure"), count("error"), count("skipped")), (8, 2, 1, 2));
    let failure =
        document.descendants().find(|node| node.has_tag_name("failure") && node.attribute("type") == Some("mismatch"));
    assert!(failure.unwrap().text().unwrap().contains("]]> -->"));
}

#[test]
fn markdown_stays_the_tables_it_was() {
    let sample = hostile_sample();
    let markdown = step_summary(&sample.run, &sample.rows(), &before(&sample.rows(), Some(&hostile())));
    assert_harmless("summary.md", &markdown, 256 << 10);
    for forbidden in ["<script", "<img", "<b>", "@", "https:", "www.", "](", " #123", "GH-7", "```", "~~~", "javascript:", "{{"]
    {
        assert!(!markdown.contains(forbidden), "{forbidden}");
    }
    // Every tag is one of the summary's own.
    for tag in markdown.split('<').skip(1) {
        let own = ["code>", "/code>", "br>", "details>", "/details>", "summary>", "/summary>"];
        assert!(own.iter().any(|own| tag.starts_with(own)), "<{}", tag.chars().take(20).collect::<String>());
    }
    // Every row of a table has as many cells as its heading, and no line of it is a heading or a rule of the model's making.
    let mut cells = None;
    for line in markdown.lines() {
        if line.starts_with('|') {
            let found = line.matches('|').count();
            assert_eq!(*cells.get_or_insert(found), found, "{line}");
        } else {
            cells = None;
        }
        assert!(!line.starts_with("# "), "{line}");
    }
    assert_eq!(markdown.lines().filter(|line| line.starts_with("##")).count(), 3);
    assert!(markdown.contains("✗ yes") && markdown.contains("**missing**, nothing ran"), "{markdown}");
}

#[test]
fn a_terminal_is_not_driven() {
    let sample = hostile_sample();
    let text = final_summary(&sample.run, &sample.rows());
    assert_harmless("the final summary", &text, 16 << 10);
    assert!(!text.contains('\t'));
    // A hostile line feed does not begin a line of its own.
    assert!(text.lines().all(|line| !line.starts_with("# heading") && !line.starts_with('|')));
}

#[test]
fn bounds_hold_for_thousands_of_unexpected_results() {
    let text = hostile();
    let mut sample = sample(40);
    for attempt in &mut sample.attempts {
        attempt.row.verdict = Verdict::UnexpectedFail;
        attempt.row.outcome = Outcome::Mismatch;
        attempt.row.message = Some(text[..20_000].to_owned());
    }
    sample.run = run_of(&sample.attempts, modelfarm_reports::rows::RunState::Complete, 0);
    let rows = sample.rows();
    let markdown = step_summary(&sample.run, &rows, &before(&rows, Some(&text[..20_000])));
    assert!(markdown.contains(&format!("and {} more changes", rows.len() - 50)));
    let unexpected = sample.run.unexpected as usize;
    assert!(markdown.contains(&format!("and {} more unexpected results", unexpected - 50)));
    assert!(markdown.len() < 256 << 10, "{}", markdown.len());
    let terminal = final_summary(&sample.run, &rows);
    assert!(terminal.contains(&format!("and {} more", unexpected - 20)));
    assert!(terminal.len() < 16 << 10);
}
