//! `pml-server quotas`: the limits on calls of tools on the gateway.

use std::fmt::Write as _;

use anyhow::{Context as _, bail};
use registry::{Quota, RegistryError, Window};

use crate::config::QuotasCommand;
use crate::database::Database;

/// Runs the command and returns its output.
pub(super) async fn run(database: &Database, command: QuotasCommand) -> anyhow::Result<String> {
    let operator = database.operator().await?;
    // The command may come from a newer program than the gateway that migrated the schema last.
    operator.migrate().await?;
    match command {
        QuotasCommand::List { json } => {
            let quotas = operator.quotas().await.context("could not read the quotas")?;
            if json {
                return Ok(serde_json::to_string_pretty(&quotas)? + "\n");
            }
            let mut out = String::new();
            for quota in quotas {
                writeln!(out, "{}", render(&quota))?;
            }
            Ok(out)
        }
        QuotasCommand::Set { scope, pattern, calls: (calls, window) } => {
            let quota = Quota { scope, pattern, calls, window };
            operator.set_quota(&quota).await.context("could not set the quota")?;
            Ok(format!("{}\n", render(&quota)))
        }
        QuotasCommand::Unset { scope, pattern } => {
            match operator.unset_quota(&scope, &pattern).await {
                Ok(()) => Ok(format!("The quota of `{pattern}` for `{scope}` was deleted.\n")),
                Err(RegistryError::NotFound(_)) => bail!(
                    "there is no quota of `{pattern}` for `{scope}`; `pml-server quotas list` lists the quotas"
                ),
                Err(other) => Err(other).context("could not delete the quota"),
            }
        }
    }
}

fn render(quota: &Quota) -> String {
    let Quota { scope, pattern, calls, window } = quota;
    let window = match window {
        Window::Minute => "min",
        Window::Hour => "h",
        Window::Day => "day",
    };
    format!("{scope}  {pattern}  {calls}/{window}")
}
