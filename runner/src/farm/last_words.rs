//! What a process said of its own death: the line in which a C++ library tells why it aborts.

use std::sync::LazyLock;

use regex::Regex;

/// A message of a failed check may hold a whole program.
const MOST_CHARACTERS: usize = 300;

#[allow(clippy::unwrap_used, reason = "constant patterns, compiled by a test")]
static WORDS: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    [
        // Abseil's and glog's fatal lines, without date, time and thread: `F0102 03:04:05.678 9 file.cc:10] Check failed: ...`.
        r"^F\d{4} \d\d:\d\d:[\d.]+\s+\d+ (\S+:\d+\] .+)$",
        r"^(LLVM ERROR: .+)$",
        // After "terminate called after throwing an instance of".
        r"^\s*what\(\):\s+(.+)$",
        // The C library's own.
        r"^(\S.*: Assertion .+ failed\.)$",
        r"^((?:free|malloc|realloc)\(\): .+|double free or corruption.*|corrupted .+|\*\*\* stack smashing detected.*)$",
    ]
    .into_iter()
    .map(|pattern| Regex::new(pattern).unwrap())
    .collect()
});

/// The last line of an output that tells why the process died.
///
/// It is what the process wrote, so a model can write one too; it decides nothing.
pub fn last_words(output: &str) -> Option<String> {
    let said = |line: &str| -> Option<String> {
        // A hostile line may be as long as all that is kept.
        let line: String = line.chars().take(4 * MOST_CHARACTERS).collect();
        let words = WORDS.iter().find_map(|pattern| pattern.captures(&line))?.get(1)?.as_str().trim();
        Some(words.chars().filter(|c| !c.is_control()).take(MOST_CHARACTERS).collect())
    };
    output.lines().rev().find_map(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_check_is_told_without_its_time() {
        let output = "loading\nF0000 00:00:1796107138.744994       2 compiled_mode.cc:417] Check failed: x is OK (argument: 2x2xint64)\n\
                      *** Check failure stack trace: ***\n    @     0x7f  main\nFatal Python error: Aborted\n";
        assert_eq!(last_words(output).as_deref(), Some("compiled_mode.cc:417] Check failed: x is OK (argument: 2x2xint64)"));
    }

    #[test]
    fn other_libraries_words_are_known() {
        for (line, words) in [
            ("LLVM ERROR: out of memory", "LLVM ERROR: out of memory"),
            ("terminate called after throwing an instance of 'X'\n  what():  no such device", "no such device"),
            ("python: a.c:5: f: Assertion `x > 0' failed.", "python: a.c:5: f: Assertion `x > 0' failed."),
            ("free(): invalid pointer", "free(): invalid pointer"),
        ] {
            assert_eq!(last_words(&format!("before\n{line}\nafter\n")).as_deref(), Some(words));
        }
    }

    #[test]
    fn what_tells_nothing_is_nothing_and_what_is_long_is_cut() {
        assert_eq!(last_words("Fatal Python error: Segmentation fault\n"), None);
        assert_eq!(last_words(""), None);
        let long = format!("LLVM ERROR: {}", "é".repeat(100_000));
        assert_eq!(last_words(&long).unwrap().chars().count(), MOST_CHARACTERS);
        assert_eq!(last_words("LLVM ERROR: a\u{1b}[31mb").as_deref(), Some("LLVM ERROR: a[31mb"));
    }
}
