//! Environments made for real: a tiny package, from the package index, with the computer's own Python and uv.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::list::{EnvironmentState, list, open};
use super::marker::MARKER_FILE;
use super::*;

const SIX: &str = "six==1.17.0 \\
    --hash=sha256:4721f391ed90541fddacab5acf947aa0d3dc7d27b2e1e8eda2be8970586c3274 \\
    --hash=sha256:ff70335d468e7eb6ec65b95b99d3a2836546063f63acc5171de367e834932a81
";

struct Place {
    folder: tempfile::TempDir,
    settings: EnvironmentSettings,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let own = folder.path().join("own.txt");
        fs::write(&own, SIX).expect("written");
        let settings = EnvironmentSettings {
            requirements_file: Some(own),
            search_path: std::env::var_os("PATH").unwrap_or_default(),
            ..EnvironmentSettings::load(folder.path()).expect("settings")
        };
        Self { folder, settings }
    }

    fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    async fn sync(&self) -> (Environment, Vec<SyncEvent>) {
        let mut events = Vec::new();
        let environment = sync(&self.state(), "torchtpu", &self.settings, |event| events.push(event))
            .await
            .unwrap_or_else(|error| panic!("failed to {error}"));
        (environment, events)
    }

    /// Settings under which starting anything fails.
    fn no_tools(&self) -> EnvironmentSettings {
        EnvironmentSettings { uv: Some("/nonexistent/uv".into()), search_path: "".into(), ..self.settings.clone() }
    }
}

fn imports_six(environment: &Environment) -> bool {
    let program = "import six, sys; assert six.__file__.startswith(sys.argv[1]), six.__file__";
    let status =
        std::process::Command::new(&environment.python).args(["-I", "-c", program]).arg(&environment.site_packages).status();
    status.is_ok_and(|status| status.success())
}

fn reused(events: &[SyncEvent]) -> bool {
    matches!(events, [SyncEvent::Done { reused: true, .. }])
}

fn repaired(events: &[SyncEvent], because: &str) -> bool {
    matches!(events.first(), Some(SyncEvent::Repairing { reason }) if reason.contains(because))
        && matches!(events.last(), Some(SyncEvent::Done { reused: false, .. }))
}

#[tokio::test]
async fn an_environment_is_made_once_and_found_again_without_any_process() {
    let place = Place::new();
    let (made, events) = place.sync().await;
    assert!(events.contains(&SyncEvent::Resolving) && events.contains(&SyncEvent::Compiling { packages: 1 }), "{events:?}");
    assert_eq!(made.packages.iter().map(|(name, version)| format!("{name} {version}")).collect::<Vec<_>>(), ["six 1.17.0"]);
    assert_eq!(made.requirements, SIX);
    assert!(made.folder.ends_with(format!("torchtpu-{}", made.id)));
    assert!(imports_six(&made));
    assert!(made.site_packages.join("__pycache__").is_dir(), "the bytecode is there before any worker runs");

    let begun = Instant::now();
    let again = sync(&place.state(), "torchtpu", &place.no_tools(), |_| {}).await.expect("found");
    assert!(begun.elapsed() < Duration::from_secs(1));
    assert_eq!(again, made);
    assert_eq!(open(&place.state(), &made.id[..6]).expect("readable"), Some(made.clone()));

    let remade =
        recreate(&place.state(), "torchtpu", &made.requirements, &place.no_tools(), |_| {}).await.expect("the same one");
    assert_eq!(remade.id, made.id);
    let mut other = place.settings.clone();
    other.requirements_file = None;
    let recreated =
        recreate(&place.folder.path().join("elsewhere"), "torchtpu", &made.requirements, &other, |_| {}).await.expect("made");
    assert_eq!((recreated.id.as_str(), &recreated.packages), (made.id.as_str(), &made.packages));
}

