//! `pml publish --mcp FILE`: publishes an MCP server with the tools that it has when it is asked.

use std::process::ExitCode;

use protocol::{ErrorCode, Fqdn, Install, Scope, ToolDescriptor, Visibility};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::args::Publish;
use crate::commands::{interrupted, note, read_program, say};
use crate::error::CliError;
use crate::remote_mcp;

/// What the file says; what the server offers, it says itself.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    name: String,
    #[serde(rename = "type")]
    kind: Kind,
    description: String,
    version: Option<String>,
    visibility: Option<Visibility>,
    install: Option<Install>,
    proxy_to: Option<String>,
    #[serde(default)]
    env_required: Vec<String>,
    #[serde(default)]
    warnings: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Stdio,
    Http,
}

/// Runs the command.
///
/// # Errors
/// Returns what is wrong with the file, why the server does not answer, or why the gateway refused; then nothing was
/// published.
pub async fn publish(
    app: &App,
    publish: Publish,
    stop: &CancellationToken,
) -> Result<ExitCode, CliError> {
    let text = read_program(&publish.file, stop).await?;
    let shown = publish.file.display();
    let mut described: Description = serde_json::from_str(&text).map_err(|error| {
        CliError::cannot_run(format!("`{shown}` does not describe an MCP server: {error}"))
            .with_hint("It has `name`, `type`, `description`, and `install` or `proxy_to`; the tools come from the server.")
    })?;
    described.name = publish.name.unwrap_or(described.name);
    described.description = publish.description.unwrap_or(described.description);
    described.version = publish.version.or(described.version);
    described.visibility = publish.visibility.or(described.visibility);
    // A name that cannot be published starts nothing.
    Fqdn::server(Scope::public(), &described.name)
        .map_err(|error| CliError::cannot_run(format!("`{shown}`: {error}")))?;
    let tools = tools(app, &described, stop).await;
    let tools = tools.map_err(|error| error.with_hint("Nothing was published."))?;
    if tools.is_empty() {
        return Err(CliError::cannot_run("the server has no tools; nothing was published"));
    }
    let body = body(&described, &tools);
    if publish.dry_run {
        say(&format!("{body:#}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let made = tokio::select! {
        made = app.cloud()?.publish_server(body) => made?,
        () = stop.cancelled() => return Err(interrupted()),
    };
    if publish.json {
        say(&format!("{made:#}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let word = |field: &str| protocol::escape_text(made[field].as_str().unwrap_or("?"));
    let side = if made["routing"] == "server" { "gateway" } else { "user's machine" };
    let tools = made["tools"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let tools: String = tools.map(|tool| format!("  {}\n", protocol::escape_text(tool))).collect();
    say(&format!("{}, version {}, runs on the {side}.\n{tools}", word("fqdn"), word("version"),))?;
    Ok(ExitCode::SUCCESS)
}

/// Asks the server what it offers.
async fn tools(
    app: &App,
    described: &Description,
    stop: &CancellationToken,
) -> Result<Vec<ToolDescriptor>, CliError> {
    let shown = protocol::escape_text;
    match (described.kind, &described.install, &described.proxy_to) {
        (Kind::Stdio, Some(install), None) => {
            // Whoever runs this command asked for it; what runs is shown all the same.
            note(&format!(
                "Starts {}\n",
                shown(&json!([&install.command, &install.args]).to_string())
            ));
            Ok(app.tools_of(&described.name, install, stop).await?)
        }
        (Kind::Http, None, Some(url)) => {
            let variable = described.env_required.first();
            let key = variable.map(|name| {
                app.variable(name).ok_or_else(|| {
                    let what = format!("the server needs `{}`, which is not set", shown(name));
                    CliError::from_code(ErrorCode::ApiKeyRequired, what)
                })
            });
            let key = key.transpose()?;
            let with = variable.map(|name| format!(" with `{}`", shown(name))).unwrap_or_default();
            note(&format!("Asks {}{with}\n", shown(url)));
            Ok(remote_mcp::tools(url, key.as_deref(), stop).await?)
        }
        (Kind::Stdio, ..) => {
            Err(CliError::cannot_run("a `stdio` server has `install` and no `proxy_to`"))
        }
        (Kind::Http, ..) => {
            Err(CliError::cannot_run("an `http` server has `proxy_to` and no `install`"))
        }
    }
}

fn body(described: &Description, tools: &[ToolDescriptor]) -> Value {
    let kind = if described.kind == Kind::Http { "http" } else { "stdio" };
    let mut body = json!({
        "name": described.name,
        "type": kind,
        "description": described.description,
        "tools": tools,
        "warnings": described.warnings,
    });
    let given = [
        ("version", json!(described.version)),
        ("visibility", json!(described.visibility.map(Visibility::as_str))),
        ("install", json!(described.install)),
        ("proxy_to", json!(described.proxy_to)),
        ("env_required", json!(described.env_required)),
    ];
    for (field, value) in given {
        if !value.is_null() && value != json!([]) {
            body[field] = value;
        }
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_only_what_is_known() {
        let read = |text: &str| serde_json::from_str::<Description>(text);
        let whole =
            r#"{"name":"n","type":"http","description":"d","proxy_to":"https://n.example"}"#;
        let body = body(&read(whole).unwrap(), &[]);
        assert_eq!((&body["type"], body.get("install")), (&json!("http"), None));
        for more in [r#""tools":[]"#, r#""routing":"server""#, r#""command":"sh""#] {
            read(&whole.replace("\"name\"", &format!("{more},\"name\""))).expect_err(more);
        }
    }
}
