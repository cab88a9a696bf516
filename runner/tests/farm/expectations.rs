//! Expectations by the command line: listed, checked, added and updated, against a store as runs leave it.

use std::path::PathBuf;
use std::process::Output;

use modelfarm_matrix::attempt::{Attempt, Metrics};
use modelfarm_matrix::case::Case;
use modelfarm_matrix::expectation::{Expectations, Verdict};
use modelfarm_matrix::fault::{Evidence, Fault};
use modelfarm_matrix::outcome::{Check, Outcome, Stage, Standing};
use modelfarm_reports::rows::RunState;
use modelfarm_reports::store::{NewRun, Store, now_ms, this_host};
use serde_json::{Value, json};

use crate::setup::{ONE_CASE, TestFarm, modelfarm, one_at_a_time, text};

/// A state folder with a database and nothing else: these commands make no environment.
struct Recorded {
    folder: tempfile::TempDir,
}

fn case(model: &str, mode: &str) -> Case {
    format!("v1/{model}/C/transformers/real/forward/default/float32/highest/eager/tpu-emulated/{mode}").parse().unwrap()
}

fn attempt(case: &Case, outcome: Outcome) -> Attempt {
    let failed = outcome.standing() != Standing::Pass;
    Attempt {
        case: case.clone(),
        attempt: 1,
        architecture: format!("arch-{}", case.model.name()),
        revision: None,
        check: Check::Execute,
        outcome,
        stage: if failed { Stage::Execute } else { Stage::Compare },
        fault: failed.then_some(Fault::Backend),
        evidence: Evidence::default(),
        // What was declared then; an update asks the file of now.
        verdict: if failed { Verdict::UnexpectedFail } else { Verdict::ExpectedPass },
        expectation_reason: None,
        signature: failed.then(|| format!("RuntimeError: {outcome} \u{202e}at <n> of <n>")),
        message: None,
        traceback: None,
        output_tail: None,
        started_at: now_ms(),
        duration_ms: 1,
        farm_overhead_ms: None,
        host: "h".into(),
        environment_id: None,
        inputs_hash: None,
        reference_key: None,
        metrics: Metrics::default(),
        leaves: Vec::new(),
        facts: json!({}),
    }
}

impl Recorded {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    /// Records a run: what it was to ask besides what it asked, and what it saw. Returns its id.
    fn run(&self, only_planned: &[Case], seen: &[(Case, Outcome)]) -> String {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let store = Store::create_or_migrate_file(&self.folder.path().join("farm.db")).await.unwrap();
            let planned: Vec<String> = seen.iter().map(|(case, _)| case).chain(only_planned).map(Case::canonical).collect();
            let new = NewRun {
                run_id: NewRun::new_id(),
                matrix: "m".into(),
                selection: String::new(),
                plan_id: format!("{:016x}", planned.len()),
                planned_cases: planned,
                shard: "1/1".into(),
                host: this_host(),
                pid: std::process::id(),
                facts: json!({ "matrix_file": text(&self.folder.path().join("matrix.toml")) }),
            };
            let run = store.begin_run(&new).await.unwrap();
            for (case, outcome) in seen {
                store.finish_attempt(&run, &attempt(case, *outcome)).await.unwrap();
            }
            let state = if only_planned.is_empty() { RunState::Complete } else { RunState::Partial };
            store.end_shard(&run, state).await.unwrap();
            store.close().await;
            new.run_id
        })
    }

    fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    fn output(&self, arguments: &[&str]) -> Output {
        modelfarm(self.folder.path()).args(arguments).current_dir(self.folder.path()).output().unwrap()
    }

    /// Runs a command that must end with this code; returns its standard output and error.
    fn expect(&self, code: i32, arguments: &[&str]) -> (String, String) {
        let output = self.output(arguments);
        let told = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        assert_eq!(output.status.code(), Some(code), "{arguments:?}\n{}\n{}", told[0], told[1]);
        let [out, err] = told;
        (out, err)
    }
}

const MODES: [&str; 3] = ["strict-eager", "defer-and-fuse", "compiled"];

fn in_all_modes(model: &str, outcome: Outcome) -> Vec<(Case, Outcome)> {
    MODES.iter().map(|mode| (case(model, mode), outcome)).collect()
}

