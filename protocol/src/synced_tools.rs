//! The tools of a user's own MCP server, as the gateway is told them.
//!
//! No type here has a member for a command, a path, a variable or a host, and unknown members are refused.

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::{Integrity, ToolDescriptor};

/// The most tools of one server.
pub const SYNCED_TOOLS: usize = 256;
/// The maximum size of the JSON text of one tool, in bytes.
pub const SYNCED_TOOL_BYTES: usize = 64 * 1024;
/// The maximum size of the JSON text of a server's tools, in bytes.
pub const SYNCED_SERVER_BYTES: usize = 512 * 1024;

/// All tools of one server of one workspace. They replace those that were sent before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ToolSync {
    /// The random id of the workspace, a UUID.
    #[cfg_attr(feature = "openapi", schema(format = "uuid"))]
    pub client: String,
    /// The namespace of the tools.
    #[cfg_attr(
        feature = "openapi",
        schema(pattern = "^(_?[A-Za-z0-9]|_-)(_?[A-Za-z0-9-])*$", max_length = 64)
    )]
    pub namespace: String,
    /// The tools; none removes the server.
    #[serde(deserialize_with = "objects")]
    #[cfg_attr(feature = "openapi", schema(max_items = 256))]
    pub tools: Vec<SyncedTool>,
}

/// A tool, in the words of MCP.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SyncedTool {
    /// Its name, without a namespace.
    #[cfg_attr(feature = "openapi", schema(pattern = "^[A-Za-z0-9_][A-Za-z0-9_-]{0,127}$"))]
    pub name: String,
    /// What it does.
    #[serde(default)]
    pub description: String,
    /// JSON Schema of its arguments.
    #[cfg_attr(feature = "openapi", schema(value_type = Object, example = json!({ "type": "object" })))]
    pub input_schema: Value,
    /// JSON Schema of its `structuredContent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub output_schema: Option<Value>,
    /// The server's own hints. They are untrusted: no decision depends on them.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object")]
    pub annotations: Option<ToolHints>,
}

/// The hints of MCP about a tool that are no text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ToolHints {
    /// It changes nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only_hint: Option<bool>,
    /// It may delete or overwrite.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destructive_hint: Option<bool>,
    /// Repeating a call has no further effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotent_hint: Option<bool>,
    /// It interacts with the outside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_world_hint: Option<bool>,
}

/// What the gateway has stored of a [`ToolSync`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ToolSyncReceipt {
    /// The workspace.
    pub client: String,
    /// The namespace.
    pub namespace: String,
    /// The number of stored tools; 0 if the server was removed.
    pub tools: usize,
    /// The hash of what is stored; `None` if the server was removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub hash: Option<Integrity>,
}

/// Reads JSON objects. By itself, a struct can also be read from an array of its fields.
fn objects<'de, T: DeserializeOwned, D: Deserializer<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    let objects = Vec::<Map<String, Value>>::deserialize(from)?;
    objects.into_iter().map(|object| parse(object).map_err(D::Error::custom)).collect()
}

/// Reads a JSON object, or `null`.
fn object<'de, T: DeserializeOwned, D: Deserializer<'de>>(from: D) -> Result<Option<T>, D::Error> {
    let object = Option::<Map<String, Value>>::deserialize(from)?;
    object.map(|object| parse(object).map_err(D::Error::custom)).transpose()
}

fn parse<T: DeserializeOwned>(object: Map<String, Value>) -> serde_json::Result<T> {
    serde_json::from_value(Value::Object(object))
}

impl From<&ToolDescriptor> for SyncedTool {
    fn from(tool: &ToolDescriptor) -> Self {
        let hint = |name| tool.annotations.as_ref()?.get(name)?.as_bool();
        let hints = ToolHints {
            read_only_hint: hint("readOnlyHint"),
            destructive_hint: hint("destructiveHint"),
            idempotent_hint: hint("idempotentHint"),
            open_world_hint: hint("openWorldHint"),
        };
        Self {
            name: tool.name.clone(),
            description: tool.description.clone(),
            input_schema: tool.input_schema.clone(),
            output_schema: tool.output_schema.clone(),
            annotations: Some(hints).filter(|hints| *hints != ToolHints::default()),
        }
    }
}

impl From<SyncedTool> for ToolDescriptor {
    fn from(tool: SyncedTool) -> Self {
        Self {
            name: tool.name,
            description: tool.description,
            input_schema: tool.input_schema,
            output_schema: tool.output_schema,
            annotations: tool.annotations.and_then(|hints| serde_json::to_value(hints).ok()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_no_place_for_how_a_server_is_started() {
        let tool = serde_json::json!({ "name": "a", "inputSchema": {} });
        let sync = serde_json::json!({ "client": "c", "namespace": "n", "tools": [tool] });
        serde_json::from_value::<ToolSync>(sync.clone()).unwrap();
        for member in ["command", "args", "env", "cwd", "url", "headers", "hosts", "path"] {
            let mut of_server = sync.clone();
            of_server[member] = "x".into();
            serde_json::from_value::<ToolSync>(of_server).unwrap_err();
            let mut of_tool = sync.clone();
            of_tool["tools"][0][member] = "x".into();
            serde_json::from_value::<ToolSync>(of_tool).unwrap_err();
        }
        for (pointer, array) in [
            ("/tools/0", serde_json::json!(["a", "", {}])),
            ("/tools/0/annotations", serde_json::json!([null])),
        ] {
            let mut arrays = sync.clone();
            arrays["tools"][0]["annotations"] = serde_json::json!({});
            serde_json::from_value::<ToolSync>(arrays.clone()).unwrap();
            *arrays.pointer_mut(pointer).unwrap() = array;
            serde_json::from_value::<ToolSync>(arrays).unwrap_err();
        }
    }

    #[test]
    fn hints_are_only_yes_or_no() {
        let tool: ToolDescriptor = serde_json::from_value(serde_json::json!({
            "name": "a", "description": "A.", "inputSchema": { "type": "object" },
            "annotations": { "title": "/home/me", "readOnlyHint": true, "openWorldHint": "secret" },
        }))
        .unwrap();
        let sent = serde_json::to_value(SyncedTool::from(&tool)).unwrap();
        assert_eq!(sent["annotations"], serde_json::json!({ "readOnlyHint": true }));
        let again = ToolDescriptor::from(serde_json::from_value::<SyncedTool>(sent).unwrap());
        assert_eq!((again.name, again.description), (tool.name, tool.description));
    }
}
