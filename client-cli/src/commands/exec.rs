//! `pml exec FILE|-`: runs a program and prints its result.

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::Arc;

use analysis::{Analysis, Bundle};
use protocol::{
    Approval, ApprovalType, ContinueRequest, Envelope, ErrorCode, ExecuteOptions, ExecuteRequest,
    Include, RunNote, escape_text,
};
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::program::{self, note_diagnostics};
use super::terminal::{ask_line, for_terminal, note, say};
use crate::app::{App, PackageActivity};
use crate::args::Exec;
use crate::consent::program_lock::LockFile;
use crate::consent::question::Channel;
use crate::consent::question::left_out::LeftOut;
use crate::error::CliError;
use crate::files::strict_json;
use crate::run::mock::Mock;
use crate::run::{Runs, execute, resume};

/// Runs the command, with the answers of another run if there is a `mock`; the exit code reflects the program's outcome.
///
/// # Errors
/// Returns the program's error, or why it did not run.
pub(crate) async fn exec(
    app: Arc<App>,
    exec: Exec,
    program: Bundle,
    mock: Option<Mock>,
    stop: CancellationToken,
) -> Result<ExitCode, CliError> {
    let args = exec
        .args
        .as_deref()
        .map(|text| {
            // `serde_json` silently keeps only one value of a duplicate key.
            strict_json::check_unique(text.as_bytes())?;
            serde_json::from_str::<Value>(text).map_err(|error| error.to_string())
        })
        .transpose()
        .map_err(|error| args_error(format!("is not JSON: {error}")))?;
    if let Some(args) = args.as_ref().filter(|args| !args.is_object()) {
        let kind = match args {
            Value::Array(_) => "an array",
            Value::String(_) => "a string",
            Value::Number(_) => "a number",
            _ => "a single value",
        };
        return Err(args_error(format!("is {kind}, not an object")));
    }
    let request = ExecuteRequest {
        code: Some(program.code.clone()),
        args,
        options: Some(ExecuteOptions {
            timeout_ms: exec.timeout_ms,
            // The output is for scripts, not for a model, so nothing is left out.
            include: Include::ALL.to_vec(),
            ..ExecuteOptions::default()
        }),
        ..ExecuteRequest::default()
    };
    let lock = lock_of(&exec)?;
    if exec.frozen {
        app.lockfile.freeze();
    }
    let person = is_person(exec.json);
    let runs = if person { Runs::of(app) } else { Runs::unattended(app) }.locked_to(lock);
    if std::io::stderr().is_terminal() {
        tokio::spawn(show_installations(runs.app.package_activity()));
    }
    let envelope = match mock {
        Some(mock) => execute::execute_mocked(&runs, request, mock, stop.clone()).await,
        None => execute::execute(&runs, request, stop.clone()).await,
    };
    finish(runs, envelope, &program, person, exec.json, &stop).await
}

/// Returns the lock of the program. With `--frozen` there has to be one.
fn lock_of(exec: &Exec) -> Result<Option<LockFile>, CliError> {
    let is_stdin = exec.file.as_os_str() == "-";
    let lock = if is_stdin { None } else { LockFile::read(&exec.file)? };
    if lock.is_some() || !exec.frozen {
        return Ok(lock);
    }
    if is_stdin {
        return Err(CliError::cannot_run(
            "`--frozen` needs a file: a program from stdin has no lock",
        ));
    }
    let file = escape_text(&exec.file.to_string_lossy());
    let message = format!("`{file}.lock` does not exist, and `--frozen` was given");
    let hint = format!("Write it with `pml lock {file}`, and commit it.");
    Err(CliError::from_code(ErrorCode::ConfigInvalid, message).with_hint(hint))
}

/// Prints the packages that are installed, which can take minutes, until there can be no more.
pub(super) async fn show_installations(mut activity: watch::Receiver<PackageActivity>) {
    while activity.changed().await.is_ok() {
        let line = match &*activity.borrow_and_update() {
            PackageActivity::None => continue,
            PackageActivity::Installs(package) => format!("Installing {package} …\n"),
            PackageActivity::Installed { package, took, is_complete: true } => {
                format!("Installed {package} in {:.1} s\n", took.as_secs_f64())
            }
            // The error of the call says why.
            PackageActivity::Installed { package, .. } => format!("{package} was not installed\n"),
        };
        note(&line);
    }
}