fn entry(select: &str, outcome: &str, rest: &str) -> String {
    format!("[[expect]]\nselect = {{ {select} }}\noutcome = \"{outcome}\"\nreason = \"known\"\n{rest}")
}

#[test]
fn every_entry_is_listed_with_what_it_counts_for() {
    let farm = Recorded::new();
    let entries = [
        entry(
            "model = \"zoo/a\", mode = \"compiled\"",
            "crash",
            "issue = \"https://x.org/7\"\nowner = \"@ann\"\nexpires = 2001-01-01\n",
        ),
        entry("model = [\"zoo/a\", \"zoo/b\"]", "timeout", ""),
    ];
    farm.file("e.toml", &entries.join("\n"));
    let list = ["expect", "list", "--expectations", "e.toml", "--format"];
    let rows = |out: String| serde_json::from_str::<Vec<Value>>(&out).unwrap();
    let (unknown, _) = farm.expect(0, &[&list[..], &["json"]].concat());
    assert_eq!((&rows(unknown)[0]["cases"], farm.folder.path().join("farm.db").exists()), (&Value::Null, false));

    farm.run(&[], &[in_all_modes("zoo/a", Outcome::Timeout), in_all_modes("zoo/b", Outcome::Pass)].concat());
    let (out, _) = farm.expect(0, &[&list[..], &["json"]].concat());
    let found = rows(out);
    assert_eq!(
        found[0],
        json!({
            "line": 1, "select": "model = \"zoo/a\", mode = \"compiled\"", "outcome": "crash", "fault": null,
            "issue": "https://x.org/7", "owner": "@ann", "expires": "2001-01-01", "expired": true, "cases": 1, "as_declared": 0,
            "reason": "known"
        })
    );
    assert_eq!((&found[1]["line"], &found[1]["cases"], &found[1]["as_declared"]), (&json!(9), &json!(5), &json!(2)));
    let (csv, _) = farm.expect(0, &[&list[..], &["csv"]].concat());
    assert!(csv.starts_with("line,select,outcome,fault,issue,owner,expires,expired,cases,as_declared,reason\n"), "{csv}");
    let (table, _) = farm.expect(0, &[&list[..], &["table"]].concat());
    assert!(table.contains("AS DECLARED") && table.contains("https://x.org/7"), "{table}");
    farm.expect(0, &["expect", "list"]);
}

#[test]
fn what_is_wrong_is_told_by_file_and_line() {
    let farm = Recorded::new();
    let sound = entry("model = \"zoo/a\"", "crash", "");
    farm.file("e.toml", &sound);
    let check = ["expect", "check", "--expectations", "e.toml"];
    let (_, err) = farm.expect(2, &check);
    assert!(err.contains("nothing to check against") && err.contains("--matrix"), "{err}");

    farm.run(&[], &[in_all_modes("zoo/a", Outcome::Crash), in_all_modes("zoo/b", Outcome::Pass)].concat());
    let (out, err) = farm.expect(0, &check);
    assert!(out.is_empty() && err.contains("1 expectations against 6 known cases: nothing wrong"), "{out}{err}");

    let wrong = [
        sound,
        entry("model = \"zoo/aa\"", "crash", ""),
        entry("architecture = \"arch-z\"", "crash", ""),
        entry("target = \"tpu-emulate\"", "crash", ""),
        entry("model = \"zoo/a\", mode = \"compiled\"", "crash", ""),
        entry("mode = \"compiled\"", "timeout", "expires = 2001-01-01\n"),
        entry("model = \"zoo/b\", mode = [\"strict-eager\", \"defer-and-fuse\"]", "crash", ""),
        entry("dtype = \"float16\"", "crash", ""),
    ];
    farm.file("e.toml", &wrong.join("\n"));
    let (out, err) = farm.expect(1, &check);
    let lines: Vec<&str> = out.lines().collect();
    let expected = [
        ("e.toml:6: ", "did you mean `zoo/a`"),
        ("e.toml:11: ", "the architecture `arch-z`"),
        ("e.toml:16: ", "did you mean `tpu-emulated`"),
        ("e.toml:21: ", "never counts: the entries of line 1"),
        ("e.toml:26: ", "expired on 2001-01-01"),
        ("e.toml:26: ", "1 of its 2 cases go to the entry of line 1"),
        ("e.toml:32: ", "an unexpected pass: all 2 cases"),
        ("e.toml:37: ", "matches no known case"),
    ];
    assert_eq!(lines.len(), expected.len() + 1, "{out}");
    // What the contradicted entry still counts for passed.
    assert!(lines.iter().any(|line| line.starts_with("e.toml:26: ") && line.contains("the 1 case")), "{out}");
    for (place, part) in expected {
        assert!(lines.iter().any(|line| line.starts_with(place) && line.contains(part)), "{place}{part}\n{out}");
    }
    assert!(err.contains("8 expectations against 6 known cases: 9 errors"), "{err}");
}

