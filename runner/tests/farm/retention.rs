//! `gc` on state folders that the tests fill: what goes, what stays, and that a farm works afterwards.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use crate::setup::{TestFarm, modelfarm, one_at_a_time, state_dir, text};

/// A state folder of the test's own.
struct State {
    folder: tempfile::TempDir,
}

impl State {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A file that was last used so many days ago.
    fn file(&self, name: &str, content: &str, days: u64) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        set_age(&path, days);
    }

    /// Makes everything below a folder so many days old, itself included.
    fn age(&self, name: &str, days: u64) {
        let mut open = vec![self.path(name)];
        while let Some(path) = open.pop() {
            if path.is_dir() {
                open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            }
            set_age(&path, days);
        }
    }

    fn gc(&self, arguments: &[&str]) -> Output {
        modelfarm(self.folder.path()).arg("gc").args(["--format", "json"]).args(arguments).output().unwrap()
    }

    /// Rows and what was said beside them.
    fn rows(&self, arguments: &[&str]) -> (Vec<Value>, String) {
        let output = self.gc(arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        (serde_json::from_slice(&output.stdout).unwrap(), said)
    }

    /// Every path below the folder, but for the lock and the database.
    fn everything(&self) -> Vec<String> {
        let (mut open, mut all) = (vec![self.folder.path().to_owned()], Vec::new());
        while let Some(folder) = open.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                all.push(path.strip_prefix(self.folder.path()).unwrap().display().to_string());
                if path.is_dir() && !path.is_symlink() {
                    open.push(path);
                }
            }
        }
        all.retain(|path| path != ".lock");
        all.sort();
        all
    }
}

fn set_age(path: &Path, days: u64) {
    let then = SystemTime::now() - Duration::from_secs(days * 86_400 + 60);
    File::open(path).unwrap().set_modified(then).unwrap();
}

fn hex(letter: &str, digits: usize) -> String {
    letter.repeat(digits)
}

/// Old and young things of every kind, and what is not the farm's.
fn filled() -> State {
    let state = State::new();
    for (letter, days) in [("a", 31), ("b", 29)] {
        let (key, sha, oid, commit) = (hex(letter, 32), hex(letter, 64), hex(letter, 40), hex(letter, 40));
        for file in ["inputs.safetensors", "reference.safetensors", "yardstick.safetensors", "card.json"] {
            state.file(&format!("references/{letter}{letter}/{key}/{file}"), "tensors", days);
        }
        state.file(&format!("references/{letter}{letter}/{key}/control-{}.safetensors", hex(letter, 16)), "tensors", days);
        state.file(&format!("compiled/tpu-emulated-0123456789abcdef/{sha}"), "machine code", days);
        state.file(&format!("programs/libmodelfarm_pjrt-{}.so", hex(letter, 16)), "plugin", days);
        for folder in ["worker", "fixtures/source"] {
            state.file(&format!("{folder}/{}/package/module.py", hex(letter, 16)), "pass", days);
            state.age(&format!("{folder}/{}", hex(letter, 16)), days);
        }
        state.file(&format!("hub/oids/{oid}.blob"), &sha, days);
        state.file(&format!("hub/locks/{oid}.blob"), "", days);
        state.file(&format!("hub/locks/org@model-{letter}@{commit}"), "", days);
        state.file(&format!("hub/blobs/{sha}"), &"weights ".repeat(10_000), 40);
        let model = format!("hub/models/org/model-{letter}/{commit}");
        fs::create_dir_all(state.path(&model)).unwrap();
        fs::hard_link(state.path(&format!("hub/blobs/{sha}")), state.path(&format!("{model}/model.safetensors"))).unwrap();
        let file = json!({"name": "model.safetensors", "size": 80_000, "sha256": sha});
        let manifest = json!({"id": format!("org/model-{letter}"), "commit": commit, "files": [file]});
        state.file(&format!("{model}.json"), &manifest.to_string(), days);
    }
    for (letter, days) in [("a", 61), ("b", 59)] {
        state.file(&format!("environments/torchtpu-{}/environment.json", hex(letter, 16)), "{}", days);
        state.file(&format!("environments/torchtpu-{}/bin/python", hex(letter, 16)), "python", 99);
        state.file(&format!("tools/uv-0.0.{days}/bin/uv"), "uv", days);
        state.age(&format!("tools/uv-0.0.{days}"), days);
    }
    for (name, days) in [("new", 0), ("old", 2)] {
        for folder in [
            "worker/.unpacking-",
            "environments/.building-torchtpu@",
            "hub/models/org/model-b/.building-",
            "references/bb/.tmp",
        ] {
            state.file(&format!("{folder}{name}/file"), "half", days);
            state.age(&format!("{folder}{name}"), days);
        }
        state.file(&format!("hub/partial/{}.blob", hex(if name == "new" { "c" } else { "d" }, 40)), "half", days);
        let scratch = format!("scratch/01a23233-37bf-7000-8000-00000000000{days}-4194304");
        state.file(&format!("{scratch}/cpu-1/tmp/core"), "core", days);
        state.age(&scratch, days);
    }
    state
}

