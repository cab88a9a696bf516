//! Kills, Ctrl-C, full disks: nothing recorded is lost, and a resumed run ends as an undisturbed one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use modelfarm_matrix::outcome::Outcome;
use modelfarm_reports::rows::RunState;

use crate::setup::{TestFarm, one_at_a_time, state_dir, text};

const MATRIX: &str = r#"
name = "disturbed"
[models]
fixtures = "smoke"
[cases]
only = { model = ["zoo/tiny-resnet", "zoo/tiny-electra"] }
targets = ["tpu-emulated", "cpu"]
modes = ["strict-eager", "defer-and-fuse", "compiled"]
"#;
const CASES: usize = 10;
const KILLS: usize = 20;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Victim {
    Farm,
    Zygote,
    Child,
}

/// Parent and command line of every process.
fn processes() -> BTreeMap<i32, (i32, String)> {
    let pids =
        std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(|pid| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        Some((pid, (parent, String::from_utf8_lossy(&command).replace('\0', " "))))
    })
    .collect()
}

/// A process of this kind below the farm, if one is alive.
fn find(farm: i32, victim: Victim) -> Option<i32> {
    if victim == Victim::Farm {
        return Some(farm);
    }
    let all = processes();
    let is_worker = |pid: i32| {
        all.get(&pid).is_some_and(|(_, command)| command.contains("-m modelfarm_worker") && !command.starts_with("bwrap"))
    };
    let below = |mut pid: i32| {
        while let Some((parent, _)) = all.get(&pid) {
            if *parent == farm {
                return true;
            }
            pid = *parent;
        }
        false
    };
    all.iter()
        .filter(|(pid, (parent, _))| is_worker(**pid) && is_worker(*parent) == (victim == Victim::Child))
        .map(|(pid, _)| *pid)
        .find(|pid| below(*pid))
}

fn kill(pid: i32, signal: &str) -> bool {
    Command::new("kill").args([signal, &pid.to_string()]).stderr(Stdio::null()).status().unwrap().success()
}

