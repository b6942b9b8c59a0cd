//! A server.json as an entry of the catalog, with everything pinned.

use protocol::server_json::{ServerPlace, place_of};
use protocol::{EntryType, ResultMode};
use serde_json::Value;

use crate::CatalogServer;

/// Says a server.json as an entry of the catalog, as it is had.
///
/// # Errors
/// As [`place_of`].
pub(super) fn to_catalog(server: &Value, namespace: &str) -> Result<CatalogServer, String> {
    let (kind, install, proxy_to, env_required) = match place_of(server)? {
        ServerPlace::Stdio(install) => (EntryType::Stdio, Some(install), None, Vec::new()),
        ServerPlace::Http { url, env_required } => (EntryType::Http, None, Some(url), env_required),
    };
    Ok(CatalogServer {
        namespace: namespace.to_owned(),
        kind,
        description: server["description"].as_str().unwrap_or_default().to_owned(),
        install,
        proxy_to,
        env_required,
        routing: None,
        warnings: Vec::new(),
        result: ResultMode::Text,
        tools: Vec::new(),
    })
}
