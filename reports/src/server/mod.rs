//! The server of results: a read-only JSON API with its OpenAPI document, badges, a feed, metrics and live events.
//!
//! What is served stands in one table, [`endpoints`](endpoints::endpoints): the router and the document are both made of it. Pages for
//! people are routes of their own, in `pages`.

mod answer;
mod answer_cache;
mod answers;
mod connections;
mod content_choice;
mod document;
mod endpoint;
mod endpoints;
mod event_stream;
mod guard;
mod host_check;
mod pages;
mod parameter;
mod query_text;
mod question;
mod refusal;
mod request_counts;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;

use crate::page::engine::Engine;
use crate::store::Store;

pub use refusal::ErrorBody;

/// So many answers are made at a time; others wait.
const ANSWERS_AT_A_TIME: usize = 16;
/// So many readers may follow events.
const STREAMS: usize = 64;
/// What is under way may take so long after the end was asked for.
const GRACE: Duration = Duration::from_secs(5);

/// How to serve.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// The address; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Names besides those of this machine under which requests are answered, such as that of a proxy in front.
    pub allowed_hosts: Vec<String>,
}

impl ServerOptions {
    /// Whether other machines can reach it.
    pub fn is_public(&self) -> bool {
        !self.listen.ip().is_loopback()
    }
}

/// The server could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The address cannot be used.
    #[error("listen on {listen}: {source}; choose another address or port with --listen")]
    Listen {
        /// The address asked for.
        listen: SocketAddr,
        /// Why it was refused.
        source: std::io::Error,
    },
}

/// What all requests share.
pub(crate) struct Server {
    store: Store,
    /// Tells the answers of this process from those of any other, over another store or by another version.
    instance: uuid::Uuid,
    cache: answer_cache::AnswerCache,
    /// Makes pages for people, as it makes those of the report.
    engine: Engine,
    requests: request_counts::RequestCounts,
    answers: Semaphore,
    streams: Arc<Semaphore>,
    closing: watch::Receiver<bool>,
}

/// A server that is serving. Dropping it stops it too, without waiting for the answers under way.
#[derive(Debug)]
pub struct RunningServer {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

/// Serves a store until the returned handle is shut down or dropped.
///
/// The store should have been opened for reading only. Nothing of a request reaches a file system.
///
/// # Errors
/// The address cannot be used.
pub async fn serve(store: Store, options: &ServerOptions) -> Result<RunningServer, ServeError> {
    let failed = |source| ServeError::Listen { listen: options.listen, source };
    let listener = TcpListener::bind(options.listen).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let (stop, closing) = watch::channel(false);
    let server = Arc::new(Server {
        store,
        instance: uuid::Uuid::now_v7(),
        cache: answer_cache::AnswerCache::default(),
        engine: Engine::new(),
        requests: request_counts::RequestCounts::default(),
        answers: Semaphore::new(ANSWERS_AT_A_TIME),
        streams: Arc::new(Semaphore::new(STREAMS)),
        closing: closing.clone(),
    });
    let hosts = host_check::HostCheck::new(options, address);
    let task = tokio::spawn(connections::accept(listener, router(&server, hosts), closing));
    Ok(RunningServer { address, stop, task })
}

fn router(server: &Arc<Server>, hosts: host_check::HostCheck) -> Router {
    let router = endpoints::endpoints().into_iter().fold(Router::new(), |router, endpoint| endpoint.add_to(router, server));
    guard::guarded(pages::add_to(router, server), server, hosts)
}

/// The OpenAPI document as JSON: what `/api/v1/openapi.json` answers.
pub fn openapi_document() -> String {
    document::document(&endpoints::endpoints())
}

/// The path of everything in the table that the server answers, as the document writes it.
pub fn served_paths() -> Vec<&'static str> {
    endpoints::endpoints().iter().map(|endpoint| endpoint.path).collect()
}

impl RunningServer {
    /// Where it is: `http://127.0.0.1:41234`, without a slash at its end.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops: no new connections, streams of events end, and the answers under way have a few seconds.
    pub async fn shutdown(mut self) {
        let _ = self.stop.send(true);
        if tokio::time::timeout(GRACE + Duration::from_secs(1), &mut self.task).await.is_err() {
            self.task.abort();
        }
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        self.task.abort();
    }
}