/// Returns whether somebody can be asked: a person at a terminal.
pub(super) fn is_person(json: bool) -> bool {
    !json && std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Asks what a run asks, if there is a `person`, until it ends; then stops all servers and prints the outcome.
///
/// # Errors
/// Returns the program's error, or why it did not run.
pub(super) async fn finish(
    runs: Runs,
    envelope: Envelope,
    program: &Bundle,
    person: bool,
    json: bool,
    stop: &CancellationToken,
) -> Result<ExitCode, CliError> {
    let ended = answer(&runs, envelope, person, stop).await;
    // Run again, for the positions of the warnings: the envelope has only their text. The program has run, so a failure
    // of this analysis is ignored: its warnings only lose their positions.
    let analysis = match runs.app.analyser() {
        Ok(analyser) if !json && ended.is_ok() => analyser.analyse(&program.code).await.ok(),
        _ => None,
    };
    // Before anything that can fail: no server may outlive the command.
    runs.shut_down().await;
    let printed = ended.and_then(|envelope| print_outcome(envelope, analysis, program, json));
    // Behind the result, which nobody should wait for.
    runs.app.finish_telling().await;
    printed
}

/// Prints the outcome of a program.
fn print_outcome(
    mut envelope: Envelope,
    analysis: Option<Arc<Analysis>>,
    program: &Bundle,
    json: bool,
) -> Result<ExitCode, CliError> {
    if let Envelope::Error(failed) = &mut envelope {
        program::locate(program, &mut failed.error);
    }
    if json {
        let mut answer =
            serde_json::to_value(&envelope).map_err(|error| CliError::failed(error.to_string()))?;
        // Always present, so that scripts can iterate over it.
        if answer.get("executed").is_some() && answer.get("console").is_none() {
            answer["console"] = Value::Array(Vec::new());
        }
        say(&format!("{answer:#}\n"))?;
    }
    match envelope {
        Envelope::Success(success) => {
            if !json {
                print_run(&success.run, analysis.as_deref(), program);
                say(&printed(&success.result)?)?;
            }
            Ok(ExitCode::SUCCESS)
        }
        Envelope::Error(failed) => {
            let error = CliError::from(failed.error);
            // The envelope is on stdout already; returning the error would print a second one.
            if json {
                return Ok(error.exit_code());
            }
            if let Some(run) = &failed.run {
                print_run(run, analysis.as_deref(), program);
            }
            Err(error)
        }
        Envelope::ApprovalRequired(approval) => {
            let error = approval_unavailable(&approval);
            if json { Ok(error.exit_code()) } else { Err(error) }
        }
        Envelope::ExecuteLocally(_) => Err(CliError::from_code(
            ErrorCode::GatewayBadAnswer,
            "the gateway returned the program twice without running it",
        )),
    }
}

/// Follows a run to its end; with a `person` at the terminal, asks for each approval.
async fn answer(
    runs: &Runs,
    mut envelope: Envelope,
    person: bool,
    stop: &CancellationToken,
) -> Result<Envelope, CliError> {
    while let Envelope::ApprovalRequired(approval) = &envelope
        && person
    {
        let decision = ask(approval, stop).await?;
        envelope = resume::resume(runs, &decision, Channel::Terminal, false, stop.clone()).await;
    }
    Ok(envelope)
}

fn args_error(what: String) -> CliError {
    CliError::cannot_run(format!("`--args` {what}"))
        .with_hint(r#"Write an object, with names in double quotes: --args '{"path": "a.txt"}'."#)
}

/// Returns the error for an approval that cannot be requested here: the question, and how to answer it.
fn approval_unavailable(approval: &Approval) -> CliError {
    let tool = approval.context.get("tool").and_then(Value::as_str).unwrap_or("a call");
    let what = match approval.approval_type {
        ApprovalType::Plan => "the program needs".to_owned(),
        _ => format!("`{tool}` needs"),
    };
    let message =
        format!("{what} approval, but there is no terminal to ask on:\n{}", approval.description);
    let hint = match approval.approval_type {
        ApprovalType::Plan | ApprovalType::ToolPermission if no_rule_allows(approval) => {
            format!("Run it on a terminal to be asked: no rule can allow {}.", forbidden(approval))
        }
        ApprovalType::Plan => {
            "Run it on a terminal to be asked, or allow its tools in `permissions.allow` of `.pml.json` and run `pml trust`."
                .to_owned()
        }
        ApprovalType::ToolPermission => format!(
            "Run it on a terminal to be asked, or add \"{tool}\" to `permissions.allow` in `.pml.json` and run `pml trust`."
        ),
        _ => "Run it once on a terminal to be asked; the answer is stored in `.pml/mcp.lock`."
            .to_owned(),
    };
    CliError::from_code(ErrorCode::ApprovalDenied, message).with_hint(hint)
}

/// Returns the calls that a question is about.
fn calls(approval: &Approval) -> impl Iterator<Item = &Value> {
    let calls = approval.context.get("calls").and_then(Value::as_array);
    calls.into_iter().flatten().chain(calls.is_none().then_some(&approval.context))
}

/// Returns the calls that no rule can allow.
fn no_rule_calls(approval: &Approval) -> impl Iterator<Item = &Value> {
    calls(approval).filter(|call| call.get("can_be_allowed").is_some())
}

/// Returns whether no rule can allow one of the calls.
fn no_rule_allows(approval: &Approval) -> bool {
    no_rule_calls(approval).next().is_some()
}

/// Says what about such a call a rule cannot allow.
fn forbidden(approval: &Approval) -> &'static str {
    if calls(approval).any(|call| call.get("protected").is_some()) {
        "access to a protected place"
    } else if no_rule_calls(approval).any(|call| call["tool"] == "web:get") {
        "a web address unless `policy.web.allow` in `.pml.json` has its host"
    } else {
        "a command unless `policy.shell.allow` in `.pml.json` names its program"
    }
}

/// Asks the person at the terminal; anything except a clear yes means no.
async fn ask(approval: &Approval, stop: &CancellationToken) -> Result<ContinueRequest, CliError> {
    let offers_always = allows_always(approval);
    let always = if offers_always { " once, [a]lways" } else { "" };
    let some = match approval.approval_type {
        ApprovalType::Plan => ", [w]ithout some calls (w 2,4)",
        _ => "",
    };
    let prompt = format!("Allow? [y]es{always}{some}, [N]o: ");
    let mut question = format!("{}\n{prompt}", approval.description);
    loop {
        let answer = ask_line(question, stop).await?.trim().to_ascii_lowercase();
        let is_always = offers_always && matches!(answer.as_str(), "a" | "always");
        let mut decision = ContinueRequest {
            workflow_id: approval.workflow_id.clone(),
            // `always` is no answer where it was not offered, so there it counts as no.
            approved: is_always || matches!(answer.as_str(), "y" | "yes"),
            always: is_always,
            without: Vec::new(),
        };
        match LeftOut::of_line(&answer, approval) {
            None => {}
            Some(Ok(without)) => {
                (decision.approved, decision.without) = (true, without.numbers());
            }
            // A slip is no denial of everything.
            Some(Err(reason)) => {
                question = format!("{reason}\n{prompt}");
                continue;
            }
        }
        return Ok(decision);
    }
}

/// Returns whether "always" is a possible answer.
fn allows_always(approval: &Approval) -> bool {
    approval.options.iter().any(|option| option == "always")
}

/// Prints a run's console output and its warnings on stderr.
fn print_run(run: &RunNote, analysis: Option<&Analysis>, program: &Bundle) {
    let is_terminal = std::io::stderr().is_terminal();
    for line in &run.console {
        let level = match line.level.as_str() {
            "log" | "info" => String::new(),
            level => format!("{level}: "),
        };
        let text = if is_terminal { for_terminal(&line.text) } else { line.text.clone() };
        note(&format!("{level}{text}\n"));
    }
    if run.console_truncated {
        note("(output truncated)\n");
    }
    // Warnings of the analysis are printed below, with their positions.
    let located = analysis.map(Analysis::run_warnings).unwrap_or_default();
    for warning in run.warnings.iter().filter(|warning| !located.contains(warning)) {
        note(&format!("warning: {}\n", protocol::escape_text(warning)));
    }
    if let Some(analysis) = analysis {
        note_diagnostics(analysis.diagnostics.iter().filter(|found| found.is_for_run()), program);
    }
}

/// Renders a result for stdout.
pub(super) fn printed(result: &Value) -> Result<String, CliError> {
    let text = render_result(result)?;
    Ok(if std::io::stdout().is_terminal() { for_terminal(&text) } else { text })
}

/// Renders a string as it is, any other value as JSON.
fn render_result(result: &Value) -> Result<String, CliError> {
    match result {
        Value::String(text) if text.ends_with('\n') => Ok(text.clone()),
        Value::String(text) => Ok(format!("{text}\n")),
        other => serde_json::to_string_pretty(other)
            .map(|text| text + "\n")
            .map_err(|error| CliError::failed(error.to_string())),
    }
}
