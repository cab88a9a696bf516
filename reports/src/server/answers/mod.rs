//! What is answered, a question a function.

mod badge;
mod changes;
mod feed;
mod metrics;
mod over_time;
mod results;
mod runs;
mod standing;
mod tables;

pub(super) use badge::{Badge, badge};
pub(super) use changes::{comparison, regressions};
pub(super) use feed::{FEED, feed};
pub(super) use metrics::{METRICS, metrics};
pub(super) use over_time::{flakes, hosts, nights, pass_rate, repairs, standing, versions};
pub(super) use results::{attempt, attempts_of_case, results};
pub(super) use runs::{environments, events, run, runs};
pub(super) use standing::{Health, architectures, failures, health};
