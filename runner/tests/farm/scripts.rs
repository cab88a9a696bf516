//! The scripts that the nightly workflow calls, in their order: shards apart, one of them killed and resumed, one missing.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use modelfarm_matrix::plan::Shard;
use serde_json::Value;

use crate::setup::{TestFarm, one_at_a_time, state_dir, text};

const SHARDS: u32 = 3;
const MATRIX: &str = r#"
name = "night"
[models]
list = []
fixtures = "smoke"
[cases]
only = { model = ["zoo/tiny-resnet", "zoo/tiny-roberta", "zoo/tiny-convnext", "zoo/tiny-vit", "zoo/tiny-gpt2", "zoo/tiny-electra", "zoo/tiny-opt", "zoo/tiny-swin"] }
targets = ["cpu"]
modes = ["strict-eager", "compiled"]
"#;

fn script(name: &str, arguments: &[&str]) -> Command {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.ci").join(name);
    let mut command = Command::new(path);
    command.args(arguments).env("MODELFARM", env!("CARGO_BIN_EXE_modelfarm")).stdin(Stdio::null());
    for name in ["GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY", "MODELFARM_DATABASE_URL", "MODELFARM_STATE_DIR", "RUN_ID"] {
        command.env_remove(name);
    }
    command
}

fn output(mut command: Command) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.code(), format!("{}\n{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr)))
}

/// A state folder of its own, which shares what is large and the same everywhere.
fn shard_state(farm: &TestFarm, index: u32) -> PathBuf {
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
    let matrix = farm.file("night.toml", &MATRIX.replace("list = []\n", ""));
    let folder = farm.folder.path();

    let (code, begun) = output(script("nightly-begin", &["3", text(&folder.join("bin"))]));
    assert_eq!(code, Some(0), "{begun}");
    let run_id = begun.lines().find_map(|line| line.strip_prefix("run_id=")).unwrap().to_owned();
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

#[test]
fn a_shard_is_read_from_its_text() {
    assert!("3/3".parse::<Shard>().is_ok());
    for wrong in ["0/3", "4/3", "1", "a/b", "1/0"] {
        assert!(wrong.parse::<Shard>().is_err(), "{wrong}");
    }
}
