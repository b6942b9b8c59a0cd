//! `pml-server catalog`: imports another registry's servers, and approves them for the catalog.

mod fetch;

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, bail};
use protocol::server_json::namespace_of;
use protocol::{ToolDescriptor, escape_text};
use registry::{CatalogTool, Operator, QuarantineSelector, QuarantinedServer, RegistryError};
use serde_json::Value;

use crate::config::CatalogCommand;
use crate::database::Database;
use crate::publish::servers::check_tools;

/// The maximum number of refusals that are printed individually.
const PRINTED_REFUSALS: usize = 20;

/// Runs the command and returns its output.
pub(super) async fn run(database: &Database, command: &CatalogCommand) -> anyhow::Result<String> {
    let operator = database.operator().await?;
    operator.migrate().await?;
    match command {
        CatalogCommand::Ingest { source } => ingest(&operator, source).await,
        CatalogCommand::List { all, json, quarantined: _ } => {
            let servers =
                operator.quarantined(*all).await.context("could not read the quarantine")?;
            if *json {
                return Ok(serde_json::to_string_pretty(&servers)? + "\n");
            }
            list(&servers)
        }
        CatalogCommand::Approve { name, namespace, integrity, tools } => {
            let judged = judged(name, integrity.as_deref());
            let namespace = namespace.clone().unwrap_or_else(|| namespace_of(&judged.name));
            let tools = match tools {
                Some(file) => read_tools(file, &namespace)
                    .with_context(|| format!("could not approve `{}`", file.display()))?,
                None => Vec::new(),
            };
            let count = tools.len();
            let approved = operator.approve(judged, namespace, tools).await;
            let approved = approved.map_err(|error| explain(error, "could not approve it"))?;
            // Names and versions come from another registry: they are escaped before they reach the terminal.
            let mut out = format!(
                "`{}` is now in the catalog: version {}, {}, {count} tools.\n",
                approved.fqdn,
                escape_text(&approved.version),
                approved.integrity
            );
            if count == 0 {
                out.push_str(
                    "Programs cannot call any of its tools; list them with `--tools FILE`.\n",
                );
            }
            Ok(out)
        }
        CatalogCommand::Reject { name, integrity } => {
            let rejected = operator.reject(judged(name, integrity.as_deref())).await;
            let count = rejected.map_err(|error| explain(error, "could not reject it"))?;
            Ok(format!("{count} of `{}` rejected.\n", escape_text(name)))
        }
    }
}

/// Reads the tools of a server: a list, or an object whose `tools` is one.
fn read_tools(file: &Path, namespace: &str) -> anyhow::Result<Vec<CatalogTool>> {
    let text = std::fs::read_to_string(file)?;
    let mut value: Value = serde_json::from_str(&text)?;
    let list = match value.get_mut("tools") {
        Some(tools) => tools.take(),
        None => value,
    };
    let tools: Vec<ToolDescriptor> = serde_json::from_value(list)?;
    check_tools(namespace, tools).map_err(|error| anyhow::anyhow!(error.message))
}

async fn ingest(operator: &Operator, source: &str) -> anyhow::Result<String> {
    // Everything is read before anything is written: an import is complete or has no effect.
    let read = fetch::read_all(source).await.context("nothing was ingested")?;
    let report = operator.quarantine(read.servers, source).await.context("nothing was ingested")?;
    let mut out = format!(
        "Read {} servers and versions from {} pages: {} new, {} of them with changed content.\n",
        report.read, read.pages, report.new, report.changed
    );
    for why in read.refused.iter().take(PRINTED_REFUSALS) {
        writeln!(out, "refused: {}", escape_text(why))?;
    }
    if read.refused.len() > PRINTED_REFUSALS {
        writeln!(out, "… {} refused in total", read.refused.len())?;
    }
    out.push_str("Next: pml-server catalog list --quarantined\n");
    Ok(out)
}

fn list(servers: &[QuarantinedServer]) -> anyhow::Result<String> {
    let mut out = String::new();
    for server in servers {
        write!(out, "{}@{}", escape_text(&server.name), escape_text(&server.version))?;
        if server.status != "active" {
            // Not escaped: the import accepts three words only.
            write!(out, "  {}", server.status)?;
        }
        match (&server.decision, &server.approved_as) {
            (Some(decision), Some(namespace)) => write!(out, "  {decision} as {namespace}")?,
            (Some(decision), None) => write!(out, "  {decision}")?,
            _ => {}
        }
        if !server.flags.is_empty() {
            write!(out, "  flags: {}", escape_text(&server.flags.join(" ")))?;
        }
        writeln!(out, "  {}", server.integrity)?;
    }
    if servers.is_empty() {
        out.push_str("The quarantine is empty.\n");
    }
    Ok(out)
}

/// Parses `DOMAIN/SERVER[@VERSION]`.
fn judged(name: &str, integrity: Option<&str>) -> QuarantineSelector {
    // The import refuses names and versions that contain an `@`.
    let (name, version) = match name.split_once('@') {
        Some((name, version)) => (name, Some(version.to_owned())),
        None => (name, None),
    };
    QuarantineSelector { name: name.to_owned(), version, integrity: integrity.map(str::to_owned) }
}

fn explain(error: RegistryError, what: &'static str) -> anyhow::Error {
    match error {
        RegistryError::NotFound(name) => anyhow::anyhow!(
            "`{}` is not in quarantine; `pml-server catalog list --all` lists all imported servers",
            escape_text(&name)
        ),
        other => anyhow::Error::new(other).context(what),
    }
}

/// Returns whether a source is a URL; otherwise it is the path of a file.
fn is_url(source: &str) -> anyhow::Result<bool> {
    if source.starts_with("http://") || source.starts_with("https://") {
        return Ok(true);
    }
    // A URL with another scheme must not be taken for the path of a file.
    if source.contains("://") {
        bail!("`{}` is neither an http URL nor a file", escape_text(source));
    }
    Ok(false)
}
