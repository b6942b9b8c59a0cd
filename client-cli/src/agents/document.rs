//! The text of an agent's file. Only what is asked for changes; comments and the form of everything else stay.

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstInputValue, CstNode, CstObject, CstRootNode};
use serde_json::{Map, Value, json};
use toml_edit::{DocumentMut, Item, Table, TableLike};

use crate::files::strict_json;

/// The language of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Syntax {
    /// JSON.
    Json,
    /// JSON with comments and trailing commas.
    Jsonc,
    /// TOML.
    Toml,
}

impl Syntax {
    /// Returns the servers of a text by name: the object or table `member`; empty if it is missing.
    ///
    /// # Errors
    /// Returns why the text cannot be read.
    pub(super) fn servers(self, text: &str, member: &str) -> Result<Map<String, Value>, String> {
        let servers = match self {
            Self::Toml => {
                let document = toml(text)?;
                document.get(member).map(value_of_toml)
            }
            _ => {
                let root = self.json(text)?;
                let member = root.object_value().and_then(|object| object.get(member));
                member.and_then(|member| member.value()).and_then(|value| value.to_serde_value())
            }
        };
        match servers {
            None => Ok(Map::new()),
            Some(Value::Object(servers)) => Ok(servers),
            Some(_) => Err(self.not_servers(member)),
        }
    }

    /// Returns the text with one server more. The name must not be in it yet.
    ///
    /// # Errors
    /// Returns why the text cannot be read.
    pub(super) fn with(
        self,
        text: &str,
        member: &str,
        name: &str,
        entry: &Value,
    ) -> Result<String, String> {
        match self {
            Self::Toml => {
                let mut document = toml(text)?;
                let servers = document.entry(member).or_insert_with(|| {
                    // Without a header of its own, which would be empty.
                    let mut servers = Table::new();
                    servers.set_implicit(true);
                    Item::Table(servers)
                });
                let servers =
                    servers.as_table_like_mut().ok_or_else(|| self.not_servers(member))?;
                servers.insert(name, Item::Table(toml_table(entry)?));
                Ok(document.to_string())
            }
            _ if text.trim().is_empty() => {
                let new = json!({ member: { name: entry } });
                serde_json::to_string_pretty(&new)
                    .map(|text| text + "\n")
                    .map_err(|error| error.to_string())
            }
            _ => {
                let root = self.json(text)?;
                let servers = root
                    .object_value_or_set()
                    .object_value_or_create(member)
                    .ok_or_else(|| self.not_servers(member))?;
                servers.append(name, cst_value(entry));
                Ok(root.to_string())
            }
        }
    }

    /// Returns the text without a server.
    ///
    /// # Errors
    /// Returns why the text cannot be read.
    pub(super) fn without(self, text: &str, member: &str, name: &str) -> Result<String, String> {
        match self {
            Self::Toml => {
                let mut document = toml(text)?;
                if let Some(servers) = document.get_mut(member).and_then(Item::as_table_like_mut) {
                    servers.remove(name);
                }
                Ok(document.to_string())
            }
            _ => {
                let root = self.json(text)?;
                let servers = root.object_value().and_then(|object| object.object_value(member));
                if let Some(server) = servers.and_then(|servers| servers.get(name)) {
                    server.remove();
                }
                Ok(root.to_string())
            }
        }
    }

    /// Parses a text whose value is an object. An empty text is an empty object.
    fn json(self, text: &str) -> Result<CstRootNode, String> {
        let relaxed = self == Self::Jsonc;
        let options = ParseOptions {
            allow_comments: relaxed,
            allow_trailing_commas: relaxed,
            allow_loose_object_property_names: false,
            allow_missing_commas: false,
            allow_single_quoted_strings: false,
            allow_hexadecimal_numbers: false,
            allow_unary_plus_numbers: false,
            allow_bare_decimal_point_numbers: false,
            allow_non_finite_numbers: false,
            allow_extended_string_escapes: false,
        };
        let text = if text.trim().is_empty() { "{}" } else { text };
        if self == Self::Json {
            // The other parser accepts comments around the value all the same.
            strict_json::check_unique(text.as_bytes())?;
        }
        let root = CstRootNode::parse(text, &options).map_err(|error| error.to_string())?;
        let object = root.object_value().ok_or("it is not an object")?;
        unique(&object)?;
        Ok(root)
    }

