//! References that nothing can be judged by.

use safetensors::Dtype as Stored;

use modelfarm_matrix::outcome::Outcome;

use super::{Bench, Leaves};
use crate::judge::{JudgeFiles, Policy, Unhealthy, judge, reference_health};

fn health(bench: &Bench, repeat: &Leaves) -> Option<Unhealthy> {
    let folder = tempfile::tempdir().unwrap();
    let reference = bench.reference.write(folder.path(), "reference");
    let yardstick = bench.yardstick.write(folder.path(), "yardstick");
    let repeat = repeat.write(folder.path(), "repeat");
    reference_health(&reference, &repeat, &yardstick, None, &bench.question, &Policy::current()).unwrap()
}

fn outcome(bench: &Bench, change: impl FnOnce(&mut Leaves)) -> Option<Outcome> {
    let mut repeat = bench.reference.clone();
    change(&mut repeat);
    health(bench, &repeat).map(|unhealthy| unhealthy.outcome)
}

#[test]
fn a_reference_that_repeats_itself_is_healthy() {
    for bench in [Bench::float32(), Bench::bfloat16()] {
        assert_eq!(outcome(&bench, |_| {}), None);
        // The last bits of a float64 depend on how many threads share a sum.
        assert_eq!(outcome(&bench, |repeat| repeat.map(|value| value * (1.0 + 1e-15))), None);
    }
}

#[test]
fn a_reference_that_differs_is_nondeterministic() {
    let bench = Bench::float32();
    let nondeterministic = Some(Outcome::Nondeterministic);
    assert_eq!(outcome(&bench, |repeat| repeat.get("logits").values[5] += 0.1), nondeterministic);
    assert_eq!(outcome(&bench, |repeat| repeat.get("logits").values[5] = f64::NAN), nondeterministic);
    assert_eq!(outcome(&bench, |repeat| repeat.get("logits").shape = vec![32, 128]), nondeterministic);
    assert_eq!(outcome(&bench, |repeat| drop(repeat.0.remove("logits"))), nondeterministic);
    assert_eq!(outcome(&bench, |repeat| repeat.map(|value| value * 1.0001)), nondeterministic);
}

#[test]
fn a_reference_that_tells_nothing_is_an_error() {
    let mut bench = Bench::float32();
    for leaves in [&mut bench.reference, &mut bench.yardstick] {
        leaves.map(|_| f64::NAN);
    }
    assert_eq!(outcome(&bench, |_| {}), Some(Outcome::ReferenceError));

    let mut bench = Bench::float32();
    bench.yardstick.get("logits").dtype = Stored::I64;
    assert_eq!(outcome(&bench, |_| {}), Some(Outcome::ReferenceError));
}

#[test]
fn a_judgement_with_a_repetition_asks_for_the_references_health_first() {
    let bench = Bench::float32();
    let folder = tempfile::tempdir().unwrap();
    let mut repeat = bench.reference.clone();
    repeat.get("logits").values[0] += 1.0;
    let files = JudgeFiles {
        reference: bench.reference.write(folder.path(), "reference"),
        yardstick: bench.yardstick.write(folder.path(), "yardstick"),
        repeat: Some(repeat.write(folder.path(), "repeat")),
        outputs: bench.device.write(folder.path(), "outputs"),
        padding: None,
    };
    let judgement = judge(&files, &bench.question, &Policy::current()).unwrap();
    assert_eq!(judgement.outcome, Outcome::Nondeterministic);
}
