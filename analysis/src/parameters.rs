//! Infers a JSON Schema of `args` from how a program uses them.
//!
//! The schema must not reject an input with which the program works. A field is
//! required only if no run can succeed without it: there is a use that fails or
//! yields `undefined` without the field, and that no test, loop, function or
//! early `return` can skip. Passing a field on is not such a use: a tool called
//! with `{ limit: args.limit }` simply gets no limit. In that case the tool's own
//! schema decides, which only the registry knows.

mod doc;
mod types;
mod uses;

use std::collections::BTreeMap;

use protocol::ToolId;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

pub use doc::description;
pub(crate) use uses::parameters;

use crate::{Analysis, Argument, NodeKind, PathStep, Task};

/// The dialect of the schemas.
const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";
/// The maximum number of fields; the schema of a program with more accepts any field.
const FIELD_LIMIT: usize = 256;

/// The fields of `args` that a program uses.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Parameters {
    /// Whether other fields may matter too, because the program uses `args` as a whole.
    pub open: bool,
    /// Whether the program may survive a failed call. Then it may not need the fields that a tool requires.
    pub catches: bool,
    /// The fields, by name.
    pub fields: BTreeMap<String, Parameter>,
}

/// A field of `args`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Parameter {
    /// Whether no run can succeed without it.
    pub required: bool,
    /// What the program reveals about its values, as a JSON Schema; `{}` if nothing.
    pub schema: Value,
}

impl Analysis {
    /// Returns the JSON Schema of the program's `args`.
    ///
    /// `tool_schema` returns the input schema of a tool: a field that is passed to a
    /// tool unchanged gets the type that the tool declares.
    pub fn input_schema<'s>(&self, tool_schema: impl Fn(&ToolId) -> Option<&'s Value>) -> Value {
        let mut fields = self.parameters.fields.clone();
        let nodes = &self.structure.nodes;
        for node in nodes {
            let (NodeKind::Task(task) | NodeKind::Capability(task)) = &node.kind else { continue };
            let Some(schema) = tool_schema(&task.tool) else { continue };
            // Everything around the call except `Promise.all` may skip it, or swallow its failure.
            let mut parent = node.parent;
            let mut always = !task.conditional && !self.parameters.catches;
            while let Some(around) = parent.and_then(|id| nodes.get(id as usize)) {
                always &= matches!(&around.kind, NodeKind::Fork { how } if how == "all");
                parent = around.parent;
            }
            for (field, of_tool, needed) in passed(task, schema) {
                let Some(parameter) = fields.get_mut(field) else { continue };
                parameter.required |= needed && always;
                if parameter.schema == json!({}) {
                    parameter.schema = of_tool;
                }
            }
        }
        let required: Vec<&String> =
            fields.iter().filter(|(_, field)| field.required).map(|(name, _)| name).collect();
        let mut schema = Map::new();
        schema.insert("$schema".into(), json!(DIALECT));
        schema.insert("type".into(), json!("object"));
        let properties = fields.iter().map(|(name, field)| (name.clone(), field.schema.clone()));
        schema.insert("properties".into(), Value::Object(properties.collect()));
        if !required.is_empty() {
            schema.insert("required".into(), json!(required));
        }
        schema.insert("additionalProperties".into(), json!(self.parameters.open));
        Value::Object(schema)
    }
}

/// Returns the fields of `args` that are passed to a task unchanged, with the tool's schema of each, and whether the
/// tool requires it.
fn passed<'t>(
    task: &'t Task,
    schema: &'t Value,
) -> impl Iterator<Item = (&'t str, Value, bool)> + 't {
    task.arguments.iter().filter_map(|(name, argument)| {
        let Argument::Parameter { path } = argument else { return None };
        let [PathStep::Field(field)] = path.as_slice() else { return None };
        let needed = schema.get("required").and_then(Value::as_array);
        let needed = needed.is_some_and(|all| all.iter().any(|one| one.as_str() == Some(name)));
        let declared = schema.get("properties").and_then(|all| all.get(name));
        Some((field.as_str(), declared.map_or_else(|| json!({}), plain), needed))
    })
}

/// Returns the self-contained parts of a tool's schema: the type, the enum and the type of the items.
fn plain(schema: &Value) -> Value {
    let mut out = Map::new();
    for key in ["type", "enum"] {
        if let Some(value) = schema.get(key) {
            out.insert(key.into(), value.clone());
        }
    }
    if let Some(items) = schema.pointer("/items/type") {
        out.insert("items".into(), json!({ "type": items }));
    }
    Value::Object(out)
}