#[tokio::test]
async fn half_made_and_damaged_environments_are_made_anew() {
    let place = Place::new();
    let (made, _) = place.sync().await;

    fs::remove_file(made.folder.join(MARKER_FILE)).expect("removed");
    let entries = list(&place.state()).expect("readable");
    assert!(matches!(&entries[..], [EnvironmentEntry { state: EnvironmentState::HalfMade(_), .. }]), "{entries:?}");
    let (_, events) = place.sync().await;
    assert!(repaired(&events, "interrupted"), "{events:?}");

    fs::write(made.folder.join(MARKER_FILE), "{\"schema\": 1,").expect("written");
    let (_, events) = place.sync().await;
    assert!(repaired(&events, "damaged"), "{events:?}");

    fs::remove_file(made.site_packages.join("six.py")).expect("removed");
    let (_, events) = place.sync().await;
    assert!(repaired(&events, "six.py"), "{events:?}");

    // A new file, as the old one is a link into uv's cache.
    let truncated = made.site_packages.join("six.py");
    fs::remove_file(&truncated).expect("removed");
    fs::write(&truncated, "six = 6").expect("written");
    let (_, events) = place.sync().await;
    assert!(repaired(&events, "another size"), "{events:?}");

    fs::remove_dir_all(made.site_packages.join("six-1.17.0.dist-info")).expect("removed");
    let (_, events) = place.sync().await;
    assert!(repaired(&events, "were changed (six)"), "{events:?}");

    fs::remove_file(made.folder.join("bin/python")).expect("removed");
    let (_, events) = place.sync().await;
    assert!(repaired(&events, "interpreter"), "{events:?}");

    let left = place.state().join("environments/.building-torchtpu@dead/lib");
    fs::create_dir_all(&left).expect("created");
    assert!(reused(&place.sync().await.1), "what was left behind does not hurt a whole one");
    fs::remove_dir_all(&made.folder).expect("removed");
    let (last, events) = place.sync().await;
    assert!(repaired(&events, "interrupted"), "{events:?}");
    assert!(!left.exists() && imports_six(&last));
    let entries = list(&place.state()).expect("readable");
    assert!(matches!(&entries[..], [EnvironmentEntry { state: EnvironmentState::Complete(_), .. }]), "{entries:?}");
    assert!(entries[0].size_bytes > 10_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_calls_make_one_environment() {
    let place = Place::new();
    let calls = (0..4).map(|_| place.sync());
    let results = futures::future::join_all(calls).await;
    let made =
        results.iter().filter(|(_, events)| matches!(events.last(), Some(SyncEvent::Done { reused: false, .. }))).count();
    assert_eq!(made, 1);
    assert_eq!(results.iter().filter(|(_, events)| events.contains(&SyncEvent::Waiting)).count(), 3);
    assert!(results.iter().all(|(environment, _)| *environment == results[0].0));
    assert_eq!(list(&place.state()).expect("readable").len(), 1);
}

#[tokio::test]
async fn a_file_that_is_not_the_locked_one_is_refused() {
    let mut place = Place::new();
    let wrong = SIX.replace("sha256:4", "sha256:5").replace("sha256:ff", "sha256:00");
    fs::write(place.folder.path().join("own.txt"), wrong).expect("written");
    place.settings.python = None;
    let error = sync(&place.state(), "torchtpu", &place.settings, |_| {}).await.expect_err("a mismatch");
    assert!(matches!(&error, EnvironmentError::HashMismatch { package, .. } if package == "six==1.17.0"), "{error}");
    assert!(list(&place.state()).expect("readable").is_empty(), "nothing half-made stays");
}

#[tokio::test]
async fn an_index_that_does_not_answer_is_told_without_its_password() {
    let mut place = Place::new();
    place.settings.index_url = Some(IndexUrl::new("http://user:hunter2@127.0.0.1:9/simple"));
    let error = sync(&place.state(), "torchtpu", &place.settings, |_| {}).await.expect_err("no index there");
    assert!(matches!(error, EnvironmentError::Network { .. }), "{error}");
    let shown = format!("{error} {error:?}");
    assert!(shown.contains("127.0.0.1") && !shown.contains("hunter2"), "{shown}");
}

#[tokio::test]
async fn a_state_folder_that_cannot_be_written_says_what_to_do() {
    let place = Place::new();
    fs::write(place.state(), "a file in the way").expect("written");
    let error = sync(&place.state(), "torchtpu", &place.settings, |_| {}).await.expect_err("no folder").to_string();
    assert!(error.contains("state/environments"), "{error}");
}

/// A search path with Python alone, as `venv` or without it.
async fn search_path_without_uv(folder: &Path, with_venv: bool) -> std::ffi::OsString {
    let settings = EnvironmentSettings { search_path: std::env::var_os("PATH").unwrap_or_default(), ..Default::default() };
    let python = python::find_python(&settings, None).await.expect("a Python");
    let tools = folder.join("bin");
    fs::create_dir_all(&tools).expect("created");
    let script = tools.join("python3");
    let real = python.executable.display();
    let body = if with_venv {
        format!("#!/bin/sh\nexec {real} \"$@\"\n")
    } else {
        // What Debian's python3 without python3-venv answers.
        format!(
            "#!/bin/sh\ncase \"$*\" in *'-m venv'*) echo 'ensurepip is not available' >&2; exit 1;; *-c*) {real} \"$@\" | sed 's#\"base\": \"[^\"]*\"#\"base\": \"'$0'\"#';; *) exec {real} \"$@\";; esac\n"
        )
    };
    fs::write(&script, body).expect("written");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("executable");
    let mut path = tools.into_os_string();
    path.push(":/usr/bin:/bin");
    assert!(!Path::new("/usr/bin/uv").exists() && !Path::new("/bin/uv").exists(), "this test needs uv out of the way");
    path
}

#[tokio::test]
async fn uv_is_fetched_where_there_is_none() {
    for with_venv in [true, false] {
        let mut place = Place::new();
        place.settings.search_path = search_path_without_uv(place.folder.path(), with_venv).await;
        place.settings.python = Some(place.folder.path().join("bin/python3"));
        place.settings.uv = None;
        let (environment, events) = place.sync().await;
        assert!(events.contains(&SyncEvent::FetchingUv), "{events:?}");
        assert!(imports_six(&environment));
        let tools: Vec<_> =
            fs::read_dir(place.state().join("tools")).expect("readable").flatten().map(|entry| entry.file_name()).collect();
        assert_eq!(tools.len(), 2, "uv and the lock: {tools:?}");

        fs::remove_dir_all(&environment.folder).expect("removed");
        let (_, events) = place.sync().await;
        assert!(!events.contains(&SyncEvent::FetchingUv), "the fetched one is kept: {events:?}");
    }
}

#[tokio::test]
async fn own_unlocked_requirements_keep_the_versions_they_led_to() {
    let place = Place::new();
    fs::write(place.folder.path().join("own.txt"), "six>=1.16\n").expect("written");
    let (made, _) = place.sync().await;
    assert_eq!(made.requirements, format!("six=={}\n", made.packages["six"]));
    assert!(reused(&place.sync().await.1));
}
