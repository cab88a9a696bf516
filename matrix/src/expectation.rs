//! What was declared of a case, and the verdict that follows from it and the outcome.

use serde::Deserialize;

use crate::case::Case;
use crate::date::Date;
use crate::fault::Fault;
use crate::link::Link;
use crate::model::Model;
use crate::outcome::{Outcome, Standing};
use crate::selector::Selector;
use crate::target::Targets;
pub use crate::toml_error::TomlError;

crate::words! {
    /// Outcome and expectation together.
    pub enum Verdict ("verdict") {
        /// Passed, as everything undeclared should.
        ExpectedPass => "expected_pass",
        /// Failed as declared.
        ExpectedFail => "expected_fail",
        /// Failed otherwise than declared.
        UnexpectedFail => "unexpected_fail",
        /// Passed though a failure was declared.
        UnexpectedPass => "unexpected_pass",
        /// Says nothing about the target, as declared.
        ExpectedInconclusive => "expected_inconclusive",
        /// Says nothing about the target, undeclared.
        UnexpectedInconclusive => "unexpected_inconclusive",
    }
}

impl Verdict {
    /// Whether the outcome was not the declared one.
    pub fn is_unexpected(self) -> bool {
        matches!(self, Verdict::UnexpectedFail | Verdict::UnexpectedPass | Verdict::UnexpectedInconclusive)
    }
}

/// One declared expectation.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    /// What it speaks of; everything it does not name matches.
    pub select: Selector,
    /// What is expected to be observed.
    pub outcome: Outcome,
    /// Whose problem it is expected to be.
    pub fault: Option<Fault>,
    /// Why. A person reads it beside the result.
    pub reason: String,
    /// Where it is discussed.
    pub issue: Option<Link>,
    /// Who looks after it.
    pub owner: Option<String>,
    /// The last day on which it needs no new look.
    pub expires: Option<Date>,
}

impl Expectation {
    /// Whether its last day is over. It counts for verdicts all the same: a day that goes by is no news about a target.
    pub fn is_expired(&self, today: Date) -> bool {
        self.expires.is_some_and(|last_day| last_day < today)
    }

    /// Whether both can be true of one case.
    pub fn agrees_with(&self, other: &Expectation) -> bool {
        let faults_differ = matches!((self.fault, other.fault), (Some(one), Some(another)) if one != another);
        self.outcome == other.outcome && !faults_differ
    }

    /// What is recorded beside a result: the reason, and where and by whom it is looked after.
    pub fn told(&self) -> String {
        let besides: Vec<&str> = self.issue.iter().map(Link::as_str).chain(self.owner.as_deref()).collect();
        if besides.is_empty() { self.reason.clone() } else { format!("{} ({})", self.reason, besides.join(", ")) }
    }
}

/// An expectation where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declared {
    /// The line of its file on which it begins, from 1.
    pub line: usize,
    /// What it says.
    pub expectation: Expectation,
}

/// The declared expectations, in the order of their file: the first that matches a case counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Expectations(Vec<Declared>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectationsFile {
    #[serde(default)]
    expect: Vec<toml::Spanned<Expectation>>,
}

impl Expectations {
    /// Reads an expectations file; `file` is named in errors.
    pub fn parse(file: &str, text: &str) -> Result<Self, TomlError> {
        let parsed: ExpectationsFile = toml::from_str(text).map_err(|error| TomlError::from_toml(file, text, &error))?;
        let mut expectations = Vec::new();
        for spanned in parsed.expect {
            let offset = spanned.span().start;
            let expectation = spanned.into_inner();
            let problem = if expectation.reason.trim().is_empty() {
                Some("an expectation needs a `reason` that says why")
            } else if expectation.select.is_empty() {
                Some("an expectation needs a `select` with at least one key, or it would cover every case")
            } else if expectation.owner.as_ref().is_some_and(|owner| owner.trim().is_empty()) {
                Some("an `owner` needs a name; leave the key out where nobody looks after it")
            } else {
                None
            };
            let place = |problem: &str| TomlError::at(file, text, offset, problem.to_owned());
            if let Some(problem) = problem {
                return Err(place(problem));
            }
            expectations.push(Declared { line: place("").line, expectation });
        }
        Ok(Self(expectations))
    }

    /// Every expectation, in the order of the file.
    pub fn entries(&self) -> &[Declared] {
        &self.0
    }

    /// The expectation that counts for a case.
    pub fn of(&self, model: &Model, case: &Case) -> Option<&Expectation> {
        self.0.iter().map(|declared| &declared.expectation).find(|expectation| expectation.select.matches(model, case))
    }

    /// Checks the targets that selectors name against those that there are; `file` is named in the error.
    ///
    /// # Errors
    /// A selector names a target that does not exist: its entry would match nothing, and nobody would hear of it.
    pub fn check_targets(&self, file: &str, targets: &Targets) -> Result<(), TomlError> {
        self.0.iter().try_for_each(|Declared { line, expectation }| {
            let at = |message| TomlError { file: file.to_owned(), line: *line, message };
            expectation.select.check_targets(targets).map_err(|unknown| at(format!("`select`: {unknown}")))
        })
    }

    /// The lines of the expectations whose last day is over.
    pub fn expired(&self, today: Date) -> Vec<usize> {
        self.0.iter().filter(|declared| declared.expectation.is_expired(today)).map(|declared| declared.line).collect()
    }
}

