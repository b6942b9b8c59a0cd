//! Removes a key from a JSON text literal by literal, without building a tree of values.

use std::borrow::Cow;

use serde_json::Value;

use super::{REDACTED, Redactor};

/// A shorter key is removed only if it is a whole literal.
const SHORTEST: usize = super::SHORTEST;

impl Redactor {
    /// Removes the key from a JSON text; all other bytes are unchanged.
    ///
    /// The memory that it takes is proportional to the text, whatever its shape. Text that is not JSON is redacted as
    /// plain text.
    pub fn json<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let has_form = self.removed(text).is_some();
        // Otherwise, a literal can contain the key only in escaped form.
        let any_literal = has_form || self.key.len() < SHORTEST;
        if !any_literal && !text.contains('\\') {
            return Cow::Borrowed(text);
        }
        let (mut clean, mut copied) = (String::new(), 0);
        for (start, end) in literals(text.as_bytes()) {
            let literal = &text[start..end];
            let is_escaped = literal.contains('\\');
            if let Some(other) =
                (any_literal || is_escaped).then(|| self.literal(literal, is_escaped)).flatten()
            {
                clean += &text[copied..start];
                clean += &other;
                copied = end;
            }
        }
        let clean = match copied {
            0 => Cow::Borrowed(text),
            _ => Cow::Owned(clean + &text[copied..]),
        };
        // The key may also span several literals, or the text may not be JSON.
        match self.removed(&clean) {
            None => clean,
            Some(cleaner) => Cow::Owned(cleaner),
        }
    }

    /// Returns a string or number literal without the key; `None` if it does not contain the key.
    fn literal(&self, literal: &str, is_escaped: bool) -> Option<String> {
        let Some(inner) = literal.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else {
            // In quotes, so that the text remains valid JSON.
            return self.removed(literal).map(|_| format!("\"{REDACTED}\""));
        };
        let meant = if is_escaped { Cow::Owned(unescaped(inner)) } else { Cow::Borrowed(inner) };
        if let Some(clean) = self.removed(&meant) {
            return Some(Value::from(clean).to_string());
        }
        // The text may also have the key as it is, with a backslash that JSON reads as an escape.
        self.removed(inner).map(|_| format!("\"{REDACTED}\""))
    }
}

/// Iterates over the positions of the strings, with their quotes, and of the numbers in a text.
fn literals(text: &[u8]) -> impl Iterator<Item = (usize, usize)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let is_number = |byte: u8| byte.is_ascii_digit() || b"+-.eE".contains(&byte);
        while at < text.len() && text[at] != b'"' && !text[at].is_ascii_digit() && text[at] != b'-'
        {
            at += 1;
        }
        let start = at;
        if *text.get(start)? != b'"' {
            at += text[start..].iter().take_while(|byte| is_number(**byte)).count();
            return Some((start, at));
        }
        at += 1;
        while let Some(byte) = text.get(at) {
            // An escaped quote does not end the string.
            at += if *byte == b'\\' { 2 } else { 1 };
            if *byte == b'"' {
                return Some((start, at));
            }
        }
        // An unterminated string is not a literal.
        at = text.len();
        None
    })
}

/// Decodes the content of a string. Accepts lone surrogates, because some parsers do.
fn unescaped(inner: &str) -> String {
    let mut units: Vec<u16> = Vec::with_capacity(inner.len());
    let mut letters = inner.chars();
    while let Some(letter) = letters.next() {
        let meant = match letter {
            '\\' => match letters.next() {
                Some('b') => '\u{8}',
                Some('f') => '\u{c}',
                Some('n') => '\n',
                Some('r') => '\r',
                Some('t') => '\t',
                Some('u') => {
                    let digits = letters.as_str().get(..4);
                    if let Some(unit) = digits.and_then(|it| u16::from_str_radix(it, 16).ok()) {
                        // A code unit, so that the escapes of a surrogate pair become one
                        // character.
                        units.push(unit);
                        letters.nth(3);
                        continue;
                    }
                    'u'
                }
                Some(other) => other,
                None => continue,
            },
            other => other,
        };
        units.extend_from_slice(meant.encode_utf16(&mut [0; 2]));
    }
    String::from_utf16_lossy(&units)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SE-02: the key is removed from any literal in any notation; all other bytes are unchanged.
    #[test]
    fn removes_a_key_from_any_literal() {
        let redactor = Redactor::new("canary/7f3a91");
        for (text, clean) in [
            (r#"{ "a" : "canary/7f3a91" , "n": 1.0 }"#, r#"{ "a" : "[redacted]" , "n": 1.0 }"#),
            (r#"["x canary\/7f3a91 y", "\n"]"#, r#"["x [redacted] y", "\n"]"#),
            (r#"{"\u0063anary/7f3a91":"\u0041"}"#, r#"{"[redacted]":"\u0041"}"#),
            (r#"["\ud800\u0063anary/7f3a91"]"#, "[\"\u{fffd}[redacted]\"]"),
            (r#"{"a":"canary/7f3a91","a":1}"#, r#"{"a":"[redacted]","a":1}"#),
            ("data canary/7f3a91", "data [redacted]"),
            (r#"{"cut": "canary/7f3a91"#, r#"{"cut": "[redacted]"#),
            (r#"["a", "\"#, r#"["a", "\"#),
            (r#"["\u00zz\uD83D\uDE00 é", "\"", -1e9]"#, r#"["\u00zz\uD83D\uDE00 é", "\"", -1e9]"#),
        ] {
            assert_eq!(redactor.json(text), clean);
        }
        for (key, text, clean) in [
            ("12345678", "[12345678,1]", r#"["[redacted]",1]"#),
            ("abc", r#"["abc","abcd"]"#, r#"["[redacted]","abcd"]"#),
            // Texts as long as the replacement.
            ("abcdefghij", "abcdefghij", REDACTED),
            ("abc", "Bearer abc", REDACTED),
            ("abcdefgh", r#""abcdefgh""#, r#""[redacted]""#),
        ] {
            assert_eq!(Redactor::new(key).json(text), clean, "{key}");
        }
    }
}
