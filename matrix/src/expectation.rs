//! What was declared of a case, and the verdict that follows from it and the outcome.

use serde::Deserialize;

use crate::case::Case;
use crate::fault::Fault;
use crate::model::Model;
use crate::outcome::{Outcome, Standing};
use crate::selector::Selector;
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
}

/// The declared expectations, in the order of their file: the first that matches a case counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Expectations(Vec<Expectation>);

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
            } else {
                None
            };
            if let Some(problem) = problem {
                return Err(TomlError::at(file, text, offset, problem.to_owned()));
            }
            expectations.push(expectation);
        }
        Ok(Self(expectations))
    }

    /// Puts `self` before `others`: its entries count first.
    pub fn before(mut self, others: Expectations) -> Self {
        self.0.extend(others.0);
        self
    }

    /// The expectation that counts for a case.
    pub fn of(&self, model: &Model, case: &Case) -> Option<&Expectation> {
        self.0.iter().find(|expectation| expectation.select.matches(model, case))
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
        let declared = expectations.0.first();
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
}
