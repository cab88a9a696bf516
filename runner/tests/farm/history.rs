//! What regressed between two runs, and whether it can be seen again.

use modelfarm_matrix::change::Change;
use modelfarm_matrix::outcome::Outcome;
use modelfarm_reports::query::ChangeRow;

use crate::setup::{TestFarm, one_at_a_time, text};

const MATRIX: &str = r#"
name = "watched"
[models]
fixtures = "smoke"
[cases]
only = { model = ["zoo/tiny-llama", "zoo/tiny-resnet"] }
targets = ["tpu-emulated"]
modes = ["strict-eager"]
"#;

/// A device whose library does not start.
pub const BROKEN: &str = r#"
[tpu-emulated]
description = "TorchTPU over a plugin that does not know its flags"
backend = "torchtpu"
environment = "torchtpu"
device = "tpu"
emulated = true
modes = ["strict-eager", "defer-and-fuse", "compiled", "debug-eager"]
compile_backend = "tpu"
attention = "eager"
plugin = "fastatomstruct_xla_cpu/libpjrt_cpu.so"
hbm_gib = 4
slots = "cores"
[tpu-emulated.env]
XLA_FLAGS = "--no_such_flag_of_xla=1"
"#;

fn regressions(farm: &TestFarm, code: i32) -> Vec<ChangeRow> {
    serde_json::from_str(&farm.expect(code, &["query", "regressions", "--format", "json"])).unwrap()
}

#[test]
fn a_regression_is_found_and_what_cannot_be_seen_again_is_not_confirmed() {
    let _turn = one_at_a_time();
    let farm = TestFarm::new();
    let (matrix, broken) = (farm.file("watched.toml", MATRIX), farm.file("broken.toml", BROKEN));
    let run = ["run", "--matrix", text(&matrix)];
    farm.expect(0, &run);
    farm.expect(1, &[&run[..], &["--targets-file", text(&broken), "--model", "zoo/tiny-llama"]].concat());
    let output = farm.run(&["query", "regressions"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && error.contains("a complete run"), "of another selection: {error}");

    farm.expect(1, &[&run[..], &["--targets-file", text(&broken)]].concat());
    let rows = regressions(&farm, 1);
    assert_eq!(rows.len(), 2);
    for row in &rows {
        assert_eq!(row.change, Change::Regressed, "{row:?}");
        assert_eq!(row.before.as_ref().map(|side| side.outcome), Some(Outcome::Pass));
        assert_eq!((row.confirmed, row.environment_changes.len()), (None, 0), "{row:?}");
    }

    // The targets that come with the program are sound: both environments, which are one here, pass.
    let confirm = ["confirm", "--matrix", text(&matrix), "--tries", "2", "--model", "zoo/tiny-llama", "--format", "json"];
    let tried: Vec<serde_json::Value> = serde_json::from_str(&farm.expect(0, &confirm)).unwrap();
    assert_eq!(tried.len(), 1);
    assert_eq!(tried[0]["before_outcomes"], serde_json::json!(["pass", "pass"]));
    assert_eq!((&tried[0]["after_outcomes"], &tried[0]["confirmed"]), (&tried[0]["before_outcomes"], &false.into()));
    let rows = regressions(&farm, 1);
    let of_llama = rows.iter().find(|row| row.model.as_str() == "zoo/tiny-llama").unwrap();
    assert_eq!(of_llama.confirmed, Some(false));
    let only = ["query", "regressions", "--model", "zoo/tiny-llama"];
    farm.expect(0, &only);
}
