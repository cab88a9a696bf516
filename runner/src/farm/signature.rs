//! The masked message that groups the same failure across models.

use std::sync::LazyLock;

use modelfarm_matrix::case::Case;
use regex::Regex;

/// Grows when the same message gets another signature: groups of different versions are not compared.
pub const VERSION: u32 = 2;

const MAX_CHARACTERS: usize = 160;
/// A shorter name is a word that may stand in any message.
const MIN_NAME: usize = 3;

#[allow(clippy::unwrap_used, reason = "constant patterns, compiled by a test")]
static MASKS: LazyLock<Vec<(Regex, &'static str)>> = LazyLock::new(|| {
    [
        (r"0x[0-9a-fA-F]+", "<address>"),
        (r"\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F-]{22}\b", "<uuid>"),
        (r"\b[0-9a-f]{16,64}\b", "<hash>"),
        (r"(?:/[\w.+@-]+){2,}", "<path>"),
        // A module or parameter by its place in the model: `layers.0.self_attn.q_proj`.
        (r"\b[A-Za-z_]\w*(?:\.\w+)*\.\d+(?:\.[A-Za-z_]\w*)*\b", "<module>"),
        (r"\b\d+(?:\.\d+)?(?:e[+-]?\d+)?\b", "<n>"),
        // Names that a tracer numbers: `add_12`, `getitem_3`, `buf7`.
        (r"\b([A-Za-z_]+?)_?\d+\b", "${1}<n>"),
        (r"<n>(?:\s*[,x×]\s*<n>)+,?", "<n>"),
        (r"\s+", " "),
    ]
    .into_iter()
    .map(|(pattern, mask)| (Regex::new(pattern).unwrap(), mask))
    .collect()
});

#[allow(clippy::unwrap_used, reason = "a constant pattern, compiled by a test")]
static HEAD: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?:For[A-Z]\w*|LMHeadModel|DoubleHeadsModel|Model|Encoder|Decoder|Backbone)$").unwrap());

/// The names that belong to one model alone and would keep the same failure of two models apart.
#[derive(Debug, Clone)]
pub struct Names {
    masks: Vec<(String, &'static str)>,
}

impl Names {
    /// Those of a case's model, its class and its architecture.
    pub fn of(case: &Case, architecture: &str) -> Self {
        let family = HEAD.replace(&case.class, "").into_owned();
        let masks = [
            (case.model.to_string(), "<model>"),
            (case.class.clone(), "<class>"),
            (family, "<Architecture>"),
            (architecture.to_owned(), "<architecture>"),
        ];
        Self { masks: masks.into_iter().filter(|(name, _)| name.chars().count() >= MIN_NAME).collect() }
    }

    #[cfg(test)]
    fn none() -> Self {
        Self { masks: Vec::new() }
    }
}

/// Masks what differs from model to model in a message: names, addresses, hashes, paths, places, numbers. Its first line
/// counts, and the next one too where the first only announces it ("... raised:").
pub fn signature(message: &str, names: &Names) -> Option<String> {
    let mut lines = message.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next()?;
    let line = match lines.next().filter(|_| first.ends_with(':')) {
        Some(next) => format!("{first} {next}"),
        None => first.to_owned(),
    };
    // A hostile message may be one line of a megabyte.
    let mut text: String = line.chars().take(4 * MAX_CHARACTERS).filter(|c| !c.is_control()).collect();
    for (name, mask) in &names.masks {
        text = masked(&text, name, mask);
    }
    for (pattern, mask) in MASKS.iter() {
        text = pattern.replace_all(&text, *mask).into_owned();
    }
    Some(text.trim().chars().take(MAX_CHARACTERS).collect())
}

/// Masks a name where it stands as a word, or begins one in camel case: `led` is no part of `Failed`.
fn masked(text: &str, name: &str, mask: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(name) {
        let (before, after) = (&rest[..at], &rest[at + name.len()..]);
        let before_it = before.chars().next_back().or_else(|| out.chars().next_back());
        let begins = !before_it.is_some_and(char::is_alphanumeric);
        let ends = !after.chars().next().is_some_and(|next| next.is_lowercase() || next.is_numeric());
        out.push_str(before);
        out.push_str(if begins && ends { mask } else { name });
        rest = after;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_name_is_masked_as_a_word_only() {
        let led = |text: &str| masked(text, "led", "<architecture>");
        assert_eq!(
            led("BackendCompilerFailed: called led.modeling_led"),
            "BackendCompilerFailed: called <architecture>.modeling_<architecture>"
        );
        assert_eq!(led("ledled led2 ledLed"), "ledled led2 <architecture>Led");
        assert_eq!(masked("OPTAttention of OPTimal", "OPT", "<Architecture>"), "<Architecture>Attention of OPTimal");
    }

    #[test]
    fn the_same_failure_has_the_same_signature() {
        let signature = |message: &str| signature(message, &Names::none());
        let one = signature("RuntimeError: shape [2, 16, 32] at 0x7ffd01 in /home/a/model.py:12\nmore").unwrap();
        let two = signature("\nRuntimeError: shape [4, 8] at 0x55aa in /srv/b/c/model.py:7").unwrap();
        assert_eq!(one, two);
        assert_eq!(one, "RuntimeError: shape [<n>] at <address> in <path>:<n>");
        assert_eq!(signature(" \n "), None);
        assert_eq!(
            signature("Failed: backend raised:\n  TypeError: no\nmore").unwrap(),
            "Failed: backend raised: TypeError: no"
        );
        let place = |text: &str| signature(text).unwrap();
        assert_eq!(place("leaf layers.0.attn.weight differs"), place("leaf encoder.block.11.mlp differs"));
        assert_eq!(place("output of add_12 has size (2, 3)"), "output of add<n> has size (<n>)");
        assert_eq!(place("torch._dynamo.exc.Unsupported: call"), "torch._dynamo.exc.Unsupported: call", "no module of a model");
    }

    #[test]
    fn a_models_own_names_do_not_keep_a_failure_apart() {
        let of = |model: &str, class: &str, architecture: &str| {
            let canonical =
                format!("v1/{model}/{class}/transformers/real/forward/default/float32/highest/eager/tpu-emulated/compiled");
            let case: Case = canonical.parse().unwrap();
            let names = Names::of(&case, architecture);
            let family = class.split("For").next().unwrap();
            signature(&format!("{family}Attention of {class} in {model} ({architecture}) has no view"), &names).unwrap()
        };
        let llama = of("zoo/tiny-llama", "LlamaForCausalLM", "llama");
        assert_eq!(llama, of("zoo/tiny-qwen3", "Qwen3ForCausalLM", "qwen3"));
        assert_eq!(llama, "<Architecture>Attention of <class> in <model> (<architecture>) has no view");
    }

    proptest! {
        #[test]
        fn a_signature_is_one_short_line(message in "\\PC{0,400}") {
            if let Some(signature) = signature(&message, &Names::none()) {
                prop_assert!(signature.chars().count() <= MAX_CHARACTERS);
                prop_assert!(!signature.contains('\n'));
            }
        }
    }
}
