//! Descriptions of tools, which are sent to a gateway that does not have the tool.

use protocol::SyncedTool;
use serde_json::{Map, Value};

use super::formats::clean_text;
use super::{DEPTH, names};

/// The longest description of a tool or of an argument, in bytes.
const LONGEST_TEXT: usize = 8 * 1024;
/// The longest value of an `enum`, in bytes. Longer ones are contents.
const LONGEST_CHOICE: usize = 256;

/// Keywords with one schema, or a list of schemas.
const SCHEMAS: &[&str] = &[
    "items",
    "prefixItems",
    "additionalItems",
    "contains",
    "additionalProperties",
    "unevaluatedProperties",
    "unevaluatedItems",
    "propertyNames",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
];
/// Keywords with schemas by name.
const NAMED_SCHEMAS: &[&str] =
    &["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"];
/// Keywords whose value is a number or a truth value.
const PLAIN: &[&str] = &[
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minContains",
    "maxContains",
    "minProperties",
    "maxProperties",
    "deprecated",
    "readOnly",
    "writeOnly",
    "nullable",
];
/// Keywords whose value is a text, or a list of texts.
const TEXTS: &[&str] = &[
    "type",
    "format",
    "title",
    "description",
    "pattern",
    "required",
    "contentEncoding",
    "contentMediaType",
];

/// Returns a tool without what looks like a secret, and with only those parts of its schemas that describe arguments:
/// no defaults, examples, comments or keywords that JSON Schema does not have.
pub fn sanitize_tool(tool: &SyncedTool) -> SyncedTool {
    SyncedTool {
        name: tool.name.clone(),
        description: text(&tool.description),
        input_schema: schema(&tool.input_schema, false, DEPTH),
        output_schema: tool.output_schema.as_ref().map(|of| schema(of, false, DEPTH)),
        annotations: tool.annotations,
    }
}

/// `is_secret` is whether the name of the member says that its value is one.
fn schema(of: &Value, is_secret: bool, depth: usize) -> Value {
    let members = match of {
        // The schema of everything, or of nothing.
        Value::Bool(_) => return of.clone(),
        Value::Object(members) if depth > 0 => members,
        _ => return Value::Object(Map::new()),
    };
    let mut kept = Map::new();
    for (keyword, value) in members {
        let keyword = keyword.as_str();
        let value = match value {
            Value::Array(list) if SCHEMAS.contains(&keyword) => {
                list.iter().map(|one| schema(one, is_secret, depth - 1)).collect()
            }
            _ if SCHEMAS.contains(&keyword) => schema(value, is_secret, depth - 1),
            Value::Object(named) if NAMED_SCHEMAS.contains(&keyword) => {
                let named = named.iter().map(|(name, of)| {
                    (clean_text(name), schema(of, names::is_secret(name), depth - 1))
                });
                Value::Object(named.collect())
            }
            Value::Number(_) | Value::Bool(_) if PLAIN.contains(&keyword) => value.clone(),
            Value::String(one) if TEXTS.contains(&keyword) => Value::String(text(one)),
            Value::Array(list) if TEXTS.contains(&keyword) => {
                list.iter().filter_map(Value::as_str).map(|one| Value::String(text(one))).collect()
            }
            // A place within the same schema; any other would have a host or a path.
            Value::String(target) if keyword == "$ref" && target.starts_with('#') => {
                Value::String(clean_text(target))
            }
            Value::Array(list) if keyword == "enum" && !is_secret => {
                let list: Option<Vec<_>> = list.iter().map(choice).collect();
                // Fewer choices than there are would be wrong.
                let Some(list) = list else { continue };
                Value::Array(list)
            }
            _ if keyword == "const" && !is_secret => {
                let Some(value) = choice(value) else { continue };
                value
            }
            _ => continue,
        };
        kept.insert(keyword.to_owned(), value);
    }
    Value::Object(kept)
}

