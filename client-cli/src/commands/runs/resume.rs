//! `pml runs resume`: goes on with a run whose `pml` was stopped.

use std::collections::HashSet;
use std::process::ExitCode;
use std::sync::Arc;

use analysis::Bundle;
use protocol::{ErrorCode, Include, escape_text};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{doubt, find};
use crate::app::App;
use crate::args::{ResumeRun, Settings};
use crate::commands::exec;
use crate::commands::terminal::ask_line;
use crate::consent::program_lock::LockFile;
use crate::consent::shortened::shortened;
use crate::consent::trust::TrustStore;
use crate::error::CliError;
use crate::policy::GivenPolicy;
use crate::run::journal::{Indeterminate, Journal, Redo};
use crate::run::{Runs, execute};
use crate::run_store::RunStore;
use crate::run_store::live::{Found, LiveRun};
use crate::run_store::record::{MOCK, REPLAY, RUN};
use crate::undo::put_back_by;
use crate::workspace::Workspace;

/// The maximum number of characters that are shown of the arguments of a call.
const SHOWN_ARGUMENTS: usize = 400;

/// Runs the command.
///
/// # Errors
/// Returns that there is no such run, why it cannot be resumed, which calls have to be decided about, or the program's
/// error.
pub(crate) async fn resume(
    app: Arc<App>,
    settings: &Settings,
    options: ResumeRun,
    stop: CancellationToken,
) -> Result<ExitCode, CliError> {
    let workspace = Workspace::find(settings.workspace.as_deref())
        .map_err(|error| CliError::cannot_run(error.to_string()))?;
    let person = exec::is_person(options.json);
    let Opened { mut journal, live, lock, policy } = open(&workspace, &options)?;
    if let Some(policy) = policy {
        app.restrict(policy)?;
    }
    if options.frozen {
        if lock.is_none() {
            let message = "the program of the run had no lock, and `--frozen` was given";
            return Err(CliError::from_code(ErrorCode::ConfigInvalid, message));
        }
        app.lockfile.freeze();
    }
    decide(&mut journal, &options, person, &stop).await?;
    let program = Bundle::of_one(journal.code.clone());
    let runs = if person { Runs::of(app) } else { Runs::unattended(app) }.locked_to(lock);
    let include = Include::ALL.to_vec();
    let envelope = execute::resume_recorded(&runs, journal, live, include, stop.clone()).await;
    exec::finish(runs, envelope, &program, person, options.json, &stop).await
}

/// A run that is about to go on.
struct Opened {
    journal: Journal,
    live: LiveRun,
    /// What its program was locked to, if it was.
    lock: Option<LockFile>,
    /// The policy that it was given, if it was given one.
    policy: Option<GivenPolicy>,
}

/// Finds the run and locks it.
fn open(workspace: &Workspace, options: &ResumeRun) -> Result<Opened, CliError> {
    let none = || CliError::cannot_run("no run is recorded in this project");
    let records = TrustStore::of_user().map_err(|error| CliError::cannot_run(error.to_string()))?;
    let id = {
        let reader = RunStore::reader(workspace)?.ok_or_else(none)?;
        find(&reader, &options.run)?.began.run
    };
    let refused = |reason: &str| {
        CliError::from_code(ErrorCode::Conflict, format!("the run cannot be resumed: {reason}"))
    };
    let found = LiveRun::find(records.folder(), &id)?;
    // Read again under the lock: it may have ended, or gone on, in the meantime.
    let reader = RunStore::reader(workspace)?.ok_or_else(none)?;
    let run = reader.run(&id)?.ok_or_else(none)?;
    if run.ended.is_some() {
        return Err(refused("it has ended").with_hint("`pml runs show` shows its result."));
    }
    if run.began.mode == REPLAY {
        let hint = "Repeat `pml replay`.";
        return Err(refused("it is a replay").with_hint(hint));
    }
    if run.began.mode == MOCK {
        let hint = "Repeat `pml exec --mock`.";
        return Err(refused("its calls were answered from another run").with_hint(hint));
    }
    if run.began.mode != RUN {
        let hint = "Repeat `pml runs undo`: what was put back already is taken into account.";
        return Err(refused("it puts back what another run changed").with_hint(hint));
    }
    let live = match found {
        Found::Stopped(live) => live,
        Found::Running => return Err(refused("it is still running")),
        Found::Unknown => {
            let reason = "whether it is still running is not known: this user did not begin it on this machine";
            return Err(refused(reason));
        }
    };
    if let Some(undo) = put_back_by(&reader, &run)? {
        let reason = format!("`pml runs undo` has put back what it changed, in run {undo}");
        let hint = "Undo that run first, or run the program again.";
        return Err(refused(&escape_text(&reason)).with_hint(hint));
    }
    // Somebody who writes records chooses what the program gets, and which of its calls are not made.
    let doubt = doubt(workspace, &reader, &records, &id)?;
    let is_trusted = doubt.is_none();
    if let Some(doubt) = doubt.filter(|_| !options.unverified) {
        let hint = "If you know the reason, for example a power failure, repeat the command with `--unverified`.";
        return Err(refused(&escape_text(&doubt)).with_hint(hint));
    }
    let mut journal = Journal::read(&reader, &run)?;
    if !is_trusted {
        journal.forget_answers();
    }
    let plan = reader.content(&run.began.plan);
    let plan = plan.and_then(|plan| serde_json::from_str::<Value>(&plan).ok());
    // Without it, nobody knows whether the program was locked.
    let plan = plan.ok_or_else(|| refused("its plan is missing, or was changed"))?;
    let lock = plan.get("lock").map(LockFile::recorded).transpose();
    let lock = lock.map_err(|reason| {
        refused(&format!("the lock in its record is invalid: {}", escape_text(&reason)))
    })?;
    let rules = reader.content(&run.began.policy);
    let rules = rules.and_then(|rules| serde_json::from_str::<Value>(&rules).ok());
    // Without them, nobody knows whether the run was given a policy.
    let rules = rules.ok_or_else(|| refused("its rules are missing, or were changed"))?;
    let policy = GivenPolicy::of_record(&rules).map_err(|reason| {
        let reason = format!("the policy file that it was given is not known: {reason}");
        refused(&escape_text(&reason)).with_hint("Run the program again, with `--policy`.")
    })?;
    Ok(Opened { journal, live, lock, policy })
}

