//! Publishing by server.json, as the official registry's `mcp-publisher` does. The server.json is converted to a
//! [`PublishServer`] request.

use protocol::{ErrorBody, ErrorCode, Scope, ToolDescriptor};
use registry::Caller;
use serde_json::{Map, Value};

use super::servers::{self, PublishServer, SERVER_JSON_LIMIT};
use super::{invalid, parse_version};
use crate::state::SharedGateway;

/// The longest description that the official registry's schema allows, in characters.
const DESCRIPTION_LIMIT: usize = 100;
/// The member of `_meta` for a publisher's own data; `mcp-publisher` removes all other members.
const PUBLISHER_META: &str = "io.modelcontextprotocol.registry/publisher-provided";
/// The member with the tools, in the form of `tools/list`: server.json has no field for tools.
const TOOLS_META: &str = "ai.casys.pml/tools";

/// The published entry.
#[derive(Debug)]
pub(crate) struct PublishedVersion {
    /// Its name in the official API.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Warnings for the publisher.
    pub warnings: Vec<String>,
}

/// Publishes a server in the caller's scope. The caller of this function checks the right to publish.
///
/// # Errors
/// Returns the problem of an invalid server.json, `FORBIDDEN` for a name outside the caller's scope, `CONFLICT` for a
/// version with different content or a taken name, and the error of an unavailable registry.
pub(crate) async fn publish(
    gateway: &SharedGateway,
    caller: &Caller,
    server: Map<String, Value>,
) -> Result<PublishedVersion, ErrorBody> {
    let name = text(&server, "name")?.to_owned();
    let namespace = own_namespace(&name, &caller.scope)?.to_owned();
    let version = text(&server, "version")?;
    // Only for the hint: `publish_any` parses the version again.
    parse_version(Some(version)).map_err(|error| {
        let hint = "the version must be three numbers, such as 1.2.0";
        ErrorBody { message: format!("{}; {hint}", error.message), ..error }
    })?;
    let length = text(&server, "description")?.chars().count();
    if length > DESCRIPTION_LIMIT {
        let detail = format!("`description` has {length} characters; at most {DESCRIPTION_LIMIT}");
        return Err(invalid(detail));
    }
    let bytes = Value::Object(server.clone()).to_string().len();
    if bytes > SERVER_JSON_LIMIT {
        return Err(invalid(format!("the body has {bytes} bytes; at most {SERVER_JSON_LIMIT}")));
    }
    let tools = tools(&server)?;
    let body = PublishServer::of_server_json(&namespace, server, tools)?;
    // A server.json has no field for tools, so a server without any is published, with a warning.
    let published = servers::publish_any(gateway, caller, body).await?;
    let mut warnings = Vec::new();
    if published.tools.is_empty() {
        warnings.push(format!(
            "no tools are listed, so programs cannot call any: publish the next version with `pml publish --mcp server.json`, which reads them from the server, or list them in `_meta[\"{PUBLISHER_META}\"][\"{TOOLS_META}\"]`"
        ));
    }
    Ok(PublishedVersion { name, version: published.version, warnings })
}

fn text<'a>(server: &'a Map<String, Value>, field: &str) -> Result<&'a str, ErrorBody> {
    let text = server.get(field).and_then(Value::as_str).filter(|text| !text.trim().is_empty());
    text.ok_or_else(|| invalid(format!("`{field}` is missing or not a string")))
}

/// Returns the namespace of a name of the scope, `org.project/namespace`.
fn own_namespace<'a>(name: &'a str, scope: &Scope) -> Result<&'a str, ErrorBody> {
    let shown = || protocol::escape_text(&name.chars().take(200).collect::<String>());
    let (domain, namespace) = name
        .split_once('/')
        .filter(|(domain, namespace)| !domain.is_empty() && !namespace.is_empty())
        .ok_or_else(|| invalid(format!("`name` is `{}`; it must be `{scope}/…`", shown())))?;
    if domain != scope.to_string() {
        let detail = format!(
            "this key can publish `{scope}/…`, not `{}`: name the server `{scope}/{}`",
            shown(),
            protocol::server_json::namespace_of(name)
        );
        return Err(ErrorBody::new(ErrorCode::Forbidden, detail));
    }
    Ok(namespace)
}

/// Returns the tools that the publisher lists.
fn tools(server: &Map<String, Value>) -> Result<Vec<ToolDescriptor>, ErrorBody> {
    let listed = server.get("_meta").and_then(|meta| meta.get(PUBLISHER_META)?.get(TOOLS_META));
    let Some(listed) = listed else { return Ok(Vec::new()) };
    // Either the whole answer of `tools/list`, or only its list.
    let listed = listed.get("tools").unwrap_or(listed);
    serde_json::from_value(listed.clone())
        .map_err(|error| invalid(format!("`{TOOLS_META}` is not a list of tools: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_outside_the_scope_are_refused() {
        let scope: Scope = "acme.web".parse().unwrap();
        assert_eq!(own_namespace("acme.web/notes", &scope).unwrap(), "notes");
        for (name, code) in [
            ("acme.webs/notes", ErrorCode::Forbidden),
            ("ACME.web/notes", ErrorCode::Forbidden),
            ("pml.mcp/notes", ErrorCode::Forbidden),
            ("io.github.acme/notes", ErrorCode::Forbidden),
            ("notes", ErrorCode::InvalidRequest),
            ("acme.web/", ErrorCode::InvalidRequest),
        ] {
            assert_eq!(own_namespace(name, &scope).unwrap_err().error_code, code, "{name}");
        }
    }
}
