//! `pml-server tools`: the operator's marks on the effects of tools.

use std::fmt::Write as _;

use anyhow::{Context as _, bail};
use protocol::Scope;
use registry::{Effects, RegistryError};

use crate::config::{EffectsWord, ToolsCommand};
use crate::database::Database;

/// Runs the command and returns its output.
pub(super) async fn run(database: &Database, command: &ToolsCommand) -> anyhow::Result<String> {
    let operator = database.operator().await?;
    operator.migrate().await?;
    match command {
        ToolsCommand::List { scope, json } => {
            let scope = scope.clone().unwrap_or_else(Scope::public);
            let classes = operator.tool_classes(&scope).await.context("could not read the list")?;
            if *json {
                return Ok(serde_json::to_string_pretty(&classes)? + "\n");
            }
            let mut out = String::new();
            for tool in classes {
                let eager = if tool.eager { "  eager" } else { "" };
                let stale = if tool.counts { "" } else { "  (not applied: content changed)" };
                writeln!(out, "{}  {}{eager}{stale}", tool.fqdn, tool.class.as_str())?;
            }
            Ok(out)
        }
        ToolsCommand::Set { fqdn, class, eager } => {
            let class = match class {
                EffectsWord::Read => Effects::Read,
                EffectsWord::Write => Effects::Write,
            };
            match operator.set_tool_class(fqdn, class, *eager).await {
                Ok(now) => Ok(format!("`{now}` is now marked `{}`.\n", class.as_str())),
                Err(RegistryError::NotFound(_)) => {
                    bail!("there is no tool `{fqdn}`; `GET /mcp` lists the servers and their tools")
                }
                Err(other) => Err(other).context("nothing was changed"),
            }
        }
        ToolsCommand::Unset { fqdn } => match operator.unset_tool_class(fqdn).await {
            Ok(now) => Ok(format!("Your mark on `{now}` was removed.\n")),
            Err(RegistryError::NotFound(_)) => {
                bail!("you have not marked `{fqdn}`; `pml-server tools list` lists your marks")
            }
            Err(other) => Err(other).context("nothing was changed"),
        },
    }
}