/// Decides about the calls that may have taken effect: by the options, and by asking a `person`.
async fn decide(
    journal: &mut Journal,
    options: &ResumeRun,
    person: bool,
    stop: &CancellationToken,
) -> Result<(), CliError> {
    let open: Vec<Indeterminate> = journal.indeterminate().to_vec();
    let known: HashSet<&str> = open.iter().map(|call| call.call.as_str()).collect();
    for name in options.repeat.iter().chain(&options.fail) {
        if !known.contains(name.as_str()) {
            let name = escape_text(name);
            let message = format!("call {name} is not one that may have taken effect");
            return Err(CliError::cannot_run(message).with_hint(list(&open)));
        }
    }
    if let Some(both) = options.repeat.iter().find(|name| options.fail.contains(name)) {
        let message = format!("call {} cannot be both made again and failed", escape_text(both));
        return Err(CliError::cannot_run(message));
    }
    let mut undecided = Vec::new();
    for call in &open {
        let named = |names: &[String]| names.contains(&call.call);
        let redo = match (named(&options.repeat), named(&options.fail)) {
            (true, _) => Some(Redo::Repeat),
            (_, true) => Some(Redo::Fail),
            (false, false) if person => Some(ask(call, stop).await?),
            (false, false) => None,
        };
        match redo {
            Some(redo) => journal.decide(&call.call, redo),
            None => undecided.push(call.clone()),
        }
    }
    if undecided.is_empty() {
        return Ok(());
    }
    let message = format!("calls may have taken effect:\n{}", list(&undecided));
    Err(CliError::from_code(ErrorCode::CallIndeterminate, message).with_hint(
        "Look whether they did, then name each with `--repeat CALL` or `--fail CALL`, or run the command on a terminal.",
    ))
}

/// Asks the person about a call.
async fn ask(call: &Indeterminate, stop: &CancellationToken) -> Result<Redo, CliError> {
    let question = format!(
        "{}It was begun at {}, and may have taken effect.\n[r]epeat it, [f]ail it, [N]ot now: ",
        shown(call),
        escape_text(&call.at)
    );
    match ask_line(question, stop).await?.trim().to_ascii_lowercase().as_str() {
        "r" | "repeat" => Ok(Redo::Repeat),
        "f" | "fail" => Ok(Redo::Fail),
        _ => Err(CliError::cannot_run("nothing was resumed; the run can be resumed later")),
    }
}

fn list(calls: &[Indeterminate]) -> String {
    match calls {
        [] => "There is no such call in this run.".to_owned(),
        calls => calls.iter().map(shown).collect::<String>().trim_end().to_owned(),
    }
}

fn shown(call: &Indeterminate) -> String {
    format!(
        "call {} {} {}\n",
        escape_text(&call.call),
        escape_text(&call.tool),
        shortened(&call.arguments, SHOWN_ARGUMENTS)
    )
}
