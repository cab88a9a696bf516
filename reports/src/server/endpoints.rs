//! Everything that can be asked: of this table the router and the document are made.

use modelfarm_matrix::axes::{Harness, Mode, Workload};
use modelfarm_matrix::case::CaseId;
use modelfarm_matrix::change::Change;
use modelfarm_matrix::outcome::Outcome;

use super::answer::{Answer, JSON};
use super::answers::{self, Badge, FEED, Health, METRICS};
use super::endpoint::{DependsOn, Endpoint};
use super::parameter::{AFTER, DETAILS, Parameter, WINDOW};

const HOW_FAR_BACK: &str = "How far back: a date or a duration, such as 2026-11-01 or 90d";

/// The parameters that say which cases.
fn cases() -> Vec<Parameter> {
    vec![
        Parameter::of::<CaseId>("case", "Only these cases").list(),
        Parameter::text("target", "Only these targets").list(),
        Parameter::of::<Mode>("mode", "Only these modes").list(),
        Parameter::text("architecture", "Only these architectures").list(),
        Parameter::text("model", "Only these models").list(),
        Parameter::of::<Harness>("harness", "Only these harnesses").list(),
        Parameter::of::<Workload>("workload", "Only these workloads").list(),
    ]
}

/// Those of a question about the attempts of a run.
fn of_run(run: &'static str) -> Vec<Parameter> {
    let outcomes = Parameter::of::<Outcome>("outcome", "Only these outcomes").list();
    [vec![Parameter::run(run), outcomes], cases()].concat()
}

/// Those of a question about the time until now.
fn over_time() -> Vec<Parameter> {
    [vec![matrix("Only runs of this matrix; default: of every matrix"), Parameter::since(HOW_FAR_BACK)], cases()].concat()
}

fn compared() -> Vec<Parameter> {
    let runs = vec![
        Parameter::run("The newer run; default: the newest complete run"),
        matrix("The newest complete run of this matrix; a run that is named must be of it"),
        Parameter::since_run(
            "What it is compared with: a run, a date or a duration; default: the complete run of the matrix before it",
        ),
        window(),
    ];
    [runs, cases()].concat()
}

fn matrix(about: &'static str) -> Parameter {
    Parameter::text("matrix", about)
}

fn window() -> Parameter {
    Parameter::number(WINDOW, "So many complete runs before tell whether a case flakes")
}

fn flaking() -> [Parameter; 2] {
    [matrix("The matrix; default: that of the newest complete run"), window()]
}

fn run_in_path() -> Parameter {
    Parameter::run("A run: its id, the beginning of it, `latest` or `latest~N`").in_path()
}

fn case_in_path() -> Parameter {
    Parameter::of::<CaseId>("case", "A case: its id, or the beginning of it").in_path()
}

