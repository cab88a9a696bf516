//! What a question is answered with, written out.

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde::Serialize;

use super::parameter::{CURSOR, LIMIT};
use super::question::Question;
use super::refusal::Refusal;
use crate::table::{Format, TableRow, harmless_json, write_rows};

pub(super) const JSON: &str = "application/json";
pub(super) const CSV: &str = "text/csv; charset=utf-8";

/// A whole answer.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) content_type: &'static str,
    pub(super) body: Bytes,
    /// Where the next page is.
    pub(super) next: Option<String>,
}

/// Some rows of an answer.
pub(super) struct Page<R> {
    rows: Vec<R>,
    /// The parameter that asks for the next page, where there is one.
    next: Option<(&'static str, String)>,
}

impl<R> Page<R> {
    /// Rows, and the parameter that asks for those behind them.
    pub(super) fn new(rows: Vec<R>, next: Option<(&'static str, String)>) -> Self {
        Self { rows, next }
    }

    /// All of them.
    pub(super) fn whole(rows: Vec<R>) -> Self {
        Self::new(rows, None)
    }

    /// The page of all rows that a question asks for.
    pub(super) fn of(rows: Vec<R>, question: &Question) -> Result<Self, Refusal> {
        let (from, limit) = (passed_over(question)?, question.number(LIMIT)?);
        let rest = rows.into_iter().skip(usize::try_from(from).unwrap_or(usize::MAX)).collect();
        Ok(Self::beginning(rest, from, limit))
    }

    /// The first `limit` of the rows behind the first `from`.
    pub(super) fn beginning(mut rows: Vec<R>, from: u64, limit: u64) -> Self {
        let limit_here = usize::try_from(limit).unwrap_or(usize::MAX);
        let next = (rows.len() > limit_here).then(|| ("cursor", (from + limit).to_string()));
        rows.truncate(limit_here);
        Self { rows, next }
    }
}

/// How many rows the pages before had, where the cursor is their number.
pub(super) fn passed_over(question: &Question) -> Result<u64, Refusal> {
    question.number(CURSOR)
}

impl<R: TableRow> Page<R> {
    /// Writes it as the question asks.
    pub(super) fn written(self, question: &Question) -> Result<Answer, Refusal> {
        let mut body = Vec::new();
        write_rows(&mut body, question.format, None, &self.rows).map_err(Refusal::unwritable)?;
        let next = self.next.map(|(name, value)| question.next(name, &value));
        Ok(Answer { content_type: content_type(question.format), body: body.into(), next })
    }
}

impl Answer {
    /// One thing, as an object or a table of one row.
    pub(super) fn of_one<R: TableRow>(row: R, question: &Question) -> Result<Self, Refusal> {
        match question.format {
            Format::Csv => Page::whole(vec![row]).written(question),
            _ => Self::json(&row),
        }
    }

    /// An object.
    pub(super) fn json(value: &impl Serialize) -> Result<Self, Refusal> {
        let json = serde_json::to_string(value).map_err(Refusal::unwritable)?;
        Ok(Self::text(JSON, harmless_json(&json).into_owned()))
    }

    /// A text that is written already.
    pub(super) fn text(content_type: &'static str, text: impl Into<Bytes>) -> Self {
        Self { content_type, body: text.into(), next: None }
    }

    /// As a response; `tag` tells this answer from others to the same question.
    pub(super) fn respond(&self, tag: Option<&str>) -> Response {
        let mut response = Response::new(Body::from(self.body.clone()));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        if let Some(link) = self.next.as_ref().and_then(|next| HeaderValue::from_str(&format!("<{next}>; rel=\"next\"")).ok()) {
            response.headers_mut().insert(header::LINK, link);
        }
        with_tag(response, tag)
    }
}

fn content_type(format: Format) -> &'static str {
    match format {
        Format::Csv => CSV,
        Format::Json | Format::Table => JSON,
    }
}

/// The response that says that the answer with the tag is still right.
pub(super) fn unchanged(tag: &str) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NOT_MODIFIED;
    with_tag(response, Some(tag))
}

fn with_tag(mut response: Response, tag: Option<&str>) -> Response {
    let headers = response.headers_mut();
    let kept = if tag.is_some() { "no-cache" } else { "no-store" };
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(kept));
    headers.insert(header::VARY, HeaderValue::from_static("accept"));
    if let Some(tag) = tag.and_then(|tag| HeaderValue::from_str(tag).ok()) {
        headers.insert(header::ETAG, tag);
    }
    response
}
