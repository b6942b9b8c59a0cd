//! A program's text, prepared for display: escaped and shortened.

use analysis::{Argument, PathStep};
use protocol::escape_text;
use serde_json::Value;

/// Returns whether a character must be escaped on a terminal or in a diagram.
pub(crate) fn is_hidden(c: char) -> bool {
    // The fast path for almost all text.
    if c == '\t' || c == ' ' || c.is_ascii_graphic() {
        return false;
    }
    let mut bytes = [0; 4];
    let text: &str = c.encode_utf8(&mut bytes);
    // The same rule as for all other output, so that no character is escaped in one place only.
    escape_text(text) != text
}

/// The maximum displayed length of a text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limit {
    characters: usize,
    /// Whether to show the full length of a truncated text.
    counted: bool,
}

impl Limit {
    /// Shows the full length of a truncated text.
    pub(crate) const fn counted(characters: usize) -> Self {
        Self { characters, counted: true }
    }

    /// Only marks a truncated text.
    pub(crate) const fn marked(characters: usize) -> Self {
        Self { characters, counted: false }
    }

    /// Truncates a text that is too long; returns the kept part and a note on its length.
    ///
    /// The text is truncated before it is escaped, so that no escape sequence is cut in half.
    fn cut(self, text: &str) -> Option<(String, String)> {
        let count = text.chars().count();
        (count > self.characters).then(|| {
            let kept = text.chars().take(self.characters.saturating_sub(1)).collect();
            let length_note =
                if self.counted { format!(" ({count} characters)") } else { String::new() };
            (kept, length_note)
        })
    }
}

/// The maximum length of a path in `args`.
pub(crate) const PARAMETER: Limit = Limit::marked(80);
/// The maximum length of a name.
const NAME: Limit = Limit::marked(40);

/// Escapes and truncates a text.
pub(crate) fn short(text: &str, limit: Limit) -> String {
    match limit.cut(text) {
        None => escape_text(text),
        Some((kept, length_note)) => format!("{}…{length_note}", escape_text(&kept)),
    }
}

/// Renders an argument in one line.
pub(crate) fn argument(argument: &Argument, limit: Limit) -> String {
    match argument {
        Argument::Literal { value } => literal(value, limit),
        Argument::Reference { task, path } => format!("{task}{}", steps(path)),
        Argument::Parameter { path } => format!("args{}", steps(path)),
        Argument::Object { fields } => {
            let fields: Vec<String> =
                fields.iter().map(|(name, value)| named(name, value, limit)).collect();
            format!("{{{}}}", fields.join(", "))
        }
        Argument::Array { items } => {
            let items: Vec<String> = items.iter().map(|item| self::argument(item, limit)).collect();
            format!("[{}]", items.join(", "))
        }
        Argument::Expression { source, .. } => code(source, limit),
    }
}

/// Renders an excerpt of the program, delimited from the surrounding text.
pub(crate) fn code(source: &str, limit: Limit) -> String {
    let source = short(source, limit);
    // A backtick within the excerpt would look like its end.
    if source.contains('`') { source } else { format!("`{source}`") }
}

/// Renders an argument with its name; `*` stands for a spread.
pub(crate) fn named(name: &str, value: &Argument, limit: Limit) -> String {
    let value = argument(value, limit);
    if name == "*" { format!("...{value}") } else { format!("{}: {value}", key(name)) }
}

/// Renders a name. A name with special characters is quoted, so that it cannot look like other syntax.
fn key(name: &str) -> String {
    if is_plain(name) { short(name, NAME) } else { literal(&Value::from(name), NAME) }
}

fn is_plain(name: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$' | '-');
    !name.is_empty() && name.chars().all(part) && !name.starts_with(|c: char| c.is_ascii_digit())
}

/// Renders a literal. Long strings in it are truncated separately.
fn literal(value: &Value, limit: Limit) -> String {
    match value {
        Value::String(text) => match limit.cut(text) {
            // JSON escapes quotes and control characters; the second step, for example, text
            // direction marks.
            None => escape_text(&value.to_string()),
            Some((kept, length_note)) => {
                // Quoted after it was cut, so that no escape sequence is cut in half. The ellipsis
                // belongs before the closing quote.
                let quoted = Value::String(kept).to_string();
                let open = quoted.strip_suffix('"').unwrap_or(&quoted);
                format!("{}…\"{length_note}", escape_text(open))
            }
        },
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(|item| literal(item, limit)).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| {
                format!("{}: {}", key(name), literal(value, limit))
            };
            format!("{{{}}}", fields.iter().map(field).collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

/// Renders the path to a part of a value.
fn steps(path: &[PathStep]) -> String {
    path.iter()
        .map(|step| match step {
            PathStep::Index(index) => format!("[{index}]"),
            PathStep::Field(name) if is_plain(name) => format!(".{}", short(name, NAME)),
            PathStep::Field(name) => format!("[{}]", key(name)),
        })
        .collect()
}

/// Returns the approximate number of terminal columns of a text: wide characters take two.
pub(crate) fn width(text: &str) -> usize {
    text.chars()
        .map(|c| match c {
            '\u{300}'..='\u{36f}' => 0,
            '\u{1100}'..='\u{115f}'
            | '\u{2e80}'..='\u{a4cf}'
            | '\u{ac00}'..='\u{d7a3}'
            | '\u{f900}'..='\u{faff}'
            | '\u{fe30}'..='\u{fe6f}'
            | '\u{ff00}'..='\u{ff60}'
            | '\u{1f300}'..='\u{1faff}'
            | '\u{20000}'..='\u{3fffd}' => 2,
            _ => 1,
        })
        .sum()
}

/// Pads a text with spaces to `columns`.
pub(crate) fn padded(text: &str, columns: usize) -> String {
    format!("{text}{}", " ".repeat(columns.saturating_sub(width(text))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn long_and_hidden_text_is_marked() {
        let literal = |value| argument(&Argument::Literal { value }, Limit::counted(10));
        assert_eq!(literal(json!("short")), "\"short\"");
        assert_eq!(literal(json!("0123456789ab")), "\"012345678…\" (12 characters)");
        assert_eq!(literal(json!(["a", 1, null])), "[\"a\", 1, null]");
        assert_eq!(literal(json!("a\u{1b}[2J\u{202e}")), r#""a\u001b[2J\u{202e}""#);
        assert_eq!(short("a\nb\u{200b}", NAME), "a\\u{a}b\\u{200b}");
        assert_eq!(short("0123", Limit::marked(3)), "01…");
    }

    #[test]
    fn hidden_characters_are_those_that_the_protocol_escapes() {
        for c in ['\u{1b}', '\n', '\u{7f}', '\u{9b}', '\u{202e}', '\u{200b}', '\u{feff}'] {
            assert!(is_hidden(c), "{c:?}");
        }
        for c in ['a', ' ', '\t', 'é', '漢', '…'] {
            assert!(!is_hidden(c), "{c:?}");
        }
    }
}