#[test]
fn a_dry_run_tells_what_then_goes_and_a_second_one_finds_nothing() {
    let state = filled();
    let before = state.everything();
    let (would_free, said) = state.rows(&["--dry-run"]);
    assert!(said.contains("would free") && !said.contains("left alone"), "{said}");
    assert_eq!(state.everything(), before, "a dry run removes nothing");

    let counts: Vec<(&str, u64)> =
        would_free.iter().map(|row| (row["kind"].as_str().unwrap(), row["count"].as_u64().unwrap())).collect();
    assert_eq!(
        counts,
        [
            ("reference", 1),
            ("compiled_program", 1),
            ("environment", 1),
            ("hub_snapshot", 1),
            ("hub_content", 1),
            ("interposer", 1),
            ("worker_source", 1),
            ("fixture_source", 1),
            ("tool", 1),
            ("leftover", 6),
        ]
    );
    let content = &would_free[4];
    assert!(content["bytes"].as_u64().unwrap() >= 80_000, "the snapshot's link and the content are one file: {content}");
    assert!(would_free[3]["bytes"].as_u64().unwrap() < 80_000);
    assert!(would_free.iter().all(|row| row["why"].as_str().is_some_and(|why| !why.is_empty())));

    let (freed, said) = state.rows(&[]);
    assert_eq!(freed, would_free);
    assert!(said.contains("freed"), "{said}");
    let (a, b) = (hex("a", 40), hex("b", 40));
    let left = state.everything();
    for gone in [
        "hub/models/org/model-a".to_owned(),
        format!("hub/locks/{a}.blob"),
        format!("hub/oids/{a}.blob"),
        format!("hub/blobs/{}", hex("a", 64)),
        "references/aa".to_owned(),
        "worker/.unpacking-old".to_owned(),
        "tools/uv-0.0.61".to_owned(),
    ] {
        assert!(!left.contains(&gone), "{gone}");
    }
    for stays in [
        format!("hub/models/org/model-b/{b}/model.safetensors"),
        format!("hub/models/org/model-b/{b}.json"),
        format!("hub/blobs/{}", hex("b", 64)),
        format!("references/bb/{}/card.json", hex("b", 32)),
        "worker/.unpacking-new/file".to_owned(),
        "tools/uv-0.0.59/bin/uv".to_owned(),
    ] {
        assert!(left.contains(&stays), "{stays}");
    }

    for arguments in [&[][..], &["--dry-run"]] {
        let (rows, said) = state.rows(arguments);
        assert!(rows.is_empty() && said.contains("0.0 KiB: 0 things"), "{rows:?} {said}");
        assert_eq!(state.everything(), left);
    }
    let (rows, _) = state.rows(&["--older-than", "10d", "--older-than", "reference=90d"]);
    assert!(rows.iter().all(|row| row["kind"] != "reference" && row["kind"] != "leftover"), "{rows:?}");
    assert!(rows.iter().any(|row| row["kind"] == "hub_snapshot"), "{rows:?}");
}

