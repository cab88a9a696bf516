//! Pages for people. They are no part of the API's document; what they show, they get as the API does, from the store.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::header;
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use serde::Serialize;

use super::Server;
use super::refusal::Refusal;
use crate::page::engine::STYLE;
use crate::rows::RunRow;
use crate::store::StoreError;

/// The router with the pages too.
pub(super) fn add_to(router: Router, server: &Arc<Server>) -> Router {
    let pages = Router::new().route("/", get(start)).route("/style.css", get(style)).with_state(Arc::clone(server));
    router.merge(pages)
}

#[derive(Serialize)]
struct Start {
    run: Option<RunRow>,
    paths: Vec<&'static str>,
}

async fn start(State(server): State<Arc<Server>>) -> Result<Response, Refusal> {
    let run = match server.store.run("latest").await {
        Ok(run) => Some(run),
        Err(StoreError::NoSuchRun { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    let paths = super::served_paths();
    let page = server.engine.render("start.html", "/", &Start { run, paths }).map_err(Refusal::unwritable)?;
    Ok(Html(page).into_response())
}

async fn style() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/css; charset=utf-8")], STYLE)
}