fn start(farm: &TestFarm, arguments: &[&str]) -> Child {
    farm.command(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// A small generator, so that a failure can be repeated with the seed that the test prints.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

#[test]
fn twenty_kills_at_random_moments_change_no_outcome() {
    let _turn = one_at_a_time();
    let farm = TestFarm::new();
    let matrix = farm.file("matrix.toml", MATRIX);
    let seed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    eprintln!("seed {seed}");
    let mut chance = Chance(seed);
    let mut kills = 0;
    let mut hit = BTreeMap::new();
    let mut runs = 0;
    while kills < KILLS {
        runs += 1;
        let run_id = modelfarm_reports::store::NewRun::new_id();
        let mut arguments = vec!["run", "--matrix", text(&matrix), "--run-id", &run_id];
        let deadline = Instant::now() + Duration::from_secs(600);
        let status = loop {
            assert!(Instant::now() < deadline, "the run does not end; {kills} kills so far, seed {seed}");
            let mut program = start(&farm, &arguments);
            let pid = program.id() as i32;
            let mut pause = Duration::from_millis(300);
            let status = loop {
                std::thread::sleep(pause + Duration::from_millis(chance.below(2500)));
                if let Some(status) = program.try_wait().unwrap() {
                    break status;
                }
                if kills < KILLS {
                    // A farm that dies costs two starts of workers: it dies less often than they do.
                    let victim =
                        [Victim::Child, Victim::Zygote, Victim::Child, Victim::Farm, Victim::Child][chance.below(5) as usize];
                    // A child lives for a second: it is waited for.
                    let mut found = find(pid, victim);
                    for _ in 0..40 {
                        if found.is_some() || victim != Victim::Child {
                            break;
                        }
                        std::thread::sleep(Duration::from_millis(50));
                        found = find(pid, victim);
                    }
                    if let Some(victim_pid) = found
                        && kill(victim_pid, "-9")
                    {
                        kills += 1;
                        // Whoever is killed at each try is rightly given up at last: the next try gets its chance.
                        pause = Duration::from_secs(5);
                        *hit.entry(format!("{victim:?}")).or_insert(0) += 1;
                    }
                }
            };
            if status.code().is_some() {
                break status;
            }
            // Killed before it had begun to record, there is nothing to resume.
            let recorded = farm.run(&["query", "runs", "--format", "json"]);
            if String::from_utf8_lossy(&recorded.stdout).contains(&run_id) {
                arguments = vec!["run", "--matrix", text(&matrix), "--resume", &run_id];
            }
        };
        assert_eq!(status.code(), Some(0), "seed {seed}, {hit:?}\n{}", farm.unexpected());
        assert_eq!(farm.latest_run().state, RunState::Complete, "seed {seed}");
        let rows = farm.results(&["--run", &run_id]);
        let cases: BTreeSet<_> = rows.iter().map(|row| row.case_id.as_str()).collect();
        assert_eq!((rows.len(), cases.len()), (CASES, CASES), "every case is final exactly once; seed {seed}");
        assert!(rows.iter().all(|row| row.outcome == Outcome::Pass), "seed {seed}\n{}", farm.unexpected());
    }
    eprintln!("{kills} kills in {runs} runs: {hit:?}");
    assert!(hit.len() >= 2, "{hit:?}");
    let left = processes()
        .into_values()
        .filter(|(_, command)| command.contains(text(state_dir())) && command.contains("modelfarm_worker"));
    assert_eq!(left.count(), 0, "a killed farm leaves no worker");
}

#[test]
fn ctrl_c_keeps_everything_finished_and_resume_does_the_rest() {
    let _turn = one_at_a_time();
    let farm = TestFarm::new();
    let matrix = farm.file("matrix.toml", MATRIX);
    let mut program = start(&farm, &["run", "--matrix", text(&matrix), "--jobs", "1"]);
    let begun = Instant::now();
    while farm.results(&["--run", "latest"]).len() < 2 {
        assert!(begun.elapsed() < Duration::from_secs(300), "two cases within five minutes");
        std::thread::sleep(Duration::from_millis(200));
    }
    assert!(kill(program.id() as i32, "-INT"));
    assert_eq!(program.wait().unwrap().code(), Some(130));
    let before = farm.results(&["--run", "latest"]);
    assert!((2..CASES).contains(&before.len()), "{} cases", before.len());
    assert_eq!(farm.latest_run().state, RunState::Interrupted);

    farm.expect(0, &["run", "--matrix", text(&matrix), "--resume", "latest"]);
    let after = farm.results(&["--run", "latest"]);
    assert_eq!((after.len(), farm.latest_run().state), (CASES, RunState::Complete));
    for row in before {
        assert!(after.contains(&row), "a finished case is not run again: {}", row.case());
    }
}

/// A small file system of its own, unmounted when dropped. None where this user may not mount.
struct SmallDisk<'a>(&'a Path);

impl<'a> SmallDisk<'a> {
    fn mount(at: &'a Path, size: &str) -> Option<Self> {
        std::fs::create_dir_all(at).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs", text(at)])
            .stderr(Stdio::null())
            .status();
        if mounted.is_ok_and(|status| status.success()) {
            return Some(Self(at));
        }
        assert!(std::env::var_os("CI").is_none(), "CI must be able to mount a tmpfs");
        eprintln!("skipped: this user may not mount a tmpfs");
        None
    }

    fn remount(&self, options: &str) {
        let status = Command::new("mount").args(["-o", &format!("remount,{options}"), text(self.0)]).status().unwrap();
        assert!(status.success());
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

#[test]
fn a_full_disk_gives_a_clear_error_and_loses_nothing() {
    let _turn = one_at_a_time();
    let farm = TestFarm::new();
    let matrix = farm.file("matrix.toml", MATRIX);
    let at = farm.folder.path().join("small");
    let Some(disk) = SmallDisk::mount(&at, "3m") else { return };
    let url = format!("sqlite://{}", at.join("farm.db").display());
    let run =
        |arguments: &[&str]| crate::setup::modelfarm(state_dir()).args(["--database", &url]).args(arguments).output().unwrap();
    assert_eq!(run(&["db", "migrate"]).status.code(), Some(0));
    let used: u64 = std::fs::read_dir(&at).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
    let run_id = modelfarm_reports::store::NewRun::new_id();
    // What is left should hold some cases, but not all of them: how large an environment's row is changes with its packages.
    let mut room: usize = 600 << 10;
    let recorded = loop {
        std::fs::write(at.join("ballast"), vec![1; (3 << 20) - used as usize - room]).unwrap();
        let output = run(&["run", "--matrix", text(&matrix), "--run-id", &run_id]);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "with {room} bytes: {message}");
        assert!(message.contains("full"), "{message}");
        assert!(!message.contains("panicked"), "{message}");
        std::fs::remove_file(at.join("ballast")).unwrap();
        let recorded: Vec<serde_json::Value> =
            serde_json::from_slice(&run(&["query", "results", "--format", "json"]).stdout).unwrap_or_default();
        if !recorded.is_empty() {
            break recorded;
        }
        room += 100 << 10;
    };
    disk.remount("size=100m");
    let resumed = run(&["run", "--matrix", text(&matrix), "--resume", &run_id]);
    assert_eq!(resumed.status.code(), Some(0), "{}", String::from_utf8_lossy(&resumed.stderr));
    let after: Vec<serde_json::Value> = serde_json::from_slice(&run(&["query", "results", "--format", "json"]).stdout).unwrap();
    assert_eq!(after.len(), CASES);
    assert!(recorded.iter().all(|row| after.contains(row)), "what was recorded before stays");
}

#[test]
fn a_read_only_state_folder_gives_a_clear_error() {
    let _turn = one_at_a_time();
    let farm = TestFarm::new();
    let matrix = farm.file("matrix.toml", MATRIX);
    let at = farm.folder.path().join("state");
    let Some(disk) = SmallDisk::mount(&at, "2m") else { return };
    disk.remount("ro");
    let output = crate::setup::modelfarm(&at).args(["run", "--matrix", text(&matrix)]).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains(text(&at)) && message.contains("--state-dir"), "{message}");
}