#[test]
fn what_is_not_the_farm_s_is_told_and_left_alone() {
    let state = filled();
    let elsewhere = tempfile::tempdir().unwrap();
    fs::create_dir(elsewhere.path().join("aa")).unwrap();
    fs::write(elsewhere.path().join("precious"), "never").unwrap();
    let foreign = [
        "thesis.tex",
        "references/notes.txt",
        "references/aa/0123/card.json",
        "compiled/tpu-emulated-0123456789abcdef/README",
        "programs/libother.so",
        "environments/my-own/bin/python",
        "hub/blobs/notes",
        "hub/models/org/model-a/old-name/config.json",
        "scratch/mine/file",
    ];
    for name in foreign {
        state.file(name, "a person's", 400);
    }
    // Inside a thing that would go.
    let in_reference = format!("references/aa/{}/plot.png", hex("a", 32));
    state.file(&in_reference, "a person's", 400);
    let links = [format!("worker/{}", hex("c", 16)), format!("references/{}", "cc"), "scratch/link".to_owned()];
    for link in &links {
        std::os::unix::fs::symlink(elsewhere.path(), state.path(link)).unwrap();
    }
    let in_snapshot = format!("hub/models/org/model-a/{}/link", hex("a", 40));
    std::os::unix::fs::symlink(elsewhere.path(), state.path(&in_snapshot)).unwrap();

    let (rows, said) = state.rows(&["--older-than", "0d"]);
    assert!(!rows.is_empty() && said.contains("left alone, as it is not the farm's"), "{said}");
    for name in foreign.iter().copied().chain([in_reference.as_str()]) {
        assert_eq!(fs::read_to_string(state.path(name)).unwrap(), "a person's", "{name}");
    }
    assert!(state.path(&format!("references/aa/{}/card.json", hex("a", 32))).exists(), "and what it stands in stays too");
    for link in &links {
        assert!(state.path(link).is_symlink(), "{link}");
        assert!(said.contains(link.as_str()), "{link}: {said}");
    }
    assert!(!state.path(&in_snapshot).is_symlink(), "a link in a thing goes with it");
    assert_eq!(fs::read_to_string(elsewhere.path().join("precious")).unwrap(), "never");
    assert!(state.rows(&["--older-than", "0d"]).0.is_empty());
}