#[test]
fn an_entry_is_added_only_where_it_is_sound() {
    let farm = Recorded::new();
    farm.run(&[], &[in_all_modes("zoo/a", Outcome::Crash), in_all_modes("zoo/b", Outcome::Pass)].concat());
    let before = format!("# Ours.\n\n{}# The end.\n", entry("model = \"zoo/a\", mode = \"compiled\"", "crash", ""));
    let path = farm.file("e.toml", &before);
    let read = || std::fs::read_to_string(&path).unwrap();
    let add = ["expect", "add", "--expectations", "e.toml", "--outcome", "crash", "--reason", "dies"];
    for (arguments, part) in [
        (&[][..], "name at least one of --case"),
        (&["--model", "zoo/c"], "no known case has the model `zoo/c`"),
        (&["--architecture", "arch-aa"], "did you mean `arch-a`"),
        (&["--target", "tpu-emulate"], "did you mean `tpu-emulated`"),
        (&["--model", "zoo/b"], "an unexpected pass"),
        (&["--model", "zoo/a", "--mode", "compiled"], "never counts"),
        (&["--model", "zoo/a", "--mode", "strict-eager", "--expires", "2001-01-01"], "expired on 2001-01-01"),
        (&["--model", "zoo/a", "--expires", "soon"], "is not a date"),
        (&["--model", "zoo/a", "--issue", "ftp://x"], "is not a link"),
        (&["--model", "zoo/a", "--mode", "compild"], "did you mean `compiled`"),
        (&["--case", "0123456789abcdef"], "no case 0123456789abcdef is recorded"),
        (&["--model", "zoo/a", "--owner", " "], "`owner` needs a name"),
    ] {
        let (_, err) = farm.expect(2, &[&add[..], arguments].concat());
        assert!(err.contains(part), "{part}: {err}");
        assert_eq!(read(), before, "{arguments:?}");
    }
    let id = case("zoo/a", "strict-eager").id().to_string();
    let more =
        ["--case", &id, "--fault", "backend", "--issue", "https://x.org/7", "--owner", "@ann", "--expires", "9999-12-31"];
    let (out, err) = farm.expect(0, &[&add[..], &more].concat());
    let added = "[[expect]]\nselect = { model = \"zoo/a\", target = \"tpu-emulated\", mode = \"strict-eager\", workload = \"forward\", dtype = \"float32\" }\noutcome = \"crash\"\nfault = \"backend\"\nreason = \"dies\"\nissue = \"https://x.org/7\"\nowner = \"@ann\"\nexpires = 9999-12-31\n";
    assert_eq!(out, added);
    assert!(err.contains("added to e.toml, line 9"), "{err}");
    assert_eq!(read(), format!("{before}\n{added}"));
    farm.expect(0, &["expect", "check", "--expectations", "e.toml"]);
    let (_, err) = farm.expect(2, &[&add[..], &more].concat());
    assert!(err.contains("never counts: the entries of line 9"), "{err}");

    // Where nothing is known yet, and no file is there.
    let elsewhere = Recorded::new();
    let (_, err) = elsewhere.expect(0, &[&add[..], &["--model", "zoo/a"]].concat());
    assert!(err.contains("was not checked"), "{err}");
    assert_eq!(
        std::fs::read_to_string(elsewhere.folder.path().join("e.toml")).unwrap(),
        "[[expect]]\nselect = { model = \"zoo/a\" }\noutcome = \"crash\"\nreason = \"dies\"\n"
    );
    let (_, err) = elsewhere.expect(2, &["expect", "add", "--model", "zoo/a", "--outcome", "crash", "--reason", "dies"]);
    assert!(err.contains("no file to edit") && err.contains("--expectations"), "{err}");
}