    fn not_servers(self, member: &str) -> String {
        let what = if self == Self::Toml { "a table" } else { "an object" };
        format!("`{member}` is not {what}")
    }
}

/// Checks that no key is there twice: two readers could use different values.
fn unique(object: &CstObject) -> Result<(), String> {
    let mut seen = std::collections::BTreeSet::new();
    for property in object.properties() {
        let name = property.decoded_name().ok_or("a key is not valid")?;
        if !seen.insert(name.clone()) {
            return Err(format!("duplicate key `{}`", name.escape_debug()));
        }
        if let Some(value) = property.value() {
            unique_within(&value)?;
        }
    }
    Ok(())
}

fn unique_within(node: &CstNode) -> Result<(), String> {
    if let Some(object) = node.as_object() {
        return unique(&object);
    }
    let elements = node.as_array().map(|array| array.elements()).unwrap_or_default();
    elements.iter().try_for_each(unique_within)
}

fn cst_value(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(value) => CstInputValue::Bool(*value),
        Value::Number(value) => CstInputValue::Number(value.to_string()),
        Value::String(value) => CstInputValue::String(value.clone()),
        Value::Array(values) => CstInputValue::Array(values.iter().map(cst_value).collect()),
        Value::Object(members) => CstInputValue::Object(
            members.iter().map(|(name, value)| (name.clone(), cst_value(value))).collect(),
        ),
    }
}

fn toml(text: &str) -> Result<DocumentMut, String> {
    // Only the first line is for people in one line; the others draw the place.
    text.parse().map_err(|error: toml_edit::TomlError| {
        let line = error.span().map(|span| text[..span.start].matches('\n').count() + 1);
        let at = line.map_or_else(String::new, |line| format!("line {line}: "));
        format!("{at}{}", error.message())
    })
}

fn toml_table(entry: &Value) -> Result<Table, String> {
    let mut table = Table::new();
    for (name, value) in entry.as_object().into_iter().flatten() {
        table.insert(name, Item::Value(toml_value(value)?));
    }
    Ok(table)
}

fn toml_value(value: &Value) -> Result<toml_edit::Value, String> {
    Ok(match value {
        Value::String(text) => text.as_str().into(),
        Value::Bool(value) => (*value).into(),
        Value::Array(values) => {
            let values = values.iter().map(toml_value).collect::<Result<Vec<_>, _>>()?;
            toml_edit::Value::Array(values.into_iter().collect())
        }
        _ => return Err("it has no form in TOML".to_owned()),
    })
}

fn value_of_toml(item: &Item) -> Value {
    match item {
        Item::None => Value::Null,
        Item::Value(value) => value_of_toml_value(value),
        Item::Table(table) => object_of_toml(table),
        Item::ArrayOfTables(tables) => {
            Value::Array(tables.iter().map(|table| object_of_toml(table)).collect())
        }
    }
}

fn object_of_toml(table: &dyn TableLike) -> Value {
    let members = table.iter().map(|(name, item)| (name.to_owned(), value_of_toml(item)));
    Value::Object(members.collect())
}

