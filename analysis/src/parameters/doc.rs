//! The doc comment at the beginning of a program.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// A parameter that `@param` documents.
#[derive(Debug, PartialEq)]
pub(super) struct DocParam {
    /// Whether it is optional: `[name]` or `{type=}`.
    pub(super) optional: bool,
    /// Its schema.
    pub(super) schema: Value,
}

/// Returns the description of a program: the doc comment at its beginning, up to the first tag.
pub fn description(source: &str) -> Option<String> {
    let text: Vec<&str> = lines(source)?.take_while(|line| !line.starts_with('@')).collect();
    let text = text.join("\n").trim().to_owned();
    (!text.is_empty()).then_some(text)
}

/// Returns the parameters that the doc comment documents.
pub(super) fn params(source: &str) -> BTreeMap<String, DocParam> {
    let Some(lines) = lines(source) else { return BTreeMap::new() };
    lines.filter_map(|line| param(line.strip_prefix("@param")?)).collect()
}

fn lines(source: &str) -> Option<impl Iterator<Item = &str>> {
    let mut source = source.trim_start_matches('\u{feff}');
    if source.starts_with("#!") {
        source = source.split_once('\n')?.1;
    }
    let (comment, _) = source.trim_start().strip_prefix("/**")?.split_once("*/")?;
    Some(comment.lines().map(|line| {
        let line = line.trim();
        line.strip_prefix('*').map_or(line, str::trim)
    }))
}

/// Parses `{type} [args.name=default] - description`; every part except the name is optional.
fn param(text: &str) -> Option<(String, DocParam)> {
    // `@params` is another tag.
    let text = text.strip_prefix([' ', '\t'])?.trim_start();
    let (kind, text) = match text.strip_prefix('{') {
        Some(rest) => rest.split_once('}').map(|(kind, rest)| (kind.trim(), rest.trim_start()))?,
        None => ("", text),
    };
    let (name, about, bracketed) = match text.strip_prefix('[') {
        Some(rest) => {
            let (name, about) = rest.split_once(']')?;
            (name.split('=').next().unwrap_or_default(), about, true)
        }
        None => {
            let (name, about) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
            (name, about, false)
        }
    };
    let name = name.trim();
    let name = name.strip_prefix("args.").unwrap_or(name);
    // `args` itself and nested parts do not document a field.
    let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
    if name.is_empty() || name == "args" || !name.chars().all(is_name) {
        return None;
    }
    let bare = kind.strip_suffix('=').unwrap_or(kind);
    let mut schema = of_type(bare.strip_prefix('?').unwrap_or(bare));
    let about = about.trim_start().trim_start_matches('-').trim();
    if !about.is_empty() {
        schema["description"] = json!(about);
    }
    Some((name.to_owned(), DocParam { optional: bracketed || kind.ends_with('='), schema }))
}

fn of_type(name: &str) -> Value {
    if let Some(item) = name.strip_suffix("[]") {
        return json!({ "type": "array", "items": of_type(item.trim()) });
    }
    let item = name.strip_prefix("Array").map(|rest| rest.strip_prefix('.').unwrap_or(rest));
    if let Some(item) = item.and_then(|rest| rest.strip_prefix('<')?.strip_suffix('>')) {
        return json!({ "type": "array", "items": of_type(item.trim()) });
    }
    match name {
        "string" | "number" | "boolean" | "integer" | "object" | "array" => json!({ "type": name }),
        "Object" => json!({ "type": "object" }),
        "Array" => json!({ "type": "array" }),
        _ => json!({}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_is_the_doc_comment_up_to_its_tags() {
        let read = |code: &str| description(code);
        assert_eq!(read("/** Adds one. */ return 1").as_deref(), Some("Adds one."));
        assert_eq!(read("#!/usr/bin/pml\n/** Adds one. */ 1").as_deref(), Some("Adds one."));
        assert_eq!(
            read("\n/**\n * Adds one.\n *\n * Twice.\n * @param n a number\n */\nreturn 1")
                .as_deref(),
            Some("Adds one.\n\nTwice.")
        );
        for code in [
            "return 1",
            "/* not one */ return 1",
            "/** never ends",
            "/** */ return 1",
            "return 1 /** late */",
        ] {
            assert_eq!(read(code), None, "{code}");
        }
    }

    #[test]
    fn reads_param_tags() {
        for (line, name, optional, schema) in [
            (
                "{string} path - The file.",
                "path",
                false,
                json!({"type": "string", "description": "The file."}),
            ),
            ("args.path The file", "path", false, json!({"description": "The file"})),
            ("{number} [limit=5]", "limit", true, json!({"type": "number"})),
            ("{integer=} args.n", "n", true, json!({"type": "integer"})),
            (
                "{string[]} names",
                "names",
                false,
                json!({"type": "array", "items": {"type": "string"}}),
            ),
            (
                "{Array<number>} ns",
                "ns",
                false,
                json!({"type": "array", "items": {"type": "number"}}),
            ),
            ("{Whatever<X>} it", "it", false, json!({})),
        ] {
            let read = param(&format!(" {line}"));
            assert_eq!(read, Some((name.to_owned(), DocParam { optional, schema })), "{line}");
        }
        for line in
            ["", " ", "s path", " args", " args.user.name", " {string", " [n", " {string}", " a-b"]
        {
            assert_eq!(param(line), None, "{line:?}");
        }
    }
}
