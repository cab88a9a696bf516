//! The part of serialised compile options that says whether two compilations are the same.
//!
//! The options are a protocol buffer that holds a map (XLA's debug options), and a map is written in another order each time. So
//! that message's fields are sorted; everything else stays as it is.

/// `CompileOptionsProto.executable_build_options` and `ExecutableBuildOptionsProto.debug_options`, both field 3.
const DEBUG_OPTIONS: [u64; 2] = [3, 3];

/// The options in an order of their own; bytes that are no such message come back unchanged.
pub fn canonical(options: &[u8]) -> Vec<u8> {
    rewritten(options, &DEBUG_OPTIONS).unwrap_or_else(|| options.to_vec())
}

/// `message` with the fields of the message at `path` sorted; `None` where it does not parse.
fn rewritten(message: &[u8], path: &[u64]) -> Option<Vec<u8>> {
    let mut fields = Vec::new();
    let mut rest = message;
    while !rest.is_empty() {
        let (field, after) = next_field(rest)?;
        fields.push(match path {
            [wanted, below @ ..] if field.number == *wanted => rewritten(field.content?, below)?,
            _ => rest[..rest.len() - after.len()].to_vec(),
        });
        rest = after;
    }
    if path.is_empty() {
        fields.sort();
    }
    // Each piece with its length, so that no two lists of fields look alike.
    Some(fields.iter().flat_map(|field| (field.len() as u64).to_le_bytes().into_iter().chain(field.iter().copied())).collect())
}

struct Field<'a> {
    number: u64,
    /// What a length-delimited field holds.
    content: Option<&'a [u8]>,
}

/// The first field of a message, and what comes after it.
fn next_field(message: &[u8]) -> Option<(Field<'_>, &[u8])> {
    let (tag, rest) = varint(message)?;
    let number = tag >> 3;
    match tag & 7 {
        0 => varint(rest).map(|(_, rest)| (Field { number, content: None }, rest)),
        1 => rest.get(8..).map(|rest| (Field { number, content: None }, rest)),
        2 => {
            let (length, rest) = varint(rest)?;
            let (content, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
            Some((Field { number, content: Some(content) }, rest))
        }
        5 => rest.get(4..).map(|rest| (Field { number, content: None }, rest)),
        _ => None,
    }
}

fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0;
    for (position, byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f) << (7 * position);
        if byte & 0x80 == 0 {
            return Some((value, &bytes[position + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(number: u8, content: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, u8::try_from(content.len()).expect("short")], content].concat()
    }

    fn options(map: &[&str]) -> Vec<u8> {
        let entries: Vec<u8> = map.iter().flat_map(|entry| message(9, entry.as_bytes())).collect();
        let debug = [&[8, 1, 0x15, 1, 2, 3, 4], entries.as_slice()].concat();
        [&[0x20, 1], message(3, &[&[8, 0x96, 1], message(3, &debug).as_slice()].concat()).as_slice(), &[0x28, 7]].concat()
    }

    #[test]
    fn the_order_of_a_map_does_not_matter_and_its_entries_do() {
        let canonical_of = |map: &[&str]| canonical(&options(map));
        assert_ne!(options(&["a=1", "b=2"]), options(&["b=2", "a=1"]));
        assert_eq!(canonical_of(&["a=1", "b=2", "c=3"]), canonical_of(&["c=3", "a=1", "b=2"]));
        assert_ne!(canonical_of(&["a=1", "b=2"]), canonical_of(&["a=1", "b=3"]));
        assert_ne!(canonical_of(&["a=1", "b=2"]), canonical_of(&["a=1"]));
        assert_ne!(canonical_of(&["a=1", "b=2"]), canonical_of(&["a=", "1b=2"]));
    }

    #[test]
    fn every_byte_that_changes_changes_the_result() {
        let given = options(&["a=1", "b=2"]);
        for position in 0..given.len() {
            let mut other = given.clone();
            other[position] ^= 0x40;
            assert_ne!(canonical(&given), canonical(&other), "byte {position}");
        }
    }

    #[test]
    fn what_is_no_message_stays() {
        for bytes in [&b""[..], b"\xff", b"\x1a\xff", b"\x0b\x00", b"not a message at all"] {
            let canonical = canonical(bytes);
            assert!(canonical == bytes || !canonical.is_empty());
        }
        assert_eq!(canonical(b"\x1a\xff"), b"\x1a\xff");
    }
}
