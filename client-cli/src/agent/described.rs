//! Tools that others wrote, as `tools/list` describes them, and the arguments of their calls.

use protocol::model_text::{TextFlags, description_for_model, schema_for_model};
use protocol::{ErrorBody, ErrorCode, ToolDescriptor, ToolId, escape_text};
use rmcp::model::{MetaObject, Tool, ToolAnnotations};
use serde_json::{Map, Value, json};

/// Where `_meta` of a tool has its id.
const ID_META: &str = "ai.casys.pml/id";

/// Where `_meta` of a tool has the flags of its texts, as a search shows them.
const FLAGS_META: &str = "ai.casys.pml/flags";

/// The longest part of a wrong value that an error repeats, in characters.
const SHOWN: usize = 200;

/// Describes a tool under a name. Its author is not trusted, and a model reads the texts.
///
/// There is no output schema: the answer can also be a question. There are no hints: what the program does is not known
/// beyond its calls.
pub(super) fn tool(name: &str, id: &ToolId, described: &ToolDescriptor) -> Tool {
    let mut flags = TextFlags::default();
    let description = description_for_model(&described.description, &mut flags);
    let schema = input_schema(&schema_for_model(&described.input_schema, &mut flags));
    let mut meta = Map::new();
    meta.insert(ID_META.to_owned(), json!(id));
    if !flags.is_empty() {
        meta.insert(FLAGS_META.to_owned(), json!(flags.words()));
    }
    Tool::new(name.to_owned(), description, schema)
        .with_annotations(ToolAnnotations::with_title(id.plain().as_str().to_owned()))
        .with_meta(MetaObject(meta))
}

/// Returns a schema in the form that MCP requires. A client refuses a whole list for one tool without it.
fn input_schema(schema: &Value) -> Map<String, Value> {
    let mut fields = schema.as_object().cloned().unwrap_or_default();
    fields.entry("type").or_insert_with(|| json!("object"));
    let is_object = fields["type"] == "object";
    let has_properties = fields.get("properties").is_none_or(|properties| {
        properties.as_object().is_some_and(|all| all.values().all(Value::is_object))
    });
    let has_required = fields.get("required").is_none_or(|required| {
        required.as_array().is_some_and(|names| names.iter().all(Value::is_string))
    });
    if is_object && has_properties && has_required {
        fields
    } else {
        Map::from_iter([("type".to_owned(), json!("object"))])
    }
}

/// Checks the arguments of a call against the schema of a capability, whose program would fail somewhere inside.
///
/// # Errors
/// Returns `INVALID_ARGUMENTS` with the field.
pub(super) fn check_arguments(
    name: &str,
    schema: &Value,
    arguments: &Value,
) -> Result<(), ErrorBody> {
    // A reference can lead back to itself, and the validator would follow it without an end.
    if has_reference(schema) {
        return Ok(());
    }
    // These take a time that is proportional to the text, whatever the pattern is.
    let patterns = jsonschema::PatternOptions::regex();
    let validator = match jsonschema::options().with_pattern_options(patterns).build(schema) {
        Ok(validator) => validator,
        // The publisher's mistake; the program still gets the arguments.
        Err(error) => {
            tracing::debug!(tool = name, %error, "The schema of a capability is not usable");
            return Ok(());
        }
    };
    let Err(error) = validator.validate(arguments) else { return Ok(()) };
    let path = error.instance_path().to_string();
    let field = match path.trim_start_matches('/') {
        "" => "the arguments".to_owned(),
        path => format!("`{}`", escape_text(path)),
    };
    let problem: String = escape_text(&error.to_string()).chars().take(SHOWN).collect();
    let message = format!(
        "the arguments of `{}` do not match its schema: {field}: {problem}",
        escape_text(name)
    );
    let mut refused = ErrorBody::new(ErrorCode::InvalidArguments, message)
        .with_details(json!({ "field": path, "keyword": error.kind().keyword() }));
    refused.hint = "Send arguments as in the tool's `inputSchema`.".to_owned();
    Err(refused)
}

