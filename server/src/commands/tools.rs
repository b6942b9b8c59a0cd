//! `pml-server tools`: what the operator says of the effects of tools.

use std::fmt::Write as _;

use anyhow::{Context as _, bail};
use protocol::Scope;
use registry::{Effects, RegistryError};

use crate::config::{EffectsWord, ToolsCommand};
use crate::database::Database;

/// Does what the command says and returns what to print.
pub(super) async fn run(database: &Database, command: &ToolsCommand) -> anyhow::Result<String> {
    let operator = database.operator().await?;
    operator.migrate().await?;
    match command {
        ToolsCommand::List { scope, json } => {
            let scope = scope.clone().unwrap_or_else(Scope::public);
            let classes =
                operator.tool_classes(&scope).await.context("the list could not be read")?;
            if *json {
                return Ok(serde_json::to_string_pretty(&classes)? + "\n");
            }
            let mut out = String::new();
            for tool in classes {
                let eager = if tool.eager { "  eager" } else { "" };
                let counts = if tool.counts { "" } else { "  (it has changed: look again)" };
                writeln!(out, "{}  {}{eager}{counts}", tool.fqdn, tool.class.as_str())?;
            }
            Ok(out)
        }
        ToolsCommand::Set { fqdn, class, eager } => {
            let class = match class {
                EffectsWord::Read => Effects::Read,
                EffectsWord::Write => Effects::Write,
            };
            match operator.set_tool_class(fqdn, class, *eager).await {
                Ok(now) => Ok(format!("`{now}` counts as `{}` now.\n", class.as_str())),
                Err(RegistryError::NotFound(_)) => {
                    bail!("there is no tool `{fqdn}`; `GET /mcp` lists the servers and their tools")
                }
                Err(other) => Err(other).context("nothing was changed"),
            }
        }
        ToolsCommand::Unset { fqdn } => match operator.unset_tool_class(fqdn).await {
            Ok(now) => Ok(format!("Nothing of yours is said of `{now}` any more.\n")),
            Err(RegistryError::NotFound(_)) => bail!(
                "you have said nothing of `{fqdn}`; `pml-server tools list` shows of which you have"
            ),
            Err(other) => Err(other).context("nothing was changed"),
        },
    }
}
