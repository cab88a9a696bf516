//! XLA options that are put over those of every compilation on a CPU.
//!
//! `XLA_FLAGS` is read by each copy of XLA in the process, the framework's and the plugin's, and each ends the process at a flag
//! that it does not know. The framework sends all its options along with a program, so that the plugin's own are never seen.
//! What stands in the compile options' overrides is applied last, by the copy that compiles.

use std::sync::Mutex;

use crate::errors::lock;

/// `name=value` words, by the names of XLA's debug options.
pub const VARIABLE: &str = "MODELFARM_PJRT_XLA_OPTIONS";

/// `CompileOptionsProto.env_option_overrides`, a map to `OptionOverrideProto`.
const OVERRIDES: u64 = 7;
/// The fields of `OptionOverrideProto`.
const TEXT: u64 = 1;
const BOOL: u64 = 2;
const INTEGER: u64 = 3;

/// The overrides as fields that can be put behind a message.
static FIELDS: Mutex<Vec<u8>> = Mutex::new(Vec::new());

/// Reads the options from the environment.
pub fn read() -> Result<(), String> {
    let fields = match std::env::var(VARIABLE) {
        Err(_) => Vec::new(),
        Ok(text) => fields(&text).map_err(|word| {
            format!(
                "{VARIABLE} has the word '{word}', expected name=value with the name of one of XLA's debug options, such as \
                 xla_cpu_parallel_codegen_split_count=1. Correct it, or leave it unset"
            )
        })?,
    };
    *lock(&FIELDS) = fields;
    Ok(())
}

/// These compile options with the overrides; `None` where there are none.
pub fn added_to(options: &[u8]) -> Option<Vec<u8>> {
    let fields = lock(&FIELDS);
    // Messages of one type put one after the other are one message; of a map's entries the last one counts.
    (!fields.is_empty()).then(|| [options, &fields].concat())
}

/// The fields for `name=value` words, or the first word that is none.
fn fields(text: &str) -> Result<Vec<u8>, &str> {
    let mut fields = Vec::new();
    for word in text.split_whitespace() {
        let (name, value) = word.split_once('=').filter(|(name, value)| !name.is_empty() && !value.is_empty()).ok_or(word)?;
        let value = match (value, value.parse::<u32>()) {
            ("true" | "false", _) => number(BOOL, u64::from(value == "true")),
            (_, Ok(integer)) => number(INTEGER, integer.into()),
            _ => message(TEXT, value.as_bytes()),
        };
        let entry = [message(1, name.as_bytes()), message(2, &value)].concat();
        fields.extend(message(OVERRIDES, &entry));
    }
    Ok(fields)
}

fn message(field: u64, content: &[u8]) -> Vec<u8> {
    [varint(field << 3 | 2), varint(content.len() as u64), content.to_vec()].concat()
}

fn number(field: u64, value: u64) -> Vec<u8> {
    [varint(field << 3), varint(value)].concat()
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_value_has_its_field() {
        assert_eq!(fields("a=true"), Ok(b"\x3a\x07\x0a\x01a\x12\x02\x10\x01".to_vec()));
        assert_eq!(fields("a=300"), Ok(b"\x3a\x08\x0a\x01a\x12\x03\x18\xac\x02".to_vec()));
        assert_eq!(
            fields(" a=AVX2  b=false "),
            Ok(b"\x3a\x0b\x0a\x01a\x12\x06\x0a\x04AVX2\x3a\x07\x0a\x01b\x12\x02\x10\x00".to_vec())
        );
        let long = format!("{}=1", "n".repeat(200));
        let long_fields = fields(&long).expect("an option");
        assert_eq!(long_fields[..6], [0x3a, 0xcf, 0x01, 0x0a, 0xc8, 0x01]);
        assert_eq!(fields(""), Ok(Vec::new()));
    }

    #[test]
    fn a_word_that_is_no_option_is_named() {
        for word in ["xla_flag", "=1", "a=", "--a"] {
            assert_eq!(fields(&format!("b=1 {word}")), Err(word));
        }
    }
}
