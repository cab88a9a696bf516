//! Rows in every format, with one hostile text.

use std::collections::BTreeSet;

use modelfarm_matrix::attempt::Attempt;
use modelfarm_matrix::axes::Harness;
use modelfarm_reports::query::{ArchitectureRow, ResultFilter};
use modelfarm_reports::rows::{ResultRow, RunRow};
use modelfarm_reports::store::{Environment, Store};
use modelfarm_reports::table::{Format, TableRow, write_rows};
use serde_json::Value;

use crate::databases::{open, sqlite};
use crate::samples::{case, cases, failed, new_run};

fn hostile() -> String {
    let short = "=HYPERLINK(\"x\")\u{1b}[31m\u{1b}]0;t\u{7}\u{9b}2J\u{202e}<b>|@all,\"'\r\n\u{e0041}";
    format!("{short}{}", "A".repeat(1 << 20))
}

async fn rows(store: &Store) -> (Vec<ResultRow>, Vec<RunRow>) {
    let run = store.begin_run(&new_run(&cases(1))).await.unwrap();
    let attempt = Attempt { signature: Some(hostile()), message: Some(hostile()), ..failed(&case(0)) };
    store.finish_attempt(&run, &attempt).await.unwrap();
    (store.results(&ResultFilter::default()).await.unwrap(), store.runs(None).await.unwrap())
}

fn written<R: TableRow>(format: Format, width: Option<u16>, rows: &[R]) -> String {
    let mut out = Vec::new();
    write_rows(&mut out, format, width, rows).unwrap();
    String::from_utf8(out).unwrap()
}

fn assert_harmless(text: &str) {
    for character in text.chars() {
        let hidden = matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{e0000}'..='\u{e007f}');
        assert!(!hidden && (character == '\n' || !character.is_control()), "{character:?}");
    }
}

#[tokio::test]
async fn a_hostile_text_is_harmless_in_every_format() {
    let database = sqlite();
    let (results, _) = rows(&open(&database).await).await;
    for &format in Format::ALL {
        for width in [None, Some(80)] {
            assert_harmless(&written(format, width, &results));
        }
    }
    let json: Vec<ResultRow> = serde_json::from_str(&written(Format::Json, None, &results)).unwrap();
    assert_eq!(json, results, "escaping changes no value");

    let csv = written(Format::Csv, None, &results);
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let column = reader.headers().unwrap().iter().position(|name| name == "message").unwrap();
    let record = reader.records().next().unwrap().unwrap();
    assert!(record[column].starts_with("'=HYPERLINK(\"x\")"), "{}", &record[column][..30]);
    assert!(record.iter().all(|cell| !cell.starts_with(['=', '+', '-', '@', '\t', '\r'])));

    let table = written(Format::Table, Some(120), &results);
    assert!(table.len() < 4000, "{}", table.len());
    assert!(table.lines().all(|line| line.chars().count() <= 120), "{table}");
    assert!(table.contains("OUTCOME"), "{table}");
}

#[tokio::test]
async fn csv_has_every_field_that_json_has() {
    fn collect(value: &Value, prefix: &str, names: &mut BTreeSet<String>) {
        for (name, value) in value.as_object().unwrap() {
            // Facts and packages differ from run to run: they stay JSON in one cell.
            if value.is_object() && name == "metrics" {
                collect(value, &format!("{name}."), names);
            } else {
                names.insert(format!("{prefix}{name}"));
            }
        }
    }
    fn check<R: TableRow>(row: &R) {
        let mut found = BTreeSet::new();
        collect(&serde_json::to_value(row).unwrap(), "", &mut found);
        assert_eq!(found, R::COLUMNS.iter().map(|name| (*name).to_owned()).collect());
        assert!(R::SHOWN.iter().all(|name| R::COLUMNS.contains(name)));
    }
    let database = sqlite();
    let (results, runs) = rows(&open(&database).await).await;
    check(&results[0]);
    check(&runs[0]);
    check(&ArchitectureRow::new("a", Harness::Timm));
    check(&Environment {
        environment_id: "e".into(),
        name: "n".into(),
        packages: [].into(),
        requirements: String::new(),
        created_at: 0,
    });
}

#[test]
fn no_rows_are_an_empty_array_and_a_header() {
    assert_eq!(written::<RunRow>(Format::Json, None, &[]), "[]\n");
    assert!(written::<RunRow>(Format::Csv, None, &[]).starts_with("run_id,matrix,"));
    assert!(written::<RunRow>(Format::Table, None, &[]).contains("RUN ID"));
}
