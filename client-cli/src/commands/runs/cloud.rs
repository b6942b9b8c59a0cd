//! `pml runs list --cloud` and `pml runs show ID --cloud`: the executions that the gateway has recorded.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::Arc;

use protocol::escape_text;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::app::App;
use crate::args::{ListRuns, ShowRun};
use crate::commands::secrets::table;
use crate::commands::terminal::{note, say, unless_stopped};
use crate::consent::shortened::shortened;
use crate::error::CliError;
use crate::gateway::cloud::{Execution, ExecutionFilter, Executions};

/// The maximum displayed length of a list of tools, and of another text, in characters.
const TOOLS: usize = 60;
const TEXT: usize = 40;

/// Lists executions.
///
/// # Errors
/// Returns why there is no list.
pub(in crate::commands) async fn list(
    app: &Arc<App>,
    options: ListRuns,
    stop: &CancellationToken,
) -> Result<ExitCode, CliError> {
    let ListRuns { limit, json, cloud: _, status, tool, principal, since, until } = options;
    if limit == 0 {
        return Err(CliError::cannot_run("`--limit` must be at least 1"));
    }
    let status = status.map(|status| status.as_str().to_owned());
    let filter = ExecutionFilter { status, tool, principal, since, until };
    let gateway = app.cloud()?;
    let listed = unless_stopped(stop, gateway.executions(&filter, limit)).await?;
    let Executions { items, more } = listed;
    if json {
        let runs: Vec<Value> = items.into_iter().map(to_json).collect();
        let listed =
            json!({ "runs": runs, "more": more, "gateway": gateway.gateway().to_string() });
        say(&format!("{listed:#}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    if items.is_empty() {
        note(&format!("The gateway at {} lists no execution.\n", gateway.gateway()));
    } else {
        let rows: Vec<[String; 6]> = items.iter().map(row).collect();
        say(&table(["RUN", "STARTED", "STATUS", "CALLS", "BY", "TOOLS"], &rows))?;
    }
    if more {
        note(&format!(
            "There may be more than these {}; `--limit N` lists more, `--until TIME` older ones.\n",
            items.len()
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows one execution.
///
/// # Errors
/// Returns that there is none that the caller may read, or why it is not known.
pub(in crate::commands) async fn show(
    app: &Arc<App>,
    options: ShowRun,
    stop: &CancellationToken,
) -> Result<ExitCode, CliError> {
    let ShowRun { run, json, cloud: _ } = options;
    let list = "`pml runs list --cloud` lists them.";
    let run = run.ok_or_else(|| CliError::cannot_run("name the execution").with_hint(list))?;
    let id = Uuid::try_parse(&run).map_err(|_| {
        let message = format!("`{}` is not the id of an execution", shortened(&run, TEXT));
        CliError::cannot_run(message).with_hint(list)
    })?;
    let found = unless_stopped(stop, app.cloud()?.execution(id)).await?;
    match json {
        true => say(&format!("{:#}\n", to_json(found)))?,
        false => say(&text(&found))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn row(execution: &Execution) -> [String; 6] {
    [
        short(&execution.id, TEXT),
        short(&execution.started_at, TEXT),
        short(&execution.status, TEXT),
        execution.calls.map_or_else(|| "-".to_owned(), |calls| calls.to_string()),
        short(&execution.principal, TEXT),
        short(&execution.tools.join(", "), TOOLS),
    ]
}

/// Cuts a text for the table, which escapes it.
fn short(text: &str, limit: usize) -> String {
    match text.chars().count() > limit {
        true => text.chars().take(limit - 2).chain(" …".chars()).collect(),
        false => text.to_owned(),
    }
}

/// Returns it with the names that recorded runs have, as far as both have the same things.
fn to_json(mut execution: Execution) -> Value {
    execution.escape();
    json!({
        "run_id": execution.id,
        "created_at": execution.started_at,
        "completed_at": execution.finished_at,
        "status": execution.status,
        "total_steps": execution.calls,
        "tools": execution.tools,
        "error": execution.error_code.map(|code| json!({ "code": code })),
        "principal": execution.principal,
        "decision": execution.decision,
        "code_hash": execution.code_hash,
        "code_bytes": execution.code_bytes,
        "args_bytes": execution.args_bytes,
        "result_bytes": execution.result_bytes,
        "duration_ms": execution.duration_ms,
        "dynamic": execution.dynamic,
        "trace_id": execution.trace_id,
    })
}

fn text(execution: &Execution) -> String {
    let mut out = String::new();
    let mut line = |name: &str, text: Option<String>| {
        if let Some(text) = text {
            let _ = writeln!(out, "{name:<9} {text}");
        }
    };
    let plain = |text: &str| Some(shortened(text, 400));
    let number = |number: Option<i64>, unit: &str| number.map(|number| format!("{number}{unit}"));
    line("run", plain(&execution.id));
    line("started", plain(&execution.started_at));
    line("ended", execution.finished_at.as_deref().and_then(plain));
    let status = match &execution.error_code {
        Some(code) => format!("{}, {code}", execution.status),
        None => execution.status.clone(),
    };
    line("status", plain(&status));
    line("duration", number(execution.duration_ms, " ms"));
    line("decision", plain(&execution.decision));
    line("by", plain(&execution.principal));
    let code = format!("{} ({} bytes)", execution.code_hash, execution.code_bytes);
    line("program", plain(&code));
    line("args", number(Some(execution.args_bytes), " bytes"));
    line("result", number(execution.result_bytes, " bytes"));
    line("calls", number(execution.calls, ""));
    let tools = match execution.dynamic {
        true => format!("{} (and what it chooses while it runs)", execution.tools.join(", ")),
        false => execution.tools.join(", "),
    };
    line("tools", plain(&tools));
    line("trace", execution.trace_id.as_deref().map(escape_text));
    out
}
