//! What is wrong with declared expectations, as far as the cases that are known tell.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::coverage::Coverage;
use crate::date::Date;
use crate::expectation::{Declared, Expectations};
use crate::known_case::{Known, Seen};
use crate::outcome::{Outcome, Standing};
use crate::target::Targets;
use crate::word::UnknownWord;

/// What is wrong with an entry, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// Its selector names a target that does not exist.
    UnknownTarget(UnknownWord),
    /// Its selector names a model or an architecture that nobody has heard of.
    UnknownName {
        /// The key of the selector.
        key: &'static str,
        /// The name.
        found: String,
        /// The nearest name that is known, where one is near.
        nearest: Option<String>,
    },
    /// Its last day is over.
    Expired(Date),
    /// It matches no known case.
    Stale,
    /// Each case that it matches is taken by an earlier entry.
    Shadowed {
        /// The lines of those entries.
        by: Vec<usize>,
    },
    /// Some of its cases are taken by an earlier entry that declares otherwise.
    Contradicted {
        /// The line of that entry.
        by: usize,
        /// What that one declares.
        outcome: Outcome,
        /// How many cases.
        cases: usize,
        /// How many it matches.
        of: usize,
    },
    /// A failure is declared, and everything that it counts for passed in the newest complete run that asked it.
    Useless {
        /// How many cases.
        cases: usize,
    },
}

/// Something wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The line on which the entry begins, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub problem: Problem,
}

fn cases(count: usize) -> String {
    if count == 1 { "1 case".to_owned() } else { format!("{count} cases") }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::UnknownTarget(unknown) => write!(f, "{unknown}; correct the selector, or declare the target"),
            Problem::UnknownName { key, found, nearest } => {
                write!(f, "no known case has the {key} `{}`", found.escape_debug())?;
                match nearest {
                    Some(name) => write!(f, " (did you mean `{name}`?); correct or remove the name"),
                    None => f.write_str("; correct or remove the name"),
                }
            }
            Problem::Expired(last_day) => {
                write!(f, "expired on {last_day}; look at it again: remove it, or give it a later `expires`")
            }
            Problem::Stale => f.write_str("matches no known case; correct its selector, or remove the entry"),
            Problem::Shadowed { by } => {
                let lines = by.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
                write!(
                    f,
                    "never counts: the entries of line {lines} come first for every case that it matches; remove it, or "
                )?;
                f.write_str("narrow those")
            }
            Problem::Contradicted { by, outcome, cases: count, of } => {
                write!(f, "{count} of its {} go to the entry of line {by}, which declares `{outcome}`; ", cases(*of))?;
                f.write_str("narrow one of the two, so that each case has one declaration")
            }
            Problem::Useless { cases: count } => {
                let all = if *count == 1 { "the 1 case".to_owned() } else { format!("all {count} cases") };
                write!(f, "an unexpected pass: {all} that it counts for passed in the newest complete run that asked; ")?;
                f.write_str("remove the entry, as `modelfarm expect update` does")
            }
        }
    }
}

/// Everything that is wrong, by line.
pub fn check(expectations: &Expectations, known: &Known, targets: &Targets, today: Date) -> Vec<Finding> {
    let coverage = Coverage::of(expectations, &known.cases);
    let mut findings = Vec::new();
    for (entry, declared) in expectations.entries().iter().enumerate() {
        let mut found = unknown_names(declared, known, targets);
        // What is misspelt matches nothing: once is enough to say so.
        let misspelt = !found.is_empty();
        if let Some(last_day) = declared.expectation.expires.filter(|_| declared.expectation.is_expired(today)) {
            found.push(Problem::Expired(last_day));
        }
        if coverage.matched(entry).is_empty() {
            found.extend((!misspelt).then_some(Problem::Stale));
        } else {
            found.extend(taken_away(expectations, &coverage, entry));
            found.extend(useless(declared, known, &coverage, entry));
        }
        findings.extend(found.into_iter().map(|problem| Finding { line: declared.line, problem }));
    }
    findings
}

fn unknown_names(declared: &Declared, known: &Known, targets: &Targets) -> Vec<Problem> {
    let select = &declared.expectation.select;
    let mut problems: Vec<Problem> =
        select.target.iter().filter_map(|name| targets.get(name).err()).map(Problem::UnknownTarget).collect();
    for (key, named, there) in
        [("model", &select.model, &known.models), ("architecture", &select.architecture, &known.architectures)]
    {
        let is_known = |name: &str| match name.strip_suffix('*') {
            Some(prefix) => there.iter().any(|one| one.starts_with(prefix)),
            None => there.contains(name),
        };
        problems.extend(named.iter().filter(|name| !is_known(name)).map(|name| Problem::UnknownName {
            key,
            found: name.chars().take(100).collect(),
            nearest: meant(name, there),
        }));
    }
    problems
}

