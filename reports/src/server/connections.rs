//! Takes connections, a bounded number at a time, and lets none of them stay without asking.

use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use super::GRACE;

/// More clients than this wait to be taken.
const CONNECTIONS: usize = 512;
/// A client must have sent its next request's head within this time.
const HEAD_WITHIN: Duration = Duration::from_secs(30);
/// The most bytes of a request's head.
const HEAD_BYTES: usize = 64 * 1024;

/// Serves connections until `closing` becomes true, and then gives those under way a few seconds.
pub(super) async fn accept(listener: TcpListener, router: Router, closing: watch::Receiver<bool>) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = JoinSet::new();
    let mut closed = closing.clone();
    loop {
        let next = async {
            let slot = Arc::clone(&slots).acquire_owned().await;
            (slot, listener.accept().await)
        };
        let (slot, accepted) = tokio::select! {
            _ = closed.wait_for(|closing| *closing) => break,
            next = next => next,
        };
        match accepted {
            Ok((stream, _)) => {
                let (router, closing) = (router.clone(), closing.clone());
                connections.spawn(async move {
                    connection(stream, router, closing).await;
                    drop(slot);
                });
            }
            Err(error) => {
                // Too many open files, most likely: those that end make room.
                tracing::warn!(%error, "a connection could not be taken");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        while connections.try_join_next().is_some() {}
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

async fn connection(stream: TcpStream, router: Router, mut closing: watch::Receiver<bool>) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_WITHIN).max_buf_size(HEAD_BYTES);
    let connection = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    tokio::pin!(connection);
    // What a connection ends with is the client's affair.
    let is_ending = tokio::select! {
        _ = connection.as_mut() => false,
        _ = closing.wait_for(|closing| *closing) => true,
    };
    if is_ending {
        connection.as_mut().graceful_shutdown();
        let _ = tokio::time::timeout(GRACE, connection).await;
    }
}
