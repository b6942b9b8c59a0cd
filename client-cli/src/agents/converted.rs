//! An agent's entry for an MCP server, in the words of `.pml.json`.

use protocol::escape_text;
use serde_json::{Map, Value, json};

use super::Agent;

/// Returns the entry of `mcpServers` in `.pml.json` that means the same as one of an agent.
///
/// # Errors
/// Returns what has no counterpart there. Nothing is left out silently.
pub(crate) fn converted(agent: Agent, entry: &Value) -> Result<Value, String> {
    let members = entry.as_object().ok_or("it is not an object")?;
    let mut out = Map::new();
    for (name, value) in members {
        let refused = |reason: String| format!("`{}`: {reason}", escape_text(name));
        match (agent, name.as_str()) {
            (_, "type" | "command" | "args" | "url" | "cwd") => {
                let value = each(value, &|text| {
                    match is_secret(name, text) {
                    true => Err("it seems to contain a secret or personal data, which does not belong in a file of the project; pass it in `env`".to_owned()),
                    false => place(agent, text),
                }
                });
                out.insert(name.clone(), value.map_err(refused)?);
            }
            (_, "env") => add(&mut out, "env", variables(agent, value).map_err(refused)?),
            (Agent::Codex, "http_headers") => {
                add(&mut out, "headers", variables(agent, value).map_err(refused)?);
            }
            (_, "headers") => add(&mut out, "headers", variables(agent, value).map_err(refused)?),
            (Agent::Codex, "env_vars") => {
                let names = value.as_array().into_iter().flatten();
                let names: Option<Vec<&str>> = names.map(Value::as_str).collect();
                let names = names.ok_or_else(|| refused("it is not a list of names".to_owned()))?;
                let own = names.into_iter().map(|name| (name.to_owned(), own_variable(name)));
                add(&mut out, "env", own.collect());
            }
            (Agent::Codex, "env_http_headers") => {
                let headers = value.as_object().into_iter().flatten();
                let headers = headers.filter_map(|(header, variable)| {
                    Some((header.clone(), own_variable(variable.as_str()?)))
                });
                add(&mut out, "headers", headers.collect());
            }
            (Agent::Codex, "bearer_token_env_var") => {
                let variable = value.as_str().ok_or_else(|| refused("it is not a name".into()))?;
                let header = json!(format!("Bearer ${{{variable}}}"));
                add(&mut out, "headers", Map::from_iter([("Authorization".to_owned(), header)]));
            }
            (_, "disabled") | (Agent::Codex, "enabled") => {
                let is_off = value.as_bool() == Some(name == "disabled");
                if is_off {
                    return Err("it is switched off".to_owned());
                }
            }
            _ => return Err(refused(".pml.json has nothing that means the same".to_owned())),
        }
    }
    Ok(Value::Object(out))
}

fn add(out: &mut Map<String, Value>, member: &str, more: Map<String, Value>) {
    let all = out.entry(member).or_insert_with(|| json!({}));
    if let Some(all) = all.as_object_mut() {
        all.extend(more);
    }
}

fn own_variable(name: &str) -> Value {
    json!(format!("${{{name}}}"))
}

/// Returns the variables or headers of an entry, whose values may contain the user's variables.
fn variables(agent: Agent, value: &Value) -> Result<Map<String, Value>, String> {
    let members = value.as_object().ok_or("it is not an object")?;
    let converted = members.iter().map(|(name, value)| {
        let text = value.as_str().ok_or_else(|| format!("`{}` is not a text", escape_text(name)))?;
        let converted =
            with_variables(agent, text).map_err(|reason| format!("`{}`: {reason}", escape_text(name)))?;
        if is_secret(name, &converted) {
            return Err(format!(
                "`{}` looks like a secret or personal data, which does not belong in a file of the project; store it with `pml secrets set {}`, and write `${{{}}}` here",
                escape_text(name),
                variable_of(name),
                variable_of(name),
            ));
        }
        Ok((name.clone(), Value::String(converted)))
    });
    converted.collect()
}

