//! `pml permissions explain TOOL [ARGUMENTS]`: says what would happen to a call, without making it.

use std::process::ExitCode;
use std::sync::Arc;

use protocol::{Routing, ToolId, escape_text};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::terminal::{interrupted, say};
use crate::app::App;
use crate::args::PermissionsCommand;
use crate::error::CliError;
use crate::files::strict_json;
use crate::run::explain::{Explained, Verdict, explain};

/// Runs the command.
///
/// # Errors
/// Returns that the tool or its arguments are invalid, or why the tool was not found.
pub(crate) async fn permissions(
    app: Arc<App>,
    command: PermissionsCommand,
    stop: &CancellationToken,
) -> Result<ExitCode, CliError> {
    let PermissionsCommand::Explain { tool, arguments, json } = command;
    let id: ToolId = tool.parse().map_err(|error| {
        CliError::cannot_run(format!("`{}` is no tool: {error}", escape_text(&tool)))
            .with_hint("Name it as `namespace:action`, for example `filesystem:write_file`.")
    })?;
    let arguments = arguments.as_deref().map(parse).transpose()?;
    let has_arguments = arguments.is_some();
    let found = tokio::select! {
        found = explain(&app, &id, arguments, stop) => found,
        () = stop.cancelled() => return Err(interrupted()),
    };
    let explained = found?;
    if json {
        say(&format!("{:#}\n", explained.to_json(&id)))?;
    } else {
        say(&text(&explained))?;
        if !has_arguments && explained.verdict != Verdict::Denied {
            say("Arguments were not given: because of them, a call may fail or be asked about.\n")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Parses the arguments of a call.
fn parse(text: &str) -> Result<Value, CliError> {
    let invalid = |error: String| {
        CliError::cannot_run(format!("the arguments are no JSON object: {error}"))
            .with_hint(r#"Write an object, with names in double quotes: '{"path": "a.txt"}'."#)
    };
    strict_json::check_unique(text.as_bytes()).map_err(&invalid)?;
    let value: Value = serde_json::from_str(text).map_err(|error| invalid(error.to_string()))?;
    match value.is_object() {
        true => Ok(value),
        false => Err(invalid("it is another value".to_owned())),
    }
}

fn text(explained: &Explained) -> String {
    let reason = escape_text(&explained.reason);
    let mut out = match explained.verdict {
        Verdict::Runs => format!("Runs: {reason}\n"),
        Verdict::Asks => format!("Asks: {reason}\n"),
        Verdict::Denied => format!("Denied: {reason}\n"),
        Verdict::Fails => format!("Fails, and nobody is asked: {reason}\n"),
    };
    if let Some(why) = explained.needs_person {
        out += &format!("Only you can approve it: {why}.\n");
    }
    if let Some(question) = &explained.question {
        out += "The question:\n";
        question.lines().for_each(|line| out += &format!("  {line}\n"));
    }
    if explained.verdict == Verdict::Asks && explained.routing == Some(Routing::Server) {
        out += "The tool is on the gateway: a program with gateway tools only is not asked about, unless a rule asks.\n";
    }
    out
}
