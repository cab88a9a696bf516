//! Wrong files, wrong databases, a Hub that is not there: one clear message, the documented exit code, nothing lost.

use std::process::Command;

use crate::setup::{TestFarm, modelfarm, one_at_a_time, text};

const GOOD: &str =
    "name = \"m\"\n[models]\narchitectures = [\"resnet\"]\n[cases]\ntargets = [\"cpu\"]\nmodes = [\"strict-eager\"]\n";

/// Runs a command that must fail with exit code 2; returns its one message.
fn refusal(farm: &TestFarm, arguments: &[&str]) -> String {
    let output = farm.run(arguments);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
    assert!(!message.contains("panicked") && !message.contains("RUST_BACKTRACE"), "{message}");
    message
}

#[test]
fn a_wrong_matrix_is_told_with_its_line_and_the_right_word() {
    let _turn = one_at_a_time();
    let farm = TestFarm::new();
    for (bad, line, part) in [
        (GOOD.replace("modes", "mode"), 6, "did you mean `modes`"),
        (GOOD.replace("strict-eager", "strict"), 6, "did you mean `strict-eager`"),
        (GOOD.replace("\"cpu\"", "\"gpu\""), 5, "expected one of: cpu"),
        (GOOD.replace("resnet", "resnett"), 3, "did you mean `resnet`"),
        (format!("{GOOD}[limits]\ntimeout_s = -1\n"), 8, "above 0"),
        (format!("{GOOD}[limits]\nmemory_gib = \"much\"\n"), 8, ""),
    ] {
        let file = farm.file("matrix.toml", &bad);
        for command in ["run", "plan"] {
            let message = refusal(&farm, &[command, "--matrix", text(&file)]);
            assert!(message.contains(&format!("matrix.toml:{line}:")) && message.contains(part), "{message}");
        }
    }
    let file = farm.file("matrix.toml", &GOOD.replace("architectures = [\"resnet\"]", "fixtures = [\"smokes\"]"));
    let message = refusal(&farm, &["plan", "--matrix", text(&file)]);
    assert!(message.contains("[models] fixtures") && message.contains("did you mean `smoke`"), "{message}");
    let endless = refusal(&farm, &["plan", "--matrix", "/dev/zero"]);
    assert!(endless.contains("/dev/zero: it is no regular file"), "{endless}");
    let message = refusal(&farm, &["run", "--matrix", "no-such-file.toml"]);
    assert!(message.contains("no-such-file.toml"), "{message}");
    let file = farm.file("matrix.toml", GOOD);
    assert!(refusal(&farm, &["plan", "--matrix", text(&file), "--model", "zoo/tiny-resnett"]).contains("did you mean"));
    assert!(refusal(&farm, &["run", "--matrix", text(&file), "--timeout", "-3"]).contains("--timeout"));
}

#[test]
fn an_output_that_cannot_be_written_is_told_before_anything_runs() {
    let _turn = one_at_a_time();
    let farm = TestFarm::new();
    let (matrix, file) = (farm.file("matrix.toml", GOOD), farm.file("taken", ""));
    let (below_a_file, folder) = (file.join("out.xml"), farm.folder.path().to_owned());
    for (option, path) in [("--junit", &below_a_file), ("--summary", &folder), ("--report", &below_a_file)] {
        let message = refusal(&farm, &["run", "--matrix", text(&matrix), option, text(path)]);
        assert!(message.contains(text(path)), "{message}");
    }
    assert!(!farm.folder.path().join("farm.db").exists(), "nothing ran");
}

#[test]
fn nothing_to_run_has_its_own_code_and_says_why() {
    let _turn = one_at_a_time();
    let farm = TestFarm::new();
    let file = farm.file("matrix.toml", GOOD);
    let output = farm.run(&["run", "--matrix", text(&file), "--mode", "compiled"]);
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stderr).contains("plan --left-out"));
    let output = farm.run(&["plan", "--matrix", text(&file), "--mode", "compiled", "--left-out", "--format", "json"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("not selected by --mode"));
}

