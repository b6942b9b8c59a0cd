//! Servers that are added to the file, from the files of agents.

use execution::files::atomic::Existing;
use serde_json::{Map, Value, json};

use super::stored::{read, write};
use super::{ConfigError, FILE, file, unusable};
use crate::consent::trust::TrustStore;
use crate::workspace::Workspace;

/// The file with servers that were added to it, before it is written.
pub(crate) struct Adopting {
    /// What was read.
    content: Vec<u8>,
    value: Value,
    changes: bool,
}

impl Adopting {
    /// Reads the file of a workspace.
    ///
    /// # Errors
    /// Returns [`ConfigError`] if there is none, or an invalid one.
    pub(crate) fn read(workspace: &Workspace) -> Result<Self, ConfigError> {
        let content = read(workspace)?.ok_or_else(|| unusable("there is no such file"))?;
        file::parse(&content)?;
        let value = serde_json::from_slice(&content).map_err(|error| file::invalid(&error))?;
        Ok(Self { content, value, changes: false })
    }

    /// Returns whether the user trusts the file, so that it may be added to.
    ///
    /// # Errors
    /// Returns [`ConfigError::Trust`] if that cannot be found out.
    pub(crate) fn is_trusted(
        &self,
        workspace: &Workspace,
        store: &TrustStore,
    ) -> Result<bool, ConfigError> {
        Ok(store.is_trusted(workspace.root(), &self.content)?)
    }

    /// Adds an entry to `mcpServers`. One that is there already, and is the same, stays.
    ///
    /// # Errors
    /// Returns why the file cannot have it.
    pub(crate) fn add(&mut self, name: &str, entry: &Value) -> Result<(), String> {
        let known = |member: &str| self.value.get(member)?.get(name);
        match known("mcpServers").or_else(|| known("private_mcps")) {
            Some(known) if known == entry => return Ok(()),
            Some(_) => return Err(format!("`{FILE}` has another server of this name")),
            None => {}
        }
        let mut value = self.value.clone();
        let members = value.as_object_mut().ok_or("it is not an object")?;
        let servers = members.entry("mcpServers").or_insert_with(|| json!({}));
        let servers: &mut Map<String, Value> =
            servers.as_object_mut().ok_or("`mcpServers` is not an object")?;
        servers.insert(name.to_owned(), entry.clone());
        // The whole file, because names must differ from those of the other servers.
        file::parse(value.to_string().as_bytes()).map_err(|error| match error {
            ConfigError::Invalid { reason, .. } | ConfigError::Unusable { reason, .. } => reason,
            other => other.to_string(),
        })?;
        self.value = value;
        self.changes = true;
        Ok(())
    }

    /// Writes the file, which stays trusted.
    ///
    /// # Errors
    /// Returns [`ConfigError::Untrusted`] for a file that the user has not trusted.
    pub(crate) fn write(
        self,
        workspace: &Workspace,
        store: &TrustStore,
    ) -> Result<(), ConfigError> {
        store.locked(|store| {
            if read(workspace)?.as_ref() != Some(&self.content) {
                return Err(unusable("it was changed meanwhile"));
            }
            if !store.is_trusted(workspace.root(), &self.content)? {
                return Err(ConfigError::Untrusted { file: FILE.to_owned() });
            }
            match self.changes {
                true => write(workspace, store, &self.value, Existing::Replaced),
                false => Ok(()),
            }
        })?
    }
}