/// The table.
pub(super) fn endpoints() -> Vec<Endpoint> {
    use answers as a;
    vec![
        Endpoint::rows("/api/v1/runs", "runs", "Runs, newest first", a::runs).depending_on(DependsOn::StoreAndTime),
        Endpoint::one("/api/v1/runs/{run}", "run", "One run", a::run)
            .with([run_in_path()])
            .depending_on(DependsOn::StoreAndTime),
        Endpoint::rows("/api/v1/runs/{run}/events", "events", "What happened in a run, in order", a::events)
            .with([run_in_path()])
            .going_on_with(Parameter::number(AFTER, "Only events with a greater number")),
        Endpoint::events(
            "/api/v1/runs/{run}/events/stream",
            "eventStream",
            "The events of a run as server-sent events, as they come",
        )
        .with([run_in_path(), Parameter::number(AFTER, "Only events with a greater number, where no Last-Event-ID says it")]),
        Endpoint::one(
            "/api/v1/runs/{run}/cases/{case}/attempts/{attempt}",
            "attempt",
            "Everything known of one attempt",
            a::attempt,
        )
        .with([
            run_in_path(),
            case_in_path(),
            Parameter::of::<u32>("attempt", "The number of the try, from 1").in_path(),
        ]),
        Endpoint::rows(
            "/api/v1/cases/{case}",
            "attemptsOfCase",
            "Everything known of the attempts of a case, newest first",
            a::attempts_of_case,
        )
        .bounded(Parameter::number(DETAILS, "The most attempts"))
        .with([case_in_path()]),
        Endpoint::rows("/api/v1/results", "results", "Attempts, newest run first", a::results)
            .with(of_run("The run; default: every run"))
            .going_on_with(Parameter::attempt_cursor())
            .with([Parameter::truth("all_attempts", "Earlier tries too, and not only the one that counts")]),
        Endpoint::rows("/api/v1/regressions", "regressions", "What became of each case between two runs", a::regressions)
            .with(compared())
            .with([Parameter::of::<Change>("change", "Only these changes").list()]),
        Endpoint::one(
            "/api/v1/comparison",
            "comparison",
            "Which two runs are compared, and what came of it in numbers",
            a::comparison,
        )
        .with(compared()),
        Endpoint::rows(
            "/api/v1/failures",
            "failures",
            "Failures of a run in groups of one masked message, those that block most architectures first",
            a::failures,
        )
        .with(of_run("The run; default: the newest"))
        .with([Parameter::truth("inconclusive", "Also the outcomes that say nothing about the target")]),
        Endpoint::rows("/api/v1/architectures", "architectures", "How each architecture stands in a run", a::architectures)
            .with(of_run("The run; default: the newest")),
        Endpoint::rows(
            "/api/v1/flakes",
            "flakes",
            "Cases that pass and fail by chance, the most often failing first",
            a::flakes,
        )
        .with(flaking()),
        Endpoint::rows("/api/v1/hosts", "hosts", "Hosts, those on which more fails than elsewhere first", a::hosts)
            .with(flaking()),
        Endpoint::rows(
            "/api/v1/nights",
            "nights",
            "The nights of a matrix, newest first, with those that did not come",
            a::nights,
        )
        .with([
            matrix("The matrix; default: that of the newest run"),
            Parameter::duration("every", "From one night to the next; the newest 10,000 are told at most", "24h"),
            Parameter::since(HOW_FAR_BACK),
        ])
        .depending_on(DependsOn::StoreAndTime),
        Endpoint::rows("/api/v1/standing", "standing", "Since when each case works, or is broken", a::standing)
            .with(over_time())
            .depending_on(DependsOn::StoreAndTime),
        Endpoint::rows(
            "/api/v1/pass-rate",
            "passRate",
            "The pass rate of each run, target and mode, with its denominator",
            a::pass_rate,
        )
        .with(over_time())
        .depending_on(DependsOn::StoreAndTime),
        Endpoint::rows("/api/v1/repairs", "repairs", "How long it took until what broke worked again", a::repairs)
            .with(over_time())
            .depending_on(DependsOn::StoreAndTime),
        Endpoint::rows(
            "/api/v1/versions",
            "versions",
            "The newest environment in which all of an architecture passed",
            a::versions,
        )
        .with(over_time())
        .depending_on(DependsOn::StoreAndTime),
        Endpoint::rows(
            "/api/v1/environments",
            "environments",
            "Environments that results were made in, newest first",
            a::environments,
        ),
        Endpoint::new("/api/v1/openapi.json", "openapi", "This document", JSON, |_, _| async {
            Ok(Answer::text(JSON, super::openapi_document()))
        })
        .depending_on(DependsOn::Program),
        Endpoint::new(
            "/badge/{architecture}.json",
            "badge",
            "An architecture in the newest complete run, as shields.io reads an endpoint",
            JSON,
            a::badge,
        )
        .giving_json::<Badge>()
        .with([
            Parameter::text("architecture", "`config.model_type`").in_path(),
            matrix("In the newest complete run of this matrix"),
            Parameter::text("target", "Only these targets").list(),
            Parameter::of::<Mode>("mode", "Only these modes").list(),
            Parameter::of::<Workload>("workload", "Only these workloads").list(),
        ]),
        Endpoint::new("/feed.atom", "feed", "What regressed in the newest complete runs, as an Atom feed", FEED, a::feed)
            .with([matrix("Only runs of this matrix")]),
        Endpoint::new("/metrics", "metrics", "For Prometheus", METRICS, a::metrics).depending_on(DependsOn::Moment),
        Endpoint::new("/healthz", "health", "Whether the server and its store answer", JSON, a::health)
            .giving_json::<Health>()
            .depending_on(DependsOn::Moment),
    ]
}
