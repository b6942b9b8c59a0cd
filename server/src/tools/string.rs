//! `string:*`: text operations, based on characters as readers see them (grapheme clusters).

mod search;
mod shape;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use unicode_segmentation::UnicodeSegmentation;

use super::limits::BoundedText;
use super::{NativeTool, ToolFailure};

/// Returns the tools of this namespace.
pub(super) fn tools() -> Vec<NativeTool> {
    let mut tools = vec![
        NativeTool::new("string", "upper", "Converts a text to upper case.", upper)
            .example(json!({"text": "straße"}), json!("STRASSE")),
        NativeTool::new("string", "lower", "Converts a text to lower case.", lower)
            .example(json!({"text": "ÀB"}), json!("àb")),
        NativeTool::new(
            "string",
            "trim",
            "Removes white space, or the given characters, from one or both ends of a text.",
            trim,
        )
        .example(json!({"text": "  a b\n"}), json!("a b"))
        .example(json!({"text": "--a-", "characters": "-", "side": "start"}), json!("a-")),
        NativeTool::new(
            "string",
            "split",
            "Splits a text at every separator; an empty separator splits it into characters.",
            split,
        )
        .example(json!({"text": "a,b,c", "separator": ","}), json!(["a", "b", "c"]))
        .example(json!({"text": "a,b,c", "separator": ",", "limit": 2}), json!(["a", "b,c"])),
        NativeTool::new("string", "join", "Joins texts with a separator between them.", join)
            .example(json!({"parts": ["a", "b"], "separator": ", "}), json!("a, b")),
        NativeTool::new(
            "string",
            "length",
            "Counts the visible characters, code points, bytes, words and lines of a text.",
            length,
        )
        .example(
            json!({"text": "né 👩‍👩‍👧\nb"}),
            json!({"characters": 6, "code_points": 10, "utf16_units": 13, "bytes": 24, "words": 2, "lines": 2}),
        ),
        NativeTool::new(
            "string",
            "template",
            "Fills the placeholders `{{name}}` of a template with values; other text is unchanged.",
            template,
        )
        .example(
            json!({"template": "Hello {{name}}, {{n}} new", "values": {"name": "Ada", "n": 2}}),
            json!("Hello Ada, 2 new"),
        ),
    ];
    tools.extend(shape::tools());
    tools.extend(search::tools());
    tools
}

/// A text.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Text {
    /// The text.
    text: String,
}

fn upper(input: Text) -> Result<String, ToolFailure> {
    // Both conversions lengthen a text at most threefold, far below the limit of a result.
    Ok(input.text.to_uppercase())
}

fn lower(input: Text) -> Result<String, ToolFailure> {
    Ok(input.text.to_lowercase())
}

/// An end of a text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Side {
    Start,
    End,
    #[default]
    Both,
}

/// Arguments of `string:trim`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Trim {
    /// The text.
    text: String,
    /// The characters to remove, in any order; white space if omitted.
    #[serde(default)]
    #[schemars(length(max = 100))]
    characters: Option<String>,
    /// The end to trim.
    #[serde(default)]
    side: Side,
}

fn trim(input: Trim) -> Result<String, ToolFailure> {
    let characters: Option<Vec<char>> = input.characters.map(|text| text.chars().collect());
    // The list is searched for each removed character, so its length multiplies the cost.
    if characters.as_ref().is_some_and(|characters| characters.len() > 100) {
        return Err(ToolFailure::InvalidArguments(
            "`characters` has more than 100 characters".to_owned(),
        ));
    }
    let unwanted = |c: char| match &characters {
        Some(characters) => characters.contains(&c),
        None => c.is_whitespace(),
    };
    let mut text = input.text.as_str();
    if input.side != Side::End {
        text = text.trim_start_matches(unwanted);
    }
    if input.side != Side::Start {
        text = text.trim_end_matches(unwanted);
    }
    Ok(text.to_owned())
}

