//! What is answered in place of an answer: a status, and an error that says what was wrong, where, and what was expected.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use modelfarm_matrix::word::UnknownWord;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::store::StoreError;
use crate::table::harmless_json;

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// What was wrong, for people.
    pub error: String,
    /// The parameter that is wrong, where one is.
    pub parameter: Option<String>,
    /// The nearest right word, where one is near.
    pub nearest: Option<String>,
    /// Every right word, where they are few.
    pub expected: Vec<String>,
}

/// A request that is not answered.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    body: ErrorBody,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, error: impl Into<String>) -> Self {
        Self { status, body: ErrorBody { error: error.into(), parameter: None, nearest: None, expected: Vec::new() } }
    }

    /// A wrong request.
    pub(super) fn wrong(error: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error)
    }

    /// A parameter with a wrong value, and what was expected.
    pub(super) fn wrong_value(parameter: &'static str, why: impl std::fmt::Display) -> Self {
        let mut refusal = Self::wrong(format!("parameter {parameter}: {why}"));
        refusal.body.parameter = Some(parameter.to_owned());
        refusal
    }

    /// A parameter whose value is none of its words.
    pub(super) fn unknown_word(parameter: &'static str, unknown: UnknownWord) -> Self {
        let mut refusal = Self::wrong_value(parameter, &unknown);
        refusal.body.nearest = unknown.nearest;
        refusal.body.expected = unknown.known;
        refusal
    }

    /// A parameter that is not known here.
    pub(super) fn unknown_parameter(unknown: UnknownWord) -> Self {
        let mut refusal = Self::wrong(unknown.to_string());
        refusal.body.parameter = Some(unknown.found);
        refusal.body.nearest = unknown.nearest;
        refusal.body.expected = unknown.known;
        refusal
    }

    /// A parameter where none is known.
    pub(super) fn no_parameter(found: &str) -> Self {
        let found: String = found.chars().take(80).collect();
        let mut refusal = Self::wrong(format!("unknown parameter `{found}`; expected none"));
        refusal.body.parameter = Some(found);
        refusal
    }

    /// Nothing is there.
    pub(super) fn not_found(error: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, error)
    }

    /// An answer could not be written: a defect of this program.
    pub(super) fn unwritable(error: impl std::fmt::Display) -> Self {
        tracing::error!(%error, "an answer could not be written");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "the answer could not be written; the server's log says why")
    }

    /// It cannot be answered now.
    pub(super) fn later(error: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, error)
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NoSuchRun { .. }
            | StoreError::AmbiguousRun { .. }
            | StoreError::NoCompleteRun { .. }
            | StoreError::NoSuchCase(_)
            | StoreError::AmbiguousCase(_) => Self::not_found(format!("failed to {error}")),
            // Where the database is and what it says is for who runs the server.
            StoreError::Value { .. } | StoreError::Corrupt { .. } => {
                tracing::error!(%error, "the database holds what this program cannot read");
                Self::new(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "the database holds what this program cannot read; the server's log says what",
                )
            }
            error => {
                tracing::error!(%error, "the database does not answer");
                Self::later("the database does not answer; the server's log says why")
            }
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let json = serde_json::to_string(&self.body).unwrap_or_default();
        let mut response = Response::new(Body::from(harmless_json(&json).into_owned()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if matches!(self.status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
        }
        if self.status == StatusCode::METHOD_NOT_ALLOWED {
            headers.insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        }
        response
    }
}