/// The verdict of an outcome under an expectation.
pub fn verdict(outcome: Outcome, fault: Option<Fault>, expectation: Option<&Expectation>) -> Verdict {
    let as_declared = match expectation {
        Some(declared) => declared.outcome == outcome && (declared.fault.is_none() || declared.fault == fault),
        None => outcome == Outcome::Pass,
    };
    match (outcome.standing(), as_declared) {
        (Standing::Pass, true) => Verdict::ExpectedPass,
        (Standing::Pass, false) => Verdict::UnexpectedPass,
        (Standing::Fail, true) => Verdict::ExpectedFail,
        (Standing::Fail, false) => Verdict::UnexpectedFail,
        (Standing::Inconclusive, true) => Verdict::ExpectedInconclusive,
        (Standing::Inconclusive, false) => Verdict::UnexpectedInconclusive,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_declared_outcome_and_fault_are_expected() {
        let text = "[[expect]]\nselect = { model = \"a/b\", mode = \"compiled\" }\noutcome = \"crash\"\nfault = \"backend\"\nreason = \"r\"\n";
        let expectations = Expectations::parse("e.toml", text).unwrap();
        let declared = expectations.entries().first().map(|declared| &declared.expectation);
        assert_eq!(verdict(Outcome::Crash, Some(Fault::Backend), declared), Verdict::ExpectedFail);
        assert_eq!(verdict(Outcome::Crash, Some(Fault::Model), declared), Verdict::UnexpectedFail);
        assert_eq!(verdict(Outcome::Mismatch, Some(Fault::Backend), declared), Verdict::UnexpectedFail);
        assert_eq!(verdict(Outcome::Pass, None, declared), Verdict::UnexpectedPass);
        assert_eq!(verdict(Outcome::Pass, None, None), Verdict::ExpectedPass);
        assert_eq!(verdict(Outcome::Gated, Some(Fault::Model), None), Verdict::UnexpectedInconclusive);
    }

    #[test]
    fn an_expectation_without_reason_or_selector_is_an_error_with_its_line() {
        let text = "\n[[expect]]\nselect = { model = \"a/b\" }\noutcome = \"crash\"\nreason = \" \"\n";
        let error = Expectations::parse("e.toml", text).unwrap_err();
        assert_eq!((error.line, error.file.as_str()), (2, "e.toml"));
        let error =
            Expectations::parse("e.toml", "[[expect]]\nselect = {}\noutcome = \"crash\"\nreason = \"x\"\n").unwrap_err();
        assert!(error.message.contains("at least one key"));
        let error =
            Expectations::parse("e.toml", "[[expect]]\nselect = { mod = \"a/b\" }\noutcome = \"crash\"\nreason = \"x\"\n")
                .unwrap_err();
        assert_eq!(error.line, 2);
        assert!(error.message.contains("did you mean `mode"), "{}", error.message);
    }

    #[test]
    fn an_entry_says_where_it_is_discussed_who_looks_after_it_and_until_when() {
        let text = "\n\n[[expect]]\nselect = { model = \"a/b\" }\noutcome = \"crash\"\nreason = \"r\"\nissue = \"https://x.org/7\"\nowner = \"@ann\"\nexpires = 2027-01-31\n";
        let expectations = Expectations::parse("e.toml", text).unwrap();
        let [declared] = expectations.entries() else { panic!("{expectations:?}") };
        assert_eq!(declared.line, 3);
        assert_eq!(declared.expectation.told(), "r (https://x.org/7, @ann)");
        let day = |text: &str| text.parse::<Date>().unwrap();
        assert!(!declared.expectation.is_expired(day("2027-01-31")), "the last day still counts");
        assert_eq!(expectations.expired(day("2027-02-01")), [3]);
        for (wrong, line, part) in [
            (text.replace("https", "ftp"), 7, "is not a link"),
            (text.replace("@ann", " "), 3, "`owner` needs a name"),
            (text.replace("2027-01-31", "\"2027-02-30\""), 9, "is not a date"),
            (text.replace("expires", "expire"), 9, "did you mean `expires`"),
        ] {
            let error = Expectations::parse("e.toml", &wrong).unwrap_err();
            assert_eq!(error.line, line, "{error}");
            assert!(error.message.contains(part), "{error}");
        }
    }

    #[test]
    fn an_unknown_target_is_told_with_its_line_and_the_nearest() {
        let text = "\n[[expect]]\nselect = { target = \"tpu-emulate\" }\noutcome = \"crash\"\nreason = \"r\"\n";
        let expectations = Expectations::parse("e.toml", text).unwrap();
        let error = expectations.check_targets("e.toml", &Targets::built_in()).unwrap_err();
        assert_eq!((error.file.as_str(), error.line), ("e.toml", 2));
        assert!(error.message.contains("did you mean `tpu-emulated`"), "{error}");
        let built_in = Expectations::parse("matrix/expectations.toml", crate::EXPECTATIONS_TOML).unwrap();
        assert_eq!(built_in.check_targets("matrix/expectations.toml", &Targets::built_in()), Ok(()));
    }

    #[test]
    fn outcomes_disagree_and_so_do_two_named_faults() {
        let entry = |rest: &str| {
            let text = format!("[[expect]]\nselect = {{ model = \"a/b\" }}\nreason = \"r\"\n{rest}");
            Expectations::parse("e.toml", &text).unwrap().entries()[0].expectation.clone()
        };
        let crash = entry("outcome = \"crash\"\n");
        assert!(crash.agrees_with(&entry("outcome = \"crash\"\nfault = \"model\"\n")));
        assert!(!crash.agrees_with(&entry("outcome = \"timeout\"\n")));
        let [backend, model] = ["backend", "model"].map(|fault| entry(&format!("outcome = \"crash\"\nfault = \"{fault}\"\n")));
        assert!(!backend.agrees_with(&model));
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC{0,200}") {
            let _ = Expectations::parse("e.toml", &text);
        }
    }
}
