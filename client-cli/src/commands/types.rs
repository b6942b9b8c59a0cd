//! `pml types`: writes the types of the tools that programs can call from here, for editors and `tsc`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use execution::files::atomic::{self, Existing};
use protocol::discovery::{DiscoverInclude, DiscoverRequest};
use protocol::signature::complete_type;
use protocol::{ErrorCode, ToolId, escape_text};
use rustix::fs::{Mode, OFlags};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::terminal::{note, say, unless_stopped};
use crate::app::App;
use crate::args::Types;
use crate::discover::discover;
use crate::error::CliError;

/// The maximum number of tools in one answer of a search.
const PAGE: u32 = 50;

/// The maximum number of tools in the file. An editor reads all of them.
const TOOLS_LIMIT: usize = 2_000;

/// The maximum size of an earlier file in bytes.
const FILE_LIMIT: u64 = 64 * 1024 * 1024;

/// The characters of names, and the one between namespace and action.
const ALPHABET: &str = "-0123456789:ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz";

/// The first line of the file, by which it is recognized.
const MARK: &str = "// Written by `pml types`.";

/// What was found: the tools by name, and what is not among them.
#[derive(Default)]
struct Found {
    tools: BTreeMap<ToolId, Value>,
    /// Why the gateway's tools are missing.
    missing: Option<String>,
    /// The servers whose tools are not known.
    not_started: Vec<String>,
    /// The servers that gave no list, with the reasons.
    not_listed: BTreeMap<String, String>,
}

/// Runs the command.
///
/// # Errors
/// Returns that a file is not this command's, cannot be written, or with `--check` is not up to date.
pub(crate) async fn types(
    app: Arc<App>,
    options: Types,
    stop: &CancellationToken,
) -> Result<ExitCode, CliError> {
    let found = unless_stopped(stop, find(&app, &options.patterns, stop)).await;
    // A search may start servers of `.pml.json`.
    app.shut_down().await;
    let found = found?;
    let text = declaration(&found.tools);
    for line in omitted(&found) {
        note(&format!("pml types: {line}\n"));
    }
    if options.output.as_os_str() == "-" {
        say(&text)?;
        return Ok(ExitCode::SUCCESS);
    }
    let path = app.workspace().join(&options.output);
    let shown = escape_text(&options.output.to_string_lossy());
    let before = read(&path).map_err(|reason| refused(&shown, &reason))?;
    if before.as_deref() == Some(&*text) {
        say(&format!("{shown} is up to date: {} tools\n", found.tools.len()))?;
        return Ok(ExitCode::SUCCESS);
    }
    if options.check {
        return Err(refused(&shown, "is not up to date; run `pml types`"));
    }
    if before.is_some_and(|before| !before.starts_with(MARK)) {
        let reason =
            "exists, and was not written by `pml types`; choose another file with --output";
        return Err(refused(&shown, reason));
    }
    write(&path, &text).map_err(|reason| refused(&shown, &reason))?;
    say(&format!("Wrote {shown}: {} tools\n", found.tools.len()))?;
    Ok(ExitCode::SUCCESS)
}

fn refused(file: &str, reason: &str) -> CliError {
    CliError::from_code(ErrorCode::ConfigInvalid, format!("`{file}` {reason}"))
}

