//! What the tools answer: a world says it for each tool and for `args`.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// How an answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Variant {
    /// As in the first run.
    Base,
    /// Other values of the same types.
    Other,
    /// What counts as nothing: an empty text, 0, `false`, no items.
    Nothing,
    /// What code trips over: `null` for a list and an object, a fraction, half of a JSON text.
    Broken,
    /// The call fails.
    Fails,
    /// The call fails with another error.
    FailsOtherwise,
}

impl Variant {
    pub(crate) const ALL: [Self; 6] =
        [Self::Base, Self::Other, Self::Nothing, Self::Broken, Self::Fails, Self::FailsOtherwise];
    /// What `args` can be.
    pub(crate) const VALUES: [Self; 4] = [Self::Base, Self::Other, Self::Nothing, Self::Broken];

    /// What a world is made of by chance: most programs go on with the first two.
    pub(crate) const LIKELY: [Self; 8] = [
        Self::Base,
        Self::Base,
        Self::Base,
        Self::Other,
        Self::Other,
        Self::Other,
        Self::Nothing,
        Self::Broken,
    ];

    /// Returns the message of the error with which a call fails.
    pub(crate) fn failure(self) -> Option<&'static str> {
        match self {
            Self::Fails => Some("no such file"),
            Self::FailsOtherwise => Some("permission denied"),
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
            Self::Nothing => json!({
                "s": "", "n": 0, "b": false, "l": [], "o": {}, "j": "0", "rows": [],
                "text": "", "count": 0, "ok": false, "name": "", "path": "", "kind": "", "id": 0, "json": "{}",
            }),
            Self::Broken => json!({
                "s": "gamma", "n": 1.5, "b": true, "l": null, "o": null, "j": "{", "rows": null,
                "text": "gamma", "count": 1.5, "ok": true, "name": "third", "kind": "image", "id": 5, "json": "{",
            }),
            Self::Base | Self::Fails | Self::FailsOtherwise => json!({
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

/// What is changed from one run to the next.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Source {
    /// The results of a tool, by its id.
    Tool(String),
    /// A field of the input of the program.
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

/// What each source gives; `Base` for those that are not named.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct World {
    variants: BTreeMap<Source, Variant>,
}

impl World {
    /// Returns the world in which one more source is changed.
    pub(crate) fn with(&self, source: &Source, variant: Variant) -> Self {
        let mut world = self.clone();
        world.variants.insert(source.clone(), variant);
        world
    }

    pub(crate) fn variant(&self, source: &Source) -> Variant {
        self.variants.get(source).copied().unwrap_or(Variant::Base)
    }

    /// Returns what `args` is.
    pub(crate) fn args(&self) -> Value {
        let mut args = Variant::Base.record();
        for (source, variant) in &self.variants {
            if let (Source::Args(field), Value::Object(fields)) = (source, &mut args) {
                fields.insert(field.clone(), variant.record()[field].take());
            }
        }
        args
    }

    /// Returns what a tool answers, or with which message it fails.
    pub(crate) fn answer(&self, tool: &str) -> Result<Value, &'static str> {
        let variant = self.variant(&Source::Tool(tool.to_owned()));
        match variant.failure() {
            Some(message) => Err(message),
            None => Ok(shaped(tool, variant.record())),
        }
    }
}

/// Returns the answer in the form that the tool's name promises.
fn shaped(tool: &str, mut record: Value) -> Value {
    let (_, action) = tool.split_once(':').unwrap_or(("", tool));
    let field = match action {
        _ if action.starts_with("read_text") => "text",
        _ if action.starts_with("read_json") => "json",
        _ if action.starts_with("list") => "rows",
        _ => return record,
    };
    record[field].take()
}

impl std::fmt::Display for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (place, (source, variant)) in self.variants.iter().enumerate() {
            let gap = if place == 0 { "" } else { ", " };
            write!(f, "{gap}{source} {variant:?}")?;
        }
        Ok(())
    }
}
