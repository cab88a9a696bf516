//! Which of three packages, and which of their versions, broke a case: wheels of the test's own, in a folder as a person keeps them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::copying::one_run;
use crate::setup::{TestFarm, one_at_a_time, state_dir, text};

const PACKAGES: [&str; 3] = ["planted-alpha", "planted-beta", "planted-gamma"];
/// Nightlies, their release and a repair of it: what a plain `>` and `<` would leave out.
const VERSIONS: [&str; 4] = ["1.0.dev1", "1.0.dev2", "1.0", "1.0.post1"];

/// The control alone: no device's library has to start.
const MATRIX: &str = r#"
name = "planted"
[models]
fixtures = "smoke"
[cases]
only = { model = "zoo/tiny-resnet" }
targets = ["cpu"]
modes = ["compiled"]
"#;

/// Makes wheels without code, from triples of name, version and the text of a file that every Python reads when it starts.
const MAKE_WHEELS: &str = r#"
import json, pathlib, sys, zipfile
folder = pathlib.Path(sys.argv[1])
for name, version, startup in json.loads(sys.argv[2]):
    stem = name.replace("-", "_")
    info = f"{stem}-{version}.dist-info"
    files = {
        f"{stem}.pth": startup,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(folder / f"{stem}-{version}-py3-none-any.whl", "w") as wheel:
        for path, text in [*files.items(), (f"{info}/RECORD", record)]:
            wheel.writestr(path, text)
"#;

/// Torch compiles nothing where it finds this: the reference is right, and the outcome `compile_error`.
const BREAKS: &str = "import os; os.environ['TORCHDYNAMO_DISABLE'] = '1'\n";

/// The same in every other child of a worker: the reference's is the first, so a case that is tried once fails.
const FLAKES: &str = "import os, itertools; forks = itertools.count(1); \
    os.register_at_fork(before=lambda forks=forks, os=os: os.environ.update(TORCHDYNAMO_DISABLE=str(1 - next(forks) % 2)))\n";

/// A farm with a folder of wheels, and two runs: one with all packages old, one with all new.
struct Planted {
    farm: TestFarm,
    matrix: PathBuf,
    case: String,
}

impl Planted {
    /// `startup` tells what a version of a package does to a Python that starts.
    fn new(startup: impl Fn(&str, &str) -> String) -> Self {
        let farm = TestFarm::new();
        let wheels = farm.folder.path().join("wheels");
        std::fs::create_dir(&wheels).unwrap();
        let all = PACKAGES.iter().flat_map(|name| VERSIONS.iter().map(move |version| (name, version)));
        let asked: Vec<Value> = all.map(|(name, version)| json!([name, version, startup(name, version)])).collect();
        let made =
            Command::new("python3").args(["-c", MAKE_WHEELS]).arg(&wheels).arg(json!(asked).to_string()).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let matrix = farm.file("planted.toml", MATRIX);
        let mut planted = Self { farm, matrix, case: String::new() };
        for version in [VERSIONS[0], VERSIONS[3]] {
            let requirements = planted.requirements(version);
            let ran =
                planted.command(&["run", "--matrix", "planted.toml"]).env("MODELFARM_REQUIREMENTS", requirements).output();
            let ran = ran.unwrap();
            assert!(ran.status.code().is_some_and(|code| code <= 1), "{}", String::from_utf8_lossy(&ran.stderr));
        }
        planted.case = planted.farm.results(&["--run", "latest"])[0].case_id.to_string();
        planted
    }

    /// The locked packages of the farm, and these in one version.
    fn requirements(&self, version: &str) -> PathBuf {
        let locked = Path::new(env!("CARGO_MANIFEST_DIR")).join("worker/environments/torchtpu.txt");
        let locked = std::fs::read_to_string(locked).unwrap();
        let own: String = PACKAGES.iter().map(|name| format!("{name}=={version}\n")).collect();
        self.farm.file(&format!("requirements-{version}.txt"), &format!("{locked}{own}"))
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.farm.command(arguments);
        command.env("MODELFARM_WHEEL_FOLDERS", self.farm.folder.path().join("wheels"));
        command
    }

    fn bisect(&self, case: &str, good: &str, bad: &str, more: &[&str]) -> Output {
        let mut arguments = vec!["bisect", case, "--good", good, "--bad", bad, "--matrix", text(&self.matrix)];
        if !more.contains(&"--tries") {
            arguments.extend(["--tries", "1"]);
        }
        arguments.extend(["--format", "json"]);
        arguments.extend(more);
        self.command(&arguments).output().unwrap()
    }

    /// The rows of a search, and what was said beside them.
    fn rows(output: &Output) -> (Vec<Value>, String) {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}")), said)
    }

    fn refusal(&self, case: &str, good: &str, bad: &str, more: &[&str]) -> String {
        let output = self.bisect(case, good, bad, more);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        said
    }
}

