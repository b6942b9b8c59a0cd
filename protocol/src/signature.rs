//! Renders JSON Schema as a TypeScript type: enough for a model to write a call, in a tenth of the tokens.
//!
//! Schemas are untrusted, so names and literals are escaped, flagged and truncated, and the length of the type is
//! bounded. Omitted parts are shown as `…`.

use serde_json::Value;

use crate::ToolId;
use crate::model_text::{TextFlags, word_for_model};

/// The maximum number of characters of a signature.
const SIGNATURE_LIMIT: usize = 800;
/// The nesting depths to try, in order, until the signature is short enough.
const DEPTHS: [usize; 4] = [6, 3, 2, 1];
/// The mark of an omitted part.
const CUT: &str = "…";

/// How much of a schema is rendered.
#[derive(Clone, Copy)]
struct Extent {
    /// The maximum number of characters of a name or a literal.
    word: usize,
    /// The maximum number of properties of an object, members of a union, or items of a tuple.
    members: usize,
    /// The maximum number of schemas visited for one type. References in a hostile schema can multiply exponentially.
    nodes: usize,
    /// The mark of an omitted part.
    cut: &'static str,
}

/// For a model.
const BRIEF: Extent = Extent { word: 64, members: 24, nodes: 500, cut: CUT };

/// For the compiler. What is omitted is `any`.
const COMPLETE: Extent =
    Extent { word: usize::MAX, members: usize::MAX, nodes: 10_000, cut: "any" };

/// The maximum nesting depth of a complete type.
const COMPLETE_DEPTH: usize = 24;

/// Renders a tool as a call with its parameters and its result:
/// `mcp.a.b({ path: string, head?: number }) => Promise<string>`.
///
/// `result` is the schema of the value that the program receives, if it is known.
pub fn signature(
    id: &ToolId,
    parameters: &Value,
    result: Option<&Value>,
    flags: &mut TextFlags,
) -> String {
    let call = id.call_form();
    for depth in DEPTHS {
        // The flags of a discarded attempt would warn of text that is not shown.
        let mut taken = TextFlags::default();
        let parameters = written(parameters, depth, BRIEF, &mut taken);
        // Every tool takes one object, which may be omitted if it has no properties.
        let parameters = if parameters == "{}" { "" } else { &parameters };
        let result =
            result.map_or("unknown".into(), |schema| written(schema, depth, BRIEF, &mut taken));
        let text = format!("{call}({parameters}) => Promise<{result}>");
        if text.chars().count() <= SIGNATURE_LIMIT {
            flags.extend(&taken);
            return text;
        }
    }
    format!("{call}({{ {CUT} }}) => Promise<{CUT}>")
}

/// Renders a schema as a type that TypeScript's compiler accepts. A part that refers to itself, or is nested too deeply, is
/// `any`.
pub fn complete_type(schema: &Value) -> String {
    written(schema, COMPLETE_DEPTH, COMPLETE, &mut TextFlags::default())
}

fn written(schema: &Value, depth: usize, extent: Extent, flags: &mut TextFlags) -> String {
    let mut writer =
        Writer { root: schema, extent, nodes: extent.nodes, within: Vec::new(), flags };
    writer.schema(schema, depth)
}

struct Writer<'a> {
    root: &'a Value,
    extent: Extent,
    /// How many more schemas may be visited.
    nodes: usize,
    /// The references being resolved, to detect cycles.
    within: Vec<&'a str>,
    flags: &'a mut TextFlags,
}

impl<'a> Writer<'a> {
    fn schema(&mut self, schema: &'a Value, depth: usize) -> String {
        let Some(nodes) = self.nodes.checked_sub(1) else { return self.extent.cut.to_owned() };
        self.nodes = nodes;
        let fields = match schema {
            Value::Object(fields) => fields,
            Value::Bool(false) => return "never".to_owned(),
            _ => return "unknown".to_owned(),
        };
        let mut written = if let Some(Value::String(reference)) = fields.get("$ref") {
            self.reference(reference, depth)
        } else if let Some(value) = fields.get("const") {
            self.literal(value)
        } else if let Some(Value::Array(values)) = fields.get("enum") {
            let literals = values.iter().take(self.extent.members).map(|value| self.literal(value));
            union(literals.collect(), values.len(), self.extent)
        } else if let Some(Value::Array(members)) = fields.get("anyOf").or(fields.get("oneOf")) {
            self.union_of(members.iter(), members.len(), depth)
        } else if let Some(Value::Array(members)) = fields.get("allOf") {
            let parts =
                members.iter().take(self.extent.members).map(|member| self.schema(member, depth));
            // A part that only restricts values, such as a length, has no type of its own.
            let parts: Vec<String> = parts.filter(|part| part != "unknown").collect();
            match &parts[..] {
                [] => self.typed(schema, depth),
                [one] => one.clone(),
                _ => parts.iter().map(|part| parenthesized(part)).collect::<Vec<_>>().join(" & "),
            }
        } else {
            self.typed(schema, depth)
        };
        // OpenAPI's way to permit null, which JSON Schema does not define.
        if fields.get("nullable") == Some(&Value::Bool(true)) && !written.ends_with("null") {
            written += " | null";
        }
        written
    }

