//! What a program's bytes tell without parsing them: which composites and custom calls it names.
//!
//! A program is MLIR bytecode (or text). The bytecode keeps names as plain bytes in its string section, so a search finds
//! them; it cannot tell a name in use from one in an attribute, which is why it only ever decides to look closer.

/// Composites that XLA:CPU refuses or aborts on. Each has a decomposition in the program, which it can compile.
pub const UNSUPPORTED_COMPOSITES: [&str; 2] = ["chlo.scan", "chlo.ragged_dot"];

/// At most so many names are reported for one program.
const MAX_NAMES: usize = 32;

/// The composites in a program that must be rewritten for XLA:CPU.
pub fn unsupported_composites(program: &[u8]) -> Vec<&'static str> {
    UNSUPPORTED_COMPOSITES.into_iter().filter(|name| contains_name(program, name.as_bytes())).collect()
}

/// Names of a program that look like custom call targets: whole identifiers that end in `_custom_call`, or that XLA and
/// TorchTPU are known to call.
pub fn custom_calls(program: &[u8]) -> Vec<String> {
    const KNOWN: [&str; 6] =
        ["Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "annotate_device_placement", "LayoutConstraint", "TopK"];
    // The operations' own names, in the forms that StableHLO's versions write.
    const OPERATIONS: [&str; 2] = ["stablehlo.custom_call", "custom_call"];
    names(program, |name| (name.ends_with("_custom_call") && !OPERATIONS.contains(&name)) || KNOWN.contains(&name))
}

/// The custom call target that a compiler's message names, in the two forms that XLA has for a target without a handler.
pub fn custom_call_in_message(message: &str) -> Option<String> {
    let after = ["handler registered for ", "custom call to "]
        .iter()
        .find_map(|marker| message.split_once(marker).map(|(_, after)| after))?;
    let target: String = after.chars().take_while(|c| c.is_ascii() && is_name_byte(*c as u8)).take(100).collect();
    (!target.is_empty()).then_some(target)
}

/// Names of composites in a program: dotted names of the dialects whose operations travel as composites.
pub fn composites(program: &[u8]) -> Vec<String> {
    names(program, |name| name.starts_with("chlo.") || name.starts_with("tpu.") || name.starts_with("composite."))
}

fn names(program: &[u8], wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for word in program.split(|byte| !is_name_byte(*byte)) {
        if found.len() == MAX_NAMES {
            break;
        }
        let Ok(word) = std::str::from_utf8(word) else { continue };
        if word.len() <= 100 && wanted(word) && !found.iter().any(|known| known == word) {
            found.push(word.to_owned());
        }
    }
    found
}

/// Finds a name that is not part of a longer one.
fn contains_name(program: &[u8], name: &[u8]) -> bool {
    program.windows(name.len()).enumerate().any(|(start, window)| {
        window == name
            && (start == 0 || !is_name_byte(program[start - 1]))
            && program.get(start + name.len()).is_none_or(|next| !is_name_byte(*next))
    })
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compilers_message_names_the_target() {
        let target = |message| custom_call_in_message(message);
        assert_eq!(
            target("No FFI handler registered for LuDecomposition on a platform Host").as_deref(),
            Some("LuDecomposition")
        );
        assert_eq!(
            target("No registered implementation for untyped custom call to tpu_custom_call for Host").as_deref(),
            Some("tpu_custom_call")
        );
        assert_eq!(target("out of memory"), None);
    }

    #[test]
    fn names_are_found_whole() {
        assert_eq!(unsupported_composites(b"ML\xefR\0chlo.scan\0chlo.top_k\0"), ["chlo.scan"]);
        assert_eq!(unsupported_composites(b"chlo.ragged_dot"), ["chlo.ragged_dot"]);
        assert!(unsupported_composites(b"chlo.scanner my_chlo.scan chlo.sca").is_empty());
    }

    #[test]
    fn custom_calls_and_composites_are_listed_once_and_bounded() {
        let program = b"custom_call_v1\0stablehlo.custom_call\0tpu_custom_call\0tpu_custom_call\0Sharding\0chlo.erf\0";
        assert_eq!(custom_calls(program), ["tpu_custom_call", "Sharding"]);
        assert_eq!(composites(program), ["chlo.erf"]);
        let many: Vec<u8> = (0..99).flat_map(|n| format!("x{n}_custom_call\0").into_bytes()).collect();
        assert_eq!(custom_calls(&many).len(), MAX_NAMES);
    }
}