impl Drop for Planted {
    /// The state folder is kept between tests, and these environments are of no use to another.
    fn drop(&mut self) {
        let environments = std::fs::read_dir(state_dir().join("environments")).unwrap();
        for folder in environments.map(|entry| entry.unwrap().path()) {
            let is_ours = std::fs::read_to_string(folder.join("requirements.txt")).is_ok_and(|text| text.contains(PACKAGES[0]));
            if is_ours {
                let _ = std::fs::remove_dir_all(folder);
            }
        }
    }
}

/// The answer: the last row.
fn answer(rows: &[Value]) -> (Option<&str>, Option<&str>) {
    let last = rows.last().unwrap();
    assert_eq!(last["reading"], "first_bad", "{rows:?}");
    (last["package"].as_str(), last["version"].as_str())
}

/// What breaks the case from one version of one package on.
fn broken_from(package: &'static str, first_bad: usize) -> impl Fn(&str, &str) -> String {
    move |name, version| {
        let is_bad = name == package && VERSIONS[first_bad..].contains(&version);
        if is_bad { BREAKS.to_owned() } else { "\n".to_owned() }
    }
}

#[test]
#[ignore = "takes minutes, and the search itself is tested on every place in the crate of the matrix"]
fn bisect_finds_a_change_wherever_it_is_planted() {
    let _turn = one_at_a_time();
    for (package, first_bad) in [("planted-alpha", 1), ("planted-gamma", 3), ("planted-gamma", 2)] {
        let planted = Planted::new(broken_from(package, first_bad));
        let (rows, said) = Planted::rows(&planted.bisect(&planted.case, "latest~1", "latest", &[]));
        assert_eq!(answer(&rows), (Some(package), Some(VERSIONS[first_bad])), "{rows:#?}\n{said}");
        let last_good = format!("the last good is {}", VERSIONS[first_bad - 1]);
        assert!(said.contains(&last_good), "{said}");
    }
}

#[test]
fn a_case_that_flakes_is_not_searched() {
    let _turn = one_at_a_time();
    let planted = Planted::new(|name, version| match (name, version) {
        ("planted-beta", "1.0.post1") => FLAKES.to_owned(),
        _ => "\n".to_owned(),
    });
    let output = planted.bisect(&planted.case, "latest~1", "latest", &["--tries", "2"]);
    let (rows, said) = Planted::rows(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert_eq!((rows.len(), &rows[1]["reading"]), (2, &json!("untestable")), "{rows:#?}");
    assert!(said.contains("it is now `compile_error`, `pass`") || said.contains("it is now `pass`, `compile_error`"), "{said}");
    assert!(said.contains("or it flakes"), "{said}");
}

#[test]
fn bisect_finds_a_planted_change_among_three_packages_of_four_versions() {
    let _turn = one_at_a_time();
    let planted = Planted::new(broken_from("planted-beta", 1));
    let case = planted.case.as_str();
    let output = planted.bisect(case, "latest~1", "latest", &[]);
    let (rows, said) = Planted::rows(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(answer(&rows), (Some("planted-beta"), Some("1.0.dev2")), "{rows:#?}\n{said}");
    assert!(said.contains("3 packages differ: planted-alpha, planted-beta, planted-gamma"), "{said}");
    assert!(said.contains("first bad: planted-beta 1.0.dev2; the last good is 1.0.dev1"), "{said}");
    assert!(rows.len() <= 2 + 2 + 2 + 1, "both ends, and halving: {rows:#?}");
    assert_eq!(rows[0]["outcomes"], json!(["pass"]));
    assert_eq!(rows[1]["outcomes"], json!(["compile_error"]));

    let (good, bad) = {
        let runs: Vec<Value> = serde_json::from_str(&planted.farm.expect(0, &["query", "runs", "--format", "json"])).unwrap();
        let id = |back: usize| runs[runs.len() - 1 - back]["run_id"].as_str().unwrap().to_owned();
        (id(0), id(1))
    };
    for (asked, part) in [
        (("0123456789abcdef", &good, &bad), "no result of case 0123456789abcdef is recorded"),
        ((case, &bad, &good), "are they swapped?"),
        ((case, &good, &good), "are one run"),
    ] {
        let said = planted.refusal(asked.0, asked.1, asked.2, &[]);
        assert!(said.contains(part), "{part}: {said}");
    }
    let other = planted.farm.file("other.toml", &MATRIX.replace("tiny-resnet", "tiny-vit"));
    let database = format!("sqlite://{}", planted.farm.database().display());
    tokio::runtime::Runtime::new().unwrap().block_on(one_run(&database));
    let said = planted.refusal(case, "latest", &bad, &[]);
    assert!(said.contains("--good latest: run") && said.contains("has no result of case"), "{said}");
    let mut command = planted.command(&["bisect", case, "--good", &good, "--bad", &bad, "--matrix", text(&other)]);
    let said = String::from_utf8(command.output().unwrap().stderr).unwrap();
    assert!(said.contains("other.toml does not have the case") && said.contains(case), "{said}");
}
