//! The events of a run as server-sent events, from the store: what is told is recorded.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::Server;
use super::parameter::AFTER;
use super::question::Question;
use super::refusal::Refusal;
use crate::query::StoredEvent;
use crate::rows::RunState;
use crate::store::{Store, StoreError};
use crate::table::harmless_json;

/// How often a reader looks for new events.
const LOOK_EACH: Duration = Duration::from_millis(500);
/// Events that are read at once.
const AT_ONCE: u64 = 200;
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Streams the events behind the last one that the client has. The last of all is of the type `end` and tells how far the run came;
/// who comes again after it is told with status 204 to stay away.
pub(super) async fn stream(server: &Arc<Server>, question: &Question, headers: &HeaderMap) -> Result<Response, Refusal> {
    let after = match headers.get(LAST_EVENT_ID) {
        None => question.number(AFTER)?,
        Some(id) => {
            let number = id.to_str().ok().and_then(|id| id.trim().parse::<u64>().ok()).filter(|id| *id <= AFTER.most);
            number.ok_or_else(|| Refusal::wrong("the header Last-Event-ID is not the number of an event"))?
        }
    };
    let Ok(place) = Arc::clone(&server.streams).try_acquire_owned() else {
        let text = "as many readers as may follow events do so; come again later, or ask for /events";
        return Err(Refusal::new(StatusCode::TOO_MANY_REQUESTS, text));
    };
    let store = server.store.clone();
    let run = store.resolve_run(question.in_path("run")).await?;
    let mut reader =
        Reader { store, run, after, read: VecDeque::new(), is_over: false, closing: server.closing.clone(), _place: place };
    let is_client_back = headers.contains_key(LAST_EVENT_ID);
    if is_client_back && let Some(_state) = reader.look().await? {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let events = futures::stream::unfold(reader, async |mut reader| Some((Ok::<_, Infallible>(reader.next().await?), reader)));
    let mut response = Sse::new(events).keep_alive(KeepAlive::new().interval(Duration::from_secs(15))).into_response();
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// A client's place in a run.
struct Reader {
    store: Store,
    run: String,
    /// The last event that was read.
    after: u64,
    /// Read and not yet told.
    read: VecDeque<StoredEvent>,
    is_over: bool,
    closing: watch::Receiver<bool>,
    /// One of the places that there are; free again when the client is gone.
    _place: OwnedSemaphorePermit,
}

impl Reader {
    /// The next event; none where there will be none, or the server ends, or the store does not answer.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(stored) = self.read.pop_front() {
                return Some(told(&stored));
            }
            if self.is_over || *self.closing.borrow() {
                return None;
            }
            match self.look().await {
                Ok(Some(state)) => {
                    self.is_over = true;
                    return Some(Event::default().event("end").data(json!({"state": state}).to_string()));
                }
                Ok(None) if self.read.is_empty() => {
                    tokio::select! {
                        _ = self.closing.wait_for(|closing| *closing) => return None,
                        () = tokio::time::sleep(LOOK_EACH) => {}
                    }
                }
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(%error, "a stream of events ends: the store does not answer");
                    return None;
                }
            }
        }
    }

    /// Reads what is new; where nothing is and nothing will be, how far the run came.
    async fn look(&mut self) -> Result<Option<RunState>, StoreError> {
        // The state first: what was recorded before the run ended is then seen.
        let state = self.store.run_state(&self.run).await?;
        self.read.extend(self.store.events(&self.run, self.after, AT_ONCE).await?);
        if let Some(last) = self.read.back() {
            self.after = last.sequence;
            return Ok(None);
        }
        Ok((state != RunState::Running).then_some(state))
    }
}

fn told(stored: &StoredEvent) -> Event {
    let json = serde_json::to_string(stored).unwrap_or_default();
    Event::default().id(stored.sequence.to_string()).data(harmless_json(&json))
}