/// Arguments of `string:split`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Split {
    /// The text.
    text: String,
    /// The separator.
    separator: String,
    /// The maximum number of parts; the last one contains the rest.
    #[serde(default)]
    #[schemars(range(min = 1))]
    limit: Option<usize>,
}

fn split(input: Split) -> Result<Vec<String>, ToolFailure> {
    let limit = input.limit.unwrap_or(usize::MAX);
    if limit == 0 {
        return Err(ToolFailure::InvalidArguments("`limit` must be at least 1".to_owned()));
    }
    if !input.separator.is_empty() {
        return Ok(input.text.splitn(limit, &input.separator).map(str::to_owned).collect());
    }
    let mut parts = Vec::new();
    // Grapheme clusters, so that an accent or a part of an emoji is never separated from its character.
    for (start, character) in input.text.grapheme_indices(true) {
        if parts.len() + 1 == limit {
            parts.push(input.text[start..].to_owned());
            break;
        }
        parts.push(character.to_owned());
    }
    Ok(parts)
}

/// Arguments of `string:join`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Join {
    /// The texts; numbers and booleans are converted as in JSON.
    parts: Vec<Scalar>,
    /// The text between two parts; none if omitted.
    #[serde(default)]
    separator: String,
}

/// A value with an unambiguous text.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a text, a number, a boolean or null")]
enum Scalar {
    Text(String),
    Number(serde_json::Number),
    Boolean(bool),
    Nothing(()),
}

impl Scalar {
    fn text(&self) -> std::borrow::Cow<'_, str> {
        match self {
            Self::Text(text) => text.into(),
            Self::Number(number) => number.to_string().into(),
            Self::Boolean(truth) => truth.to_string().into(),
            Self::Nothing(()) => "".into(),
        }
    }
}

fn join(input: Join) -> Result<String, ToolFailure> {
    let mut joined = BoundedText::new();
    for (index, part) in input.parts.iter().enumerate() {
        if index > 0 {
            joined.push(&input.separator)?;
        }
        joined.push(&part.text())?;
    }
    joined.finish()
}

/// The result of `string:length`.
#[derive(Serialize, JsonSchema)]
struct Length {
    /// Characters as a reader sees them (grapheme clusters).
    characters: usize,
    /// Unicode code points.
    code_points: usize,
    /// UTF-16 units, which is what JavaScript's `length` counts.
    utf16_units: usize,
    /// Bytes as UTF-8.
    bytes: usize,
    /// Words by the Unicode rules.
    words: usize,
    /// Lines.
    lines: usize,
}

fn length(input: Text) -> Result<Length, ToolFailure> {
    let text = input.text;
    Ok(Length {
        characters: text.graphemes(true).count(),
        code_points: text.chars().count(),
        utf16_units: text.encode_utf16().count(),
        bytes: text.len(),
        words: text.unicode_words().count(),
        lines: text.lines().count(),
    })
}

/// Arguments of `string:template`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Template {
    /// The text with placeholders such as `{{name}}`.
    template: String,
    /// The values by name.
    values: std::collections::HashMap<String, Scalar>,
}

fn template(input: Template) -> Result<String, ToolFailure> {
    let mut filled = BoundedText::new();
    let mut rest = input.template.as_str();
    while let Some((before, after)) = rest.split_once("{{") {
        // An unclosed `{{` is ordinary text.
        let Some((name, behind)) = after.split_once("}}") else {
            break;
        };
        // A value is inserted without being searched, so text in it cannot refer to other values.
        let value = input.values.get(name.trim()).ok_or_else(|| {
            ToolFailure::InvalidArguments(format!(
                "`template` refers to `{0}`, but `values` has no `{0}`",
                // The next `}}` may be at the other end of a large text.
                name.trim().chars().take(100).collect::<String>()
            ))
        })?;
        filled.push(before)?;
        filled.push(&value.text())?;
        rest = behind;
    }
    filled.push(rest)?;
    filled.finish()
}

#[cfg(test)]
mod tests;