/// Returns a value of an `enum`; `None` for one that cannot be told as it is.
fn choice(value: &Value) -> Option<Value> {
    match value {
        Value::String(text) => {
            (text.len() <= LONGEST_CHOICE && clean_text(text) == *text).then(|| value.clone())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {
            super::sanitize(value, LONGEST_CHOICE).filter(|clean| clean == value)
        }
        Value::Array(_) | Value::Object(_) => None,
    }
}

fn text(of: &str) -> String {
    let end = of.floor_char_boundary(LONGEST_TEXT);
    // Cleaned before it is cut, so that no half of a secret stays.
    let clean = clean_text(of);
    if of.len() <= LONGEST_TEXT {
        return clean;
    }
    let end = clean.floor_char_boundary(end);
    clean[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cleaned(schema: Value) -> Value {
        super::schema(&schema, false, DEPTH)
    }

    #[test]
    fn a_schema_keeps_what_describes_arguments() {
        let kept = json!({
            "type": "object", "required": ["path", "default"], "additionalProperties": false,
            "properties": {
                "path": { "type": "string", "description": "Where.", "minLength": 1, "pattern": "^/" },
                "default": { "type": ["string", "null"] },
                "mode": { "enum": ["a", 1, null], "title": "How" },
                "password": { "type": "string" },
                "list": { "type": "array", "items": { "$ref": "#/$defs/one" }, "maxItems": 3 },
                "either": { "anyOf": [{ "const": "x" }, true] },
            },
            "$defs": { "one": { "type": "number", "minimum": 0.5 } },
        });
        assert_eq!(cleaned(kept.clone()), kept);
    }

    #[test]
    fn values_and_unknown_keywords_are_removed() {
        for keyword in ["default", "example", "examples", "$comment", "$id", "$schema", "x-command"]
        {
            let mut schema = json!({ "type": "string" });
            schema[keyword] = json!("/home/me/canary");
            assert_eq!(cleaned(schema), json!({ "type": "string" }), "{keyword}");
        }
        for (schema, kept) in [
            (json!({ "$ref": "file:///home/me/canary.json" }), json!({})),
            (json!({ "minimum": "canary", "type": { "canary": 1 } }), json!({ "type": null })),
            (
                json!({ "properties": { "api_key": { "enum": ["canary"], "const": "canary", "type": "string" } } }),
                json!({ "properties": { "api_key": { "type": "string" } } }),
            ),
            (json!({ "enum": ["a", { "deep": "canary" }] }), json!({})),
            (json!({ "enum": ["sk_live_0123456789abcdef"] }), json!({})),
            (json!({ "const": "x".repeat(300) }), json!({})),
            (json!("canary"), json!({})),
        ] {
            let mut kept = kept;
            kept.as_object_mut().unwrap().retain(|_, value| !value.is_null());
            assert_eq!(cleaned(schema.clone()), kept, "{schema}");
        }
    }

    #[test]
    fn texts_lose_secrets_and_have_a_limit() {
        let tool = SyncedTool {
            name: "a".to_owned(),
            description: format!("Uses sk_live_0123456789abcdef. {}é", "x".repeat(LONGEST_TEXT)),
            input_schema: json!({ "description": "as ana@example.com" }),
            output_schema: Some(json!({ "default": 1 })),
            annotations: None,
        };
        let clean = sanitize_tool(&tool);
        assert!(clean.description.starts_with("Uses [redacted]"), "{}", &clean.description[..40]);
        assert!(clean.description.len() <= LONGEST_TEXT);
        assert!(!clean.input_schema.to_string().contains("ana@"), "{}", clean.input_schema);
        assert_eq!(clean.output_schema, Some(json!({})));
        assert_eq!(sanitize_tool(&clean), clean, "it is stable");
    }

    #[test]
    fn deep_schemas_end() {
        let mut deep = json!({ "type": "string", "description": "canary" });
        for _ in 0..100 {
            deep = json!({ "items": deep });
        }
        assert!(!cleaned(deep).to_string().contains("canary"));
    }
}
