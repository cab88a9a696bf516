//! The document tells what is served, and what is served is as the document tells.

use std::collections::BTreeSet;

use modelfarm_matrix::attempt::Attempt;
use modelfarm_reports::rows::RunState;
use modelfarm_reports::server::{openapi_document, served_paths};
use modelfarm_reports::store::{NewRun, now_ms};
use serde_json::{Value, json};

use crate::client::{get, get_with};
use crate::samples::{case, failed, new_run, passed};
use crate::served::{Served, on_every_kind, on_sqlite};

fn document() -> Value {
    serde_json::from_str(&openapi_document()).unwrap()
}

/// A documented path with real values.
fn filled(path: &str, served: &Served) -> String {
    let (case, run) = (case(2).id(), served.second.as_str());
    let path = path.replace("{run}", run).replace("{case}", case.as_str()).replace("{attempt}", "1");
    let path = path.replace("{architecture}", "llama");
    // Nothing failed yet in the newest.
    if path.ends_with("/failures") { format!("{path}?run={run}") } else { path }
}

#[tokio::test]
async fn each_path_of_the_document_answers_and_each_that_answers_is_in_it() {
    let document = document();
    let described: BTreeSet<&str> = document["paths"].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(described, served_paths().into_iter().collect());
    assert_eq!(document["openapi"], "3.1.0");
    let served = on_sqlite().await;
    for path in &described {
        let answer = get(served.address, &filled(path, &served)).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        let kinds = document["paths"][path]["get"]["responses"]["200"]["content"].as_object().unwrap();
        let kind = answer.header("content-type").split(';').next().unwrap();
        assert!(kinds.contains_key(kind), "{path} answers {kind}");
        // A path that is nearly right is another one.
        assert_eq!(get(served.address, &format!("{path}/x")).await.status, 404, "{path}/x");
    }
    let told = get(served.address, "/api/v1/openapi.json").await;
    assert_eq!(told.json(), document);
}

#[test]
fn each_operation_has_a_name_of_its_own_and_each_parameter_stands_where_it_says() {
    let document = document();
    let mut names = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        let operation = &item["get"];
        assert!(names.insert(operation["operationId"].as_str().unwrap().to_owned()), "{path}");
        let mut parameters = BTreeSet::new();
        for parameter in operation["parameters"].as_array().unwrap_or(&Vec::new()) {
            let name = parameter["name"].as_str().unwrap();
            assert!(parameters.insert(name.to_owned()), "{path} has {name} twice");
            let is_in_path = path.contains(&format!("{{{name}}}"));
            assert_eq!(parameter["in"] == "path", is_in_path, "{path} {name}");
            assert!(parameter["description"].as_str().is_some_and(|text| text.len() > 5), "{path} {name}");
        }
        for in_path in path.split('{').skip(1).map(|rest| rest.split('}').next().unwrap()) {
            assert!(parameters.contains(in_path), "{path} does not tell of {in_path}");
        }
    }
}

/// The schema that the document has for a successful JSON answer; a row may hold nothing that it does not tell.
fn schema_of(document: &Value, path: &str) -> Option<Value> {
    let content = &document["paths"][path]["get"]["responses"]["200"]["content"]["application/json"];
    let mut schema = content["schema"].clone();
    let strict = |place: &mut Value| {
        if place.get("$ref").is_some() {
            place["unevaluatedProperties"] = json!(false);
        }
    };
    strict(&mut schema);
    if let Some(items) = schema.get_mut("items") {
        strict(items);
    }
    schema["components"] = document["components"].clone();
    (!content.is_null() && content["schema"]["type"] != "string").then_some(schema)
}

#[tokio::test]
async fn real_answers_are_as_their_schemas_say() {
    for served in on_every_kind().await {
        a_night_with_a_flake(&served).await;
        let document = document();
        let mut checked = 0;
        for path in document["paths"].as_object().unwrap().keys() {
            let Some(schema) = schema_of(&document, path) else { continue };
            let validator = jsonschema::draft202012::new(&schema).unwrap();
            let answer = get(served.address, &filled(path, &served)).await.json();
            let errors: Vec<String> =
                validator.iter_errors(&answer).map(|error| format!("{} at {}", error, error.instance_path)).collect();
            assert!(errors.is_empty(), "{path}: {errors:#?}");
            assert!(answer.as_array().is_none_or(|rows| !rows.is_empty()), "{path} has no row");
            checked += 1;
            // A schema that lets everything through would check nothing.
            let wrong = if answer.is_array() { json!([{"surprise": 1}]) } else { json!({"surprise": 1}) };
            assert!(!validator.is_valid(&wrong), "{path}");
        }
        assert!(checked >= 20, "{checked}");
        refusals_are_too(&served, &document).await;
    }
}

/// A complete run in which a case fails on one host and then passes on another.
async fn a_night_with_a_flake(served: &Served) {
    let run = served.store.begin_run(&NewRun { plan_id: "b".repeat(16), ..new_run(&[case(3)]) }).await.unwrap();
    let on = |host: &str, attempt: Attempt| Attempt { host: host.into(), started_at: now_ms(), ..attempt };
    served.store.finish_attempt_before_retry(&run, &on("host-b", failed(&case(3)))).await.unwrap();
    served.store.finish_attempt(&run, &on("host-c", Attempt { attempt: 2, ..passed(&case(3)) })).await.unwrap();
    served.store.end_shard(&run, RunState::Complete).await.unwrap();
}

async fn refusals_are_too(served: &Served, document: &Value) {
    let schema =
        json!({"$ref": "#/components/schemas/ErrorBody", "unevaluatedProperties": false, "components": document["components"]});
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    for path in ["/api/v1/runs?limit=0", "/api/v1/runs/ffffffff", "/nothing", "/api/v1/results?mode=strict_eager"] {
        let answer = get(served.address, path).await;
        assert!((400..500).contains(&answer.status), "{path}");
        assert!(validator.is_valid(&answer.json()), "{path}: {}", answer.body);
    }
}

#[tokio::test]
async fn each_kind_of_answer_that_is_described_can_be_had() {
    let served = on_sqlite().await;
    for (path, item) in document()["paths"].as_object().unwrap() {
        for kind in item["get"]["responses"]["200"]["content"].as_object().unwrap().keys() {
            let answer = get_with(served.address, &filled(path, &served), &[("Accept", kind)]).await;
            assert_eq!(answer.header("content-type").split(';').next(), Some(kind.as_str()), "{path}");
        }
    }
}
