//! `pml publish --mcp FILE`: publishes an MCP server with the tools that it lists at that time.

use std::process::ExitCode;

use protocol::server_json::{ServerPlace, namespace_of, place_of};
use protocol::{ErrorCode, Fqdn, Install, Scope, ToolDescriptor, Visibility, is_version};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::remote;
use crate::app::App;
use crate::args::Publish;
use crate::commands::terminal::{interrupted, note, read_program, say};
use crate::error::CliError;

/// The content of the file; the server itself lists its tools.
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
    /// The whole file, if it is a server.json of the official registry.
    #[serde(skip)]
    server_json: Option<Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Stdio,
    #[serde(alias = "cloud")]
    Http,
}

/// Runs the command.
///
/// # Errors
/// Returns the problem of the file, why the server does not answer, or why the gateway refused; then nothing was
/// published.
pub(crate) async fn publish(
    app: &App,
    publish: Publish,
    stop: &CancellationToken,
) -> Result<ExitCode, CliError> {
    let text = read_program(&publish.file, stop).await?;
    let shown = publish.file.display();
    let mut described = describe(&text).map_err(|why| {
        CliError::cannot_run(format!("`{shown}` does not describe an MCP server: {why}")).with_hint(
            "Write `name`, `type`, `description`, and `install` or `proxy_to`, or use a server.json of the official registry; the tools come from the server.",
        )
    })?;
    described.name = publish.name.unwrap_or(described.name);
    described.description = publish.description.unwrap_or(described.description);
    described.version = publish.version.or(described.version);
    described.visibility = publish.visibility.or(described.visibility);
    // Checked before the server is started.
    if let Some(version) = described.version.as_deref().filter(|version| !is_version(version)) {
        let what = format!(
            "`{shown}`: its version `{}` is not of the form MAJOR.MINOR.PATCH",
            protocol::escape_text(version)
        );
        return Err(
            CliError::cannot_run(what).with_hint("Set one with `--version`, such as 1.2.0.")
        );
    }
    // The scope is a placeholder to check the name; the gateway uses the scope of the API key.
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

/// Parses a description: in the format of PML, or as a server.json of the official registry.
fn describe(text: &str) -> Result<Description, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let is_official = ["$schema", "packages", "remotes"].iter().any(|it| value.get(it).is_some());
    // Parsed from the text, so that errors have a line and duplicate fields are refused.
    if !is_official {
        return serde_json::from_str(text).map_err(|error| error.to_string());
    }
    let word = |field: &str| {
        let word = value[field].as_str().filter(|word| !word.is_empty());
        word.map(str::to_owned).ok_or_else(|| format!("it has no string `{field}`"))
    };
    let (kind, install, proxy_to, env_required) = match place_of(&value)? {
        ServerPlace::Stdio(install) => (Kind::Stdio, Some(install), None, Vec::new()),
        ServerPlace::Http { url, env_required } => (Kind::Http, None, Some(url), env_required),
    };
    Ok(Description {
        name: namespace_of(&word("name")?),
        kind,
        description: word("description")?,
        version: Some(word("version")?),
        visibility: None,
        install,
        proxy_to,
        env_required,
        warnings: Vec::new(),
        server_json: Some(value),
    })
}

/// Lists the server's tools.
async fn tools(
    app: &App,
    described: &Description,
    stop: &CancellationToken,
) -> Result<Vec<ToolDescriptor>, CliError> {
    let shown = protocol::escape_text;
    match (described.kind, &described.install, &described.proxy_to) {
        (Kind::Stdio, Some(install), None) => {
            // Not a question: the user wrote or chose this file. But the program that starts is shown.
            // As JSON, so that it is visible where each argument ends.
            let command = shown(&json!([&install.command, &install.args]).to_string());
            let names: Vec<String> =
                install.env_required.iter().map(|name| format!("`{}`", shown(name))).collect();
            let with = match names.is_empty() {
                true => String::new(),
                false => format!(" with {}", names.join(", ")),
            };
            note(&format!("Starting {command}{with}\n"));
            Ok(app.tools_of(&described.name, install, stop).await?)
        }
        (Kind::Http, None, Some(url)) => {
            // A request has room for one bearer token, so further variables are not used here.
            let variable = described.env_required.first();
            let key = variable.map(|name| {
                app.variable(name).ok_or_else(|| {
                    let what = format!("the server needs `{}`, which is not set", shown(name));
                    CliError::from_code(ErrorCode::ApiKeyRequired, what)
                })
            });
            let key = key.transpose()?;
            let with = variable.map(|name| format!(" with `{}`", shown(name))).unwrap_or_default();
            note(&format!("Listing the tools of {}{with}\n", shown(url)));
            Ok(remote::tools(url, key.as_deref(), stop).await?)
        }
        (Kind::Stdio, ..) => Err(CliError::cannot_run(
            "a `stdio` server needs `install`, and cannot have `proxy_to`",
        )),
        (Kind::Http, ..) => Err(CliError::cannot_run(
            "an `http` server needs `proxy_to`, and cannot have `install`",
        )),
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
        ("server_json", json!(described.server_json)),
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
    fn refuses_unknown_fields() {
        let parse = describe;
        let whole =
            r#"{"name":"n","type":"http","description":"d","proxy_to":"https://n.example"}"#;
        let body = body(&parse(whole).unwrap(), &[]);
        assert_eq!((&body["type"], body.get("install")), (&json!("http"), None));
        for more in [r#""tools":[]"#, r#""routing":"server""#, r#""command":"sh""#] {
            parse(&whole.replace("\"name\"", &format!("{more},\"name\""))).expect_err(more);
        }
    }

    #[test]
    fn a_server_json_of_the_official_registry_is_read() {
        let official = json!({
            "$schema": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
            "name": "io.github.acme/web-notes",
            "title": "Notes",
            "description": "Keeps notes.",
            "repository": { "url": "https://github.com/acme/notes", "source": "github" },
            "version": "1.2.0",
            "packages": [{
                "registryType": "npm", "identifier": "@acme/notes", "version": "1.2.0",
                "transport": { "type": "stdio" },
                "environmentVariables": [{ "name": "NOTES_TOKEN", "isRequired": true, "isSecret": true }],
            }],
        });
        let body = body(&describe(&official.to_string()).unwrap(), &[]);
        assert_eq!((&body["name"], &body["type"]), (&json!("web-notes"), &json!("stdio")));
        assert_eq!(
            (&body["version"], &body["description"]),
            (&json!("1.2.0"), &json!("Keeps notes."))
        );
        assert_eq!(
            body["install"],
            json!({ "command": "npx", "args": ["-y", "@acme/notes@1.2.0"], "env_required": ["NOTES_TOKEN"] })
        );
        // A mutable version is refused.
        let mut moving = official.clone();
        moving["packages"][0]["version"] = json!("latest");
        let why = describe(&moving.to_string()).map(drop).unwrap_err();
        assert!(why.contains("no immutable version"), "{why}");
        for field in ["name", "description", "version", "packages"] {
            let mut lacking = official.clone();
            lacking.as_object_mut().unwrap().remove(field);
            describe(&lacking.to_string()).map(drop).expect_err(field);
        }
    }

    #[test]
    fn versions_are_those_of_the_registry() {
        assert!(is_version("1.2.0") && is_version("2025.11.30"));
        for other in ["", "1.2", "1.2.3.4", "1.0.0-beta", "+1.0.0", "01.2.0", "1.2.4294967295"] {
            assert!(!is_version(other), "{other}");
        }
    }
}
