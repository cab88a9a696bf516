//! The scripts that the nightly workflow calls, in their order: shards apart, one of them killed and resumed, one missing; and the
//! sample of a night.

use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use modelfarm_matrix::plan::Shard;
use modelfarm_matrix::sample::Sample;
use serde_json::Value;

use crate::history::BROKEN;
use crate::setup::{TestFarm, one_at_a_time, state_dir, text};

const SHARDS: u32 = 3;
const MODELS: [&str; 8] = [
    "zoo/tiny-resnet",
    "zoo/tiny-roberta",
    "zoo/tiny-convnext",
    "zoo/tiny-vit",
    "zoo/tiny-gpt2",
    "zoo/tiny-electra",
    "zoo/tiny-opt",
    "zoo/tiny-swin",
];
const MATRIX: &str = r#"
name = "night"
[models]
fixtures = "smoke"
[cases]
only = { model = MODELS }
targets = ["cpu"]
modes = MODES
"#;

fn matrix(modes: &[&str]) -> String {
    MATRIX.replace("MODELS", &format!("{MODELS:?}")).replace("MODES", &format!("{modes:?}"))
}

pub fn script(name: &str, arguments: &[&str]) -> Command {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.ci").join(name);
    let mut command = Command::new(path);
    command.args(arguments).env("MODELFARM", env!("CARGO_BIN_EXE_modelfarm")).stdin(Stdio::null());
    for name in ["GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY", "MODELFARM_DATABASE_URL", "MODELFARM_STATE_DIR", "RUN_ID"] {
        command.env_remove(name);
    }
    for name in ["NIGHT", "NIGHTS", "MODELFARM_RUN_OPTIONS", "MATRIX", "GITHUB_ACTIONS"] {
        command.env_remove(name);
    }
    command
}

pub fn output(mut command: Command) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.code(), format!("{}\n{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr)))
}

/// A state folder of its own, which shares what is large and the same everywhere.
pub fn shard_state(farm: &TestFarm, index: u32) -> PathBuf {
    let state = farm.folder.path().join(format!("shard-{index}"));
    std::fs::create_dir_all(&state).unwrap();
    for shared in ["environments", "fixtures"] {
        std::os::unix::fs::symlink(state_dir().join(shared), state.join(shared)).unwrap();
    }
    state
}

#[test]
fn a_night_of_three_shards_one_resumed_and_one_missing_is_partial() {
    let _turn = one_at_a_time();
    let farm = TestFarm::new();
    let matrix = farm.file("night.toml", &matrix(&["strict-eager", "compiled"]));
    let folder = farm.folder.path();

    let (code, begun) = output(script("nightly-begin", &["3", text(&folder.join("bin"))]));
    assert_eq!(code, Some(0), "{begun}");
    let run_id = printed(&begun, "run_id").to_owned();
    assert!(begun.contains("shards=[1,2,3]") && folder.join("bin/modelfarm").is_file(), "{begun}");

    // Which shards hold models: with eight models all three do, and the test says so if names ever change.
    let states: Vec<PathBuf> = (1..=SHARDS).map(|index| shard_state(&farm, index)).collect();
    let arguments = |index: usize| -> Vec<String> {
        vec![
            (index + 1).to_string(),
            SHARDS.to_string(),
            run_id.clone(),
            text(&states[index]).to_owned(),
            text(&matrix).to_owned(),
        ]
    };
    let shard = |index: usize| {
        let arguments = arguments(index);
        script("nightly-shard", &arguments.iter().map(String::as_str).collect::<Vec<_>>())
    };

    let (code, log) = output(shard(0));
    assert_eq!(code, Some(0), "{log}");

    // The second is killed after its first result, without a chance to say anything.
    let mut killed = shard(1).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let database = format!("sqlite://{}", states[1].join("farm.db").display());
    let recorded = || -> usize {
        let queried = crate::setup::modelfarm(&states[1])
            .args(["--database", &database, "query", "results", "--format", "json"])
            .output()
            .unwrap();
        serde_json::from_slice::<Vec<Value>>(&queried.stdout).map_or(0, |rows| rows.len())
    };
    let since = Instant::now();
    while recorded() == 0 {
        assert!(since.elapsed() < Duration::from_secs(300), "a first result within five minutes");
        assert!(killed.try_wait().unwrap().is_none(), "the shard ended before it could be killed");
        std::thread::sleep(Duration::from_millis(100));
    }
    for name in ["modelfarm", "nightly-shard"] {
        let pattern = format!("{name} .*{run_id}");
        Command::new("pkill").args(["-9", "-f", &pattern]).status().unwrap();
    }
    let status = killed.wait().unwrap();
    assert!(status.signal() == Some(9) || !status.success(), "{status}");
    let before = recorded();
    let (code, log) = output(shard(1));
    assert_eq!(code, Some(0), "{log}");
    assert!(recorded() > before, "the second call went on with the shard");

    // The third never comes.
    let files: Vec<String> = states.iter().map(|state| text(&state.join("farm.db")).to_owned()).collect();
    let (history, out) = (folder.join("history"), folder.join("out"));
    let mut merge = vec![text(&history), text(&out)];
    merge.extend(files.iter().map(String::as_str));
    let (code, log) = output(script("nightly-merge", &merge));
    assert_eq!(code, Some(5), "{log}");
    assert!(log.contains(&files[2]) && log.contains("INCOMPLETE"), "{log}");
    let run: Value = serde_json::from_str(&std::fs::read_to_string(out.join("run.json")).unwrap()).unwrap();
    assert_eq!(run["state"], "partial", "{run}");
    assert!(run["finished"].as_u64() < run["planned"].as_u64(), "{run}");
    for written in ["report/index.html", "junit.xml", "summary.md"] {
        assert!(out.join(written).metadata().unwrap().len() > 0, "{written}");
    }
    assert!(std::fs::read_to_string(out.join("summary.md")).unwrap().contains("partial"));

    // Once it comes, the same merge completes the run; what was merged before is not merged again.
    let (code, log) = output(shard(2));
    assert_eq!(code, Some(0), "{log}");
    let (code, log) = output(script("nightly-merge", &merge));
    assert_eq!(code, Some(0), "{log}");
    let run: Value = serde_json::from_str(&std::fs::read_to_string(out.join("run.json")).unwrap()).unwrap();
    assert_eq!((run["state"].as_str(), run["finished"].as_u64()), (Some("complete"), run["planned"].as_u64()), "{run}");
    assert_eq!(run["planned"], 16, "{run}");
    assert_eq!(run["shards"].as_array().unwrap().len(), SHARDS as usize);
}

