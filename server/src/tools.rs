//! The gateway's native tools: pure functions over JSON, one file per namespace.
//!
//! They run in the multi-tenant gateway, on untrusted arguments. So each one is limited in time, memory and stack,
//! does no input or output, and never panics. The schemas are generated from the types that the arguments are parsed
//! into, so that schema and code cannot diverge.

pub(crate) mod catalog;
mod collections;
mod crypto;
mod datetime;
mod json;
mod key_path;
mod limits;
mod math;
mod number;
mod pattern;
mod string;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use limits::{MAX_ARGUMENT_BYTES, MAX_DEPTH, MAX_RESULT_BYTES};

/// Why a native tool returned no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ToolFailure {
    /// The arguments do not match the tool's input schema.
    #[error("invalid arguments: {0}")]
    InvalidArguments(String),
    /// The arguments match the schema, but the tool failed.
    #[error("{0}")]
    Failed(String),
    /// The value is larger than the limit of a tool's result.
    #[error("the result would be larger than {limit} bytes; request less at a time")]
    ResultTooLarge {
        /// The maximum size of a result as JSON, in bytes.
        limit: usize,
    },
}

/// An example of a call, which the tests run.
#[derive(Debug, Clone)]
#[cfg_attr(not(test), expect(dead_code, reason = "only the tests read them"))]
pub(crate) struct ToolExample {
    /// The arguments.
    pub arguments: Value,
    /// The tool's value; absent if it differs from call to call.
    pub value: Option<Value>,
}

/// One native tool.
pub(crate) struct NativeTool {
    /// The part of the id before the colon.
    pub namespace: &'static str,
    /// The part of the id after the colon.
    pub action: &'static str,
    /// What the tool does, for the user or the model that selects it.
    pub description: &'static str,
    /// The JSON Schema of its arguments.
    pub input_schema: Value,
    /// The JSON Schema of its structured content, `{"value": …}`.
    pub output_schema: Value,
    /// Whether the tool is read-only, as all native tools are.
    pub read_only: bool,
    /// Whether equal arguments always yield an equal value.
    pub deterministic: bool,
    /// Examples, at least one.
    pub examples: Vec<ToolExample>,
    run: Box<dyn Fn(Value) -> Result<Value, ToolFailure> + Send + Sync>,
}

impl NativeTool {
    /// Returns the tool id, `namespace:action`.
    pub(crate) fn id(&self) -> String {
        format!("{}:{}", self.namespace, self.action)
    }

    /// Runs the tool and returns its bare value.
    ///
    /// In the worst case, this takes a few hundred milliseconds of CPU time, so asynchronous callers run it on a
    /// blocking thread.
    pub(crate) fn call(&self, arguments: Value) -> Result<Value, ToolFailure> {
        // The depth is checked first, because measuring the size recurses.
        if limits::is_deeper_than(&arguments, MAX_DEPTH) {
            return Err(ToolFailure::InvalidArguments(format!(
                "`{}` takes JSON of at most {MAX_DEPTH} levels; flatten the data",
                self.id()
            )));
        }
        if !limits::fits(&arguments, MAX_ARGUMENT_BYTES) {
            return Err(ToolFailure::InvalidArguments(format!(
                "`{}` takes at most {MAX_ARGUMENT_BYTES} bytes of arguments; send them in parts",
                self.id()
            )));
        }
        // No tool is known to panic. If a dependency does, only this call fails.
        // Tools are pure functions, so a panic leaves no half-changed state behind.
        let value =
            catch_unwind(AssertUnwindSafe(|| (self.run)(arguments))).unwrap_or_else(|_panic| {
                Err(ToolFailure::Failed(format!(
                    "`{}` failed with an internal error on these arguments; please report it",
                    self.id()
                )))
            })?;
        // Tools that can multiply their arguments have a budget; this covers all others.
        if !limits::fits(&value, MAX_RESULT_BYTES) {
            return Err(ToolFailure::ResultTooLarge { limit: MAX_RESULT_BYTES });
        }
        Ok(value)
    }

