//! What Prometheus reads: text in the exposition format, version 0.0.4.

use std::fmt::Write;
use std::sync::Arc;

use crate::query::Question as Compare;
use crate::rows::{RunRow, RunState};
use crate::server::answer::Answer;
use crate::server::question::Question;
use crate::server::refusal::Refusal;
use crate::server::{STREAMS, Server};
use crate::store::{StoreError, now_ms};
use crate::visible_text::visible;

pub(in crate::server) const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What the counts are kept under while the store stays as it is.
const KEPT: &str = "metrics of the store";

pub(in crate::server) async fn metrics(server: Arc<Server>, _question: Question) -> Result<Answer, Refusal> {
    let mut text = of_server(&server);
    text.push_str(&newest_run(&server).await?);
    gauge(&mut text, "modelfarm_database_bytes", "Bytes of the database, without a write-ahead log");
    sample(&mut text, "modelfarm_database_bytes", &[], server.store.bytes().await? as f64);
    let tag = format!("{:?}", server.store.revision().await?);
    let counted = match server.cache.get(KEPT, &tag) {
        Some(kept) => kept,
        None => {
            let counted = Answer::text(METRICS, counts(&server).await?);
            server.cache.put(KEPT.to_owned(), tag, counted.clone());
            counted
        }
    };
    text.push_str(&String::from_utf8_lossy(&counted.body));
    Ok(Answer::text(METRICS, text))
}

fn of_server(server: &Server) -> String {
    let mut text = String::new();
    gauge(&mut text, "modelfarm_info", "The program");
    sample(&mut text, "modelfarm_info", &[("version", env!("CARGO_PKG_VERSION"))], 1.0);
    gauge(&mut text, "modelfarm_event_streams", "Readers that follow events now");
    let streams = STREAMS - server.streams.available_permits();
    sample(&mut text, "modelfarm_event_streams", &[], streams as f64);
    let _ = writeln!(text, "# HELP modelfarm_requests_total Requests answered, by path and status");
    let _ = writeln!(text, "# TYPE modelfarm_requests_total counter");
    for ((path, status), count) in server.requests.all() {
        sample(&mut text, "modelfarm_requests_total", &[("path", path), ("status", &status.to_string())], count as f64);
    }
    text
}

/// The newest run, whose age and state time alone may change.
async fn newest_run(server: &Server) -> Result<String, Refusal> {
    let run = match server.store.run("latest").await {
        Ok(run) => run,
        Err(StoreError::NoSuchRun { .. }) => return Ok(String::new()),
        Err(error) => return Err(error.into()),
    };
    let RunRow { matrix, state, started_at, planned, finished, .. } = run;
    let matrix = [("matrix", matrix.as_str())];
    let mut text = String::new();
    let started = started_at.parse::<jiff::Timestamp>().map(|start| start.as_millisecond()).unwrap_or_default();
    gauge(&mut text, "modelfarm_last_run_age_seconds", "Seconds since the newest run began");
    sample(&mut text, "modelfarm_last_run_age_seconds", &matrix, now_ms().saturating_sub(started) as f64 / 1000.0);
    gauge(&mut text, "modelfarm_last_run_state", "1 for the state of the newest run");
    for word in RunState::ALL {
        let labels = [matrix[0], ("state", word.as_str())];
        sample(&mut text, "modelfarm_last_run_state", &labels, f64::from(u8::from(*word == state)));
    }
    gauge(&mut text, "modelfarm_last_run_planned_cases", "Cases that the newest run is to ask");
    sample(&mut text, "modelfarm_last_run_planned_cases", &matrix, planned as f64);
    gauge(&mut text, "modelfarm_last_run_finished_cases", "Cases of the newest run that are final");
    sample(&mut text, "modelfarm_last_run_finished_cases", &matrix, finished as f64);
    Ok(text)
}

/// What changes with the store alone.
async fn counts(server: &Server) -> Result<String, Refusal> {
    let mut text = String::new();
    gauge(&mut text, "modelfarm_runs", "Runs in the store");
    sample(&mut text, "modelfarm_runs", &[], server.store.run_count().await? as f64);
    let Some(run) = server.store.complete_runs(None, 1).await?.into_iter().next() else { return Ok(text) };
    gauge(&mut text, "modelfarm_cases", "Cases of the newest complete run, by target, mode and outcome");
    for count in server.store.outcome_counts(&run).await? {
        let labels = [("target", count.target.as_str()), ("mode", count.mode.as_str()), ("outcome", count.outcome.as_str())];
        sample(&mut text, "modelfarm_cases", &labels, count.cases as f64);
    }
    let comparison = match server.store.comparison(&Compare { run: Some(run), ..Compare::default() }).await {
        Ok(comparison) => comparison,
        Err(StoreError::NoCompleteRun { .. }) => return Ok(text),
        Err(error) => return Err(error.into()),
    };
    let states = [("yes", Some(true)), ("no", Some(false)), ("open", None)];
    let help = "Regressions and new failures of the newest complete run, by whether trying again showed them";
    gauge(&mut text, "modelfarm_regressions", help);
    for (word, confirmed) in states {
        let rows = comparison.rows.iter().filter(|row| row.change.is_bad() && row.confirmed == confirmed);
        sample(&mut text, "modelfarm_regressions", &[("confirmed", word)], rows.count() as f64);
    }
    Ok(text)
}

fn gauge(text: &mut String, name: &str, help: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
}

/// One sample; a label's value may be any text.
fn sample(text: &mut String, name: &str, labels: &[(&str, &str)], value: f64) {
    let labels: Vec<String> = labels
        .iter()
        .map(|(label, value)| {
            format!("{label}=\"{}\"", visible(value).replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
        })
        .collect();
    let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
    let _ = writeln!(text, "{name}{labels} {value}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_cannot_end_before_its_value() {
        let mut text = String::new();
        sample(&mut text, "m", &[("a", "x\"} 1\nm2 3\\")], 1.5);
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.starts_with("m{a=\"x\\\"} 1") && text.ends_with("\\\\\"} 1.5\n"), "{text}");
    }
}
