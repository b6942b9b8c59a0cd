//! The tools that transform a text: case, slug, padding, length.

use heck::{
    ToKebabCase, ToLowerCamelCase, ToPascalCase, ToShoutyKebabCase, ToShoutySnakeCase, ToSnakeCase,
    ToTitleCase, ToTrainCase,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use unicode_segmentation::UnicodeSegmentation;

use super::Side;
use crate::tools::limits::BoundedText;
use crate::tools::{NativeTool, ToolFailure};

/// The maximum number of characters to which a text is padded.
const MAX_PADDED: usize = 100_000;

/// Returns these tools.
pub(super) fn tools() -> Vec<NativeTool> {
    vec![
        NativeTool::new(
            "string",
            "case",
            "Converts the words of a name to another style, such as camel, snake or kebab case.",
            case,
        )
        .example(json!({"text": "some HTTPRequest", "style": "snake"}), json!("some_http_request"))
        .example(json!({"text": "some_name", "style": "camel"}), json!("someName")),
        NativeTool::new(
            "string",
            "slugify",
            "Converts a text to lower-case ASCII words joined by hyphens, for URLs and file names.",
            slugify,
        )
        .example(json!({"text": "Ça va, Москва?"}), json!("ca-va-moskva")),
        NativeTool::new(
            "string",
            "pad",
            "Pads a text to a length, counted in visible characters.",
            pad,
        )
        .example(json!({"text": "7", "length": 3, "fill": "0", "side": "start"}), json!("007")),
        NativeTool::new(
            "string",
            "truncate",
            "Truncates a text to a length, with a mark at the end, never inside a character.",
            truncate,
        )
        .example(json!({"text": "Hello, world", "length": 6}), json!("Hello…")),
    ]
}

/// A style of names.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Style {
    /// `someName`
    Camel,
    /// `SomeName`
    Pascal,
    /// `some_name`
    Snake,
    /// `SOME_NAME`
    Constant,
    /// `some-name`
    Kebab,
    /// `SOME-NAME`
    Cobol,
    /// `Some-Name`
    Train,
    /// `Some Name`
    Title,
}

/// Arguments of `string:case`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Case {
    /// The text.
    text: String,
    /// The style of the result.
    style: Style,
}

fn case(input: Case) -> Result<String, ToolFailure> {
    let text = input.text.as_str();
    Ok(match input.style {
        Style::Camel => text.to_lower_camel_case(),
        Style::Pascal => text.to_pascal_case(),
        Style::Snake => text.to_snake_case(),
        Style::Constant => text.to_shouty_snake_case(),
        Style::Kebab => text.to_kebab_case(),
        Style::Cobol => text.to_shouty_kebab_case(),
        Style::Train => text.to_train_case(),
        Style::Title => text.to_title_case(),
    })
}

/// Arguments of `string:slugify`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Slugify {
    /// The text.
    text: String,
    /// The text between two words.
    #[serde(default = "hyphen")]
    #[schemars(length(max = 8))]
    separator: String,
    /// The maximum number of bytes of the slug; words at the end are omitted to stay within it.
    #[serde(default)]
    max_length: Option<usize>,
}

fn hyphen() -> String {
    "-".to_owned()
}

fn slugify(input: Slugify) -> Result<String, ToolFailure> {
    // The separator is repeated after every word, so its length multiplies the size of the result.
    if input.separator.len() > 8 {
        return Err(ToolFailure::InvalidArguments("`separator` has more than 8 bytes".to_owned()));
    }
    let limit = input.max_length.unwrap_or(usize::MAX);
    let ascii = deunicode::deunicode(&input.text).to_ascii_lowercase();
    // `don't` is one word.
    let ascii = ascii.replace('\'', "");
    let words = ascii.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let mut slug = String::new();
    for word in words {
        let glue = if slug.is_empty() { "" } else { input.separator.as_str() };
        let length = slug.len() + glue.len() + word.len();
        if length > limit {
            // The first word alone is too long: it is cut, which is safe because it is ASCII.
            if slug.is_empty() {
                slug.push_str(&word[..limit]);
            }
            break;
        }
        slug.push_str(glue);
        slug.push_str(word);
    }
    Ok(slug)
}

/// Arguments of `string:pad`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Pad {
    /// The text.
    text: String,
    /// The length to reach, in characters.
    #[schemars(range(max = 100_000))]
    length: usize,
    /// The text to pad with, repeated as needed; a space if omitted.
    #[serde(default = "space")]
    #[schemars(length(min = 1))]
    fill: String,
    /// The side to pad; `both` centres the text.
    #[serde(default = "end")]
    side: Side,
}

fn space() -> String {
    " ".to_owned()
}

fn end() -> Side {
    Side::End
}

fn pad(input: Pad) -> Result<String, ToolFailure> {
    if input.length > MAX_PADDED {
        return Err(ToolFailure::InvalidArguments(format!("`length` can be at most {MAX_PADDED}")));
    }
    // At most `length` characters of the padding can be used.
    let fill: Vec<&str> = input.fill.graphemes(true).take(input.length).collect();
    // `cycle` of an empty list ends at once, so the text would stay too short without an error.
    if input.fill.is_empty() {
        return Err(ToolFailure::InvalidArguments("`fill` is empty".to_owned()));
    }
    let missing = input.length.saturating_sub(input.text.graphemes(true).count());
    let before = match input.side {
        Side::Start => missing,
        Side::End => 0,
        Side::Both => missing / 2,
    };
    // `length` does not limit the bytes: a character can have any number of accents.
    let mut padded = BoundedText::new();
    let filling = |count: usize, padded: &mut BoundedText| {
        fill.iter().cycle().take(count).try_for_each(|character| padded.push(character))
    };
    filling(before, &mut padded)?;
    padded.push(&input.text)?;
    filling(missing - before, &mut padded)?;
    padded.finish()
}

/// Arguments of `string:truncate`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Truncate {
    /// The text.
    text: String,
    /// The maximum number of characters of the result, including the mark.
    length: usize,
    /// The text that marks the truncation.
    #[serde(default = "ellipsis")]
    mark: String,
}

fn ellipsis() -> String {
    "…".to_owned()
}

fn truncate(input: Truncate) -> Result<String, ToolFailure> {
    let cut_at =
        |text: &str, count: usize| text.grapheme_indices(true).nth(count).map(|(index, _)| index);
    if cut_at(&input.text, input.length).is_none() {
        return Ok(input.text);
    }
    let mark_length = input.mark.graphemes(true).count();
    let Some(kept) = input.length.checked_sub(mark_length) else {
        return Err(ToolFailure::InvalidArguments(format!(
            "`length` is less than the {mark_length} characters of `mark`"
        )));
    };
    let end = cut_at(&input.text, kept).unwrap_or(input.text.len());
    Ok(format!("{}{}", &input.text[..end].trim_end(), input.mark))
}