/// Returns a name that a variable for this value can have.
fn variable_of(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    name.chars().map(plain).take(64).collect()
}

/// Returns whether a value, apart from the user's variables in it, is what traces would not tell.
fn is_secret(name: &str, text: &str) -> bool {
    let without: String = text
        .split("${")
        .enumerate()
        .map(|(at, part)| match at {
            0 => part,
            _ => part.split_once('}').map_or("", |(_, after)| after),
        })
        .collect();
    let rest = without.trim_start_matches("Bearer").trim_start_matches("Basic").trim();
    if rest.is_empty() {
        return false;
    }
    let told = json!({ name: rest });
    execution::sanitize(&told, 1024 * 1024).is_none_or(|sanitized| sanitized != told)
}

/// Applies a change to a text, or to each text of a list.
fn each(value: &Value, change: &dyn Fn(&str) -> Result<String, String>) -> Result<Value, String> {
    match value {
        Value::String(text) => change(text).map(Value::String),
        Value::Array(values) => values
            .iter()
            .map(|value| each(value, change))
            .collect::<Result<_, _>>()
            .map(Value::Array),
        _ => Err("it is not a text or a list of texts".to_owned()),
    }
}

/// Rewrites the one variable that commands, arguments and addresses can have in `.pml.json`: the project's folder.
fn place(agent: Agent, text: &str) -> Result<String, String> {
    rewritten(text, |name| match name {
        "workspaceFolder" if has_workspace(agent) => Ok("${workspace}".to_owned()),
        _ => Err(format!(
            "`${{{}}}` cannot stand here in .pml.json, which expands only `${{workspace}}` in it; pass it in `env`",
            escape_text(name)
        )),
    })
}

/// Rewrites the variables in a value of `env` or `headers`.
fn with_variables(agent: Agent, text: &str) -> Result<String, String> {
    rewritten(text, |name| match name.strip_prefix("env:") {
        Some(variable) if has_workspace(agent) => Ok(format!("${{{variable}}}")),
        None if name == "workspaceFolder" && has_workspace(agent) => Ok("${workspace}".to_owned()),
        None if agent == Agent::ClaudeCode && is_variable(name) => Ok(format!("${{{name}}}")),
        _ if name.starts_with("input:") => Err(format!(
            "`${{{}}}` is asked for by the agent; write the name of a variable of yours, as `${{NAME}}`",
            escape_text(name)
        )),
        _ => Err(format!(
            ".pml.json has nothing that means `${{{}}}`; there, `${{NAME}}` is a variable of yours",
            escape_text(name)
        )),
    })
}

/// Cursor and VS Code have the same variables.
fn has_workspace(agent: Agent) -> bool {
    matches!(agent, Agent::Cursor | Agent::VsCode)
}

fn is_variable(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty() && name.chars().all(is_plain)
}