#[test]
fn an_update_shows_a_diff_and_writes_it_only_where_that_is_asked_for() {
    let farm = Recorded::new();
    let seen = [
        in_all_modes("zoo/a", Outcome::Crash),
        in_all_modes("zoo/b", Outcome::Pass),
        in_all_modes("zoo/c", Outcome::Crash),
        vec![(case("zoo/d", "compiled"), Outcome::LoadError)],
    ];
    let run = farm.run(&[], &seen.concat());
    let before = "# Ours.\n\n[[expect]]\nselect = { model = [\n    \"zoo/b\", # hung in May\n    \"zoo/c\", # always\n] }\noutcome = \"crash\"\nreason = \"known\"\n";
    farm.file("matrix.toml", "");
    let path = farm.file("expectations.toml", before);
    let read = || std::fs::read_to_string(&path).unwrap();
    // Beside the run's own matrix file.
    let update = ["expect", "update", "--run", "latest"];
    let (diff, err) = farm.expect(0, &update);
    assert!(err.contains("nothing is written; --write does"), "{err}");
    assert_eq!(read(), before);
    let reason = format!("RuntimeError: crash [U+202E]at <n> of <n>; seen in run {run}, to be explained");
    let added = format!(
        "[[expect]]\nselect = {{ model = \"zoo/a\", target = \"tpu-emulated\" }}\noutcome = \"crash\"\nfault = \"backend\"\nreason = \"{reason}\"\n"
    );
    let name = text(&path);
    let plus: String = added.lines().map(|line| format!("+{line}\n")).collect();
    assert_eq!(
        diff,
        format!(
            "--- {name}\n+++ {name}\n@@ -2,8 +2,13 @@\n \n [[expect]]\n select = {{ model = [\n-    \"zoo/b\", # hung in May\n     \"zoo/c\", # always\n ] }}\n outcome = \"crash\"\n reason = \"known\"\n+\n{plus}"
        )
    );
    assert_eq!(farm.expect(0, &update).0, diff, "the same again");

    assert_eq!(farm.expect(0, &[&update[..], &["--write"]].concat()).0, diff);
    let after = format!("{}\n{added}", before.replace("    \"zoo/b\", # hung in May\n", ""));
    assert_eq!(read(), after);
    for more in [&[][..], &["--write"]] {
        let (diff, err) = farm.expect(0, &[&update[..], more].concat());
        assert!(diff.is_empty() && err.contains("nothing to change"), "{diff}{err}");
        assert_eq!(read(), after);
    }
    farm.expect(0, &["expect", "check", "--expectations", name]);

    let (diff, _) = farm.expect(0, &[&update[..], &["--inconclusive"]].concat());
    assert!(diff.contains("+outcome = \"load_error\"") && diff.contains("model = \"zoo/d\""), "{diff}");
    let (_, err) = farm.expect(2, &["expect", "update", "--run", "latest~7"]);
    assert!(err.contains("query runs"), "{err}");
}

#[test]
fn a_file_that_is_not_there_yet_begins_with_what_failed() {
    let farm = Recorded::new();
    farm.run(&[], &in_all_modes("zoo/a", Outcome::Crash));
    let (_, err) = farm.expect(2, &["expect", "update"]);
    assert!(err.contains("no file to edit"), "the run's matrix is gone: {err}");
    let matrix = farm.file("matrix.toml", "");
    let (diff, _) = farm.expect(0, &["expect", "update", "--matrix", text(&matrix), "--write"]);
    assert!(diff.starts_with("--- /dev/null\n+++ "), "{diff}");
    let written = std::fs::read_to_string(farm.folder.path().join("expectations.toml")).unwrap();
    assert_eq!(Expectations::parse("e.toml", &written).unwrap().entries().len(), 1);
}

