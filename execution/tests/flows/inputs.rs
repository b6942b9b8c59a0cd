//! The inputs of a run: what each tool returns, and `args`.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// How the value of a source differs from the first run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Variant {
    /// Unchanged.
    Base,
    /// Other values of the same types.
    Other,
    /// Empty values: an empty text, 0, `false`, no items.
    Empty,
    /// Values that make code throw: `null` instead of a list or an object, a fraction, truncated JSON.
    Malformed,
    /// The call fails.
    Fails,
    /// The call fails with another error.
    FailsDifferently,
}

impl Variant {
    pub(crate) const ALL: [Self; 6] = [
        Self::Base,
        Self::Other,
        Self::Empty,
        Self::Malformed,
        Self::Fails,
        Self::FailsDifferently,
    ];
    /// The variants of a field of `args`, which cannot fail.
    pub(crate) const VALUES: [Self; 4] = [Self::Base, Self::Other, Self::Empty, Self::Malformed];

    /// The distribution of random inputs: with the first two variants, most programs do not stop early.
    pub(crate) const LIKELY: [Self; 8] = [
        Self::Base,
        Self::Base,
        Self::Base,
        Self::Other,
        Self::Other,
        Self::Other,
        Self::Empty,
        Self::Malformed,
    ];

    /// Returns the message of the error with which a call fails.
    pub(crate) fn failure(self) -> Option<&'static str> {
        match self {
            Self::Fails => Some("no such file"),
            Self::FailsDifferently => Some("permission denied"),
            _ => None,
        }
    }

    fn record(self) -> Value {
        match self {
            Self::Other => json!({
                "s": "beta-p-p", "n": 41, "b": false, "l": ["q", "r", "q"], "o": { "k": "two", "d": { "e": 2 }, "x": 3 },
                "j": "[2]",
                "rows": [
                    { "name": "d", "size": 70, "ok": false, "kind": "code" },
                    { "name": "b", "size": 1, "ok": true, "kind": "text" },
                    { "name": "c", "size": 9, "ok": true, "kind": "code" },
                ],
                "text": "beta\nerror: p\nmore", "count": 41, "ok": false, "name": "other", "path": "src/b.ts",
                "kind": "code", "id": 12, "json": "{\"version\":\"2.0\",\"items\":[1,2,3]}",
            }),
            Self::Empty => json!({
                "s": "", "n": 0, "b": false, "l": [], "o": {}, "j": "0", "rows": [],
                "text": "", "count": 0, "ok": false, "name": "", "path": "", "kind": "", "id": 0, "json": "{}",
            }),
            Self::Malformed => json!({
                "s": "gamma", "n": 1.5, "b": true, "l": null, "o": null, "j": "{", "rows": null,
                "text": "gamma", "count": 1.5, "ok": true, "name": "third", "kind": "image", "id": 5, "json": "{",
            }),
            Self::Base | Self::Fails | Self::FailsDifferently => json!({
                "s": "alpha", "n": 3, "b": true, "l": ["p", "q"], "o": { "k": "one", "d": { "e": 1 } },
                "j": "{\"a\":1}",
                "rows": [
                    { "name": "a", "size": 3, "ok": true, "kind": "text" },
                    { "name": "b", "size": 80, "ok": false, "kind": "code" },
                ],
                "text": "alpha\nTODO: one\nerror: two", "count": 3, "ok": true, "name": "first", "path": "src/a.ts",
                "kind": "text", "id": 7, "json": "{\"version\":\"1.0\",\"items\":[1]}",
            }),
        }
    }
}

/// What is changed between runs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Source {
    /// The results of the tool with this id.
    Tool(String),
    /// A field of `args`.
    Args(String),
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tool(tool) => f.write_str(tool),
            Self::Args(field) => write!(f, "args.{field}"),
        }
    }
}

/// The variant of each source; `Base` for those that are not listed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Inputs {
    variants: BTreeMap<Source, Variant>,
}

impl Inputs {
    /// Returns these inputs with one source set to a variant.
    pub(crate) fn with(&self, source: &Source, variant: Variant) -> Self {
        let mut inputs = self.clone();
        inputs.variants.insert(source.clone(), variant);
        inputs
    }

    pub(crate) fn variant(&self, source: &Source) -> Variant {
        self.variants.get(source).copied().unwrap_or(Variant::Base)
    }

    /// Returns `args`.
    pub(crate) fn args(&self) -> Value {
        let mut args = Variant::Base.record();
        for (source, variant) in &self.variants {
            if let (Source::Args(field), Value::Object(fields)) = (source, &mut args) {
                fields.insert(field.clone(), variant.record()[field].take());
            }
        }
        args
    }

    /// Returns the result of a tool, or the message with which it fails.
    pub(crate) fn result_of(&self, tool: &str) -> Result<Value, &'static str> {
        let variant = self.variant(&Source::Tool(tool.to_owned()));
        match variant.failure() {
            Some(message) => Err(message),
            None => Ok(shape_for(tool, variant.record())),
        }
    }
}

/// Returns the part of the record that fits the tool's name: a text, a JSON text, a list, or the whole record.
fn shape_for(tool: &str, mut record: Value) -> Value {
    let (_, action) = tool.split_once(':').unwrap_or(("", tool));
    let field = match action {
        _ if action.starts_with("read_text") => "text",
        _ if action.starts_with("read_json") => "json",
        _ if action.starts_with("list") => "rows",
        _ => return record,
    };
    record[field].take()
}

impl std::fmt::Display for Inputs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, (source, variant)) in self.variants.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}{source} {variant:?}")?;
        }
        Ok(())
    }
}
