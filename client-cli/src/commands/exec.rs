//! `pml exec FILE|-`: runs a program and prints its result.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::sync::Arc;

use analysis::Bundle;
use protocol::{
    Approval, ApprovalType, ContinueRequest, Envelope, ErrorCode, ExecuteOptions, ExecuteRequest,
    RunNote,
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::args::Exec;
use crate::commands::{interrupted, note, say};
use crate::error::CliError;
use crate::{config, execute, program, resume};

/// Runs the command; the exit code tells how the program ended.
///
/// # Errors
/// Returns why the program did not end well.
pub async fn exec(
    app: Arc<App>,
    exec: Exec,
    program: Bundle,
    stop: CancellationToken,
) -> Result<ExitCode, CliError> {
    let args = exec
        .args
        .as_deref()
        .map(|text| {
            // Of a key that stands twice, one value would be lost without a word.
            config::check_unique(text.as_bytes())?;
            serde_json::from_str::<Value>(text).map_err(|error| error.to_string())
        })
        .transpose()
        .map_err(|error| CliError::cannot_run(format!("--args is not JSON: {error}")))?;
    let request = ExecuteRequest {
        code: Some(program.code.clone()),
        args,
        options: Some(ExecuteOptions { timeout_ms: exec.timeout_ms, ..ExecuteOptions::default() }),
        ..ExecuteRequest::default()
    };
    let mut envelope = execute::execute(&app, request, stop.clone()).await;
    // Only a person at a terminal can say yes here; a pipe cannot.
    let person = !exec.json && std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    while let Envelope::ApprovalRequired(approval) = &envelope {
        if !person {
            break;
        }
        let decision = tokio::select! {
            decision = ask(approval) => decision?,
            // The question stands on the terminal still; what follows begins a new line.
            () = stop.cancelled() => {
                note("\n");
                app.shut_down().await;
                return Err(interrupted());
            }
        };
        envelope = resume::resume(&app, &decision, stop.clone()).await;
    }
    app.shut_down().await;
    if let Envelope::Error(failed) = &mut envelope {
        program::locate(&program, &mut failed.error);
    }
    if exec.json {
        let text = serde_json::to_string_pretty(&envelope)
            .map_err(|error| CliError::failed(error.to_string()))?;
        say(&(text + "\n"))?;
    }
    match envelope {
        Envelope::Success(success) => {
            if !exec.json {
                print_console(&success.run);
                let text = render_result(&success.result)?;
                let is_terminal = std::io::stdout().is_terminal();
                say(&if is_terminal { for_terminal(&text) } else { text })?;
            }
            Ok(ExitCode::SUCCESS)
        }
        Envelope::Error(failed) => {
            let error = CliError::from(failed.error);
            if exec.json {
                return Ok(error.exit_code());
            }
            if let Some(run) = &failed.run {
                print_console(run);
            }
            Err(error)
        }
        Envelope::ApprovalRequired(approval) => {
            let error = CliError::from_code(ErrorCode::ApprovalDenied, approval.description.clone())
                .with_hint(match approval.approval_type {
                    ApprovalType::ToolPermission => "Nobody could be asked. Run it on a terminal, or allow the tool in `.pml.json` under `permissions.allow`.",
                    _ => "Nobody could be asked. Run it once on a terminal: the answer is kept in `.pml/mcp.lock`.",
                });
            if exec.json { Ok(error.exit_code()) } else { Err(error) }
        }
        Envelope::ExecuteLocally(_) => Err(CliError::from_code(
            ErrorCode::GatewayBadAnswer,
            "the program came back twice without having run",
        )),
    }
}

/// Asks the person at the terminal; anything but a clear yes is a no.
async fn ask(approval: &Approval) -> Result<ContinueRequest, CliError> {
    let question = format!("{}\nAllow? [y]es once, [a]lways, [N]o: ", approval.description);
    let answer = tokio::task::spawn_blocking(move || {
        {
            // Let go before the wait: what ends this command still writes there.
            let mut err = std::io::stderr().lock();
            err.write_all(question.as_bytes()).and_then(|()| err.flush())?;
        }
        let mut line = String::new();
        std::io::stdin().lock().read_line(&mut line)?;
        Ok::<_, std::io::Error>(line)
    })
    .await
    .map_err(|error| CliError::failed(error.to_string()))?
    .map_err(|error| CliError::failed(format!("cannot ask: {error}")))?;
    let answer = answer.trim().to_ascii_lowercase();
    Ok(ContinueRequest {
        workflow_id: approval.workflow_id.clone(),
        approved: matches!(answer.as_str(), "y" | "yes" | "a" | "always"),
        always: matches!(answer.as_str(), "a" | "always"),
    })
}

fn print_console(run: &RunNote) {
    for line in &run.console {
        note(&format!("{}: {}\n", line.level, protocol::escape_text(&line.text)));
    }
    if run.console_truncated {
        note("(more was printed than is kept)\n");
    }
}

/// A result may hold what a file or a server wants a terminal to do; a person
/// sees it, and a pipe gets the bytes.
pub(super) fn for_terminal(text: &str) -> String {
    let shown = |c: char| match c {
        '\n' | '\t' => c.to_string(),
        other => protocol::escape_text(other.encode_utf8(&mut [0; 4])),
    };
    text.chars().map(shown).collect()
}

/// Text as it is, everything else as JSON.
fn render_result(result: &Value) -> Result<String, CliError> {
    match result {
        Value::String(text) if text.ends_with('\n') => Ok(text.clone()),
        Value::String(text) => Ok(format!("{text}\n")),
        other => serde_json::to_string_pretty(other)
            .map(|text| text + "\n")
            .map_err(|error| CliError::failed(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// AP-02: a result cannot steer the terminal that shows it.
    #[test]
    fn results_on_a_terminal_are_escaped() {
        assert_eq!(
            for_terminal("a\tä\n\u{1b}]52;c;x\u{7}\u{202e}"),
            "a\tä\n\\u{1b}]52;c;x\\u{7}\\u{202e}"
        );
    }
}
