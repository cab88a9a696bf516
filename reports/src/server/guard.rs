//! What every request passes: whom it may come from, what it may ask, and what every answer says to a browser.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};

use super::Server;
use super::endpoint::EndpointPath;
use super::host_check::HostCheck;
use super::refusal::Refusal;

/// Nothing from elsewhere, nothing inline, in no frame; and no other site may use an answer.
const HEADERS: [(HeaderName, &str); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; \
         form-action 'self'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-embedder-policy"), "require-corp"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// What the guard knows.
#[derive(Clone)]
struct Guard {
    server: Arc<Server>,
    hosts: HostCheck,
}

/// The router behind the guard.
pub(super) fn guarded(router: Router, server: &Arc<Server>, hosts: HostCheck) -> Router {
    let guard = Guard { server: Arc::clone(server), hosts };
    router.fallback(no_such_path).layer(from_fn_with_state(guard, watch))
}

async fn watch(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let mut response = match guard.hosts.check(&parts).and_then(|()| reading(&parts.method)) {
        Ok(()) => next.run(Request::from_parts(parts, body)).await,
        Err(refusal) => refusal.into_response(),
    };
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    // Whatever says nothing else is asked about again.
    response.headers_mut().entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache"));
    let path = response.extensions().get::<EndpointPath>().map_or("other", |EndpointPath(path)| path);
    guard.server.requests.count(path, response.status());
    response
}

fn reading(method: &Method) -> Result<(), Refusal> {
    match *method {
        Method::GET | Method::HEAD => Ok(()),
        _ => Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are answered: nothing can be changed here")),
    }
}

async fn no_such_path() -> Refusal {
    Refusal::not_found("nothing is at this path; /api/v1/openapi.json tells what there is")
}
