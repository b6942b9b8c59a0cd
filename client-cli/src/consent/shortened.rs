//! Texts for the user, of any length and content.

use protocol::{Integrity, escape_text};

/// Escapes a text. A text of more than `limit` characters is reduced to its beginning and end, with its length and hash,
/// so that the cut is visible.
pub(crate) fn shortened(text: &str, limit: usize) -> String {
    let count = text.chars().count();
    if count <= limit {
        return escape_text(text);
    }
    // Cut before it is escaped, so that no escape sequence is cut in two.
    let head: String = text.chars().take(limit / 2).collect();
    let tail: String = text.chars().skip(count - limit / 2).collect();
    format!(
        "{} … [{count} characters in total, {}] … {}",
        escape_text(&head),
        Integrity::of(text.as_bytes()),
        escape_text(&tail)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// AP-02, AP-03: text for a human is escaped, and a long text is summarized, not silently cut.
    #[test]
    fn long_texts_are_shown_with_length_and_hash() {
        let shown = |text: &str| shortened(text, 2_000);
        assert_eq!(shown("a\u{202e}b\x1b[2J\n"), "a\\u{202e}b\\u{1b}[2J\\u{a}");
        let long = format!("{}END", "x".repeat(65_536));
        let text = shown(&long);
        assert!(text.contains("65539 characters in total, sha256-") && text.ends_with("END"));
    }
}