/// The value that a script printed as `name=value`.
fn printed<'a>(text: &'a str, name: &str) -> &'a str {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).unwrap_or_else(|| panic!("no {name} in {text}"))
}

#[test]
fn fourteen_nights_in_a_row_take_every_sample_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut taken = BTreeSet::new();
    // Over the end of a year, where a count of its days would begin again in the middle of a turn.
    let nights = (22..=31).map(|day| format!("2026-12-{day}")).chain((1..=4).map(|day| format!("2027-01-0{day}")));
    for night in nights {
        let mut begin = script("nightly-begin", &["1", text(folder.path())]);
        begin.env("NIGHT", night);
        let (code, begun) = output(begin);
        assert_eq!(code, Some(0), "{begun}");
        assert_ne!(printed(&begun, "sample_run_id"), printed(&begun, "run_id"));
        let sample = printed(&begun, "sample");
        assert!(sample.parse::<Sample>().is_ok(), "{sample}");
        taken.insert(sample.to_owned());
    }
    let all: BTreeSet<String> = (1..=14).map(|index| format!("{index}/14")).collect();
    assert_eq!(taken, all);
    for (name, wrong) in [("NIGHT", "tomorrow"), ("NIGHT", "2026-02-30"), ("NIGHTS", "0"), ("NIGHTS", "two weeks")] {
        let mut begin = script("nightly-begin", &["1", text(folder.path())]);
        begin.env(name, wrong);
        let (code, log) = output(begin);
        assert!(code == Some(2) && log.contains(wrong), "{name}={wrong}: {log}");
    }
}