    fn reference(&mut self, reference: &'a str, depth: usize) -> String {
        // Only references within the schema are followed. Any other would have to be fetched, and
        // its author chooses the address.
        let target = reference.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer));
        let Some(target) = target else { return "unknown".to_owned() };
        // A reference does not reduce the depth, so a schema that refers to itself is not stopped
        // by the depth.
        if depth == 0 || self.within.contains(&reference) {
            return self.extent.cut.to_owned();
        }
        self.within.push(reference);
        let written = self.schema(target, depth);
        self.within.pop();
        written
    }

    fn union_of(
        &mut self,
        members: impl Iterator<Item = &'a Value>,
        count: usize,
        depth: usize,
    ) -> String {
        let written = members.take(self.extent.members).map(|member| self.schema(member, depth));
        union(written.collect(), count, self.extent)
    }

    /// Renders the type that `type` declares, or that other keywords imply.
    fn typed(&mut self, schema: &'a Value, depth: usize) -> String {
        match &schema["type"] {
            Value::String(name) => self.named(name, schema, depth),
            Value::Array(names) => {
                let written = names.iter().take(self.extent.members).filter_map(Value::as_str);
                let written = written.map(|name| self.named(name, schema, depth)).collect();
                union(written, names.len(), self.extent)
            }
            _ if schema.get("properties").is_some() => self.object(schema, depth),
            _ if schema.get("items").or(schema.get("prefixItems")).is_some() => {
                self.array(schema, depth)
            }
            _ => "unknown".to_owned(),
        }
    }

    fn named(&mut self, name: &str, schema: &'a Value, depth: usize) -> String {
        match name {
            "integer" => "number".to_owned(),
            "string" | "number" | "boolean" | "null" => name.to_owned(),
            "array" => self.array(schema, depth),
            "object" => self.object(schema, depth),
            _ => "unknown".to_owned(),
        }
    }

    fn array(&mut self, schema: &'a Value, depth: usize) -> String {
        if depth == 0 {
            return format!("{}[]", self.extent.cut);
        }
        let tuple = schema.get("prefixItems").or(schema.get("items")).and_then(Value::as_array);
        if let Some(items) = tuple {
            let written =
                items.iter().take(self.extent.members).map(|item| self.schema(item, depth - 1));
            let mut written: Vec<String> = written.collect();
            if items.len() > self.extent.members {
                written.push(self.extent.cut.to_owned());
            }
            return format!("[{}]", written.join(", "));
        }
        match schema.get("items") {
            Some(items) => parenthesized(&self.schema(items, depth - 1)) + "[]",
            None => "unknown[]".to_owned(),
        }
    }

    fn object(&mut self, schema: &'a Value, depth: usize) -> String {
        let properties = schema.get("properties").and_then(Value::as_object);
        let extra =
            schema.get("additionalProperties").filter(|extra| **extra != Value::Bool(false));
        let Some(properties) = properties.filter(|properties| !properties.is_empty()) else {
            return match extra {
                Some(_) if depth == 0 => format!("Record<string, {}>", self.extent.cut),
                Some(extra) => format!("Record<string, {}>", self.schema(extra, depth - 1)),
                None if schema.get("additionalProperties").is_some() => "{}".to_owned(),
                // The top level: a tool without declared arguments.
                None if std::ptr::eq(schema, self.root) => "{}".to_owned(),
                None => "Record<string, unknown>".to_owned(),
            };
        };
        if depth == 0 {
            return match self.extent.cut {
                CUT => format!("{{ {CUT} }}"),
                cut => cut.to_owned(),
            };
        }
        let required = schema.get("required").and_then(Value::as_array);
        let is_required =
            |name: &str| required.is_some_and(|names| names.iter().any(|known| known == name));
        // Required properties come first, so that truncation omits optional ones.
        let (must, may): (Vec<_>, Vec<_>) =
            properties.iter().partition(|(name, _)| is_required(name));
        let mut members = Vec::new();
        for (sign, (name, schema)) in
            must.into_iter().map(|one| (":", one)).chain(may.into_iter().map(|one| ("?:", one)))
        {
            if members.len() == self.extent.members {
                members.push(self.extent.cut.to_owned());
                break;
            }
            let written = self.schema(schema, depth - 1);
            members.push(format!("{}{sign} {written}", self.name(name)));
        }
        // A list beyond the limit ends with the mark of a cut, so nothing may follow it.
        if let Some(extra) = extra
            && members.len() <= self.extent.members
        {
            members.push(format!("[key: string]: {}", self.schema(extra, depth - 1)));
        }
        format!("{{ {} }}", members.join(", "))
    }

    fn name(&mut self, name: &str) -> String {
        let identifier = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'$')
            && !name.starts_with(|c: char| c.is_ascii_digit())
            // A longer name is quoted as well, because quoting truncates it.
            && (1..=self.extent.word).contains(&name.len());
        if identifier { name.to_owned() } else { self.quoted(name) }
    }

    fn literal(&mut self, value: &Value) -> String {
        match value {
            Value::String(text) => self.quoted(text),
            Value::Array(_) => "unknown[]".to_owned(),
            Value::Object(_) => "Record<string, unknown>".to_owned(),
            plain => plain.to_string(),
        }
    }

    /// Quotes an untrusted text.
    fn quoted(&mut self, text: &str) -> String {
        // Before the text is prepared for the model: the backslashes of its escapes stay single.
        let quoted = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        format!("\"{}\"", word_for_model(&quoted, self.extent.word, self.flags))
    }
}