fn has_reference(schema: &Value) -> bool {
    match schema {
        Value::Object(fields) => fields.iter().any(|(name, value)| {
            matches!(name.as_str(), "$ref" | "$dynamicRef" | "$recursiveRef")
                || has_reference(value)
        }),
        Value::Array(values) => values.iter().any(has_reference),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(description: &str, schema: Value) -> ToolDescriptor {
        ToolDescriptor {
            name: "twice".to_owned(),
            description: description.to_owned(),
            input_schema: schema,
            output_schema: None,
            annotations: Some(json!({ "readOnlyHint": true })),
        }
    }

    /// What a hostile publisher writes neither hides from a person nor breaks the list, and its hints are not repeated.
    #[test]
    fn hostile_descriptions_are_escaped() {
        let id: ToolId = "acme.core.notes:twice@0.1.0".parse().unwrap();
        let hostile = format!("Adds\u{202e}notes\u{1b}[2J. {}", "x".repeat(100_000));
        for (schema, expected) in [
            (json!({ "properties": { "n": { "type": "number" } } }), Some("n")),
            (json!({ "type": "string" }), None),
            (json!({ "properties": { "n": true } }), None),
            (json!({ "properties": [] }), None),
            (json!({ "required": "n" }), None),
            (json!([1]), None),
        ] {
            let tool = tool("notes_twice", &id, &described(&hostile, schema.clone()));
            let tool = serde_json::to_value(tool).unwrap();
            assert_eq!(tool["inputSchema"]["type"], "object", "{schema}");
            let n = tool["inputSchema"]["properties"].get("n");
            assert_eq!(n.is_some(), expected.is_some(), "{tool}");
            let description = tool["description"].as_str().unwrap();
            assert!(!description.contains(['\u{202e}', '\u{1b}']), "{description}");
            assert!(description.len() < 10_000, "{}", description.len());
            assert_eq!(tool["_meta"][ID_META], "acme.core.notes:twice@0.1.0");
            assert!(tool["_meta"][FLAGS_META].is_array(), "{tool}");
            assert_eq!(tool["annotations"], json!({ "title": "notes:twice" }));
        }
    }

    #[test]
    fn wrong_arguments_name_the_field() {
        let schema = json!({
            "type": "object", "required": ["n"], "additionalProperties": false,
            "properties": { "n": { "type": "integer" }, "text": { "pattern": "^(a+)+$" },
                "list": { "items": { "type": "string" } } },
        });
        for (arguments, field) in [
            (json!({ "n": 1, "text": "aa", "list": ["x"] }), None),
            (json!({}), Some("")),
            (json!({ "n": "1" }), Some("/n")),
            (json!({ "n": 1, "list": ["x", 2] }), Some("/list/1")),
            (json!({ "n": 1, "more": 1 }), Some("")),
            // An endless search with a backtracking engine.
            (json!({ "n": 1, "text": format!("{}b", "a".repeat(50_000)) }), Some("/text")),
        ] {
            let checked = check_arguments("notes_twice", &schema, &arguments);
            let error = checked.as_ref().err();
            assert_eq!(error.and_then(|it| it.details["field"].as_str()), field, "{error:?}");
            if let Some(error) = error {
                assert_eq!(error.error_code, ErrorCode::InvalidArguments);
                assert!(error.message.len() < 500, "{}", error.message);
            }
        }
        // What cannot be used to check is not used.
        for schema in [
            json!({ "$ref": "#" }),
            json!({ "allOf": [{ "$ref": "#" }] }),
            json!({ "type": 1 }),
            json!({ "properties": { "n": { "pattern": "(" } } }),
            json!(true),
        ] {
            check_arguments("notes_twice", &schema, &json!({ "n": "1" })).unwrap();
        }
    }
}