#[test]
fn a_half_run_takes_no_entry_away() {
    let farm = Recorded::new();
    let both = format!("{}\n{}", entry("model = \"zoo/a\"", "crash", ""), entry("model = [\"zoo/b\", \"zoo/c\"]", "crash", ""));
    let path = farm.file("e.toml", &both);
    let update = ["expect", "update", "--expectations", "e.toml", "--write"];
    // One shard of two: of zoo/a and zoo/b all passes, zoo/c and one mode of zoo/b were not asked.
    let asked = [in_all_modes("zoo/a", Outcome::Pass), in_all_modes("zoo/b", Outcome::Pass)[..2].to_vec()].concat();
    let missing: Vec<Case> =
        in_all_modes("zoo/c", Outcome::Crash).into_iter().map(|(case, _)| case).chain([case("zoo/b", "compiled")]).collect();
    farm.run(&missing, &asked);
    let (_, err) = farm.expect(0, &update);
    assert!(err.contains("is partial: 5 of 9 planned cases are final") && err.contains("the entry of line 1 stays"), "{err}");
    let after = std::fs::read_to_string(&path).unwrap();
    let read = Expectations::parse("e.toml", &after).unwrap();
    let first = both.split("\n\n").next().unwrap();
    assert!(after.starts_with(first), "{after}");
    let selects: Vec<String> = read.entries().iter().map(|declared| declared.expectation.select.to_string()).collect();
    assert_eq!(selects, ["model = \"zoo/a\"", "model = \"zoo/b\", mode = \"compiled\"", "model = \"zoo/c\""], "{after}");

    // The whole run, later, sees the rest.
    farm.run(
        &[],
        &[in_all_modes("zoo/a", Outcome::Pass), in_all_modes("zoo/b", Outcome::Pass), in_all_modes("zoo/c", Outcome::Crash)]
            .concat(),
    );
    farm.expect(0, &update);
    let after = std::fs::read_to_string(&path).unwrap();
    assert_eq!(after, entry("model = \"zoo/c\"", "crash", ""));
}

#[test]
fn a_run_refuses_a_target_that_does_not_exist() {
    let farm = Recorded::new();
    let matrix = farm.file("matrix.toml", ONE_CASE);
    farm.file("expectations.toml", &format!("\n{}", entry("target = \"cpus\"", "crash", "")));
    for command in ["run", "plan"] {
        let (_, err) = farm.expect(2, &[command, "--matrix", text(&matrix)]);
        assert!(err.contains("expectations.toml:2: ") && err.contains("did you mean `cpu`"), "{err}");
    }
    assert!(!farm.folder.path().join("environments").exists(), "it is told before anything is made");
}

#[test]
fn a_matrix_tells_which_cases_there_are_before_any_is_run() {
    let _turn = one_at_a_time();
    let farm = TestFarm::new();
    let matrix = farm.file("matrix.toml", ONE_CASE);
    let entries = [
        entry("model = \"zoo/tiny-vit\"", "crash", "expires = 2001-01-01\n"),
        entry("architecture = \"vitt\"", "crash", ""),
        entry("model = \"zoo/tiny-vit\", mode = \"compiled\"", "crash", ""),
    ];
    farm.file("expectations.toml", &entries.join("\n"));
    let planned = farm.run(&["plan", "--matrix", text(&matrix)]);
    let told = String::from_utf8_lossy(&planned.stderr);
    assert!(
        planned.status.success() && told.contains("expectations.toml:1: expired expectations, which still count: 1"),
        "{told}"
    );

    let check = ["expect", "check", "--matrix", text(&matrix)];
    let out = farm.expect(1, &check);
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), 3, "{out}");
    for (line, part) in lines.iter().zip(["expectations.toml:1: expired", "did you mean `vit`", "matches no known case"]) {
        assert!(line.contains(part), "{out}");
    }
    // With what is recorded, and without.
    farm.file("expectations.toml", &entry("model = \"zoo/tiny-vit\"", "crash", ""));
    farm.expect(1, &["run", "--matrix", text(&matrix), "--strict"]);
    assert!(farm.expect(1, &check).contains("an unexpected pass: the 1 case"));
    let other = farm.file("other.toml", &ONE_CASE.replace("zoo/tiny-vit", "zoo/tiny-resnet"));
    assert!(farm.expect(1, &["expect", "check", "--matrix", text(&other)]).contains("an unexpected pass"));
    assert!(farm.expect(1, &["expect", "check", "--planned", "--matrix", text(&other)]).contains("matches no known case"));
}
