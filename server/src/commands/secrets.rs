//! `pml-server secrets`: the master keys of stored secrets, never a value.

use std::fmt::Write as _;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use registry::{MasterKeyStatus, MasterKeys, Operator};

use super::table::{count, table, when};
use crate::config::{SecretsCommand, Settings};
use crate::database::Database;
use crate::database::master_key::{self, ConfiguredKeys};

/// Runs the command and returns its output.
pub(super) async fn run(
    database: &Database,
    settings: &Settings,
    command: &SecretsCommand,
) -> anyhow::Result<String> {
    let operator = database.operator().await?;
    operator.migrate().await?;
    match command {
        SecretsCommand::Status { json } => {
            let keys = operator.master_keys().await.context("could not read the keys")?;
            if *json {
                return Ok(serde_json::to_string_pretty(&keys)? + "\n");
            }
            Ok(render(&keys))
        }
        SecretsCommand::Rotate { batch } => rotate(&operator, database, settings, *batch).await,
    }
}

/// Wraps every data key with the new master key, then retires the old one.
async fn rotate(
    operator: &Operator,
    database: &Database,
    settings: &Settings,
    batch: u32,
) -> anyhow::Result<String> {
    let configured = ConfiguredKeys::read(settings)?;
    // Before `or_own`, which fills in the current key from the file.
    let has_own_file = configured.current.is_none() && database.is_embedded();
    let configured = configured.or_own(database, settings)?;
    let to = match (&configured.new, &configured.current, &configured.old) {
        (Some(new), _, _) => new.id().to_owned(),
        // The operator has already made the new key the current one, but not all data keys are wrapped with it yet.
        (None, Some(current), Some(_)) => current.id().to_owned(),
        _ => bail!(
            "set PML_MASTER_KEY_NEW to the new master key (`openssl rand -base64 32` creates one): \
             first for every gateway, then for this command"
        ),
    };
    let keys = Arc::new(configured.into_keys());
    // Before the data keys, so that gateways wrap new ones with the new master key from here on.
    operator.begin_rotation(&keys, &to).await.map_err(master_key::explain)?;
    let (mut done, mut unreadable) = (0, Vec::new());
    let mut after = None;
    loop {
        let report = operator.rewrap(&keys, after, batch).await.map_err(master_key::explain)?;
        done += report.done;
        unreadable.extend(report.unreadable);
        after = report.next;
        if after.is_none() {
            break;
        }
    }
    // Only master keys that wrap no data key are retired, so that an interrupted rotation loses nothing.
    let retired = operator.retire_master_keys().await.context("could not retire the old keys")?;
    if !unreadable.is_empty() {
        let names: Vec<String> =
            unreadable.iter().map(|(org, version)| format!("{version} of `{org}`")).collect();
        bail!(
            "{} now wrapped with master key `{to}`, but these cannot be decrypted, so the old one is still needed: {}",
            if done == 1 { "1 data key is".to_owned() } else { format!("{done} data keys are") },
            names.join(", ")
        );
    }
    // Last: if the command is interrupted before, the next one still finds the old key in the file.
    if has_own_file {
        replace_own(settings, &keys, &to)?;
    }
    let mut out = match done {
        1 => format!("1 data key was rewrapped with master key `{to}`.\n"),
        _ => format!("{done} data keys were rewrapped with master key `{to}`.\n"),
    };
    for id in &retired {
        writeln!(out, "Master key `{id}` is no longer needed.")?;
    }
    if has_own_file {
        let file = master_key::own_file(settings);
        writeln!(out, "Next: `{}` has the new key; unset PML_MASTER_KEY_NEW.", file.display())?;
    } else {
        out +=
            "Next: set PML_MASTER_KEY to the new key on every gateway and unset the other two.\n";
    }
    Ok(out)
}

fn replace_own(settings: &Settings, keys: &MasterKeys, id: &str) -> anyhow::Result<()> {
    let key = keys.get(id).context("the new master key has disappeared")?;
    master_key::replace_own(&master_key::own_file(settings), key)
}

fn render(keys: &[MasterKeyStatus]) -> String {
    if keys.is_empty() {
        return "There is no master key yet: no gateway has been started with one.\n".to_owned();
    }
    let rows: Vec<[String; 4]> = keys
        .iter()
        .map(|key| {
            let state = match (key.current, key.data_keys) {
                (true, _) => "current",
                (false, 0) => "no longer needed",
                (false, _) => "being replaced; still needed",
            };
            let wraps = count(key.data_keys, "data key");
            [key.id.clone(), wraps, when(key.created_at), state.to_owned()]
        })
        .collect();
    table(["MASTER KEY", "WRAPS", "SINCE", "STATE"], &rows)
}
