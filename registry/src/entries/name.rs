//! The name of an entry, full or short.

use std::fmt;
use std::str::FromStr;

use protocol::{Fqdn, NameError, Scope, ShortHash, ToolId};

use crate::identity::tenant::Tenant;

/// The name of an entry in a URL: a full name, or a short one that is looked up in the caller's scope, in its
/// organisation, and then in the catalog.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum EntryName {
    /// `org.project.namespace[.action[.hash]]`.
    Full(Fqdn),
    /// `namespace`.
    Server(String),
    /// `namespace:action`.
    Tool(ToolId),
}

impl FromStr for EntryName {
    type Err = NameError;

    /// Reads any of the three forms, with or without `@latest`.
    fn from_str(text: &str) -> Result<Self, NameError> {
        let text = text.strip_suffix("@latest").unwrap_or(text);
        // An id with a version is refused: here, the version is a parameter of the look-up.
        if text.contains(':') && !text.contains('@') {
            let id: ToolId = text.parse()?;
            return Ok(match id.scope() {
                Some(scope) => {
                    let fqdn = Fqdn::of_tool(scope, &id);
                    Self::Full(
                        id.hash().map_or_else(|| fqdn.clone(), |hash| fqdn.clone().pinned(hash)),
                    )
                }
                None => Self::Tool(id),
            });
        }
        if text.contains('.') {
            return text.parse().map(Self::Full);
        }
        Fqdn::server(Scope::public(), text).map(|fqdn| Self::Server(fqdn.namespace().to_owned()))
    }
}

impl fmt::Display for EntryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(fqdn) => fqdn.fmt(f),
            Self::Server(namespace) => f.write_str(namespace),
            Self::Tool(id) => id.fmt(f),
        }
    }
}

impl EntryName {
    /// Returns the scopes to search, the namespace and the action.
    pub(crate) fn parts(&self, tenant: &Tenant) -> (Scope, Scope, &str, Option<&str>) {
        let own = || tenant.scope().cloned().unwrap_or_else(Scope::public);
        match self {
            Self::Full(fqdn) => {
                (fqdn.scope().clone(), fqdn.scope().clone(), fqdn.namespace(), fqdn.action())
            }
            Self::Server(namespace) => (own(), Scope::public(), namespace, None),
            Self::Tool(id) => (own(), Scope::public(), id.namespace(), Some(id.action())),
        }
    }

    /// Returns whether it is looked up in the caller's whole organisation.
    pub(crate) fn is_short(&self) -> bool {
        !matches!(self, Self::Full(_))
    }

    /// Returns the hash that the content must have, if the name has one.
    pub(crate) fn pin(&self) -> Option<&ShortHash> {
        match self {
            Self::Full(fqdn) => fqdn.hash(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_three_forms() {
        for (text, shown) in [
            ("filesystem", "filesystem"),
            ("filesystem@latest", "filesystem"),
            ("filesystem:read_file", "filesystem:read_file"),
            ("pml.mcp.filesystem", "pml.mcp.filesystem"),
            ("pml.mcp.filesystem.read_file.7b92", "pml.mcp.filesystem.read_file.7b92"),
            ("pml.mcp.filesystem:read_file", "pml.mcp.filesystem.read_file"),
            ("pml.mcp.filesystem:read_file.7b92", "pml.mcp.filesystem.read_file.7b92"),
        ] {
            assert_eq!(text.parse::<EntryName>().unwrap().to_string(), shown);
        }
    }

    /// RG-09: path traversal, encoded and control characters are refused in names.
    #[test]
    fn tricks_are_no_names() {
        for text in [
            "",
            "@latest",
            "../pml",
            "a/b",
            "a%2fb",
            "a\0",
            "a;b",
            "a\\b",
            "filesystem.",
            "filesystem ",
            "filesystem@1",
            "filesystem:read_file@1.0.0",
            "pml.mcp",
            "pml.mcp.filesystem.read_file.7b92.x",
        ] {
            text.parse::<EntryName>().expect_err(text);
        }
    }
}