#[test]
fn the_sample_of_a_night_is_a_complete_run() {
    let _turn = one_at_a_time();
    let farm = TestFarm::new();
    let matrix = farm.file("night.toml", &matrix(&["strict-eager"]));
    let folder = farm.folder.path();
    let mut begin = script("nightly-begin", &["1", text(&folder.join("bin"))]);
    begin.env("NIGHTS", "3").env("NIGHT", "2026-11-30");
    let (code, begun) = output(begin);
    assert_eq!(code, Some(0), "{begun}");
    let (run_id, sample) = (printed(&begun, "sample_run_id"), printed(&begun, "sample"));
    assert!(sample.ends_with("/3"), "{sample}");
    let state = shard_state(&farm, 1);
    // A third of the eight models is some of them, and the test says so if names ever change.
    let part: Sample = sample.parse().unwrap();
    let expected: BTreeSet<&str> = MODELS.into_iter().filter(|model| part.holds(&model.parse().unwrap())).collect();
    assert!(!expected.is_empty() && expected.len() < MODELS.len(), "{sample}: {expected:?}");

    let mut shard = script("nightly-shard", &["1", "1", run_id, text(&state), text(&matrix)]);
    shard.env("MODELFARM_RUN_OPTIONS", format!("--sample {sample}"));
    let (code, log) = output(shard);
    assert_eq!(code, Some(0), "{log}");
    let (history, out) = (folder.join("history"), folder.join("out"));
    let mut merge = script("nightly-merge", &[text(&history), text(&out), text(&state.join("farm.db"))]);
    merge.env("RUN_ID", run_id);
    let (code, log) = output(merge);
    assert_eq!(code, Some(0), "{log}");
    let run: Value = serde_json::from_str(&std::fs::read_to_string(out.join("run.json")).unwrap()).unwrap();
    assert_eq!((run["state"].as_str(), run["run_id"].as_str()), (Some("complete"), Some(run_id)), "{run}");
    assert_eq!(run["planned"].as_u64(), Some(expected.len() as u64), "{run}");
    let results = crate::setup::modelfarm(&history).args(["query", "results", "--format", "json"]).output().unwrap();
    let results: Vec<Value> = serde_json::from_slice(&results.stdout).unwrap();
    assert_eq!(results.iter().filter_map(|row| row["model"].as_str()).collect::<BTreeSet<_>>(), expected);
}

#[test]
fn a_night_that_regresses_is_compared_tried_again_and_told() {
    let _turn = one_at_a_time();
    let farm = TestFarm::new();
    let folder = farm.folder.path();
    let one = MATRIX.replace("MODELS", &format!("{:?}", &MODELS[..1])).replace("MODES", r#"["strict-eager"]"#);
    let one = one.replace(r#"["cpu"]"#, r#"["tpu-emulated"]"#);
    let matrix = farm.file("night.toml", &one);
    let broken = farm.file("broken.toml", BROKEN);
    let history = shard_state(&farm, 0);
    let night = |number: u32, options: &str| {
        let (state, run_id) = (shard_state(&farm, number), format!("00000000-0000-7000-8000-00000000000{number}"));
        let mut shard = script("nightly-shard", &["1", "1", &run_id, text(&state), text(&matrix)]);
        shard.env("MODELFARM_RUN_OPTIONS", options);
        let (code, log) = output(shard);
        assert_eq!(code, Some(0), "{log}");
        let out = folder.join(format!("out-{number}"));
        let mut merge = script("nightly-merge", &[text(&history), text(&out), text(&state.join("farm.db"))]);
        merge.env("RUN_ID", run_id).env("MATRIX", &matrix).env("GITHUB_ACTIONS", "true");
        let (code, log) = output(merge);
        let summary = std::fs::read_to_string(out.join("summary.md")).unwrap();
        (code, log, summary)
    };
    let (code, log, summary) = night(1, "--retries 3");
    assert!(code == Some(0) && log.contains("nothing can be compared yet"), "{log}");
    assert!(!summary.contains("Changes since"), "{summary}");

    // The night was three nights ago, and two have not come.
    let moved = "import sqlite3, sys; store = sqlite3.connect(sys.argv[1]); \
                 store.execute('UPDATE runs SET started_at = started_at - 3 * 86400000'); store.commit()";
    let status = Command::new("python3").args(["-c", moved]).arg(history.join("farm.db")).status().unwrap();
    assert!(status.success());

    // Everything fails; tried again with the targets that come with the program, everything passes.
    let (code, log, summary) = night(2, &format!("--targets-file {}", text(&broken)));
    assert_eq!(code, Some(0), "what cannot be seen again fails no night: {log}");
    assert!(log.contains("regressed: 1, of which 0 confirmed and 0 open"), "{log}");
    assert_eq!(log.matches("::warning::the night of").count(), 2, "{log}");
    assert_eq!(summary.matches("it could not be seen again").count(), 1, "{summary}");
    assert!(summary.contains("**missing**, nothing ran"), "{summary}");

    // `latest` is the night, not what was tried again after it.
    let newest =
        crate::setup::modelfarm(&history).args(["query", "results", "--run", "latest", "--format", "json"]).output().unwrap();
    let newest: Vec<Value> = serde_json::from_slice(&newest.stdout).unwrap();
    assert!(newest.iter().all(|row| row["run_id"] == "00000000-0000-7000-8000-000000000002"), "{newest:?}");
}

#[test]
fn a_shard_is_read_from_its_text() {
    assert!("3/3".parse::<Shard>().is_ok());
    for wrong in ["0/3", "4/3", "1", "a/b", "1/0"] {
        assert!(wrong.parse::<Shard>().is_err(), "{wrong}");
    }
}