/// Replaces each `${…}` of a text.
fn rewritten(
    text: &str,
    replaced: impl Fn(&str) -> Result<String, String>,
) -> Result<String, String> {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, after)) = rest.split_once("${") {
        let (name, after) = after.split_once('}').ok_or("a `${` is not closed")?;
        out += before;
        out += &replaced(name)?;
        rest = after;
    }
    Ok(out + rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_keep_their_meaning() {
        for (agent, entry, expected) in [
            (
                Agent::ClaudeCode,
                json!({ "type": "stdio", "command": "npx", "args": ["-y", "x"], "env": { "T": "${TOKEN}", "MODE": "fast" } }),
                json!({ "type": "stdio", "command": "npx", "args": ["-y", "x"], "env": { "T": "${TOKEN}", "MODE": "fast" } }),
            ),
            (
                Agent::Cursor,
                json!({ "url": "https://a.test/mcp", "headers": { "Authorization": "Bearer ${env:TOKEN}" }, "disabled": false }),
                json!({ "url": "https://a.test/mcp", "headers": { "Authorization": "Bearer ${TOKEN}" } }),
            ),
            (
                Agent::VsCode,
                json!({ "command": "node", "args": ["${workspaceFolder}/s.js"], "cwd": "${workspaceFolder}", "env": { "D": "${workspaceFolder}/d" } }),
                json!({ "command": "node", "args": ["${workspace}/s.js"], "cwd": "${workspace}", "env": { "D": "${workspace}/d" } }),
            ),
            (
                Agent::Codex,
                json!({ "command": "x", "env": { "A": "1" }, "env_vars": ["TOKEN"], "enabled": true }),
                json!({ "command": "x", "env": { "A": "1", "TOKEN": "${TOKEN}" } }),
            ),
            (
                Agent::Codex,
                json!({ "url": "https://a.test/mcp", "bearer_token_env_var": "TOKEN", "http_headers": { "X-A": "b" }, "env_http_headers": { "X-Key": "KEY" } }),
                json!({ "url": "https://a.test/mcp", "headers": { "Authorization": "Bearer ${TOKEN}", "X-A": "b", "X-Key": "${KEY}" } }),
            ),
        ] {
            assert_eq!(converted(agent, &entry).unwrap(), expected, "{entry}");
        }
    }

    #[test]
    fn what_has_no_counterpart_is_named() {
        let token = format!("ghp_{}", "a1B2".repeat(9));
        for (agent, entry, reason) in [
            (Agent::ClaudeCode, json!(5), "not an object"),
            (Agent::ClaudeCode, json!({ "command": "x", "timeout": 5 }), "`timeout`"),
            (Agent::ClaudeCode, json!({ "command": "x", "args": ["${HOME}/x"] }), "`${HOME}`"),
            (Agent::ClaudeCode, json!({ "command": "x", "args": [1] }), "not a text"),
            (Agent::ClaudeCode, json!({ "command": "x", "env": { "A": "${B:-c}" } }), "`${B:-c}`"),
            (Agent::ClaudeCode, json!({ "command": "x", "env": { "A": "${B" } }), "not closed"),
            (
                Agent::ClaudeCode,
                json!({ "command": "x", "env": { "A": "${env:B}" } }),
                "`${env:B}`",
            ),
            (
                Agent::ClaudeCode,
                json!({ "command": "x", "env": { "GH": token } }),
                "looks like a secret",
            ),
            (
                Agent::ClaudeCode,
                json!({ "command": "x", "args": ["--token", token] }),
                "contain a secret",
            ),
            (
                Agent::ClaudeCode,
                json!({ "command": "x", "env": { "GITHUB_TOKEN": "hunter2" } }),
                "`pml secrets set GITHUB_TOKEN`",
            ),
            (
                Agent::Cursor,
                json!({ "url": "https://a.test", "headers": { "Authorization": "Bearer hunter2hunter2" } }),
                "looks like a secret",
            ),
            (Agent::Cursor, json!({ "command": "x", "envFile": ".env" }), "`envFile`"),
            (Agent::Cursor, json!({ "command": "x", "disabled": true }), "switched off"),
            (Agent::VsCode, json!({ "command": "x", "env": { "A": "${input:key}" } }), "asked for"),
            (Agent::Codex, json!({ "command": "x", "enabled": false }), "switched off"),
            (
                Agent::Codex,
                json!({ "command": "x", "startup_timeout_sec": 5 }),
                "`startup_timeout_sec`",
            ),
            (Agent::Codex, json!({ "command": "x", "env": { "A": "${B}" } }), "`${B}`"),
            (Agent::Codex, json!({ "command": "x", "env_vars": [1] }), "list of names"),
        ] {
            let refused = converted(agent, &entry).expect_err(&entry.to_string());
            assert!(refused.contains(reason), "{entry}: {refused}");
            assert!(!refused.contains("hunter2") && !refused.contains("ghp_"), "{refused}");
        }
    }
}
