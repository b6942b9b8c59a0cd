//! The servers of `.pml.json`: which names lead to them, and what these names would lead to without them.

use protocol::{ErrorBody, ErrorCode, RoutingRules, ToolId, escape_text};

use super::App;
use crate::local_mcp::{ListedServer, Remote};
use crate::tools;

impl App {
    /// Returns whether a tool is of a server of `.pml.json`, which may not offer it; see
    /// [`check_listed`](Self::check_listed).
    pub(crate) fn is_configured(&self, id: &ToolId) -> bool {
        // Servers of `.pml.json` have neither a scope nor versions, so only a plain id can mean
        // one. The name of an entry counts as well, so that it never means a server of the registry.
        id.is_plain()
            && (self.configured.contains(id.namespace())
                || self.entry_names.contains_key(id.namespace()))
    }

    /// Checks that a server of `.pml.json` offers a tool, as far as its entry says so.
    ///
    /// # Errors
    /// Returns `TOOL_NOT_FOUND` with what can be called instead.
    pub(crate) fn check_listed(&self, id: &ToolId) -> Result<(), ErrorBody> {
        let (namespace, action) = (id.namespace(), id.action());
        if let Some(right) = self.entry_names.get(namespace) {
            let message = format!(
                "the tools of the server `{namespace}` of `.pml.json` are in the namespace `{right}`; write `{right}:{action}`"
            );
            return Err(ErrorBody::new(ErrorCode::ToolNotFound, message));
        }
        let listed = self.local.check_listed(namespace, action);
        listed.map_err(|error| ErrorBody::new(error.code(), error.to_string()))
    }

    /// Returns the HTTP server of `.pml.json` that provides a tool.
    pub(crate) fn remote_of(&self, id: &ToolId) -> Option<Remote> {
        let spec = self.is_configured(id).then(|| self.local.spec(id.namespace()))?;
        spec?.remote
    }

    /// Returns whether a server of `.pml.json` has a namespace.
    pub(crate) fn is_configured_namespace(&self, namespace: &str) -> bool {
        self.configured.contains(namespace)
    }

    /// Returns the namespace of the server of `.pml.json` with this namespace or this name of its entry.
    pub(crate) fn namespace_of(&self, name: &str) -> Option<&str> {
        let namespace = self.configured.get(name).or_else(|| self.entry_names.get(name));
        namespace.map(String::as_str)
    }

    /// Returns the namespaces of the servers of `.pml.json`, sorted.
    pub(crate) fn configured_namespaces(&self) -> impl Iterator<Item = &str> {
        self.configured.iter().map(String::as_str)
    }

    /// Returns the servers of `.pml.json`, sorted.
    pub(crate) fn configured_servers(&self) -> Vec<ListedServer> {
        self.configured.iter().filter_map(|namespace| self.local.listed(namespace)).collect()
    }
}

/// Returns what a server of `.pml.json` hides by having a tool, as far as that is known. `full_name` is the entry of the
/// registry that the gateway resolves the tool's name to.
pub(crate) fn hidden_by_configured(id: &ToolId, full_name: Option<&str>) -> Option<String> {
    let namespace = id.namespace();
    match full_name {
        _ if tools::is_native(namespace) => Some(format!("`{namespace}` of `pml`")),
        Some(full_name) => Some(format!("`{}` of the gateway", escape_text(full_name))),
        None if RoutingRules::shipped().covering(id).is_some() => {
            Some(format!("`{namespace}` of the gateway"))
        }
        None => None,
    }
}

/// Logs that a call goes to a server of `.pml.json`, and what that hides.
pub(crate) fn log_override(id: &ToolId, full_name: Option<&str>) {
    match hidden_by_configured(id, full_name) {
        Some(hidden) => {
            tracing::debug!(tool = %id, "A server of `.pml.json` has `{id}`, which hides {hidden}");
        }
        // The gateway is not asked about it, so the registry may have such a tool all the same.
        None => {
            tracing::debug!(tool = %id, "A server of `.pml.json` has `{id}`, before any entry of the registry")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_hidden_is_named() {
        for (id, full_name, expected) in [
            ("git:git_log", None, Some("`git` of `pml`")),
            ("git:git_log", Some("pml.mcp.git.git_log"), Some("`git` of `pml`")),
            ("own:x", Some("acme.core.own.x"), Some("`acme.core.own.x` of the gateway")),
            ("json:parse", None, Some("`json` of the gateway")),
            ("own:x", None, None),
        ] {
            let hidden = hidden_by_configured(&id.parse().unwrap(), full_name);
            assert_eq!(hidden.as_deref(), expected, "{id}");
        }
    }
}
