//! `.pml/deps.json`: the capabilities that are MCP servers of their own here, by the names of these servers.
//!
//! The file grants nothing: a repository can contain one. What may run is in the lock.

use std::collections::BTreeMap;

use execution::files::atomic::Existing;
use protocol::{ErrorBody, ErrorCode, Fqdn, Integrity};
use serde::{Deserialize, Serialize};

use crate::files::strict_json;
use crate::workspace::Workspace;
use crate::workspace::own_folder::OwnFolder;

/// Its name in the project's own folder.
const NAME: &str = "deps.json";

/// The version of its format. Other versions are refused.
const VERSION: u32 = 1;

/// The added capabilities of a project.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Added(pub(crate) BTreeMap<String, AddedCapability>);

/// A capability that was added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AddedCapability {
    /// Its full name, without version.
    pub(crate) name: String,
    /// Its version.
    pub(crate) version: String,
    /// The hash of this version.
    pub(crate) integrity: Integrity,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    version: u32,
    capabilities: BTreeMap<String, AddedCapability>,
}

impl Added {
    /// Reads the file of a project; a missing one is empty.
    ///
    /// # Errors
    /// Returns `CONFIG_INVALID` for an invalid file.
    pub(crate) fn read(workspace: &Workspace) -> Result<Self, ErrorBody> {
        let Some(folder) = OwnFolder::open(workspace).map_err(invalid)? else {
            return Ok(Self::default());
        };
        let Some(bytes) = folder.read(NAME).map_err(invalid)? else { return Ok(Self::default()) };
        strict_json::check_unique(&bytes).map_err(invalid)?;
        let content: Content = serde_json::from_slice(&bytes).map_err(invalid)?;
        if content.version != VERSION {
            return Err(invalid(format!(
                "it has version {}, and this `pml` reads version {VERSION}",
                content.version
            )));
        }
        for added in content.capabilities.values() {
            let is_capability = |name: Fqdn| name.action().is_some() && name.hash().is_none();
            if !added.name.parse().is_ok_and(is_capability) {
                let name = protocol::escape_text(&added.name);
                return Err(invalid(format!("`{name}` is not the name of a capability")));
            }
        }
        Ok(Self(content.capabilities))
    }

    /// Writes the file atomically.
    ///
    /// # Errors
    /// Returns `CONFIG_INVALID` if it cannot be written.
    pub(crate) fn write(&self, workspace: &Workspace) -> Result<(), ErrorBody> {
        let content = Content { version: VERSION, capabilities: self.0.clone() };
        let mut text = serde_json::to_vec_pretty(&content).map_err(invalid)?;
        text.push(b'\n');
        let folder = OwnFolder::create(workspace).map_err(invalid)?;
        folder.write(NAME, &text, Existing::Replaced).map_err(invalid)
    }
}

fn invalid(what: impl std::fmt::Display) -> ErrorBody {
    ErrorBody::new(ErrorCode::ConfigInvalid, format!("`.pml/{NAME}`: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_strictly() {
        let root = tempfile::tempdir().unwrap();
        let workspace = Workspace::open(root.path()).unwrap();
        assert_eq!(Added::read(&workspace).unwrap(), Added::default());
        let integrity = Integrity::of(b"x");
        let one = AddedCapability {
            name: "acme.core.text.shout".to_owned(),
            version: "0.1.0".to_owned(),
            integrity,
        };
        let added = Added([("shout".to_owned(), one)].into());
        added.write(&workspace).unwrap();
        assert_eq!(Added::read(&workspace).unwrap(), added);
        let file = root.path().join(".pml/deps.json");
        let good = std::fs::read_to_string(&file).unwrap();
        for (from, to) in [
            ("\"version\": 1", "\"version\": 2"),
            ("\"version\": 1", "\"version\": 1, \"version\": 1"),
            ("\"version\": 1", "\"version\": 1, \"more\": 1"),
            ("acme.core.text.shout", "acme.core.text"),
            ("acme.core.text.shout", "../../x"),
            ("sha256-", "md5-"),
            ("{", ""),
        ] {
            std::fs::write(&file, good.replacen(from, to, 1)).unwrap();
            let refused = Added::read(&workspace).unwrap_err();
            assert_eq!(refused.error_code, ErrorCode::ConfigInvalid, "{from} {to}");
        }
    }
}
