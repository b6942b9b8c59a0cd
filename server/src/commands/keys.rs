//! `pml-server keys`: the API keys of a scope, for the operator.

use std::time::Duration;

use anyhow::Context as _;
use chrono::{TimeDelta, Utc};
use protocol::Scope;
use registry::{ApiKey, KeyRecord, NewKey, Registry, RegistryError, Role, Tenant};
use serde_json::{Value, json};

use super::table::{table, when};
use crate::config::{CreateKey, KeysCommand};
use crate::database::Database;

/// Runs the command and returns its output.
pub(super) async fn run(database: &Database, command: &KeysCommand) -> anyhow::Result<String> {
    // With the serving role, so that the command needs no `PML_MIGRATE_URL`.
    let registry = database.connect(1).await?;
    match command {
        KeysCommand::Create(create) => create_key(&registry, create).await,
        KeysCommand::List { scope, json } => {
            let keys = all(&registry, &Tenant::of(scope.clone())).await?;
            if *json {
                return Ok(serde_json::to_string_pretty(&keys)? + "\n");
            }
            Ok(list(scope, &keys))
        }
        KeysCommand::Revoke { scope, id } => {
            let revoked = registry.revoke_key(&Tenant::of(scope.clone()), *id).await;
            revoked.map_err(|error| explain(error, "could not revoke the key"))?;
            Ok(format!("Key `{id}` is revoked.\n"))
        }
        KeysCommand::Rotate { scope, id, grace_seconds, json } => {
            let grace = Duration::from_secs((*grace_seconds).into());
            let rotated = registry.rotate_key(&Tenant::of(scope.clone()), *id, grace).await;
            let (key, record) =
                rotated.map_err(|error| explain(error, "could not rotate the key"))?;
            render(&key, &record, *json)
        }
    }
}

async fn create_key(registry: &Registry, create: &CreateKey) -> anyhow::Result<String> {
    let scope = &create.scope;
    let new = NewKey {
        principal: create.principal.clone(),
        name: create.name.clone(),
        rights: create.can.iter().copied().collect(),
        expires_at: create.expires_in_days.map(|days| Utc::now() + TimeDelta::days(days.into())),
        // The operator has every role. At each use, the role of the key's principal limits the key.
        org_role: Some(Role::Owner),
    };
    let created = registry.create_key(&Tenant::of(scope.clone()), new).await;
    let (key, record) = created.map_err(|error| match error {
        RegistryError::NotFound(_) => anyhow::anyhow!(
            "scope `{scope}` does not exist; create it with `pml-server scope create {scope}`"
        ),
        other => anyhow::Error::new(other).context("could not create the key"),
    })?;
    render(&key, &record, create.json)
}

/// Returns every key of a scope, page by page.
async fn all(registry: &Registry, tenant: &Tenant) -> anyhow::Result<Vec<KeyRecord>> {
    let mut keys = Vec::new();
    let mut cursor = None;
    loop {
        let page = registry.keys(tenant, cursor.as_deref(), 100).await;
        let page = page.context("could not read the keys")?;
        keys.extend(page.items);
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(keys);
        }
    }
}

fn list(scope: &Scope, keys: &[KeyRecord]) -> String {
    if keys.is_empty() {
        return format!("`{scope}` has no keys.\n");
    }
    let rows: Vec<[String; 7]> = keys.iter().map(row).collect();
    table(["ID", "STATE", "RIGHTS", "PRINCIPAL", "CREATED", "BY", "NAME"], &rows)
}

fn row(key: &KeyRecord) -> [String; 7] {
    let state = match (key.revoked_at, key.expires_at) {
        (Some(at), _) => format!("revoked {}", when(at)),
        (None, Some(at)) if at <= Utc::now() => format!("expired {}", when(at)),
        (None, Some(at)) => format!("until {}", when(at)),
        (None, None) => "valid".to_owned(),
    };
    let (id, rights) = (key.id.to_string(), key.rights.to_string());
    let creator = key.made_by.clone().unwrap_or_else(|| "?".to_owned());
    [id, state, rights, key.principal.clone(), when(key.created_at), creator, key.name.clone()]
}

/// Renders a new key: alone, for scripts, or as JSON with its record.
fn render(key: &ApiKey, record: &KeyRecord, as_json: bool) -> anyhow::Result<String> {
    if !as_json {
        return Ok(format!("{}\n", key.expose()));
    }
    let mut printed = json!({ "key": key.expose() });
    if let (Value::Object(printed), Value::Object(record)) =
        (&mut printed, serde_json::to_value(record)?)
    {
        printed.extend(record);
    }
    Ok(serde_json::to_string_pretty(&printed)? + "\n")
}

fn explain(error: RegistryError, what: &'static str) -> anyhow::Error {
    match error {
        RegistryError::NotFound(id) => anyhow::anyhow!(
            "the scope has no key `{id}`; `pml-server keys list --scope …` lists its keys"
        ),
        other => anyhow::Error::new(other).context(what),
    }
}
