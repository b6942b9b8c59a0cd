//! `pml search`: finds tools and capabilities that programs can call from here.

use std::process::ExitCode;
use std::sync::Arc;

use protocol::discovery::DiscoverRequest;
use protocol::escape_text;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::terminal::{say, unless_stopped};
use crate::app::App;
use crate::args::Search;
use crate::discover::discover;
use crate::error::CliError;

/// Runs the command.
///
/// # Errors
/// Returns that the search or the project's files are invalid.
pub(crate) async fn search(
    app: Arc<App>,
    options: Search,
    stop: &CancellationToken,
) -> Result<ExitCode, CliError> {
    let request = request(&options);
    let found = unless_stopped(stop, discover(&app, request, stop)).await;
    // A search may start servers of `.pml.json`.
    app.shut_down().await;
    let answer = found?;
    if options.json {
        say(&format!("{answer:#}\n"))?;
    } else {
        say(&text(&answer))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads what is searched for: a pattern, the name of a tool, or words.
fn request(options: &Search) -> DiscoverRequest {
    let query = options.query.join(" ");
    let mut request = DiscoverRequest { limit: Some(options.limit), ..DiscoverRequest::default() };
    let is_one_word = !query.contains(char::is_whitespace);
    match query {
        pattern if is_one_word && pattern.contains('*') => request.pattern = Some(pattern),
        name if is_one_word && name.contains(':') => request.name = Some(name),
        words => request.intent = Some(words),
    }
    request
}

fn text(answer: &Value) -> String {
    let mut out = String::new();
    let tools = answer["tools"].as_array().map_or(&[][..], Vec::as_slice);
    for tool in tools {
        let field = |name: &str| escape_text(tool[name].as_str().unwrap_or_default());
        let place = match tool["routing"].as_str() {
            Some("server") => "on the gateway",
            _ => "on this machine",
        };
        let offline = if tool["offline"].is_null() { "" } else { ", which is offline" };
        let registry = match tool["registry"].is_null() {
            true => String::new(),
            false => format!(", from the registry {}", field("registry")),
        };
        let signature = field("signature");
        out += &format!("{} ({place}{offline}{registry})\n  {signature}\n", field("id"));
        let description = field("description");
        if !description.is_empty() {
            out += &format!("  {description}\n");
        }
    }
    if tools.is_empty() {
        out += "No tool was found.\n";
    }
    let list = |value: &Value| {
        let names = value.as_array().into_iter().flatten().filter_map(Value::as_str);
        names.map(|name| format!("`{}`", escape_text(name))).collect::<Vec<_>>().join(", ")
    };
    for (name, before, after) in [
        ("suggestions", "Did you mean ", "?\n"),
        ("not_started", "Not searched, because their servers have not run yet: ", ".\n"),
    ] {
        let names = list(&answer[name]);
        if !names.is_empty() {
            out += &format!("{before}{names}{after}");
        }
    }
    for one in answer["not_listed"].as_array().into_iter().flatten() {
        let text = |name: &str| escape_text(one[name].as_str().unwrap_or_default());
        out += &format!("Not searched: `{}`: {}.\n", text("server"), text("reason"));
    }
    if let Some(missing) = answer["missing"].as_str() {
        out += &format!("Missing: {}.\n", escape_text(missing));
    }
    out
}