/// The name that a person most likely meant. Among thousands of names some is always a little like it: only a slip of the keys
/// counts.
fn meant(name: &str, known: &BTreeSet<String>) -> Option<String> {
    let slips = 1 + name.chars().count() / 6;
    let distances = known.iter().map(|one| (strsim::osa_distance(name, one), one));
    distances.filter(|(distance, _)| *distance <= slips).min().map(|(_, one)| one.clone())
}

/// What earlier entries take of the cases that an entry matches, at least one.
fn taken_away(expectations: &Expectations, coverage: &Coverage, entry: usize) -> Vec<Problem> {
    let matched = coverage.matched(entry);
    let mut takers: BTreeMap<usize, usize> = BTreeMap::new();
    for taker in matched.iter().filter_map(|case| coverage.taker(*case)).filter(|taker| *taker != entry) {
        *takers.entry(taker).or_default() += 1;
    }
    let entries = expectations.entries();
    if takers.values().sum::<usize>() == matched.len() {
        return vec![Problem::Shadowed { by: takers.into_keys().map(|taker| entries[taker].line).collect() }];
    }
    let this = &entries[entry].expectation;
    let others = takers.into_iter().filter(|(taker, _)| !this.agrees_with(&entries[*taker].expectation));
    others
        .map(|(taker, cases)| Problem::Contradicted {
            by: entries[taker].line,
            outcome: entries[taker].expectation.outcome,
            cases,
            of: matched.len(),
        })
        .collect()
}

