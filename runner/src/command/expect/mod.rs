//! `modelfarm expect`, a file a command.

mod add;
mod check;
mod known;
mod list;
mod update;

use super::Farm;
use crate::cli::Expect;
use crate::exit::{ExitCode, Failure};

/// Lists, checks, adds or updates expectations.
pub async fn expect(farm: &Farm, what: Expect) -> Result<ExitCode, Failure> {
    match what {
        Expect::List { file, output } => list::list(farm, &file, &output).await,
        Expect::Check { file, planned } => check::check(farm, &file, planned).await,
        Expect::Add { file, select, outcome, fault, reason, issue, owner, expires } => {
            let declares = add::Declares { outcome, fault, reason, issue, owner, expires };
            add::add(farm, &file, select, declares).await
        }
        Expect::Update { file, run, inconclusive, write } => update::update(farm, &file, &run, inconclusive, write).await,
    }
}
