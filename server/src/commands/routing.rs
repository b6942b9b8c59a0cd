//! `pml-server routing`: which tools run where.

use std::fmt::Write as _;

use anyhow::{Context as _, bail};
use protocol::{Fqdn, Routing};
use registry::{RegistryError, RuleChange, RuleOrigin, StdioServer};
use serde_json::json;

use crate::config::{RoutingCommand, RoutingTarget};
use crate::database::Database;

/// Runs the command and returns its output.
pub(super) async fn run(database: &Database, command: &RoutingCommand) -> anyhow::Result<String> {
    let operator = database.operator().await?;
    operator.migrate().await?;
    match command {
        RoutingCommand::List { json } => {
            let rules = operator.rules().await.context("could not read the rules")?;
            let servers = operator.stdio_servers().await.context("could not read the catalog")?;
            let moved: Vec<_> =
                servers.iter().filter(|it| it.routing == Some(Routing::Server)).collect();
            if *json {
                let server = |it: &&StdioServer| json!({ "server": it.fqdn, "routing": it.routing, "origin": RuleOrigin::Operator });
                let rules = rules.iter().map(|rule| json!(rule));
                let all: Vec<_> = rules.chain(moved.iter().map(server)).collect();
                return Ok(serde_json::to_string_pretty(&all)? + "\n");
            }
            let rules = rules.iter().map(|it| (it.pattern.to_string(), it.routing, it.origin));
            // A `stdio` server runs here only because the operator says so.
            let server =
                |it: &&StdioServer| (it.fqdn.to_string(), Routing::Server, RuleOrigin::Operator);
            let rows: Vec<_> = rules.chain(moved.iter().map(server)).collect();
            // In bytes, which are characters here: patterns and names are ASCII.
            let width = rows.iter().map(|(name, ..)| name.len()).max().unwrap_or(0);
            let mut out = String::new();
            for (name, routing, origin) in rows {
                let routing = routing.as_str();
                match origin {
                    RuleOrigin::Shipped => writeln!(out, "{name:width$}  {routing}")?,
                    RuleOrigin::Operator => writeln!(out, "{name:width$}  {routing}  (yours)")?,
                }
            }
            Ok(out)
        }
        RoutingCommand::Set { target: RoutingTarget::Server(server), routing } => {
            match operator.route_stdio_server(server, Some(*routing)).await {
                Ok(()) => Ok(format!("`{server}` now runs on the {}.\n", side(routing.as_str()))),
                Err(RegistryError::NotFound(_)) => Err(no_server(server)),
                Err(other) => Err(other).context("could not route the server"),
            }
        }
        RoutingCommand::Unset { target: RoutingTarget::Server(server) } => {
            match operator.route_stdio_server(server, None).await {
                Ok(()) => Ok(format!("`{server}` runs on the user's machine again.\n")),
                Err(RegistryError::NotFound(_)) => Err(no_server(server)),
                Err(other) => Err(other).context("could not route the server"),
            }
        }
        RoutingCommand::Set { target: RoutingTarget::Pattern(pattern), routing } => {
            let change = operator.change_rule(pattern, RuleChange::Set(*routing)).await;
            change.context("could not set the rule")?;
            Ok(format!("`{pattern}` now runs on the {}.\n", side(routing.as_str())))
        }
        RoutingCommand::Unset { target: RoutingTarget::Pattern(pattern) } => {
            match operator.change_rule(pattern, RuleChange::Unset).await {
                Ok(()) => Ok(format!("Your rule for `{pattern}` was deleted.\n")),
                Err(RegistryError::NotFound(_)) => bail!(
                    "you have no rule for `{pattern}`; `pml-server routing list` lists the rules"
                ),
                Err(other) => Err(other).context("could not delete the rule"),
            }
        }
    }
}

fn no_server(server: &Fqdn) -> anyhow::Error {
    anyhow::anyhow!(
        "the catalog has no `stdio` server `{server}`; `pml-server stdio list` lists them, and other tools are routed by a pattern, such as `{}:*`",
        server.namespace()
    )
}

fn side(routing: &str) -> &'static str {
    if routing == "server" { "gateway" } else { "user's machine" }
}