fn useless(declared: &Declared, known: &Known, coverage: &Coverage, entry: usize) -> Option<Problem> {
    let passed = |case: usize| {
        let seen = known.cases[case].in_complete_run;
        seen.is_some_and(|Seen { outcome, .. }| outcome.standing() == Standing::Pass)
    };
    let cases = coverage.taken(entry).count();
    let all_passed = cases > 0 && coverage.taken(entry).all(passed);
    let declares_pass = declared.expectation.outcome.standing() == Standing::Pass;
    (all_passed && !declares_pass).then_some(Problem::Useless { cases })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Case;
    use crate::known_case::{KnownCase, Repository};
    use proptest::prelude::*;

    fn known(model: &str, mode: &str, outcome: Option<Outcome>) -> KnownCase {
        let text = format!("v1/{model}/C/transformers/real/forward/default/float32/highest/eager/tpu-emulated/{mode}");
        let case: Case = text.parse().unwrap();
        let repository = Repository { architecture: "llama".into(), tags: vec![] };
        let seen = outcome.map(|outcome| Seen { outcome, fault: None });
        KnownCase { case, repository: Some(repository), newest: seen, in_complete_run: seen }
    }

    fn two_models() -> Known {
        Known::of(vec![
            known("zoo/a", "compiled", Some(Outcome::Pass)),
            known("zoo/a", "strict-eager", Some(Outcome::Crash)),
            known("zoo/b", "compiled", Some(Outcome::Pass)),
            known("zoo/b", "strict-eager", None),
        ])
    }

    /// The findings of entries that are written as `select = {...}` and outcome.
    fn findings(entries: &[(&str, &str)]) -> Vec<String> {
        let text: String = entries
            .iter()
            .map(|(select, rest)| format!("[[expect]]\nselect = {{ {select} }}\nreason = \"r\"\n{rest}\n"))
            .collect();
        let expectations = Expectations::parse("e.toml", &text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let found = check(&expectations, &two_models(), &Targets::built_in(), "2027-01-31".parse().unwrap());
        found.iter().map(|finding| format!("{}: {}", finding.line, finding.problem)).collect()
    }

    const CRASH: &str = "outcome = \"crash\"";
    const TIMEOUT: &str = "outcome = \"timeout\"";

    #[test]
    fn a_sound_file_has_no_findings() {
        let select = "model = \"zoo/a\", mode = \"strict-eager\"";
        let last_day = format!("{CRASH}\nexpires = 2027-01-31");
        assert_eq!(findings(&[(select, &last_day), ("model = \"zoo/b\"", TIMEOUT)]), [""; 0]);
        // Of this one nobody has seen all cases pass.
        assert_eq!(findings(&[("model = \"zoo/b\"", CRASH)]), [""; 0]);
        // It declares what passes.
        assert_eq!(findings(&[("model = \"zoo/a\", mode = \"compiled\"", "outcome = \"pass\"")]), [""; 0]);
        // Both say the same.
        assert_eq!(findings(&[(select, CRASH), ("model = \"zoo/*\"", CRASH)]), [""; 0]);
    }

    #[test]
    fn each_problem_is_told_with_its_line_and_what_to_do() {
        let strict = "model = \"zoo/*\", mode = \"strict-eager\"";
        let expired = format!("{CRASH}\nexpires = \"2027-01-30\"");
        for (entries, line, parts) in [
            (vec![("target = \"tpu-emulate\"", CRASH)], 1, &["unknown target", "did you mean `tpu-emulated`"][..]),
            (vec![("model = \"zoo/aa\"", CRASH)], 1, &["no known case has the model `zoo/aa`", "did you mean `zoo/a`"]),
            (vec![("architecture = \"lama\"", CRASH)], 1, &["the architecture `lama`", "did you mean `llama`"]),
            (vec![("model = [\"zoo/b\", \"elsewhere/*\"]", CRASH)], 1, &["the model `elsewhere/*`", "remove the name"]),
            (vec![("dtype = \"float16\"", CRASH)], 1, &["matches no known case", "remove the entry"]),
            (vec![("tag = \"smoke\"", CRASH)], 1, &["matches no known case"]),
            (vec![(strict, &expired)], 1, &["expired on 2027-01-30", "later `expires`"]),
            (vec![(strict, CRASH), ("model = \"zoo/b\", mode = \"strict-eager\"", CRASH)], 5, &["never counts", "of line 1"]),
            (
                vec![("model = \"zoo/b\"", TIMEOUT), (strict, CRASH)],
                5,
                &["1 of its 2 cases go to the entry of line 1", "`timeout`"],
            ),
            (vec![("mode = \"compiled\"", CRASH)], 1, &["an unexpected pass", "all 2 cases", "expect update"]),
        ] {
            let found = findings(&entries);
            assert_eq!(found.len(), 1, "{entries:?}: {found:?}");
            assert!(found[0].starts_with(&format!("{line}: ")), "{found:?}");
            for part in parts {
                assert!(found[0].contains(part), "{part}: {found:?}");
            }
        }
    }

    #[test]
    fn several_entries_may_shadow_one() {
        let entries =
            [("model = \"zoo/a\"", CRASH), ("model = \"zoo/b\"", TIMEOUT), ("mode = [\"compiled\", \"strict-eager\"]", CRASH)];
        let found = findings(&entries);
        assert!(found.len() == 1 && found[0].contains("line 1, 5"), "{found:?}");
    }

    #[test]
    fn a_fault_contradicts_too() {
        let found = findings(&[
            ("model = \"zoo/a\"", "outcome = \"crash\"\nfault = \"model\""),
            ("mode = \"strict-eager\"", "outcome = \"crash\"\nfault = \"backend\""),
        ]);
        assert!(found.len() == 1 && found[0].contains("1 of its 2 cases"), "{found:?}");
    }

    proptest! {
        /// Whatever entries there are: each that never counts is told, and each that is told as such may go without a change of
        /// what is declared of any case.
        #[test]
        fn what_never_counts_is_told_and_may_go(
            entries in prop::collection::vec((0..3usize, 0..3usize, any::<bool>()), 0..8),
        ) {
            let models = ["model = \"zoo/a\"", "model = \"zoo/b\"", "model = \"zoo/*\""];
            let modes = ["", ", mode = \"compiled\"", ", mode = \"strict-eager\""];
            let entry = |(model, mode, crash): &(usize, usize, bool)| {
                let outcome = if *crash { CRASH } else { TIMEOUT };
                format!("[[expect]]\nselect = {{ {}{} }}\nreason = \"r\"\n{outcome}\n", models[*model], modes[*mode])
            };
            let known = two_models();
            let read = |entries: &[(usize, usize, bool)]| {
                Expectations::parse("e.toml", &entries.iter().map(entry).collect::<String>()).unwrap()
            };
            let all = read(&entries);
            let told = |expectations: &Expectations| {
                let coverage = Coverage::of(expectations, &known.cases);
                let taker = |case| coverage.taker(case).map(|entry| expectations.entries()[entry].expectation.clone());
                (0..known.cases.len()).map(taker).collect::<Vec<_>>()
            };
            let findings = check(&all, &known, &Targets::built_in(), "2027-01-31".parse().unwrap());
            let never: Vec<usize> = findings.iter()
                .filter(|finding| matches!(finding.problem, Problem::Shadowed { .. }))
                .map(|finding| finding.line)
                .collect();
            let kept: Vec<_> = entries.iter().zip(all.entries())
                .filter(|(_, declared)| !never.contains(&declared.line))
                .map(|(entry, _)| *entry)
                .collect();
            let without = read(&kept);
            prop_assert_eq!(told(&without), told(&all));
            let coverage = Coverage::of(&without, &known.cases);
            for entry in 0..without.entries().len() {
                prop_assert!(coverage.taken(entry).count() > 0);
            }
        }
    }
}
