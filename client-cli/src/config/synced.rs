//! The servers of the file whose entries do not say whether the gateway is told their tools.

use execution::files::atomic::Existing;
use serde_json::{Map, Value};

use super::stored::{read, write};
use super::{ConfigError, FILE, file, unusable};
use crate::consent::trust::TrustStore;
use crate::workspace::Workspace;

/// The members that have servers.
const SERVERS: [&str; 2] = ["mcpServers", "private_mcps"];

/// The member of an entry.
const SYNC: &str = "sync_tools";

/// Returns the names of the servers whose entries do not say it, in a trusted file; none in another one.
///
/// # Errors
/// Returns [`ConfigError`] for an invalid file.
pub(crate) fn undecided(
    workspace: &Workspace,
    store: &TrustStore,
) -> Result<Vec<String>, ConfigError> {
    let Some(content) = read(workspace)? else { return Ok(Vec::new()) };
    file::parse(&content)?;
    if !store.is_trusted(workspace.root(), &content)? {
        return Ok(Vec::new());
    }
    let mut value: Value =
        serde_json::from_slice(&content).map_err(|error| file::invalid(&error))?;
    let servers = entries(&mut value).filter(|(_, entry)| !entry.contains_key(SYNC));
    Ok(servers.map(|(name, _)| name).collect())
}

/// Has the gateway told the tools of these servers, if their entries do not say it; the file stays trusted.
///
/// # Errors
/// Returns [`ConfigError::Untrusted`] for a file that the user has not trusted.
pub(crate) fn sync(
    workspace: &Workspace,
    store: &TrustStore,
    names: &[String],
) -> Result<(), ConfigError> {
    store.locked(|store| {
        let content = read(workspace)?.ok_or_else(|| unusable("there is no such file"))?;
        file::parse(&content)?;
        if !store.is_trusted(workspace.root(), &content)? {
            return Err(ConfigError::Untrusted { file: FILE.to_owned() });
        }
        let mut value: Value =
            serde_json::from_slice(&content).map_err(|error| file::invalid(&error))?;
        for (name, entry) in entries(&mut value) {
            if names.contains(&name) {
                entry.entry(SYNC).or_insert(Value::Bool(true));
            }
        }
        write(workspace, store, &value, Existing::Replaced)
    })?
}

fn entries(value: &mut Value) -> impl Iterator<Item = (String, &mut Map<String, Value>)> {
    let members = value.as_object_mut().into_iter().flatten();
    let servers = members.filter(|(name, _)| SERVERS.contains(&name.as_str()));
    let servers = servers.filter_map(|(_, servers)| servers.as_object_mut()).flatten();
    servers.filter_map(|(name, entry)| Some((name.clone(), entry.as_object_mut()?)))
}
