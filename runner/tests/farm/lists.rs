//! What is built, what is healthy and what is left out, as lists and beside a run.

use std::collections::{BTreeMap, BTreeSet};

use modelfarm_reports::query::ArchitectureRow;
use serde_json::Value;

use crate::setup::{ONE_CASE, TestFarm, modelfarm, one_at_a_time, text};

fn rows(json: &str) -> Vec<Value> {
    serde_json::from_str(json).unwrap()
}

#[test]
fn the_fixtures_are_listed_by_architecture_and_harness_with_what_is_left_out() {
    let farm = TestFarm::new();
    let models = rows(&farm.expect(0, &["fixtures", "list", "--models", "--format", "json"]));
    let listed = farm.run(&["fixtures", "list", "--format", "json"]);
    let architectures: Vec<ArchitectureRow> = serde_json::from_slice(&listed.stdout).unwrap();
    let left_out = rows(&farm.expect(0, &["fixtures", "list", "--left-out", "--format", "json"]));

    let mut built: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for model in &models {
        assert!(model["revision"].as_str().unwrap().len() == 40 && model["tags"].is_array(), "{model}");
        *built.entry((model["architecture"].as_str().unwrap(), model["harness"].as_str().unwrap())).or_default() += 1;
    }
    let mut seen = BTreeSet::new();
    for row in &architectures {
        let [harness] = row.harness[..] else { panic!("one harness a row: {row:?}") };
        let key = (row.architecture.as_str(), harness.as_str());
        assert!(seen.insert(key), "{key:?} stands twice");
        assert_eq!(row.models, built.get(&key).copied().unwrap_or_default(), "{key:?}");
        assert_eq!((row.pass, row.fail, row.inconclusive, row.results.len()), (None, None, None, 0), "no run is asked");
        let needs = row.excluded_needs.as_deref();
        match row.excluded_reason.as_deref() {
            Some(reason) => assert!(row.healthy == Some(false) && !reason.is_empty() && needs.is_some(), "{row:?}"),
            None => assert!(built.contains_key(&key) && needs.is_none(), "{row:?}"),
        }
    }
    assert!(built.keys().all(|key| seen.contains(key)));
    let architecture = |row: &Value| row["architecture"].as_str().map(str::to_owned);
    let excluded: BTreeSet<&str> =
        architectures.iter().filter(|row| row.excluded_reason.is_some()).map(|row| row.architecture.as_str()).collect();
    assert!(!excluded.is_empty());
    assert_eq!(excluded, left_out.iter().filter_map(architecture).collect::<Vec<_>>().iter().map(String::as_str).collect());

    let told = String::from_utf8(listed.stderr).unwrap();
    let healthy = |harness: &str| {
        let rows = architectures.iter().filter(|row| row.harness[0].as_str() == harness && row.excluded_reason.is_none());
        let asked: Vec<bool> = rows.filter_map(|row| row.healthy).collect();
        format!("{} of {} architectures healthy", asked.iter().filter(|healthy| **healthy).count(), asked.len())
    };
    assert!(told.contains(&format!("transformers: {}", healthy("transformers"))), "{told}");
    assert!(told.contains(&format!("{} left out", excluded.len())), "{told}");

    let table = farm.expect(0, &["fixtures", "list", "--format", "table"]);
    assert!(table.contains("HEALTHY") && table.contains("EXCLUDED NEEDS") && !table.contains("INCONCLUSIVE"), "{table}");
    farm.expect(2, &["fixtures", "list", "--models", "--left-out"]);
}

#[test]
fn what_the_fixtures_leave_out_stands_beside_a_run() {
    let _turn = one_at_a_time();
    let farm = TestFarm::new();
    let matrix = farm.file("one.toml", ONE_CASE);
    farm.expect(0, &["run", "--matrix", text(&matrix)]);
    let ask = |arguments: &[&str]| -> Vec<ArchitectureRow> {
        let all = [&["query", "architectures", "--format", "json"], arguments].concat();
        serde_json::from_str(&farm.expect(0, &all)).unwrap()
    };
    let left_out = rows(&farm.expect(0, &["fixtures", "list", "--left-out", "--format", "json"]));
    let left_out: BTreeSet<&str> = left_out.iter().filter_map(|row| row["architecture"].as_str()).collect();
    let one = *left_out.first().unwrap();

    let all = ask(&[]);
    assert_eq!(all.len(), left_out.len() + 1);
    assert!(all.is_sorted_by(|left, right| left.architecture < right.architecture));
    for row in &all {
        let zero = (Some(0), Some(0), Some(0));
        match row.architecture.as_str() {
            "vit" => assert!(row.pass == Some(1) && row.excluded_reason.is_none() && row.healthy.is_some(), "{row:?}"),
            name => {
                assert!(left_out.contains(name) && (row.pass, row.fail, row.inconclusive) == zero && row.models == 0, "{row:?}")
            }
        }
    }
    let names = |arguments: &[&str]| ask(arguments).into_iter().map(|row| row.architecture).collect::<Vec<_>>();
    assert_eq!(names(&["--attempted"]), ["vit"]);
    assert_eq!(names(&["--architecture", "vit"]), ["vit"]);
    assert_eq!(names(&["--architecture", one]), [one]);
    assert_eq!(names(&["--model", "zoo/tiny-vit"]), ["vit"]);
    assert_eq!(names(&["--harness", "timm"]), [""; 0]);
    assert_eq!(names(&["--mode", "compiled", "--harness", "transformers"]).len(), left_out.len());
    farm.expect(2, &["query", "architectures", "--sample", "1/2"]);

    let (out, document) = (farm.folder.path().join("report"), farm.folder.path().join("COMPATIBILITY.md"));
    farm.expect(0, &["report", "--out", text(&out), "--compatibility", text(&document)]);
    let document = std::fs::read_to_string(document).unwrap();
    let (_, end) = document.split_once("## Left out of the fixtures").unwrap();
    assert_eq!(end.matches("| architecture |").count(), left_out.len(), "{end}");
    assert!(end.contains(&format!("{} architectures and ", left_out.len())), "{end}");
}

#[test]
fn what_is_left_out_is_known_where_nothing_is_built() {
    let farm = TestFarm::new();
    let elsewhere = farm.folder.path().join("elsewhere");
    let listed = modelfarm(&elsewhere).args(["fixtures", "list"]).output().unwrap();
    assert_eq!(listed.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&listed.stderr).contains("fixtures build"));
    let listed = modelfarm(&elsewhere).args(["fixtures", "list", "--left-out", "--format", "csv"]).output().unwrap();
    assert!(listed.status.success() && listed.stdout.starts_with(b"architecture,class,workload,reason,needs\n"));
    assert!(!elsewhere.exists(), "a question makes nothing");
}