/// Finds the tools whose names match one of the patterns; all of them if there is none.
async fn find(
    app: &Arc<App>,
    patterns: &[String],
    cancel: &CancellationToken,
) -> Result<Found, CliError> {
    let mut found = Found::default();
    let mut open: Vec<String> = match patterns {
        [] => vec!["*".to_owned()],
        patterns => patterns.to_vec(),
    };
    while let Some(pattern) = open.pop() {
        let request = DiscoverRequest {
            pattern: Some(pattern.clone()),
            limit: Some(PAGE),
            include: vec![DiscoverInclude::Schemas],
            ..DiscoverRequest::default()
        };
        let answer = discover(app, request, cancel).await?;
        let tools = answer["tools"].as_array().cloned().unwrap_or_default();
        // There may be more than one answer holds. Those of a longer beginning are in an answer of their own.
        if tools.len() >= PAGE as usize {
            let Some(beginning) = pattern.strip_suffix('*') else {
                return Err(refused_pattern(&pattern));
            };
            open.extend(ALPHABET.chars().map(|c| format!("{beginning}{c}*")));
        }
        for tool in tools {
            if let Some(id) = tool["id"].as_str().and_then(|id| id.parse::<ToolId>().ok()) {
                found.tools.insert(id, tool);
            }
        }
        if found.tools.len() > TOOLS_LIMIT {
            return Err(CliError::from_code(
                ErrorCode::InvalidRequest,
                format!(
                    "there are more than {TOOLS_LIMIT} tools; name those that you use: `pml types 'github:*' 'slack:*'`"
                ),
            ));
        }
        if let Some(missing) = answer["missing"].as_str() {
            found.missing = Some(missing.to_owned());
        }
        for one in answer["not_listed"].as_array().into_iter().flatten() {
            let text = |name: &str| one[name].as_str().unwrap_or_default().to_owned();
            found.not_listed.insert(text("server"), text("reason"));
        }
        for server in answer["not_started"].as_array().into_iter().flatten() {
            let server = server.as_str().unwrap_or_default().to_owned();
            if !found.not_started.contains(&server) {
                found.not_started.push(server);
            }
        }
    }
    Ok(found)
}

fn refused_pattern(pattern: &str) -> CliError {
    CliError::from_code(
        ErrorCode::InvalidRequest,
        format!(
            "more than {PAGE} tools match `{}`; a pattern that matches so many has to end with `*`",
            escape_text(pattern)
        ),
    )
}

/// Says which tools are not in the file.
fn omitted(found: &Found) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(missing) = &found.missing {
        lines.push(format!("missing: {}", escape_text(missing)));
    }
    if !found.not_started.is_empty() {
        let names: Vec<String> =
            found.not_started.iter().map(|name| format!("`{}`", escape_text(name))).collect();
        lines
            .push(format!("missing: tools of servers that have not run yet: {}", names.join(", ")));
    }
    for (server, reason) in &found.not_listed {
        let (server, reason) = (escape_text(server), escape_text(reason));
        lines.push(format!("missing: the tools of `{server}`: {reason}"));
    }
    lines
}

/// Renders the file.
fn declaration(tools: &BTreeMap<ToolId, Value>) -> String {
    let mut namespaces: BTreeMap<&str, String> = BTreeMap::new();
    for (id, tool) in tools {
        let members = namespaces.entry(id.namespace()).or_default();
        *members += &comment(tool["description"].as_str().unwrap_or_default());
        let name = json!(id.action());
        *members += &format!("    readonly {name}: {};\n", function(tool));
    }
    let mut text = format!(
        "{MARK} Run it again when tools or servers change.\n// Checks the calls of programs: \
         arguments that a tool does not name are errors here, and results without a schema are `any`.\n\n\
         /** The tools that programs can call. */\ndeclare const mcp: {{\n"
    );
    for (namespace, members) in namespaces {
        text += &format!("  readonly {}: {{\n{members}  }};\n", json!(namespace));
    }
    text += "};\n\n/** The arguments of the program. */\ndeclare const args: any;\n";
    text
}

/// Renders a tool as the type of a function.
fn function(tool: &Value) -> String {
    let input = &tool["input_schema"];
    // What a server without a schema, or with too large a one, takes is not known.
    let is_known = input.get("properties").is_some_and(Value::is_object);
    let arguments = match is_known {
        true => complete_type(input),
        false => "Record<string, any>".to_owned(),
    };
    let is_optional = input["required"].as_array().is_none_or(Vec::is_empty);
    let optional = if is_optional { "?" } else { "" };
    format!("(args{optional}: {arguments}) => Promise<{}>", result(tool))
}