#[test]
fn nothing_goes_while_a_farm_is_at_work_or_where_no_farm_is() {
    let state = filled();
    let before = state.everything();
    let refused = |part: &str| {
        let output = state.gc(&["--older-than", "0d"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("is in use") && said.contains(part), "{said}");
    };
    let lock = File::options().create(true).truncate(false).write(true).open(state.path(".lock")).unwrap();
    lock.lock_shared().unwrap();
    refused("nothing was removed");
    assert_eq!(state.rows(&["--dry-run"]).0.len(), 10, "looking takes nothing from anybody");
    drop(lock);
    assert_eq!(state.everything(), before);

    // A farm that knows of no lock: its scratch folder has the number of a process that lives and is called like it.
    let program = state.folder.path().with_file_name(format!("modelfarm-{}", std::process::id()));
    fs::copy("/bin/sleep", &program).unwrap();
    let mut farm = std::process::Command::new(&program).arg("60").spawn().unwrap();
    let scratch = format!("scratch/01a23233-37bf-7000-8000-000000000009-{}", farm.id());
    state.file(&format!("{scratch}/cpu-1/home/file"), "at work", 9);
    refused(&format!("process {}", farm.id()));
    farm.kill().unwrap();
    farm.wait().unwrap();
    fs::remove_file(program).unwrap();
    assert!(!state.rows(&["--older-than", "0d"]).0.is_empty());
    assert!(!state.path(&scratch).exists());

    let nowhere = modelfarm(&state.path("no-such-folder")).arg("gc").output().unwrap();
    let said = String::from_utf8_lossy(&nowhere.stderr).into_owned();
    assert!(nowhere.status.code() == Some(2) && said.contains("there is no state folder"), "{said}");
    let wrong = state.gc(&["--older-than", "30"]);
    let said = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(wrong.status.code() == Some(2) && said.contains("such as 12h, 30d or 8w"), "{said}");
}

#[test]
fn what_a_killed_gc_left_goes_with_the_next() {
    let state = filled();
    let left = format!("references/aa/.removing-{}", hex("a", 32));
    fs::rename(state.path(&format!("references/aa/{}", hex("a", 32))), state.path(&left)).unwrap();
    fs::remove_file(state.path(&format!("{left}/reference.safetensors"))).unwrap();
    // The snapshot went, what stands beside it did not yet.
    fs::remove_dir_all(state.path(&format!("hub/models/org/model-a/{}", hex("a", 40)))).unwrap();
    let (rows, _) = state.rows(&[]);
    assert!(rows.iter().any(|row| row["kind"] == "leftover" && row["count"] == 8), "{rows:?}");
    assert!(rows.iter().any(|row| row["kind"] == "hub_content" && row["count"] == 1), "{rows:?}");
    assert!(!state.path(&left).exists() && !state.path("hub/models/org/model-a").exists());
    assert!(state.rows(&[]).0.is_empty());
}

#[test]
fn a_gc_that_is_killed_at_any_moment_leaves_nothing_broken() {
    let state = State::new();
    let files = ["inputs.safetensors", "reference.safetensors", "yardstick.safetensors", "card.json"];
    for number in 0..600 {
        // Every third is young.
        let days = if number % 3 == 0 { 1 } else { 99 };
        for file in files {
            state.file(&format!("references/{:02x}/{number:032x}/{file}", number % 256), "tensors", days);
        }
    }
    let folder = |number: usize| state.path(&format!("references/{:02x}/{number:032x}", number % 256));
    let there = || (0..600).filter(|number| folder(*number).exists()).collect::<Vec<_>>();
    let mut kills = 0;
    // Longer each time, so that few calls do it all.
    for delay in (0..).map(|step: u32| Duration::from_millis(1 << step.min(12))) {
        let mut gc = modelfarm(state.folder.path()).arg("gc").stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let before = there().len();
        // It is killed at its work, and not while it still looks.
        while there().len() == before && gc.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        std::thread::sleep(delay);
        let was_killed = gc.try_wait().unwrap().is_none();
        gc.kill().unwrap();
        gc.wait().unwrap();
        for number in there() {
            assert!(files.iter().all(|file| folder(number).join(file).is_file()), "reference {number} is there in part");
        }
        if !was_killed {
            break;
        }
        kills += 1;
    }
    assert!(kills > 0, "no call was killed at its work");
    assert_eq!(there(), (0..600).step_by(3).collect::<Vec<_>>());
    assert!(state.rows(&[]).0.is_empty());
    let left = state.everything();
    assert!(!left.iter().any(|path| path.contains(".removing-")), "{left:?}");
}

/// Though the settings ask for another, and its folder seems old.
fn an_environment_that_a_run_used_lately_stays(farm: &TestFarm) {
    let other = farm.file("other.txt", "six==1.17.0\n");
    let used = farm.results(&["--run", "latest"])[0].environment_id.clone().unwrap();
    let marker = state_dir().join(format!("environments/torchtpu-{used}/environment.json"));
    set_age(&marker, 61);
    let goes = |farm: &TestFarm| {
        let output =
            farm.command(&["gc", "--dry-run", "--format", "json"]).env("MODELFARM_REQUIREMENTS", &other).output().unwrap();
        let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
        rows.iter().any(|row| row["kind"] == "environment")
    };
    let nothing_ran = TestFarm::new();
    assert_eq!((goes(farm), goes(&nothing_ran)), (false, true));
    File::open(&marker).unwrap().set_modified(SystemTime::now()).unwrap();
}

const MATRIX: &str = r#"
name = "kept"
[models]
fixtures = "smoke"
[cases]
only = { model = "zoo/tiny-resnet" }
targets = ["cpu"]
modes = ["strict-eager"]
"#;

#[test]
fn a_run_after_everything_that_can_go_is_gone_passes() {
    let _turn = one_at_a_time();
    let farm = TestFarm::new();
    let matrix = farm.file("kept.toml", MATRIX);
    let run = ["run", "--matrix", text(&matrix)];
    farm.expect(0, &run);
    an_environment_that_a_run_used_lately_stays(&farm);
    let old: Vec<Value> = serde_json::from_str(&farm.expect(0, &["gc", "--format", "json"])).unwrap();
    assert!(old.iter().all(|row| row["kind"] != "reference"), "the run used its reference today: {old:?}");
    let gone: Vec<Value> = serde_json::from_str(&farm.expect(0, &["gc", "--older-than", "0d", "--format", "json"])).unwrap();
    let kinds: Vec<&str> = gone.iter().map(|row| row["kind"].as_str().unwrap()).collect();
    for kind in ["reference", "hub_snapshot", "hub_content"] {
        assert!(kinds.contains(&kind), "{kinds:?}");
    }
    let environments = fs::read_dir(state_dir().join("environments")).unwrap().count();
    assert!(environments >= 2, "what the settings ask for stays");
    farm.expect(0, &run);
    assert_eq!(farm.results(&["--run", "latest~1"]).len(), 1, "results stay");
    let again: Vec<Value> = serde_json::from_str(&farm.expect(0, &["gc", "--format", "json"])).unwrap();
    assert!(again.is_empty(), "{again:?}");
}
