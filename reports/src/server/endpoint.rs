//! One thing that can be asked: its path, its parameters, what it answers, and how a request becomes a response.

use std::future::Future;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::RawPathParams;
use axum::extract::rejection::RawPathParamsRejection;
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use utoipa::ToSchema;
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, Schema, Type};
use utoipa::openapi::{Ref, RefOr};

use super::Server;
use super::answer::{Answer, CSV, JSON, Page, unchanged};
use super::event_stream;
use super::parameter::{LIMIT, Parameter};
use super::question::Question;
use super::refusal::Refusal;
use crate::table::TableRow;

/// An answer that takes longer is given up.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

type Asked = Pin<Box<dyn Future<Output = Result<Answer, Refusal>> + Send>>;

/// What an answer depends on beside its question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DependsOn {
    /// What the store holds.
    Store,
    /// That, and what time it is.
    StoreAndTime,
    /// This program alone.
    Program,
    /// The moment: it is made anew each time.
    Moment,
}

enum Ask {
    Answer(Box<dyn Fn(Arc<Server>, Question) -> Asked + Send + Sync>),
    Events,
}

/// What can be asked under one path.
pub(super) struct Endpoint {
    /// As the document writes it.
    pub(super) path: &'static str,
    /// A name that programs can use for a function.
    pub(super) name: &'static str,
    pub(super) summary: &'static str,
    pub(super) parameters: Vec<Parameter>,
    pub(super) depends_on: DependsOn,
    /// What an answer may be, by its type.
    pub(super) gives: Vec<(&'static str, RefOr<Schema>)>,
    /// The schemas that these name.
    pub(super) schemas: Vec<(String, RefOr<Schema>)>,
    /// Whether more may follow on another page.
    pub(super) is_paged: bool,
    ask: Ask,
}

/// The path that an answered request asked for, for counting.
#[derive(Clone)]
pub(super) struct EndpointPath(pub(super) &'static str);

impl Endpoint {
    /// Something that answers a text of its own.
    pub(super) fn new<F, A>(
        path: &'static str,
        name: &'static str,
        summary: &'static str,
        content_type: &'static str,
        ask: F,
    ) -> Self
    where
        F: Fn(Arc<Server>, Question) -> A + Send + Sync + 'static,
        A: Future<Output = Result<Answer, Refusal>> + Send + 'static,
    {
        Self {
            path,
            name,
            summary,
            parameters: Vec::new(),
            depends_on: DependsOn::Store,
            gives: vec![(content_type, ObjectBuilder::new().schema_type(Type::String).build().into())],
            schemas: Vec::new(),
            is_paged: false,
            ask: Ask::Answer(Box::new(move |server, question| Box::pin(ask(server, question)))),
        }
    }

    /// Rows, as JSON or CSV, a page at a time.
    pub(super) fn rows<R, F, A>(path: &'static str, name: &'static str, summary: &'static str, ask: F) -> Self
    where
        R: TableRow + ToSchema + Send + 'static,
        F: Fn(Arc<Server>, Question) -> A + Send + Sync + 'static,
        A: Future<Output = Result<Page<R>, Refusal>> + Send + 'static,
    {
        let written = move |server, question: Question| {
            let asked = ask(server, question.clone());
            async move { asked.await?.written(&question) }
        };
        let rows = ArrayBuilder::new().items(Ref::from_schema_name(R::name()));
        Self::new(path, name, summary, JSON, written).giving::<R>(rows.build().into()).paged()
    }

    /// One thing, as JSON or CSV.
    pub(super) fn one<R, F, A>(path: &'static str, name: &'static str, summary: &'static str, ask: F) -> Self
    where
        R: TableRow + ToSchema + Send + 'static,
        F: Fn(Arc<Server>, Question) -> A + Send + Sync + 'static,
        A: Future<Output = Result<R, Refusal>> + Send + 'static,
    {
        let written = move |server, question: Question| {
            let asked = ask(server, question.clone());
            async move { Answer::of_one(asked.await?, &question) }
        };
        Self::new(path, name, summary, JSON, written).giving::<R>(Ref::from_schema_name(R::name()).into())
    }

    /// The events of a run as they come.
    pub(super) fn events(path: &'static str, name: &'static str, summary: &'static str) -> Self {
        let none = |_, _| async { Err(Refusal::not_found("it streams")) };
        let endpoint = Self::new(path, name, summary, "text/event-stream", none);
        // Each event as its fields: the data is JSON in a text.
        let field = || ObjectBuilder::new().schema_type(Type::String).build();
        let event = ObjectBuilder::new().property("id", field()).property("event", field()).property("data", field());
        let gives = vec![("text/event-stream", event.required("data").build().into())];
        Self { ask: Ask::Events, gives, ..endpoint }.depending_on(DependsOn::Moment)
    }

    /// It answers JSON with a schema, and CSV.
    fn giving<R: ToSchema>(mut self, json: RefOr<Schema>) -> Self {
        self.parameters.push(Parameter::format());
        self.gives = vec![(JSON, json), (CSV, ObjectBuilder::new().schema_type(Type::String).build().into())];
        self.knowing::<R>()
    }

    /// It answers one JSON object with a schema, and nothing else.
    pub(super) fn giving_json<R: ToSchema>(mut self) -> Self {
        self.gives = vec![(JSON, Ref::from_schema_name(R::name()).into())];
        self.knowing::<R>()
    }

    fn knowing<R: ToSchema>(mut self) -> Self {
        R::schemas(&mut self.schemas);
        self.schemas.push((R::name().into_owned(), R::schema()));
        self
    }

    fn paged(mut self) -> Self {
        self.is_paged = true;
        self.with([Parameter::cursor(), Parameter::number(LIMIT, "Rows of a page")])
    }

    /// All that there is fits one answer, which has at most so many rows.
    pub(super) fn bounded(mut self, limit: Parameter) -> Self {
        self.is_paged = false;
        self.parameters.retain(|parameter| !["limit", "cursor"].contains(&parameter.name));
        self.with([limit])
    }

    /// Pages go on with this parameter in place of a cursor.
    pub(super) fn going_on_with(mut self, parameter: Parameter) -> Self {
        self.parameters.retain(|parameter| parameter.name != "cursor");
        self.with([parameter])
    }

    /// With these parameters too.
    pub(super) fn with(mut self, parameters: impl IntoIterator<Item = Parameter>) -> Self {
        self.parameters.extend(parameters);
        self
    }

    pub(super) fn depending_on(self, depends_on: DependsOn) -> Self {
        Self { depends_on, ..self }
    }

    /// The router that answers it too.
    pub(super) fn add_to(self, router: Router, server: &Arc<Server>) -> Router {
        // The router takes a whole segment for a value: what follows the value, such as `.json`, is left to the answer.
        let route = match self.path.rfind('}') {
            Some(end) if !self.path[end..].contains('/') => &self.path[..=end],
            _ => self.path,
        };
        let (endpoint, server) = (Arc::new(self), Arc::clone(server));
        let path = endpoint.path;
        let answer = move |in_path: Result<RawPathParams, RawPathParamsRejection>, request: Parts| async move {
            let answering = endpoint.answer(&server, in_path, &request);
            let answered = tokio::time::timeout(ANSWER_WITHIN, answering).await;
            let late = |_| Err(Refusal::later("the answer took too long; ask for fewer runs or cases"));
            let mut response = answered.unwrap_or_else(late).into_response();
            response.extensions_mut().insert(EndpointPath(path));
            response
        };
        router.route(route, get(answer))
    }

    async fn answer(
        &self,
        server: &Arc<Server>,
        in_path: Result<RawPathParams, RawPathParamsRejection>,
        request: &Parts,
    ) -> Result<Response, Refusal> {
        let question = Question::read(&self.parameters, in_path, &request.uri, &request.headers)?;
        let Ask::Answer(ask) = &self.ask else {
            return event_stream::stream(server, &question, &request.headers).await;
        };
        let _slot = server.answers.acquire().await.map_err(|_| Refusal::later("the server is ending"))?;
        let Some(tag) = self.tag(server, &question).await? else {
            return Ok(ask(Arc::clone(server), question).await?.respond(None));
        };
        if is_known(&request.headers, &tag) {
            return Ok(unchanged(&tag));
        }
        let key = question.key();
        if let Some(answer) = server.cache.get(&key, &tag) {
            return Ok(answer.respond(Some(&tag)));
        }
        let answer = ask(Arc::clone(server), question).await?;
        let response = answer.respond(Some(&tag));
        server.cache.put(key, tag, answer);
        Ok(response)
    }

    /// What tells the answer from others to the same question, made of all that the answer depends on.
    ///
    /// The revision is read before the answer is made: one that is newer than its tag is only made again once more.
    async fn tag(&self, server: &Server, question: &Question) -> Result<Option<String>, Refusal> {
        let mut hasher = DefaultHasher::new();
        (server.instance, question.key()).hash(&mut hasher);
        match self.depends_on {
            DependsOn::Moment => return Ok(None),
            DependsOn::Program => {}
            DependsOn::Store => server.store.revision().await?.hash(&mut hasher),
            DependsOn::StoreAndTime => (server.store.revision().await?, question.now).hash(&mut hasher),
        }
        Ok(Some(format!("\"{:016x}\"", hasher.finish())))
    }
}

/// Whether the request says that it has the answer with this tag.
fn is_known(headers: &HeaderMap, tag: &str) -> bool {
    let values = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim).any(|known| known == "*" || known.trim_start_matches("W/") == tag)
}
