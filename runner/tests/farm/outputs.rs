//! One hostile message goes through every output of the program.

use modelfarm_matrix::outcome::Outcome;

use crate::setup::{TestFarm, one_at_a_time, text};

/// Characters that drive a terminal, reorder text or hide in it.
fn is_dangerous(character: char) -> bool {
    (character.is_control() && character != '\n' && character != '\t')
        || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[test]
fn a_hostile_message_harms_no_output() {
    let _turn = one_at_a_time();
    let farm = TestFarm::new();
    // Any fixture will do whose failure brings a message of a megabyte; which one, the fixtures know.
    let matrix = farm.file(
        "matrix.toml",
        &format!(
            "name = \"hostile\"\n[models]\nfixtures = \"smoke\"\n[cases]\ntargets = [\"tpu-emulated\"]\nmodes = [\"strict-eager\"]\n{}",
            trust_of_the_smoke_matrix()
        ),
    );
    let out = farm.folder.path();
    let (report, junit, summary) = (out.join("report"), out.join("junit.xml"), out.join("summary.md"));
    let ran = farm.run(&[
        "run",
        "--matrix",
        text(&matrix),
        "--architecture",
        "toy-hostile-message",
        "--report",
        text(&report),
        "--junit",
        text(&junit),
        "--summary",
        text(&summary),
    ]);
    assert_eq!(ran.status.code(), Some(0), "the built-in expectations hold: {}", String::from_utf8_lossy(&ran.stderr));
    let rows = farm.results(&["--run", "latest"]);
    assert_eq!(rows.iter().map(|row| row.outcome).collect::<Vec<_>>(), [Outcome::RuntimeError]);
    let message = rows[0].message.as_deref().unwrap();
    assert!(message.contains("<script") && message.len() < 100_000, "{} bytes", message.len());
    let case = rows[0].case_id.to_string();

    let mut texts = vec![
        ("standard output".to_owned(), String::from_utf8(ran.stdout).unwrap()),
        ("standard error".to_owned(), String::from_utf8(ran.stderr).unwrap()),
        ("JUnit".to_owned(), std::fs::read_to_string(&junit).unwrap()),
        ("summary".to_owned(), std::fs::read_to_string(&summary).unwrap()),
    ];
    for format in ["table", "json", "csv"] {
        texts.push((format!("query as {format}"), farm.expect(0, &["query", "results", "--format", format])));
        texts.push((format!("show as {format}"), farm.expect(0, &["show", &case, "--format", format])));
    }
    let mut open = vec![report];
    while let Some(path) = open.pop() {
        match path.is_dir() {
            true => open.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path())),
            false => {
                let page = std::fs::read_to_string(&path).unwrap();
                if path.extension().is_some_and(|extension| extension == "html") {
                    assert!(!page.contains("<script"), "{}", path.display());
                }
                texts.push((path.display().to_string(), page));
            }
        }
    }
    assert!(texts.len() >= 13);
    for (name, content) in &texts {
        assert!(content.len() < 500_000, "{name} has {} bytes", content.len());
        let found = content.chars().find(|character| is_dangerous(*character) && *character != '\r');
        assert_eq!(found, None, "{name}");
    }
    let (_, csv) = texts.iter().find(|(name, _)| name == "query as csv").unwrap();
    assert!(!csv.contains(",=") && !csv.contains(",\"="), "a cell begins with a formula");
    let (_, markdown) = texts.iter().find(|(name, _)| name == "summary").unwrap();
    assert!(!markdown.contains("<script") && !markdown.contains(" @"), "{markdown}");
}

/// The overrides of the smoke matrix that trust the toys' code.
fn trust_of_the_smoke_matrix() -> String {
    let from = modelfarm_matrix::SMOKE_TOML.find("[[override]]").unwrap();
    modelfarm_matrix::SMOKE_TOML[from..].to_owned()
}
