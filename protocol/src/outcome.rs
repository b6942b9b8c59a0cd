//! The conversion of an MCP `tools/call` result to a value, identical on gateway and CLI.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The `_meta` key under which the gateway sends the CLI a result's [`ResultMode`].
const RESULT_META: &str = "ai.casys.pml/result";

/// How a result is interpreted; set by the registry row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ResultMode {
    /// A single text block becomes its text.
    #[default]
    Text,
    /// A single text block is parsed as JSON; if that fails, it becomes its text.
    Json,
    /// Structured content that is exactly `{value: x}` becomes `x`; used by PML's native tools.
    Value,
}

impl ResultMode {
    /// Reads the mode that the gateway put into a forwarded result.
    pub fn stamped(result: &Value) -> Self {
        result
            .get("_meta")
            .and_then(|meta| meta.get(RESULT_META))
            .and_then(|mode| serde_json::from_value(mode.clone()).ok())
            .unwrap_or_default()
    }

    /// Puts this mode into a result, replacing one that an upstream may have set.
    pub fn stamp(self, result: &mut Value) {
        let Some(result) = result.as_object_mut() else { return };
        let meta = result.entry("_meta").or_insert_with(|| json!({}));
        // An upstream can send anything here, and must not be able to prevent the stamp.
        if !meta.is_object() {
            *meta = json!({});
        }
        if let Some(meta) = meta.as_object_mut() {
            meta.insert(RESULT_META.to_owned(), json!(self));
        }
    }
}

/// A tool's own error: a result with `isError`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ToolError {
    /// The tool's text.
    pub message: String,
}

/// Returns the value that a program receives for an MCP `CallToolResult`.
///
/// - `structuredContent` that is exactly `{content: <the single text block>}` becomes that text;
/// - with [`ResultMode::Value`], `structuredContent` that is exactly `{value: x}` becomes `x`;
/// - other `structuredContent` is unchanged;
/// - a single text block becomes its text, parsed only with [`ResultMode::Json`];
/// - anything else becomes the `content` array.
///
/// # Errors
/// Returns the text blocks joined by line ends when the result has `isError: true`.
pub fn unwrap_tool_result(result: &Value, mode: ResultMode) -> Result<Value, ToolError> {
    let blocks = result.get("content").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    if result.get("isError").and_then(Value::as_bool) == Some(true) {
        let texts: Vec<&str> = blocks.iter().filter_map(text_of).collect();
        let message = match (texts.is_empty(), result.get("structuredContent")) {
            (false, _) => texts.join("\n"),
            (true, Some(structured)) => structured.to_string(),
            (true, None) => "the tool failed without a message".to_owned(),
        };
        return Err(ToolError { message });
    }
    let single_text = match blocks {
        [block] => text_of(block),
        _ => None,
    };
    if let Some(structured) = result.get("structuredContent").filter(|s| !s.is_null()) {
        return Ok(match only_field(structured) {
            // Only if the text block repeats the field, as the reference filesystem server does. A
            // tool whose real result has a field `content` keeps its structure.
            Some(("content", Value::String(text))) if single_text == Some(text) => {
                Value::String(text.clone())
            }
            Some(("value", value)) if mode == ResultMode::Value => value.clone(),
            _ => structured.clone(),
        });
    }
    Ok(match (single_text, mode) {
        (Some(text), ResultMode::Text | ResultMode::Value) => Value::String(text.to_owned()),
        (Some(text), ResultMode::Json) => {
            serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
        }
        (None, _) => Value::Array(blocks.to_vec()),
    })
}

/// Builds the MCP result of a native tool: `{value}` as structured content and as JSON text.
pub fn wrap_value(value: Value) -> Value {
    let structured = json!({ "value": value });
    let text = structured.to_string();
    json!({
        "content": [{ "type": "text", "text": text }],
        "structuredContent": structured,
    })
}

fn text_of(block: &Value) -> Option<&str> {
    let is_text = block.get("type").and_then(Value::as_str) == Some("text");
    block.get("text").and_then(Value::as_str).filter(|_| is_text)
}

fn only_field(value: &Value) -> Option<(&str, &Value)> {
    let fields: &Map<String, Value> = value.as_object()?;
    let mut fields = fields.iter();
    match (fields.next(), fields.next()) {
        (Some((name, value)), None) => Some((name, value)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        json!({ "type": "text", "text": text })
    }

    #[test]
    fn unwraps_each_form_of_a_result() {
        use ResultMode::{Json, Text, Value as Bare};
        let image = json!({ "type": "image", "data": "AA==", "mimeType": "image/png" });
        let cases = [
            // The reference filesystem server repeats its text as structured content.
            (
                json!({"content": [text("hi")], "structuredContent": {"content": "hi"}}),
                Text,
                json!("hi"),
            ),
            (
                json!({"content": [text("hi")], "structuredContent": {"content": "ho"}}),
                Text,
                json!({"content": "ho"}),
            ),
            (wrap_value(json!([1])), Bare, json!([1])),
            (wrap_value(json!([1])), Text, json!({"value": [1]})),
            (json!({"content": [text("{\"a\":1}")]}), Text, json!("{\"a\":1}")),
            (json!({"content": [text("{\"a\":1}")]}), Json, json!({"a": 1})),
            (json!({"content": [text("{a")]}), Json, json!("{a")),
            (json!({"content": [text("a"), text("b")]}), Text, json!([text("a"), text("b")])),
            (json!({"content": [image.clone()]}), Text, json!([image])),
            (json!({"content": []}), Text, json!([])),
            (json!({"content": [text("x")], "structuredContent": null}), Text, json!("x")),
        ];
        for (result, mode, expected) in cases {
            assert_eq!(unwrap_tool_result(&result, mode).unwrap(), expected, "{result}");
        }
    }

    #[test]
    fn the_gateways_mode_replaces_the_upstreams() {
        let mut result = json!({"content": [], "_meta": {"x": 1, "ai.casys.pml/result": "value"}});
        assert_eq!(ResultMode::stamped(&result), ResultMode::Value);
        ResultMode::Text.stamp(&mut result);
        assert_eq!(ResultMode::stamped(&result), ResultMode::Text);
        assert_eq!(result["_meta"]["x"], 1);
        assert_eq!(ResultMode::stamped(&json!({"_meta": 3})), ResultMode::Text);
    }

    #[test]
    fn an_error_result_is_an_error() {
        let result = json!({"isError": true, "content": [text("no"), text("way")], "structuredContent": {"value": 1}});
        assert_eq!(unwrap_tool_result(&result, ResultMode::Value).unwrap_err().message, "no\nway");
        let result = json!({"isError": true, "content": []});
        unwrap_tool_result(&result, ResultMode::Text).unwrap_err();
    }
}