    /// Creates a tool from a typed function.
    fn new<I, O>(
        namespace: &'static str,
        action: &'static str,
        description: &'static str,
        function: fn(I) -> Result<O, ToolFailure>,
    ) -> Self
    where
        I: DeserializeOwned + JsonSchema + 'static,
        O: Serialize + JsonSchema + 'static,
    {
        let mut input_schema = schema_of::<I>();
        if let Some(root) = input_schema.as_object_mut() {
            // The doc comment of the type adds nothing to the tool's own description.
            root.remove("description");
        }
        let accepted = accepted_fields(&input_schema);
        Self {
            namespace,
            action,
            description,
            input_schema,
            // MCP clients expect structured content to be an object, never a bare value.
            output_schema: json!({
                "type": "object",
                "properties": { "value": schema_of::<O>() },
                "required": ["value"],
                "additionalProperties": false,
            }),
            read_only: true,
            deterministic: true,
            examples: Vec::new(),
            run: Box::new(move |arguments| {
                let input = read_arguments::<I>(namespace, action, &accepted, arguments)?;
                let output = function(input)?;
                serde_json::to_value(output).map_err(|error| {
                    ToolFailure::Failed(format!("the result is not JSON: {error}"))
                })
            }),
        }
    }

    /// Adds an example with its value.
    fn example(mut self, arguments: Value, value: Value) -> Self {
        self.examples.push(ToolExample { arguments, value: Some(value) });
        self
    }

    /// Declares that the value differs from call to call, and adds an example without a value.
    fn varies(mut self, arguments: Value) -> Self {
        self.deterministic = false;
        self.examples.push(ToolExample { arguments, value: None });
        self
    }
}

/// Returns every native tool, sorted by id.
pub(crate) fn all() -> &'static [NativeTool] {
    static TOOLS: LazyLock<Vec<NativeTool>> = LazyLock::new(|| {
        let mut tools = Vec::new();
        tools.extend(collections::tools());
        tools.extend(crypto::tools());
        tools.extend(datetime::tools());
        tools.extend(json::tools());
        tools.extend(math::tools());
        tools.extend(string::tools());
        tools.sort_by_key(NativeTool::id);
        tools
    });
    &TOOLS
}

/// Finds one native tool.
pub(crate) fn find(namespace: &str, action: &str) -> Option<&'static NativeTool> {
    all().iter().find(|tool| tool.namespace == namespace && tool.action == action)
}

/// Parses arguments into their type, or returns which field is invalid and what is expected.
fn read_arguments<I: DeserializeOwned>(
    namespace: &str,
    action: &str,
    accepted: &str,
    arguments: Value,
) -> Result<I, ToolFailure> {
    // A program that calls a tool without arguments sends nothing or null.
    let arguments = if arguments.is_null() { json!({}) } else { arguments };
    serde_path_to_error::deserialize(arguments).map_err(|error| {
        let path = error.path().to_string();
        // `.` stands for the arguments as a whole.
        let field = if path == "." { String::new() } else { format!("`{path}`: ") };
        let reason = without_type_names(&error.inner().to_string());
        ToolFailure::InvalidArguments(format!(
            "{field}{reason}; `{namespace}:{action}` takes {accepted}"
        ))
    })
}

/// Replaces the name of a Rust number type in an error by a description.
fn without_type_names(reason: &str) -> String {
    // From the right, because the part before it may quote a text of the caller.
    let Some((before, name)) = reason.rsplit_once(", expected ") else {
        return reason.to_owned();
    };
    let expected = match name {
        "u8" => "a whole number from 0 to 255",
        "u16" | "u32" | "u64" | "usize" => "a whole number from 0",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a smaller whole number",
        "f32" | "f64" => "a number",
        _ => return reason.to_owned(),
    };
    format!("{before}, expected {expected}")
}

/// Generates the JSON Schema (draft 2020-12) of a type, without references.
fn schema_of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    if let Some(root) = schema.as_object_mut() {
        // The title is the name of the Rust type.
        root.remove("title");
    }
    drop_number_formats(&mut schema);
    schema
}

/// Removes formats such as `uint32`, which no draft of JSON Schema defines and strict clients refuse.
fn drop_number_formats(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            // The schema of a field that is named `format` is not a text.
            if object.get("format").is_some_and(Value::is_string) {
                object.remove("format");
            }
            object.values_mut().for_each(drop_number_formats);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_number_formats),
        _ => {}
    }
}

/// Lists a tool's fields for its error messages.
fn accepted_fields(input_schema: &Value) -> String {
    let required = input_schema["required"].as_array();
    let Some(properties) = input_schema["properties"].as_object() else {
        return "no fields".to_owned();
    };
    let names: Vec<String> = properties
        .keys()
        .map(|name| {
            let is_required = required.is_some_and(|names| names.iter().any(|n| n == name));
            format!("`{name}`{}", if is_required { "" } else { " (optional)" })
        })
        .collect();
    names.join(", ")
}

#[cfg(test)]
mod tests;