/// Renders what a call returns, as far as it is known: docs/programs.md, "What a call returns".
fn result(tool: &Value) -> String {
    let Some(schema) = tool.get("output_schema") else { return "any".to_owned() };
    let properties = schema["properties"].as_object();
    let only = properties.filter(|properties| properties.len() == 1);
    // The signature has the type of what the program gets, which can be the only property.
    let signature = tool["signature"].as_str().unwrap_or_default();
    for schema in only.into_iter().flat_map(|only| only.values()).chain([schema]) {
        let written = complete_type(schema);
        if signature.ends_with(&format!("=> Promise<{written}>")) {
            return usable(written);
        }
    }
    match only {
        // It may be the property or the object.
        Some(only) if only.contains_key("content") || only.contains_key("value") => {
            "any".to_owned()
        }
        _ => usable(complete_type(schema)),
    }
}

/// Programs could do nothing with a result of the type `unknown`.
fn usable(written: String) -> String {
    if written == "unknown" { "any".to_owned() } else { written }
}

/// Renders the description of a tool as a comment.
fn comment(description: &str) -> String {
    let lines = description.lines().map(str::trim_end);
    // The end of a comment in the text would begin code.
    let lines: Vec<String> = lines.map(|line| escape_text(line).replace("*/", "*\\/")).collect();
    match lines.as_slice() {
        [] => String::new(),
        [line] => format!("    /** {line} */\n"),
        lines => {
            let body: String = lines.iter().map(|line| format!("     * {line}\n")).collect();
            format!("    /**\n{body}     */\n")
        }
    }
}

/// Reads the file; `None` if there is none.
fn read(path: &Path) -> Result<Option<String>, String> {
    let failed = |error: std::io::Error| format!("cannot be read: {error}");
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
        // A link could lead anywhere, and reading a FIFO would block.
        Ok(found) if !found.is_file() => return Err("is not a regular file".to_owned()),
        Ok(found) if found.len() > FILE_LIMIT => return Err("is too large".to_owned()),
        Ok(_) => {}
    }
    let bytes = std::fs::read(path).map_err(failed)?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| format!("cannot be written: {error}");
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(failed(&"it is not the name of a file"));
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(folder, flags, Mode::empty()).map_err(|errno| failed(&errno))?;
    let name = name.to_str().ok_or_else(|| failed(&"its name is not UTF-8"))?;
    atomic::write(folder, name, text.as_bytes(), None, Existing::Replaced)
        .map_err(|error| failed(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a server says of its tools cannot become code.
    #[test]
    fn texts_of_servers_stay_in_their_places() {
        let tool = json!({
            "description": "ends */ declare const evil: 1; /*\nsecond\u{202e}",
            "input_schema": { "properties": { "a\"}; evil: {": { "enum": ["\"; x", "\\"] } } },
        });
        let tools = BTreeMap::from([("a:b".parse().unwrap(), tool)]);
        let text = declaration(&tools);
        assert!(text.contains("     * ends *\\/ declare const evil: 1; /*\n"), "{text}");
        assert!(!text.contains('\u{202e}'), "{text}");
        let member = r#"(args?: { "a\"}; evil: {"?: "\"; x" | "\\" }) => Promise<any>;"#;
        assert!(text.contains(member), "{text}");
    }

    #[test]
    fn results_are_typed_as_far_as_they_are_known() {
        let tool = |schema: Value, signature: &str| {
            result(&json!({ "output_schema": schema, "signature": signature }))
        };
        let of = |name: &str| json!({ "properties": { name: { "type": "string" } } });
        for (schema, signature, expected) in [
            (of("content"), "mcp.a.b() => Promise<string>", "string"),
            (of("value"), "mcp.a.b() => Promise<{ value?: string }>", "{ value?: string }"),
            // The signature was shortened.
            (of("value"), "mcp.a.b() => Promise<…>", "any"),
            (of("name"), "mcp.a.b() => Promise<…>", "{ name?: string }"),
        ] {
            assert_eq!(tool(schema, signature), expected, "{signature}");
        }
        assert_eq!(tool(json!({}), ""), "any");
        assert_eq!(result(&json!({})), "any");
    }
}
