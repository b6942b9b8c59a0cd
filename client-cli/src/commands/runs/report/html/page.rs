//! The only place where text becomes markup.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use protocol::{Integrity, escape_text};

use crate::diagram::display::is_hidden;

/// The content of a page: its markup, and the text that a browser finds in it.
#[derive(Default)]
pub(super) struct Page {
    markup: String,
    /// The text between the tags, as in `textContent`. The page compares its hash.
    text: String,
    /// The pictures, as in `src`.
    pictures: String,
}

/// Where a shown value is recorded.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    /// The number of the record.
    pub(super) record: i64,
    /// The names of the members that lead to it, with dots in between.
    pub(super) member: &'a str,
}

impl Page {
    /// Appends markup. It must be ours, with all text in it given to [`Page::text`].
    pub(super) fn markup(&mut self, markup: &'static str) {
        self.markup += markup;
    }

    /// Appends a text: characters that a reader cannot see are escaped, and nothing in it is markup.
    pub(super) fn text(&mut self, text: &str) {
        let shown = escape_text(text);
        push_escaped(&shown, &mut self.markup);
        self.text += &shown;
    }

    /// Appends a text of several lines.
    pub(super) fn lines(&mut self, text: &str) {
        for (index, line) in text.split('\n').enumerate() {
            if index > 0 {
                self.markup.push('\n');
                self.text.push('\n');
            }
            self.text(line);
        }
    }

    /// Appends an element with a text.
    pub(super) fn element(&mut self, open: &'static str, text: &str, close: &'static str) {
        self.markup(open);
        self.text(text);
        self.markup(close);
    }

    /// Appends a value as a block: as much of it as fits into `limit` bytes of markup, and how much that is. A browser
    /// compares it with its source.
    pub(super) fn value(&mut self, text: &str, limit: usize, source: Option<Source<'_>>) {
        let (head, characters) = head(text, limit);
        self.markup("<pre");
        if let Some(Source { record, member }) = source {
            // Numbers, and names of members of our records.
            let _ = write!(self.markup, r#" data-of="{record} {member}" data-n="{characters}""#);
        }
        // A line end right after `<pre>` would not count.
        self.markup("><code>");
        self.lines(head);
        self.markup("</code></pre>");
        if head.len() < text.len() {
            let total = text.chars().count();
            let note = format!(
                "Only the first {characters} of {total} characters are shown; `pml report --format json` has all of them."
            );
            self.element(r#"<p class="note">"#, &note, "</p>");
        }
    }

    /// Appends a picture.
    pub(super) fn picture(&mut self, svg: &str, alternative: &'static str) {
        let source = format!("data:image/svg+xml;base64,{}", BASE64_STANDARD.encode(svg));
        let _ = write!(self.markup, r#"<img alt="{alternative}" src="{source}">"#);
        self.pictures.push('\n');
        self.pictures += &source;
    }

    /// Returns the size of the markup so far.
    pub(super) fn len(&self) -> usize {
        self.markup.len()
    }

    /// Returns the markup, and the hash of what it shows.
    pub(super) fn finish(self) -> (String, Integrity) {
        (self.markup, Integrity::of((self.text + &self.pictures).as_bytes()))
    }
}

/// Returns the beginning of a text whose markup has at most `limit` bytes, and the number of its characters.
pub(super) fn head(text: &str, limit: usize) -> (&str, usize) {
    let mut size = 0;
    let mut characters = 0;
    for (at, c) in text.char_indices() {
        size += match c {
            '&' | '<' | '>' => 5,
            '\n' => 1,
            // The longest escape is `\u{10ffff}`.
            c if is_hidden(c) => 10,
            c => c.len_utf8(),
        };
        if size > limit {
            return (&text[..at], characters);
        }
        characters += 1;
    }
    (text, characters)
}

/// Escapes a text for the content of an element.
pub(super) fn push_escaped(text: &str, out: &mut String) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            c => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "</pre></main><script>alert(1)</script><img src=x onerror=alert(1)>&lt;\u{1b}[2J\u{202e}\u{2028}\0\r\n\"'";

    /// AP-02: no text becomes markup, and what is hidden is shown.
    #[test]
    fn texts_are_not_markup() {
        let mut page = Page::default();
        page.value(HOSTILE, 10_000, Some(Source { record: 1, member: "args.json" }));
        page.element("<p>", HOSTILE, "</p>");
        let (markup, _) = page.finish();
        assert_eq!(markup.matches('<').count(), 6, "{markup}");
        assert!(!markup.chars().any(|c| c != '\n' && is_hidden(c)), "{markup:?}");
        assert!(markup.contains("&lt;script&gt;alert(1)&lt;/script&gt;"), "{markup}");
        assert!(markup.contains("&amp;lt;"), "{markup}");
        assert!(markup.contains(r"\u{1b}[2J\u{202e}\u{2028}\u{0}"), "{markup}");
    }

    #[test]
    fn a_cut_value_says_so_and_fits() {
        for text in ["x".repeat(5_000), "<".repeat(5_000), "\u{202e}".repeat(5_000)] {
            let mut page = Page::default();
            page.value(&text, 1_000, None);
            let (markup, _) = page.finish();
            assert!(markup.len() < 1_300, "{}", markup.len());
            assert!(markup.contains(" of 5000 characters are shown"), "{markup}");
        }
        let mut whole = Page::default();
        whole.value("short", 1_000, None);
        assert_eq!(whole.finish().0, "<pre><code>short</code></pre>");
    }
}
