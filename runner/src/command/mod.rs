//! The commands, one file each.

pub mod bisect;
pub mod confirm;
pub mod database;
pub mod demo;
pub mod env;
pub mod expect;
pub mod expectations_file;
pub mod fixtures;
pub mod gc;
pub mod outputs;
pub mod plan;
pub mod prepare;
pub mod printing;
pub mod query;
pub mod retrying;
pub mod run;
pub mod serve;
pub mod show;

use modelfarm_reports::query::WINDOW;
use modelfarm_reports::server::ServerOptions;

use crate::cli::{Cli, Command};
use crate::exit::{ExitCode, Failure};
use crate::progress;
use crate::state_dir::StateDir;
use crate::state_lock::InUse;

/// What every command knows.
#[derive(Debug, Clone)]
pub struct Farm {
    /// The state folder.
    pub state: StateDir,
    /// The database's URL.
    pub database: String,
}

impl Farm {
    fn new(cli: &Cli) -> Result<Self, Failure> {
        let state = StateDir::at(&cli.state_dir)
            .map_err(|error| Failure::to(format!("find the state folder {}: {error}", cli.state_dir.display())))?;
        let database = cli.database.clone().unwrap_or_else(|| format!("sqlite://{}", state.database().display()));
        Ok(Self { state, database })
    }

    /// Creates the state folder, and tells clearly where it cannot be written to. What it holds stays while the answer is held.
    pub fn create_state(&self) -> Result<InUse, Failure> {
        let on_wait = || progress::line("waiting until `modelfarm gc` has removed what is old");
        self.state.create(on_wait).map_err(|error| {
            let folder = self.state.root().display();
            Failure::to(format!("write to the state folder {folder}: {error}; choose another with --state-dir, or free it"))
        })
    }
}

/// Carries a command out.
pub async fn execute(cli: Cli) -> Result<ExitCode, Failure> {
    let farm = Farm::new(&cli)?;
    match cli.command {
        Command::Demo(execution) => demo::demo(&farm, execution).await,
        Command::Run { matrix, selection, execution } => run::run(&farm, matrix, &selection, &execution).await,
        Command::Plan { matrix, selection, left_out, targets_file, output } => {
            plan::plan(&farm, &matrix, &selection, left_out, targets_file, &output).await
        }
        Command::Confirm { matrix, run, since, tries, at_most, jobs, targets_file, selection, output } => {
            let question = query::question(run, None, since, WINDOW, &selection)?;
            let targets_file = targets_file.as_deref();
            let wanted = confirm::Wanted { question, matrix: &matrix, tries, at_most, jobs, targets_file };
            confirm::confirm(&farm, &wanted, &output).await
        }
        Command::Bisect { case, good, bad, matrix, tries, targets_file, output } => {
            let wanted =
                bisect::Wanted { case, good: &good, bad: &bad, matrix: &matrix, tries, targets_file: targets_file.as_deref() };
            bisect::bisect(&farm, &wanted, &output).await
        }
        Command::Gc { dry_run, older_than, output } => gc::gc(&farm, dry_run, &older_than, &output).await,
        Command::Show { reference, output } => show::show(&farm, &reference, &output).await,
        Command::Query(what) => query::query(&farm, what).await,
        Command::Expect(what) => expect::expect(&farm, what).await,
        Command::Fixtures(what) => fixtures::fixtures(&farm, what).await,
        Command::Env(what) => env::env(&farm, what).await,
        Command::Db(what) => database::database(&farm, what).await,
        Command::Serve { listen, allowed_hosts } => serve::serve(&farm, &ServerOptions { listen, allowed_hosts }).await,
        Command::Report { run, out, junit, summary, compatibility, also_run, causes } => {
            let files = outputs::Files {
                report: Some(&out),
                junit: junit.as_deref(),
                summary: summary.as_deref(),
                compatibility: compatibility.as_deref(),
            };
            outputs::report(&farm, &run, &also_run, files, causes.as_deref()).await
        }
    }
}
