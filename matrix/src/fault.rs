//! Whose problem an outcome is: a pure function of outcome, stage and evidence.
//!
//! The table stands in `docs/faults.md`; `every_row_of_the_documented_table` keeps both together.

use serde::{Deserialize, Serialize};

use crate::outcome::{Outcome, Stage, Standing};

crate::words! {
    /// Whose problem an outcome is.
    pub enum Fault ("fault") {
        /// The software under test.
        Backend => "backend",
        /// The emulated device lacks something that a real one has.
        Emulator => "emulator",
        /// The model's files or code.
        Model => "model",
        /// The CPU reference.
        Reference => "reference",
        /// The library or environment that drives the model.
        Harness => "harness",
        /// The farm, its host or the network.
        Infra => "infra",
    }
}

/// What else is known when a fault is assigned.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// The target is the control itself.
    pub is_control: bool,
    /// What the control target observed for the same question in the nearest mode, where it ran.
    pub control: Option<Outcome>,
    /// What the emulated device lacks, as seen in the programs it refused (custom call targets and composites).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub emulator_lacks: Vec<String>,
    /// The model's own code kept parameters or outputs on the CPU, although the backend moved what it was asked to.
    #[serde(default)]
    pub kept_on_cpu: bool,
}

/// Whose problem it is; none where there is no problem.
pub fn fault(outcome: Outcome, stage: Stage, evidence: &Evidence) -> Option<Fault> {
    use Outcome::*;
    match outcome {
        Pass | Skipped => return None,
        Nondeterministic | InconclusiveTie | LoadError | Refused | Gated | NotFound => return Some(Fault::Model),
        ReferenceError => return Some(Fault::Reference),
        MissingDependency => return Some(Fault::Harness),
        DownloadError | HostOom | InfraError => return Some(Fault::Infra),
        Mismatch | NonFinite | ShapeMismatch | UnsupportedOp | CompileError | RuntimeError | Crash | DeviceOom | Timeout
        | CpuFallback => {}
    }
    if !stage.reached_target() {
        return Some(Fault::Infra);
    }
    // What the control cannot do either says nothing about the backend.
    let control_fails = evidence.control.is_some_and(|outcome| outcome.standing() == Standing::Fail);
    if evidence.is_control || control_fails || evidence.kept_on_cpu {
        return Some(Fault::Model);
    }
    let may_be_the_emulator = matches!(outcome, UnsupportedOp | CompileError | RuntimeError);
    if may_be_the_emulator && !evidence.emulator_lacks.is_empty() {
        return Some(Fault::Emulator);
    }
    Some(Fault::Backend)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_documented_table() {
        let document = include_str!("../../docs/faults.md");
        let mut rows = 0;
        for line in document.lines().filter(|line| line.starts_with("| `")) {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('`')).collect();
            let [outcomes, evidence, expected, _why] = cells[..] else { panic!("row with {} cells: {line}", cells.len()) };
            let evidence = match evidence {
                "any" | "none of the rows above" => Evidence::default(),
                "the target is the control" => Evidence { is_control: true, ..Evidence::default() },
                "the control fails too" => Evidence { control: Some(Outcome::RuntimeError), ..Evidence::default() },
                "the model keeps something on the CPU" => Evidence { kept_on_cpu: true, ..Evidence::default() },
                "the emulated device lacks what the program needs" => {
                    Evidence { emulator_lacks: vec!["tpu_custom_call".into()], ..Evidence::default() }
                }
                other => panic!("unknown evidence {other:?}"),
            };
            for outcome in outcomes.split("` `") {
                let outcome: Outcome = outcome.parse().unwrap();
                let found = fault(outcome, Stage::Execute, &evidence).map_or("-", Fault::as_str);
                assert_eq!(found, expected, "{line}");
                rows += 1;
            }
        }
        assert!(rows > Outcome::ALL.len(), "the table covers {rows} outcomes");
    }

    #[test]
    fn the_backend_is_never_blamed_before_place() {
        for &outcome in Outcome::ALL {
            for stage in [Stage::Resolve, Stage::Download, Stage::Load, Stage::Reference] {
                assert_ne!(fault(outcome, stage, &Evidence::default()), Some(Fault::Backend));
            }
        }
    }
}
