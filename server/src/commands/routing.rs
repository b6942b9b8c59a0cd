//! `pml-server routing`: which tools run where.

use std::fmt::Write as _;

use anyhow::{Context as _, bail};
use registry::{RegistryError, RuleChange, RuleOrigin};

use crate::config::RoutingCommand;
use crate::database::Database;

/// Does what the command says and returns what to print.
pub(super) async fn run(database: &Database, command: &RoutingCommand) -> anyhow::Result<String> {
    let operator = database.operator().await?;
    operator.migrate().await?;
    match command {
        RoutingCommand::List { json } => {
            let rules = operator.rules().await.context("the rules could not be read")?;
            if *json {
                return Ok(serde_json::to_string_pretty(&rules)? + "\n");
            }
            let width = rules.iter().map(|rule| rule.pattern.to_string().len()).max().unwrap_or(0);
            let mut out = String::new();
            for rule in rules {
                let (pattern, routing) = (rule.pattern.to_string(), rule.routing.as_str());
                match rule.origin {
                    RuleOrigin::Shipped => writeln!(out, "{pattern:width$}  {routing}")?,
                    RuleOrigin::Operator => writeln!(out, "{pattern:width$}  {routing}  (yours)")?,
                }
            }
            Ok(out)
        }
        RoutingCommand::Set { pattern, routing } => {
            let change = operator.change_rule(pattern, RuleChange::Set(*routing)).await;
            change.context("the rule was not set")?;
            Ok(format!("`{pattern}` runs on the {} now.\n", side(routing.as_str())))
        }
        RoutingCommand::Unset { pattern } => {
            match operator.change_rule(pattern, RuleChange::Unset).await {
                Ok(()) => Ok(format!("There is no rule of yours for `{pattern}` any more.\n")),
                Err(RegistryError::NotFound(_)) => bail!(
                    "you have no rule for `{pattern}`; `pml-server routing list` shows those there are"
                ),
                Err(other) => Err(other).context("the rule was not taken back"),
            }
        }
    }
}

fn side(routing: &str) -> &'static str {
    if routing == "server" { "gateway" } else { "user's machine" }
}