#[test]
fn a_case_outside_the_run_that_is_repeated_leaves_nothing_to_run() {
    let _turn = one_at_a_time();
    let farm = TestFarm::new();
    let file = farm.file("matrix.toml", GOOD);
    farm.expect(0, &["run", "--matrix", text(&file)]);
    assert!(!farm.folder.path().join("farm.db-wal").exists(), "a finished run is whole in one file");
    let rerun = ["run", "--matrix", text(&file), "--rerun", "latest", "--case", "0123456789abcdef"];
    let output = farm.run(&rerun);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{message}");
    assert!(message.contains("--rerun"), "{message}");
    let runs = |farm: &TestFarm| -> Vec<serde_json::Value> {
        serde_json::from_str(&farm.expect(0, &["query", "runs", "--format", "json"])).unwrap()
    };
    assert_eq!(runs(&farm).len(), 1);
    let id = "00000000-0000-7000-8000-000000000042";
    farm.expect(0, &["run", "--matrix", text(&file), "--rerun", "latest", "--run-id", id]);
    assert_eq!(runs(&farm)[0]["run_id"], id);
}

#[test]
fn nobody_to_read_standard_error_changes_no_exit_code() {
    let farm = TestFarm::new();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let status = farm.command(&["plan", "--matrix", "no-such-file.toml"]).stderr(full).status().unwrap();
    assert_eq!(status.code(), Some(2));
}

#[test]
fn a_server_that_is_not_there_is_told_as_such() {
    let farm = TestFarm::new();
    let mut command = modelfarm(farm.folder.path());
    let output = command.args(["--database", "postgres://127.0.0.1:1/farm", "query", "runs"]).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.to_lowercase().contains("refused"), "{message}");
}

#[test]
fn a_database_that_is_missing_broken_or_newer_is_told_and_left_alone() {
    let _turn = one_at_a_time();
    let farm = TestFarm::new();
    assert!(refusal(&farm, &["query", "runs"]).contains("farm.db"));
    assert!(!farm.database().exists(), "a reading command creates nothing");

    std::fs::write(farm.database(), "this is no database, but it is somebody's file").unwrap();
    let matrix = farm.file("matrix.toml", GOOD);
    for arguments in [&["query", "runs"][..], &["run", "--matrix", text(&matrix)], &["db", "migrate"]] {
        let message = refusal(&farm, arguments);
        assert!(message.contains("farm.db"), "{message}");
    }
    assert!(std::fs::read_to_string(farm.database()).unwrap().starts_with("this is no database"));

    std::fs::remove_file(farm.database()).unwrap();
    farm.expect(0, &["db", "migrate"]);
    let newer = Command::new("python3")
        .args(["-c", "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute(\"INSERT INTO modelfarm_schema SELECT MAX(version) + 1, name, applied_at FROM modelfarm_schema\"); c.commit()"])
        .arg(farm.database())
        .output()
        .unwrap();
    assert!(newer.status.success(), "{}", String::from_utf8_lossy(&newer.stderr));
    for arguments in [&["query", "runs"][..], &["run", "--matrix", text(&matrix)]] {
        let message = refusal(&farm, arguments);
        assert!(message.contains("newer"), "{message}");
    }
}

#[test]
fn a_hub_that_is_down_is_told_with_its_address() {
    let _turn = one_at_a_time();
    let farm = TestFarm::new();
    let matrix = farm.file("matrix.toml", &GOOD.replace("architectures = [\"resnet\"]", "list = [\"a/b\"]"));
    let output = farm.command(&["run", "--matrix", text(&matrix)]).env("HF_ENDPOINT", "http://127.0.0.1:9").output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("http://127.0.0.1:9") && message.contains("HF_ENDPOINT"), "{message}");
}
