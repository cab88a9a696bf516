//! The OpenAPI document of a table of endpoints.

use std::collections::BTreeMap;

use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::path::{OperationBuilder, PathItemBuilder, PathsBuilder};
use utoipa::openapi::schema::Schema;
use utoipa::openapi::{
    ComponentsBuilder, ContentBuilder, HttpMethod, InfoBuilder, License, OpenApiBuilder, Ref, RefOr, Response, ResponseBuilder,
};
use utoipa::{PartialSchema, ToSchema};

use super::answer::JSON;
use super::endpoint::{DependsOn, Endpoint};
use super::refusal::ErrorBody;

const ABOUT: &str = "What modelfarm's store holds, read-only. Rows are those that the command line prints: \
    `GET` and `HEAD` alone are answered, lists are bounded, and an unknown parameter or word is an error that names the nearest right one. \
    A list that goes on has a `Link` header with `rel=\"next\"`.";

/// As JSON.
pub(super) fn document(endpoints: &[Endpoint]) -> String {
    let mut schemas: BTreeMap<String, RefOr<Schema>> = BTreeMap::new();
    schemas.insert(ErrorBody::name().into_owned(), ErrorBody::schema());
    let mut paths = PathsBuilder::new();
    for endpoint in endpoints {
        schemas.extend(endpoint.schemas.iter().cloned());
        let item = PathItemBuilder::new().operation(HttpMethod::Get, operation(endpoint));
        paths = paths.path(endpoint.path, item.build());
    }
    let mut license = License::new("Apache-2.0");
    license.identifier = Some("Apache-2.0".to_owned());
    let info = InfoBuilder::new()
        .title("modelfarm")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(ABOUT))
        .license(Some(license));
    let components = ComponentsBuilder::new().schemas_from_iter(schemas);
    let document = OpenApiBuilder::new().info(info).paths(paths).components(Some(components.build())).build();
    match document.to_pretty_json() {
        Ok(json) => json,
        Err(error) => unreachable!("a document is always JSON: {error}"),
    }
}

fn operation(endpoint: &Endpoint) -> OperationBuilder {
    let mut operation = OperationBuilder::new().operation_id(Some(endpoint.name)).summary(Some(endpoint.summary));
    for parameter in &endpoint.parameters {
        operation = operation.parameter(parameter.documented());
    }
    operation = operation.response("200", answer(endpoint));
    if endpoint.depends_on != DependsOn::Moment {
        let tag = header("Which answer it is").build();
        let unchanged = "The answer is still the one whose tag `If-None-Match` names";
        operation = operation.response("304", ResponseBuilder::new().description(unchanged).header("ETag", tag));
    }
    if endpoint.name == "eventStream" {
        operation = operation.response("204", Response::new("The run has ended, and `Last-Event-ID` names its last event"));
        operation = operation.response("429", refusal("As many readers as may follow events do so"));
    }
    let refusals = [
        ("400", "A parameter is unknown or wrong"),
        ("404", "There is no such thing"),
        ("405", "Neither GET nor HEAD"),
        ("421", "The server is not called so"),
        ("503", "The store does not answer, or not soon enough"),
    ];
    refusals.into_iter().fold(operation, |operation, (status, about)| operation.response(status, refusal(about)))
}

fn answer(endpoint: &Endpoint) -> Response {
    let mut response = ResponseBuilder::new().description(endpoint.summary);
    for (content_type, schema) in &endpoint.gives {
        // Parameters of a type are no part of what a document names it by.
        let name = content_type.split(';').next().unwrap_or(content_type);
        response = response.content(name, ContentBuilder::new().schema(Some(schema.clone())).build());
    }
    if endpoint.depends_on != DependsOn::Moment {
        response = response.header("ETag", header("Which answer it is, for `If-None-Match`").build());
    }
    if endpoint.is_paged {
        response =
            response.header("Link", header("Where the list goes on, with `rel=\"next\"`; not there on the last page").build());
    }
    response.build()
}

fn header(about: &str) -> HeaderBuilder {
    HeaderBuilder::new().description(Some(about))
}

fn refusal(about: &str) -> Response {
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name(ErrorBody::name()))).build();
    ResponseBuilder::new().description(about).content(JSON, content).build()
}
