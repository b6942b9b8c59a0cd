//! `pml publish FILE|-`: publishes a program under a name, so that other programs can call it.

mod remote;
pub(crate) mod server;

use std::process::ExitCode;
use std::sync::Arc;

use analysis::Bundle;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::args::Publish;
use crate::commands::program::note_diagnostics;
use crate::commands::terminal::{interrupted, note, say};
use crate::error::CliError;

/// Runs the command.
///
/// # Errors
/// Returns why the program was not published.
pub(crate) async fn publish(
    app: Arc<App>,
    publish: Publish,
    program: Bundle,
    stop: &CancellationToken,
) -> Result<ExitCode, CliError> {
    let Some(name) = publish.name else {
        return Err(CliError::cannot_run("a program needs `--name NAMESPACE.ACTION`"));
    };
    // An invalid program is reported here, with its position, before anything leaves the machine.
    let analysis = app.analyser()?.analyse(&program.code).await?;
    if !analysis.can_run() {
        note_diagnostics(&analysis.diagnostics, &program);
        return Err(CliError::cannot_run("the program cannot run; nothing was published"));
    }
    let mut body = json!({ "name": name, "code": program.code });
    let given = [
        ("version", publish.version),
        ("visibility", publish.visibility.map(|visibility| visibility.as_str().to_owned())),
        ("description", publish.description),
    ];
    for (field, value) in given {
        if let Some(value) = value {
            body[field] = Value::String(value);
        }
    }
    if publish.dry_run {
        say(&format!("{body:#}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    if program.has_imports() {
        let files: Vec<String> =
            program.files.iter().map(|file| protocol::escape_text(file)).collect();
        note(&format!("published as one program: {}\n", files.join(", ")));
    }
    let cloud = app.cloud()?;
    let made = tokio::select! {
        made = cloud.publish(body) => made?,
        () = stop.cancelled() => return Err(interrupted()),
    };
    if publish.json {
        say(&format!("{made:#}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let text =
        |field: &str| protocol::escape_text(made.get(field).and_then(Value::as_str).unwrap_or("?"));
    for warning in made["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        note(&format!("warning: {}\n", protocol::escape_text(warning)));
    }
    let side = if made["routing"] == "server" { "gateway" } else { "user's machine" };
    say(&format!(
        "{}, version {}, runs on the {side}.\nIn a program: await mcp.{}({{ … }})\n",
        text("fqdn"),
        text("version"),
        protocol::escape_text(&name.replace(':', ".")),
    ))?;
    Ok(ExitCode::SUCCESS)
}