/// Joins types by `|`, without duplicates; `count` is the total number.
fn union(members: Vec<String>, count: usize, extent: Extent) -> String {
    let mut seen: Vec<String> = Vec::new();
    for member in members {
        if !seen.contains(&member) {
            seen.push(member);
        }
    }
    // `unknown` includes every other type.
    if seen.iter().any(|member| member == "unknown") {
        return "unknown".to_owned();
    }
    if count > extent.members {
        seen.push(extent.cut.to_owned());
    }
    if seen.is_empty() { "never".to_owned() } else { seen.join(" | ") }
}

/// Puts a type into parentheses where an adjacent operator would otherwise bind to a part of it.
fn parenthesized(written: &str) -> String {
    let plain =
        !written.contains([' ', '|', '&']) || (written.starts_with('{') && is_one_bracket(written));
    if plain { written.to_owned() } else { format!("({written})") }
}

/// Returns whether the opening bracket of a text is closed by its last character.
fn is_one_bracket(text: &str) -> bool {
    let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '{' if !quoted => depth += 1,
            '}' if !quoted => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at + 1 == text.len();
                }
            }
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ts(schema: Value) -> String {
        written(&schema, DEPTHS[0], BRIEF, &mut TextFlags::default())
    }

    #[test]
    fn renders_schemas_as_types() {
        let property = |schema: Value| json!({ "type": "object", "properties": { "a": schema } });
        for (schema, expected) in [
            (json!({}), "unknown"),
            (json!(true), "unknown"),
            (json!(false), "never"),
            (json!(7), "unknown"),
            (json!({ "type": "string" }), "string"),
            (json!({ "type": "integer", "minimum": 1 }), "number"),
            (json!({ "type": ["string", "null"] }), "string | null"),
            (json!({ "type": "string", "nullable": true }), "string | null"),
            (json!({ "type": "strange" }), "unknown"),
            (json!({ "const": "x" }), "\"x\""),
            (json!({ "enum": ["a", 1, null, true] }), "\"a\" | 1 | null | true"),
            (json!({ "enum": [] }), "never"),
            (json!({ "type": "array" }), "unknown[]"),
            (json!({ "items": { "type": "string" } }), "string[]"),
            (json!({ "type": "array", "items": { "enum": ["a", "b"] } }), "(\"a\" | \"b\")[]"),
            (
                json!({ "type": "array", "prefixItems": [{ "type": "number" }, {}] }),
                "[number, unknown]",
            ),
            (json!({ "type": "object" }), "{}"),
            (property(json!({ "type": "object" })), "{ a?: Record<string, unknown> }"),
            (property(json!({ "type": "object", "additionalProperties": false })), "{ a?: {} }"),
            (
                property(json!({ "additionalProperties": { "type": "number" }, "type": "object" })),
                "{ a?: Record<string, number> }",
            ),
            (
                json!({ "properties": { "b": { "type": "string" }, "a": { "type": "number" } }, "required": ["a"] }),
                "{ a: number, b?: string }",
            ),
            (
                json!({ "properties": { "a": {} }, "additionalProperties": true }),
                "{ a?: unknown, [key: string]: unknown }",
            ),
            (
                json!({ "type": "array", "items": { "properties": { "a": { "type": "string" } } } }),
                "{ a?: string }[]",
            ),
            (
                json!({ "type": "array", "items": { "anyOf": [{ "properties": { "a": {} } }, { "properties": { "b": {} } }] } }),
                "({ a?: unknown } | { b?: unknown })[]",
            ),
            (
                json!({ "anyOf": [{ "type": "string" }, { "type": "null" }, { "type": "string" }] }),
                "string | null",
            ),
            (json!({ "oneOf": [{ "type": "string" }, {}] }), "unknown"),
            (
                json!({ "allOf": [{ "properties": { "a": {} } }, { "properties": { "b": {} } }] }),
                "{ a?: unknown } & { b?: unknown }",
            ),
            (json!({ "allOf": [{ "minLength": 1 }], "type": "string" }), "string"),
            (property(json!({ "$ref": "#/$defs/n" })), "{ a?: unknown }"),
            (
                json!({ "$defs": { "n": { "type": "number" } }, "properties": { "a": { "$ref": "#/$defs/n" } } }),
                "{ a?: number }",
            ),
            (
                json!({ "definitions": { "n": { "properties": { "next": { "$ref": "#/definitions/n" } } } }, "$ref": "#/definitions/n" }),
                "{ next?: … }",
            ),
            (property(json!({ "$ref": "https://x.example/schema" })), "{ a?: unknown }"),
            (
                json!({ "properties": { "a-b": {}, "3": {}, "": {} } }),
                "{ \"a-b\"?: unknown, \"3\"?: unknown, \"\"?: unknown }",
            ),
        ] {
            assert_eq!(ts(schema.clone()), expected, "{schema}");
        }
    }

    fn of(parameters: &Value, result: Option<&Value>) -> (String, Vec<&'static str>) {
        let mut flags = TextFlags::default();
        let text = signature(&"fs:read-it".parse().unwrap(), parameters, result, &mut flags);
        (text, flags.words())
    }

    #[test]
    fn renders_a_tool_as_a_call() {
        let parameters = json!({
            "type": "object",
            "properties": { "head": { "type": "number" }, "path": { "type": "string" } },
            "required": ["path"],
        });
        assert_eq!(
            of(&parameters, Some(&json!({ "type": "string" }))).0,
            "mcp.fs[\"read-it\"]({ path: string, head?: number }) => Promise<string>"
        );
        assert_eq!(
            of(&json!({ "type": "object" }), None).0,
            "mcp.fs[\"read-it\"]() => Promise<unknown>"
        );
    }

    /// RG-13: names and literals of hostile schemas are escaped, flagged and truncated.
    #[test]
    fn escapes_flags_and_truncates_hostile_schemas() {
        let hostile = json!({ "properties": {
            "a\u{202e}b": { "enum": ["x\"} <IMPORTANT>", "\u{1b}[2J"] },
            "long": { "const": "y".repeat(100_000) },
        } });
        let (text, flags) = of(&hostile, None);
        assert!(
            text.contains("\"a\\u{202e}b\"?: \"x\\\"} <IMPORTANT>\" | \"\\u{1b}[2J\""),
            "{text}"
        );
        assert!(text.contains("…\"") && text.len() < 500, "{text}");
        assert_eq!(flags, ["hidden_characters", "too_long", "instructions"]);

        let wide: Value =
            (0..5_000).map(|n| (format!("p{n}"), json!({ "type": "string" }))).collect();
        let (text, _) = of(&json!({ "properties": wide }), None);
        assert!(text.contains("p23?: string, …") && !text.contains("p24"), "{text}");

        let mut deep = json!({ "type": "string" });
        for n in 0..200 {
            deep =
                json!({ "properties": { format!("a{n}"): deep.clone(), format!("b{n}"): deep } });
            if deep.to_string().len() > 100_000 {
                break;
            }
        }
        let (text, _) = of(&deep, Some(&deep));
        assert!(text.chars().count() <= SIGNATURE_LIMIT && text.contains('…'), "{text}");

        let doubling: Value = (0..40)
            .map(|n| {
                let next = json!({ "$ref": format!("#/$defs/d{}", n + 1) });
                (
                    format!("d{n}"),
                    json!({ "anyOf": [{ "properties": { "l": next, "r": next } }, {}] }),
                )
            })
            .collect();
        let (text, _) = of(&json!({ "$defs": doubling, "$ref": "#/$defs/d0" }), None);
        assert!(text.chars().count() <= SIGNATURE_LIMIT, "{text}");
    }
}
