//! The models of the history, their cases, and what befalls each.

use std::collections::BTreeSet;

use modelfarm_matrix::axes::{Dtype, Harness, Mode, Precision, Weights, Workload};
use modelfarm_matrix::case::Case;
use modelfarm_matrix::model::{Model, ModelSource};

use crate::calendar::{Night, SHARDS};
use crate::pattern::{Pattern, Patterns};
use crate::random::Random;

pub const TARGET: &str = "tpu-emulated";
pub const MODES: [Mode; 3] = [Mode::StrictEager, Mode::DeferAndFuse, Mode::Compiled];
/// Architectures beside llama, most models first.
const ARCHITECTURES: [&str; 40] = [
    "bert",
    "qwen2",
    "gpt2",
    "t5",
    "mistral",
    "roberta",
    "gemma2",
    "phi3",
    "vit",
    "whisper",
    "clip",
    "qwen3",
    "opt",
    "bart",
    "deberta-v2",
    "distilbert",
    "falcon",
    "gpt-neox",
    "mixtral",
    "mamba",
    "bloom",
    "olmo2",
    "granite",
    "cohere",
    "starcoder2",
    "swin",
    "dinov2",
    "wav2vec2",
    "convnext",
    "resnet",
    "segformer",
    "detr",
    "blip",
    "siglip",
    "electra",
    "albert",
    "xlm-roberta",
    "mpnet",
    "longformer",
    "pegasus",
];

/// A model over the nights.
pub struct HistoryModel {
    pub name: String,
    pub architecture: String,
    class: String,
    downloads: u64,
    /// The shard that takes it, of 0 to below `SHARDS`.
    pub shard: usize,
    /// The nights on which it is there.
    pub nights: std::ops::Range<usize>,
    /// The night of each revision, and the revision.
    pub revisions: Vec<(usize, String)>,
    pub inputs_hash: String,
    pub cases: Vec<HistoryCase>,
}

/// A case over the nights.
pub struct HistoryCase {
    pub case: Case,
    pub pattern: Pattern,
}

impl HistoryModel {
    /// The commit that was tested on a night.
    pub fn revision(&self, night: usize) -> &str {
        let known = self.revisions.iter().take_while(|(since, _)| *since <= night).last();
        known.map_or("", |(_, revision)| revision)
    }

    /// What the Hub told of it on a night.
    pub fn on(&self, night: usize) -> Model {
        Model {
            id: self.cases[0].case.model.clone(),
            revision: Some(self.revision(night).to_owned()),
            source: ModelSource::Hub,
            architecture: self.architecture.clone(),
            class: self.class.clone(),
            harness: Harness::Transformers,
            tags: vec!["history".into()],
            downloads: self.downloads,
        }
    }
}

/// The models: two of a hundred are llama, at least one.
pub fn models(seed: u64, count: usize, nights: &[Night]) -> Vec<HistoryModel> {
    let llamas = (count / 50).max(1);
    (0..count).map(|number| model(seed, number, if number < llamas { Some("llama") } else { None }, nights)).collect()
}

fn model(seed: u64, number: usize, architecture: Option<&str>, nights: &[Night]) -> HistoryModel {
    let mut random = Random::of(seed, &format!("model {number}"));
    // The square favours the first.
    let favoured = (random.share().powi(2) * ARCHITECTURES.len() as f64) as usize;
    let architecture = architecture.unwrap_or(ARCHITECTURES[favoured]);
    let name = format!("history/{architecture}-{number:05}");
    let shard = random.below(SHARDS);
    let lives = lifetime(&mut random, shard, nights);
    let revisions: BTreeSet<usize> = (1..nights.len()).filter(|_| random.happens(0.004)).collect();
    let mut patterns = Patterns { nights, shard, revisions, turned: BTreeSet::new() };
    let class = class_of(architecture);
    let is_steady = lives != (0..nights.len());
    let cases = MODES.map(|mode| {
        let pattern = match is_steady {
            // What comes or goes tells one thing at a time.
            true if random.happens(0.3) => Pattern::Fails,
            true => Pattern::Passes,
            false => patterns.draw(&mut random),
        };
        HistoryCase { case: case(&name, &class, mode), pattern }
    });
    let revisions = std::iter::once(0).chain(patterns.revisions).map(|night| (night, random.hex(40))).collect();
    HistoryModel {
        downloads: (1000.0 / (0.001 + random.share().powi(3))) as u64,
        name,
        architecture: architecture.to_owned(),
        class,
        shard,
        nights: lives,
        revisions,
        inputs_hash: random.hex(64),
        cases: cases.into(),
    }
}

/// Three of a hundred models come later or go earlier, on a night on which their shard is there.
fn lifetime(random: &mut Random, shard: usize, nights: &[Night]) -> std::ops::Range<usize> {
    let all = 0..nights.len();
    let inner: Vec<usize> = (2..nights.len()).filter(|night| nights[*night].missing_shard != Some(shard)).collect();
    if inner.is_empty() {
        return all;
    }
    let night = *random.one_of(&inner);
    match random.share() {
        ..0.015 => 0..night,
        ..0.030 => night..nights.len(),
        _ => all,
    }
}

fn class_of(architecture: &str) -> String {
    let words = architecture.split('-').map(|word| word[..1].to_uppercase() + &word[1..]);
    format!("{}Model", words.collect::<String>())
}

fn case(model: &str, class: &str, mode: Mode) -> Case {
    Case {
        model: model.parse().unwrap_or_else(|error| unreachable!("{error}")),
        class: class.to_owned(),
        harness: Harness::Transformers,
        weights: Weights::Real,
        workload: Workload::Forward,
        inputs: "default".into(),
        dtype: Dtype::Float32,
        precision: Precision::Highest,
        attention: "eager".into(),
        target: TARGET.into(),
        mode,
    }
}
