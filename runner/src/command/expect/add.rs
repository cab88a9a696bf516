//! `modelfarm expect add`.

use modelfarm_matrix::date::Date;
use modelfarm_matrix::expectation::{Expectation, Expectations};
use modelfarm_matrix::expectation_check::{self, Finding, Problem};
use modelfarm_matrix::expectation_text::{append, entry_text};
use modelfarm_matrix::fault::Fault;
use modelfarm_matrix::known_case::Known;
use modelfarm_matrix::link::Link;
use modelfarm_matrix::outcome::Outcome;
use modelfarm_matrix::selector::Selector;

use super::known;
use crate::cli::{ExpectationsOptions, Select};
use crate::command::expectations_file::{EditableFile, today};
use crate::command::{Farm, outputs, prepare};
use crate::exit::{ExitCode, Failure};
use crate::progress;

/// What an entry says of its cases.
pub struct Declares {
    /// What is expected.
    pub outcome: Outcome,
    /// Whose problem.
    pub fault: Option<Fault>,
    /// Why.
    pub reason: String,
    /// Where it is discussed.
    pub issue: Option<Link>,
    /// Who looks after it.
    pub owner: Option<String>,
    /// Until when.
    pub expires: Option<Date>,
}

/// Adds an entry to the end of the file, unless something is wrong with it.
pub async fn add(farm: &Farm, options: &ExpectationsOptions, select: Select, declares: Declares) -> Result<ExitCode, Failure> {
    let EditableFile { path, file } =
        EditableFile::find(options.expectations.as_deref(), options.matrix.first().map(AsRef::as_ref))?;
    let targets = prepare::targets(options.targets_file.as_deref())?;
    let (recorded, planned) = known::recorded_and_planned(farm, options).await?;
    let known = recorded.with(planned);
    let Declares { outcome, fault, reason, issue, owner, expires } = declares;
    let entry = Expectation { select: selector(select, &known)?, outcome, fault, reason, issue, owner, expires };
    let usage = |error: modelfarm_matrix::expectation::TomlError| Failure::usage(error.to_string());
    let text = append(&file.name, &file.text, &entry).map_err(usage)?;
    let all = Expectations::parse(&file.name, &text).map_err(usage)?;
    let line = all.entries().last().map_or(0, |declared| declared.line);
    let findings = expectation_check::check(&all, &known, &targets, today()?);
    let against = |finding: &&Finding| finding.line == line && (!known.cases.is_empty() || !needs_cases(&finding.problem));
    let problems: Vec<String> = findings.iter().filter(against).map(|finding| finding.problem.to_string()).collect();
    if !problems.is_empty() {
        let problems = problems.join("\n");
        return Err(Failure::usage(format!("not added to {}, as `expect check` would refuse it: {problems}", file.name)));
    }
    if known.cases.is_empty() {
        progress::line(
            "no case is recorded here: that the entry matches one was not checked; `modelfarm expect check` can later",
        );
    }
    outputs::write_whole(&path, &text)?;
    outputs::print(&entry_text(&entry))?;
    progress::line(&format!("added to {}, line {line}", file.name));
    Ok(ExitCode::Fine)
}

/// Whether a problem can be found only where cases are known.
fn needs_cases(problem: &Problem) -> bool {
    match problem {
        Problem::UnknownTarget(_) | Problem::Expired(_) => false,
        Problem::UnknownName { .. }
        | Problem::Stale
        | Problem::Shadowed { .. }
        | Problem::Contradicted { .. }
        | Problem::Useless { .. } => true,
    }
}

fn selector(select: Select, known: &Known) -> Result<Selector, Failure> {
    let Select { case, models, architectures, classes, tags, targets, modes, workloads, dtypes } = select;
    let Some(id) = case else {
        let selector = Selector {
            model: models,
            architecture: architectures,
            class: classes,
            tag: tags,
            target: targets,
            mode: modes,
            workload: workloads,
            dtype: dtypes,
        };
        if selector.is_empty() {
            let message = "for which cases? name at least one of --case, --model, --architecture, --class, --tag, --target, --mode, \
                           --workload, --dtype";
            return Err(Failure::usage(message));
        }
        return Ok(selector);
    };
    let Some(known) = known.cases.iter().find(|known| known.case.id() == id) else {
        return Err(Failure::usage(format!(
            "--case: no case {id} is recorded here; `modelfarm query results` lists the case ids that are"
        )));
    };
    let case = &known.case;
    Ok(Selector {
        model: vec![case.model.to_string()],
        target: vec![case.target.clone()],
        mode: vec![case.mode],
        workload: vec![case.workload],
        dtype: vec![case.dtype],
        ..Selector::default()
    })
}
