//! What a request asks, read strictly: a parameter or word that is not known is an error, and nothing is guessed.

use std::str::FromStr;

use axum::extract::RawPathParams;
use axum::extract::rejection::RawPathParamsRejection;
use axum::http::{HeaderMap, Uri};
use modelfarm_matrix::word::UnknownWord;

use super::content_choice;
use super::parameter::{Bounded, LONGEST_VALUE, MOST_VALUES, Parameter};
use super::query_text;
use super::refusal::Refusal;
use crate::query::{CaseFilter, HistoryFilter, ResultFilter, Since};
use crate::store::now_ms;
use crate::table::Format;

/// Answers that tell of time are of a minute: within it the same question has the same answer.
pub(super) const MINUTE_MS: i64 = 60_000;

/// A question.
#[derive(Debug, Clone)]
pub(super) struct Question {
    /// As the request has it, still escaped.
    path: String,
    /// The values that the path names.
    in_path: Vec<(String, String)>,
    /// The other values, by name and else in their order.
    in_query: Vec<(String, String)>,
    /// How rows are to be written.
    pub(super) format: Format,
    /// The beginning of the minute in which it was asked, UTC milliseconds.
    pub(super) now: i64,
}

impl Question {
    pub(super) fn read(
        parameters: &[Parameter],
        in_path: Result<RawPathParams, RawPathParamsRejection>,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<Self, Refusal> {
        let in_path = in_path.map_err(|_| Refusal::wrong("the path is not UTF-8 once its %-escapes are decoded"))?;
        let in_path: Vec<(String, String)> = in_path.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        if in_path.iter().any(|(_, value)| value.chars().count() > LONGEST_VALUE) {
            return Err(Refusal::not_found("nothing has so long a name"));
        }
        let mut in_query = query_text::pairs(uri.query().unwrap_or_default())?;
        in_query.sort_by(|(a, _), (b, _)| a.cmp(b));
        for values in in_query.chunk_by(|(a, _), (b, _)| a == b) {
            check(parameters, values)?;
        }
        let format = in_query.iter().find(|(name, _)| name == "format").map(|(_, value)| value.as_str());
        let format = content_choice::choose(format, headers).map_err(|unknown| Refusal::unknown_word("format", unknown))?;
        let now = now_ms() / MINUTE_MS * MINUTE_MS;
        Ok(Self { path: uri.path().to_owned(), in_path, in_query, format, now })
    }

    /// Two questions with one key are the same.
    pub(super) fn key(&self) -> String {
        format!("{}?{}#{}", self.path, self.with(None), self.format)
    }

    /// Where the same question goes on.
    pub(super) fn next(&self, name: &'static str, value: &str) -> String {
        format!("{}?{}", self.path, self.with(Some((name, value))))
    }

    /// The query, with one parameter set anew.
    fn with(&self, set: Option<(&'static str, &str)>) -> String {
        let kept = self.in_query.iter().filter(|(name, _)| set.is_none_or(|(set, _)| set != name));
        query_text::query_of(kept.map(|(name, value)| (name.as_str(), value.as_str())).chain(set))
    }

    /// A value of the path; empty where the path has none of the name.
    pub(super) fn in_path(&self, name: &'static str) -> &str {
        self.in_path.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }

    fn values(&self, name: &'static str) -> impl Iterator<Item = &str> {
        self.in_query.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The value of a parameter.
    pub(super) fn text(&self, name: &'static str) -> Option<&str> {
        self.values(name).next()
    }

    /// Every value of a parameter.
    pub(super) fn texts(&self, name: &'static str) -> Vec<String> {
        self.values(name).map(str::to_owned).collect()
    }

    /// Every value of a parameter with words.
    pub(super) fn words<T: FromStr<Err = UnknownWord>>(&self, name: &'static str) -> Result<Vec<T>, Refusal> {
        self.values(name).map(|text| text.parse().map_err(|unknown| Refusal::unknown_word(name, unknown))).collect()
    }

    /// The value of a parameter that is parsed.
    pub(super) fn parsed<T: FromStr>(&self, name: &'static str) -> Result<Option<T>, Refusal>
    where
        T::Err: std::fmt::Display,
    {
        self.text(name).map(|text| text.parse().map_err(|error| Refusal::wrong_value(name, error))).transpose()
    }

    /// A number within its bounds.
    pub(super) fn number(&self, bounded: Bounded) -> Result<u64, Refusal> {
        let Bounded { name, least, most, default } = bounded;
        let Some(text) = self.text(name) else { return Ok(default) };
        let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        match text.parse::<u64>() {
            Ok(number) if is_plain && (least..=most).contains(&number) => Ok(number),
            _ => {
                let found: String = text.chars().take(80).collect();
                Err(Refusal::wrong_value(name, format!("`{found}` is not a whole number from {least} to {most}")))
            }
        }
    }

    /// `true` or `false`; false where nothing is said.
    pub(super) fn truth(&self, name: &'static str) -> Result<bool, Refusal> {
        match self.text(name) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(other) => Err(Refusal::unknown_word(name, UnknownWord::new("value", other, ["true", "false"]))),
        }
    }

    /// Which cases.
    pub(super) fn cases(&self) -> Result<CaseFilter, Refusal> {
        let ids = self.values("case").map(|text| text.parse().map_err(|error| Refusal::wrong_value("case", error)));
        Ok(CaseFilter {
            ids: ids.collect::<Result<_, _>>()?,
            targets: self.texts("target"),
            modes: self.words("mode")?,
            architectures: self.texts("architecture"),
            models: self.texts("model"),
            harnesses: self.words("harness")?,
            workloads: self.words("workload")?,
        })
    }

    /// Which attempts, the last of each case; the caller says of which run.
    pub(super) fn results(&self, run: Option<&str>) -> Result<ResultFilter, Refusal> {
        let (cases, outcomes) = (self.cases()?, self.words("outcome")?);
        Ok(ResultFilter { run: run.map(str::to_owned), cases, outcomes, final_only: true, ..ResultFilter::default() })
    }

    /// When it began, UTC milliseconds; `default` is a duration.
    pub(super) fn from(&self, default: &str) -> Result<i64, Refusal> {
        let since = self.text("since").unwrap_or(default);
        let since: Since = since.parse().map_err(|error| Refusal::wrong_value("since", error))?;
        let run = || Refusal::wrong_value("since", "expected a date or a duration, such as 2026-11-01 or 90d");
        since.at_most(self.now).ok_or_else(run)
    }

    /// Which cases, and from when.
    pub(super) fn history(&self, default: &str) -> Result<HistoryFilter, Refusal> {
        Ok(HistoryFilter { matrix: self.text("matrix").map(str::to_owned), from: self.from(default)?, cases: self.cases()? })
    }
}

/// The values of one name.
fn check(parameters: &[Parameter], values: &[(String, String)]) -> Result<(), Refusal> {
    let Some((name, _)) = values.first() else { return Ok(()) };
    let known = || parameters.iter().filter(|parameter| parameter.is_in_query());
    let Some(parameter) = known().find(|parameter| parameter.name == name) else {
        if known().next().is_none() {
            return Err(Refusal::no_parameter(name));
        }
        let names = known().map(|parameter| parameter.name);
        return Err(Refusal::unknown_parameter(UnknownWord::new("parameter", name, names)));
    };
    let most = if parameter.is_list { MOST_VALUES } else { 1 };
    if values.len() > most {
        return Err(Refusal::wrong_value(
            parameter.name,
            format!("it is there {} times; expected at most {most}", values.len()),
        ));
    }
    if values.iter().any(|(_, value)| value.chars().count() > LONGEST_VALUE) {
        return Err(Refusal::wrong_value(parameter.name, format!("expected at most {LONGEST_VALUE} characters")));
    }
    Ok(())
}
