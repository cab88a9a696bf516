//! The tries of a case on a night, as a farm records them.

use modelfarm_matrix::attempt::{Attempt, Metrics};
use modelfarm_matrix::expectation::Verdict;
use modelfarm_matrix::fault::{Evidence, Fault};
use modelfarm_matrix::leaf::{LeafKind, LeafStatistics};
use modelfarm_matrix::outcome::{Check, Outcome, Stage, Standing};
use modelfarm_reports::store::PastTry;
use serde_json::json;

use crate::calendar::Night;
use crate::cases::{HistoryCase, HistoryModel};
use crate::pattern::Pattern;
use crate::random::Random;

/// Tries that follow a failure.
const RETRIES: u32 = 3;
const MESSAGE_BYTES: usize = 300;

/// What a case does on a night.
pub struct Evening<'a> {
    pub seed: u64,
    pub number: usize,
    pub night: &'a Night,
    pub model: &'a HistoryModel,
    pub case: &'a HistoryCase,
}

impl Evening<'_> {
    /// Whether the farm had trouble with the case. Never on a night that decides what the case is.
    pub fn is_silent(&self) -> bool {
        let decides = |night: usize| {
            night == self.model.nights.start || self.case.pattern.turns().iter().any(|(turn, _)| turn.night == night)
        };
        let share = match self.case.pattern {
            Pattern::IsOftenSilent(share) => share.max(self.night.silent_share),
            _ => self.night.silent_share,
        };
        !decides(self.number) && self.random("silence").happens(share)
    }

    /// The tries, the first of which begins at this time.
    pub fn tries(&self, mut started_at: i64) -> Vec<PastTry> {
        let host = self.night.host(self.model.shard);
        let mut random = self.random("tries");
        if self.is_silent() {
            return vec![self.attempt(1, Outcome::InfraError, started_at, &host, &mut random, false)];
        }
        let failing = self.case.pattern.failing(self.number, &host);
        let mut tries = Vec::new();
        for attempt in 1..=1 + RETRIES {
            let fails = random.happens(failing);
            let outcome = if fails { self.failure() } else { Outcome::Pass };
            let tried = self.attempt(attempt, outcome, started_at, &host, &mut random, fails && attempt <= RETRIES);
            started_at += tried.attempt.duration_ms + 5;
            tries.push(tried);
            if !fails {
                break;
            }
        }
        tries
    }

    fn random(&self, what: &str) -> Random {
        Random::of(self.seed, &format!("{what} of {} on night {}", self.case.case, self.number))
    }

    /// A case always fails in the same way.
    fn failure(&self) -> Outcome {
        const FAILURES: [Outcome; 6] = [
            Outcome::Mismatch,
            Outcome::RuntimeError,
            Outcome::CompileError,
            Outcome::Crash,
            Outcome::NonFinite,
            Outcome::UnsupportedOp,
        ];
        *Random::of(self.seed, &format!("failure of {}", self.case.case)).one_of(&FAILURES)
    }

    fn attempt(
        &self,
        attempt: u32,
        outcome: Outcome,
        started_at: i64,
        host: &str,
        random: &mut Random,
        is_retried: bool,
    ) -> PastTry {
        let (fault, verdict) = match outcome.standing() {
            Standing::Pass => (None, Verdict::ExpectedPass),
            Standing::Fail => (Some(Fault::Backend), Verdict::UnexpectedFail),
            Standing::Inconclusive => (Some(Fault::Infra), Verdict::UnexpectedInconclusive),
        };
        let architecture = &self.model.architecture;
        let signature =
            (outcome != Outcome::Pass).then(|| format!("{outcome}: {architecture}.layer.<N>.forward ended at <ADDRESS>"));
        let mut message = format!("{}: {outcome} on {host}: ", self.case.case.model);
        message.push_str(&random.hex(MESSAGE_BYTES - message.len().min(MESSAGE_BYTES)));
        let attempt = Attempt {
            case: self.case.case.clone(),
            attempt,
            architecture: architecture.clone(),
            revision: Some(self.model.revision(self.number).to_owned()),
            check: Check::Execute,
            outcome,
            stage: stage(outcome),
            fault,
            evidence: Evidence::default(),
            verdict,
            expectation_reason: None,
            signature,
            message: Some(message),
            traceback: None,
            output_tail: Some(format!("loading {}\nplacing {} tensors\n", self.model.name, random.below(500))),
            started_at,
            duration_ms: 200 + random.below(2000) as i64,
            farm_overhead_ms: Some(20.0 + 40.0 * random.share()),
            host: host.to_owned(),
            environment_id: Some(self.night.environment.environment_id.clone()),
            inputs_hash: Some(self.model.inputs_hash.clone()),
            reference_key: Some(self.model.inputs_hash.chars().rev().collect()),
            metrics: Metrics {
                rmse_ratio: Some(random.share()),
                rel_l2: Some(1e-5 * random.share()),
                max_abs: Some(1e-4 * random.share()),
                pcc: Some(1.0 - 1e-9 * random.share()),
                cosine: Some(1.0 - 1e-9 * random.share()),
                gain_error: Some(1e-6 * random.share()),
                top1_agreement: Some(1.0),
                compile_count: Some(1 + random.below(40) as i64),
                compile_ms: Some(500.0 * random.share()),
                execute_count: Some(1 + random.below(400) as i64),
                h2d_bytes: Some(random.below(100_000_000) as i64),
                d2h_bytes: Some(random.below(1_000_000) as i64),
                ..Metrics::default()
            },
            leaves: ["logits", "hidden_states.0", "hidden_states.1"].map(|name| leaf(name, random)).into(),
            facts: json!({
                "stage_ms": {"load": random.below(900), "place": random.below(90), "execute": random.below(500)},
                "parameter_devices": ["tpu:0"],
                "policy_version": 1,
            }),
        };
        PastTry { attempt, is_retried }
    }
}

fn stage(outcome: Outcome) -> Stage {
    match outcome {
        Outcome::CompileError | Outcome::UnsupportedOp => Stage::Compile,
        Outcome::RuntimeError | Outcome::Crash => Stage::Execute,
        Outcome::InfraError => Stage::Load,
        _ => Stage::Compare,
    }
}

fn leaf(name: &str, random: &mut Random) -> LeafStatistics {
    LeafStatistics {
        name: name.into(),
        shape: vec![2, 16, 1 + random.below(50_000) as u64],
        dtype: "F32".into(),
        kind: LeafKind::Distance,
        count: random.below(1_000_000) as u64,
        left_out: 0,
        sum_ref_squared: 1e6 * random.share(),
        sum_device_squared: 1e6 * random.share(),
        sum_ref: 1e3 * random.share(),
        sum_device: 1e3 * random.share(),
        sum_error_squared: 1e-9 * random.share(),
        sum_device_ref: 1e6 * random.share(),
        max_abs_error: 1e-5 * random.share(),
        nonfinite_mismatches: 0,
        sum_yardstick_error_squared: 1e-9 * random.share(),
        yardstick_max_abs_error: 1e-5 * random.share(),
        yardstick_gain_error: 1e-7 * random.share(),
        yardstick_mean_error: 1e-8 * random.share(),
        top1_agreement: Some(random.share()),
        kl_divergence: Some(1e-6 * random.share()),
        unequal: 0,
    }
}