fn value_of_toml_value(value: &toml_edit::Value) -> Value {
    match value {
        toml_edit::Value::String(text) => json!(text.value()),
        toml_edit::Value::Integer(number) => json!(number.value()),
        toml_edit::Value::Float(number) => json!(number.value()),
        toml_edit::Value::Boolean(value) => json!(value.value()),
        toml_edit::Value::Datetime(time) => json!(time.value().to_string()),
        toml_edit::Value::Array(values) => values.iter().map(value_of_toml_value).collect(),
        toml_edit::Value::InlineTable(table) => object_of_toml(table),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PML: &str = r#"{"command":"pml","args":["stdio"]}"#;

    /// Whatever is in a file stays as it is written when a server comes and goes.
    #[test]
    fn a_server_comes_and_goes() {
        let entry: Value = serde_json::from_str(PML).unwrap();
        for (syntax, member, before) in [
            (
                Syntax::Json,
                "mcpServers",
                "{\"z\" : 1,\n\t\"mcpServers\": {\"a\": {\"command\": \"x\"}} }",
            ),
            (Syntax::Json, "mcpServers", "{\n  \"mcpServers\": {}\n}\n"),
            (
                Syntax::Jsonc,
                "servers",
                "// mine\n{\n  \"servers\": {\n    // one\n    \"a\": { \"command\": \"x\" }, // two\n  },\n  \"inputs\": [],\n}\n",
            ),
            (
                Syntax::Toml,
                "mcp_servers",
                "# mine\nmodel = \"x\"\n\n[mcp_servers.a] # one\ncommand = 'x'\n\n[tools]\nweb = true\n",
            ),
            (Syntax::Toml, "mcp_servers", "model = \"x\"\n"),
            (Syntax::Toml, "mcp_servers", "mcp_servers = { a = { command = \"x\" } } # mine\n"),
            (Syntax::Toml, "mcp_servers", "mcp_servers.a.command = \"x\" # mine\n"),
        ] {
            let names = |text: &str| -> Vec<String> {
                syntax.servers(text, member).unwrap().keys().cloned().collect()
            };
            let with = syntax.with(before, member, "pml", &entry).unwrap();
            assert_eq!(syntax.servers(&with, member).unwrap()["pml"], entry, "{with}");
            assert_eq!(names(&with).len(), names(before).len() + 1, "{with}");
            let comments = before.lines().filter_map(|line| {
                line.find("//").or_else(|| line.find('#')).map(|at| &line[at..])
            });
            for comment in comments {
                assert!(with.contains(comment), "{comment} is in {with}");
            }
            let without = syntax.without(&with, member, "pml").unwrap();
            assert_eq!(names(&without), names(before), "{without}");
            assert_eq!(syntax.servers(&without, member), syntax.servers(before, member));
        }
    }

    #[test]
    fn a_missing_file_becomes_one() {
        let entry: Value = serde_json::from_str(PML).unwrap();
        let text = Syntax::Json.with("", "mcpServers", "pml", &entry).unwrap();
        assert!(text.starts_with("{\n  \"mcpServers\": {\n    \"pml\": {\n"), "{text}");
        let text = Syntax::Toml.with("", "mcp_servers", "pml", &entry).unwrap();
        assert_eq!(text, "[mcp_servers.pml]\ncommand = \"pml\"\nargs = [\"stdio\"]\n");
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        let deep = "[".repeat(100_000);
        for (syntax, text) in [
            (Syntax::Json, "{"),
            (Syntax::Json, "[]"),
            (Syntax::Json, "{} x"),
            (Syntax::Json, "// a comment\n{}"),
            (Syntax::Json, "{\"a\": 1,}"),
            (Syntax::Json, "{'a': 1}"),
            (Syntax::Json, "{\"a\": 1, \"a\": 2}"),
            (Syntax::Json, "{\"m\": {\"x\": {\"command\": \"a\", \"command\": \"b\"}}}"),
            (Syntax::Jsonc, "{\"m\": [{\"a\": 1, \"\\u0061\": 2}]}"),
            (Syntax::Jsonc, "{a: 1}"),
            (Syntax::Jsonc, &deep),
            (Syntax::Json, "{\"m\": []}"),
            (Syntax::Toml, "a = 1\na = 2\n"),
            (Syntax::Toml, "m = 1"),
            (Syntax::Toml, &deep),
            (Syntax::Toml, "m = {"),
        ] {
            let start: String = text.chars().take(40).collect();
            syntax.servers(text, "m").expect_err(&start);
        }
    }
}
