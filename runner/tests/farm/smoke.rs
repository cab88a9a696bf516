//! Real models and every toy, through every mode.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use modelfarm_matrix::axes::{Mode, Workload};
use modelfarm_matrix::fault::Fault;
use modelfarm_matrix::outcome::Outcome;
use modelfarm_reports::rows::ResultRow;
use serde_json::Value;

use crate::setup::{TestFarm, one_at_a_time, state_dir, text};

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// What the fixtures say of themselves: `python -m modelfarm_zoo list`.
fn listed_fixtures() -> Vec<Value> {
    let environments = std::fs::read_dir(state_dir().join("environments")).unwrap().flatten();
    let environment =
        environments.map(|entry| entry.path()).find(|path| path.file_name().unwrap().to_str().unwrap().starts_with("torchtpu"));
    let output = std::process::Command::new(environment.unwrap().join("bin/python"))
        .args(["-m", "modelfarm_zoo", "list"])
        .env("PYTHONPATH", repository().join("fixtures/zoo"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn every_toy_has_exactly_its_declared_outcome_and_fault() {
    let _turn = one_at_a_time();
    let farm = TestFarm::new();
    let toys: Vec<Value> = listed_fixtures().into_iter().filter(|toy| toy["expect"].is_object()).collect();
    let ids: Vec<&str> = toys.iter().map(|toy| toy["id"].as_str().unwrap()).collect();
    assert!(ids.len() >= 30, "{ids:?}");
    let matrix = repository().join("matrix/smoke.toml");
    let mut arguments = vec!["run", "--matrix", text(&matrix)];
    ids.iter().for_each(|id| arguments.extend(["--model", id]));
    farm.expect(0, &arguments);

    let rows = farm.results(&["--run", "latest"]);
    let found: BTreeMap<_, _> = rows.iter().map(|row| ((row.model.as_str(), row.target.as_str(), row.mode), row)).collect();
    for toy in &toys {
        for (target, side) in [("tpu-emulated", "device"), ("cpu", "control")] {
            for (mode, expected) in toy["expect"][side].as_object().unwrap() {
                let mode: Mode = mode.parse().unwrap();
                let id = toy["id"].as_str().unwrap();
                let row = found.get(&(id, target, mode)).unwrap_or_else(|| panic!("{id} {target} {mode} was not run"));
                let observed = serde_json::json!({"outcome": row.outcome, "fault": row.fault});
                assert_eq!(&observed, expected, "{id} {target} {mode}: {:?}", row.message);
            }
        }
    }
    // Every outcome that a target or a model can cause is caused by some toy.
    let seen: BTreeSet<Outcome> = rows.iter().map(|row| row.outcome).collect();
    let by_farm_alone = [Outcome::InfraError, Outcome::Skipped];
    let missing: Vec<_> =
        Outcome::ALL.iter().filter(|outcome| !seen.contains(outcome) && !by_farm_alone.contains(outcome)).collect();
    assert!(missing.is_empty(), "no toy causes {missing:?}");
    // The farm's own cost a case: generous here, where the build is a debug one and the machine busy; the demo measures it.
    assert!(farm.latest_run().farm_overhead_ms_median.is_some());
}

#[test]
fn the_control_is_asked_about_a_failure_where_the_plan_leaves_it_out() {
    let _turn = one_at_a_time();
    let farm = TestFarm::new();
    let matrix = repository().join("matrix/smoke.toml");
    farm.expect(
        0,
        &["run", "--matrix", text(&matrix), "--model", "toys/no-graph", "--target", "tpu-emulated", "--mode", "compiled"],
    );
    let rows = farm.results(&["--run", "latest"]);
    assert_eq!(rows.len(), 1, "what the control says is no result of its own");
    assert_eq!((rows[0].outcome, rows[0].fault), (Outcome::CompileError, Some(Fault::Model)), "{}", farm.unexpected());
}

#[test]
fn a_model_passes_in_every_mode_workload_and_dtype() {
    let _turn = one_at_a_time();
    let farm = TestFarm::new();
    let matrix = repository().join("matrix/smoke.toml");
    farm.expect(0, &["run", "--matrix", text(&matrix), "--model", "zoo/tiny-llama", "zoo/tiny-resnet"]);
    let rows = farm.results(&["--run", "latest"]);
    let passed: BTreeSet<_> = rows
        .iter()
        .filter(|row| row.outcome == Outcome::Pass && row.target == "tpu-emulated")
        .map(|row| (row.model.as_str(), row.workload, row.dtype.as_str(), row.mode))
        .collect();
    for mode in [Mode::StrictEager, Mode::DeferAndFuse, Mode::Compiled] {
        for (model, workload, dtype) in [
            ("zoo/tiny-llama", Workload::Forward, "float32"),
            ("zoo/tiny-llama", Workload::Forward, "bfloat16"),
            ("zoo/tiny-llama", Workload::Generate, "float32"),
            ("zoo/tiny-llama", Workload::TrainStep, "float32"),
            ("zoo/tiny-resnet", Workload::Forward, "bfloat16"),
            ("zoo/tiny-resnet", Workload::TrainStep, "float32"),
        ] {
            assert!(
                passed.contains(&(model, workload, dtype, mode)),
                "{model} {workload} {dtype} {mode}\n{}",
                farm.unexpected()
            );
        }
    }
    // A pass in `compiled` means that a graph ran, and a pass on a device that programs ran there.
    for row in rows.iter().filter(|row| row.target == "tpu-emulated") {
        assert!(row.metrics.execute_count.unwrap() > 0, "{}", row.case());
        if row.mode == Mode::Compiled {
            assert!(row.metrics.graph_count.unwrap() > 0, "{}", row.case());
        }
    }
    assert_eq!(farm.latest_run().state.as_str(), "complete");
    // One of the two texts is shorter, and what stands behind it is no result.
    let is_text = |row: &&ResultRow| row.model.as_str() == "zoo/tiny-llama" && row.workload == Workload::Forward;
    let case = rows.iter().find(is_text).unwrap().case_id.to_string();
    let shown: Vec<Value> = serde_json::from_str(&farm.expect(0, &["show", &case, "--format", "json"])).unwrap();
    let logits = &shown[0]["leaves"][0];
    let shape: Vec<u64> = serde_json::from_value(logits["shape"].clone()).unwrap();
    let (judged, left_out) = (logits["count"].as_u64().unwrap(), logits["left_out"].as_u64().unwrap());
    assert_eq!(judged + left_out, shape.iter().product::<u64>(), "{logits}");
    assert!(left_out > 0 && left_out < judged && left_out % shape[2] == 0, "{logits}");
}

#[test]
fn without_bubblewrap_a_sandbox_is_made_of_what_every_linux_has() {
    let _turn = one_at_a_time();
    let farm = TestFarm::new();
    let programs = farm.folder.path().join("programs");
    std::fs::create_dir(&programs).unwrap();
    std::os::unix::fs::symlink("/usr/bin/unshare", programs.join("unshare")).unwrap();
    let matrix = repository().join("matrix/smoke.toml");
    let arguments = ["run", "--matrix", text(&matrix), "--model", "zoo/tiny-resnet", "--model", "toys/escape"];
    let output = farm.command(&arguments).env("PATH", &programs).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{}", farm.unexpected());
    assert!(said.contains("sandbox: unshare"), "{said}");
    assert!(farm.results(&["--run", "latest"]).iter().all(|row| !row.verdict.is_unexpected()), "{}", farm.unexpected());
}

#[test]
fn a_second_run_loads_what_the_emulator_compiled_and_reports_the_same() {
    let _turn = one_at_a_time();
    let farm = TestFarm::new();
    let matrix = farm.file(
        "twice.toml",
        "name = \"twice\"\n[models]\narchitectures = [\"vit\"]\n[cases]\ntargets = [\"tpu-emulated\"]\nmodes = [\"strict-eager\"]\nworkloads = [\"train-step\"]\n",
    );
    let run = || {
        farm.expect(0, &["run", "--matrix", text(&matrix)]);
        let row = farm.results(&["--run", "latest"]).remove(0);
        let shown: Value = serde_json::from_str(&farm.expect(0, &["show", row.case_id.as_str(), "--format", "json"])).unwrap();
        (row.metrics, shown[0]["facts"]["pjrt"].clone())
    };
    // The first run of this test may find what an earlier one left.
    let (first, _) = run();
    let (second, pjrt) = run();
    for (name, one, other) in
        [("programs", first.compile_count, second.compile_count), ("executions", first.execute_count, second.execute_count)]
    {
        assert!(one.is_some() && one == other, "{name}: {one:?} and {other:?}");
    }
    assert_eq!(first.rmse_ratio, second.rmse_ratio, "the same machine code computes the same");
    assert!(pjrt["compile_count"].as_i64().unwrap() > 10, "{pjrt}");
    assert_eq!(pjrt["compile_cached_count"], pjrt["compile_count"], "{pjrt}");
    assert!(pjrt["compile_cache_load_ms"].as_f64() < pjrt["compile_ms"].as_f64(), "{pjrt}");
}

#[test]
fn what_the_control_passed_with_is_judged_again_and_what_it_failed_with_is_asked_again() {
    let _turn = one_at_a_time();
    let farm = TestFarm::new();
    let matrix = repository().join("matrix/smoke.toml");
    let run = || {
        farm.expect(0, &["run", "--matrix", text(&matrix), "--model", "zoo/tiny-resnet", "--model", "toys/no-graph"]);
        let rows = farm.results(&["--run", "latest", "--target", "cpu", "--mode", "compiled"]);
        let answers = rows.into_iter().map(|row| {
            let shown: Value =
                serde_json::from_str(&farm.expect(0, &["show", row.case_id.as_str(), "--format", "json"])).unwrap();
            (row.case_id.to_string(), (row.outcome, shown[0]["facts"]["answer_kept_from_earlier"] == true, row.metrics))
        });
        answers.collect::<BTreeMap<_, _>>()
    };
    // The first run of this test may find what an earlier one left.
    let (first, second) = (run(), run());
    assert!(first.keys().eq(second.keys()), "{:?} and {:?}", first.keys(), second.keys());
    for (case, (outcome, kept, metrics)) in &second {
        let (before, _, metrics_before) = &first[case];
        assert_eq!(outcome, before, "{case}");
        assert_eq!(*kept, *outcome == Outcome::Pass, "{case}: {outcome}");
        assert_eq!(
            (metrics.rmse_ratio, metrics.graph_count),
            (metrics_before.rmse_ratio, metrics_before.graph_count),
            "{case}"
        );
    }
    let outcomes: BTreeSet<_> = second.values().map(|(outcome, ..)| outcome.to_string()).collect();
    assert_eq!(outcomes, BTreeSet::from(["compile_error".to_owned(), "pass".to_owned()]));
}

#[test]
fn the_definition_of_the_real_tpu_runs_with_nothing_but_the_plugin_replaced() {
    let _turn = one_at_a_time();
    let farm = TestFarm::new();
    let matrix = farm.file(
        "tpu.toml",
        "name = \"tpu\"\n[models]\narchitectures = [\"resnet\"]\n[cases]\ntargets = [\"tpu\"]\nmodes = [\"strict-eager\", \"defer-and-fuse\", \"compiled\"]\n",
    );
    let environments: Vec<Value> = serde_json::from_str(&farm.expect(0, &["env", "list", "--format", "json"])).unwrap();
    let folder = environments.iter().find(|one| one["name"] == "torchtpu").unwrap()["folder"].as_str().unwrap();
    let site = std::fs::read_dir(format!("{folder}/lib")).unwrap().next().unwrap().unwrap().path().join("site-packages");
    let plugin = site.join("fastatomstruct_xla_cpu/libpjrt_cpu.so");
    farm.expect(0, &["run", "--matrix", text(&matrix), "--plugin", &format!("tpu={}", plugin.display())]);
    let rows = farm.results(&["--run", "latest"]);
    assert_eq!(rows.len(), 3);
    assert!(rows.iter().all(|row| row.outcome == Outcome::Pass && row.target == "tpu"), "{}", farm.unexpected());
}

#[test]
fn the_smoke_matrix_agrees_with_what_the_fixtures_declare() {
    let _turn = one_at_a_time();
    let smoke = std::fs::read_to_string(repository().join("matrix/smoke.toml")).unwrap();
    let fixtures = listed_fixtures();
    for fixture in &fixtures {
        let trusted = smoke.contains(&format!("model = \"{}\"\ntrust = ", fixture["id"].as_str().unwrap()));
        assert_eq!(trusted, fixture["trust"] == true, "{}", fixture["id"]);
        if trusted {
            assert!(
                smoke.contains(fixture["commit"].as_str().unwrap()),
                "{}: its code has changed; read it, then trust its new commit",
                fixture["id"]
            );
        }
    }
    let tagged =
        |tag: &str| fixtures.iter().filter(|one| one["tags"].as_array().unwrap().iter().any(|found| found == tag)).count();
    assert!(tagged("generate") >= 8 && tagged("train") >= 8 && tagged("real") == 2);
    let architectures: BTreeSet<&str> = fixtures
        .iter()
        .filter(|one| one["id"].as_str().unwrap().starts_with("zoo/"))
        .map(|one| one["architecture"].as_str().unwrap())
        .collect();
    assert!(architectures.len() >= 32, "{architectures:?}");
}

#[test]
fn nothing_outside_fixtures_and_matrix_knows_a_toys_name() {
    let _turn = one_at_a_time();
    let names: Vec<String> = listed_fixtures()
        .into_iter()
        .filter(|one| one["expect"].is_object())
        .map(|one| one["id"].as_str().unwrap().to_owned())
        .collect();
    let mut open: Vec<_> = ["runner/src", "runner/worker", "runner/pjrt/src", "reports/src", "reports/templates"]
        .map(|part| repository().join(part))
        .into();
    let mut read = 0;
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if let Ok(source) = std::fs::read_to_string(&path) {
            read += 1;
            let found = names.iter().find(|name| source.contains(name.as_str()));
            assert!(found.is_none(), "{} knows {found:?}", path.display());
        }
    }
    assert!(read > 100);
}
