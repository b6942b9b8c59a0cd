//! Removes keys from texts by their values: the key of a call from the upstream's answer ([`Redactor`]), and all keys
//! in use from the program's own output ([`KeysInUse`]).
//!
//! Upstreams echo headers in errors, debug pages and results. A key that was used for a call is never passed on to the
//! program, the caller or the log.

mod in_use;
mod json;

use std::borrow::Cow;
use std::fmt::Write as _;

use data_encoding::{BASE64, BASE64_NOPAD, BASE64URL, BASE64URL_NOPAD, Encoding};
use serde_json::Value;
use zeroize::Zeroizing;

pub use self::in_use::{KeysInUse, UsedKey, keys_in_use};
use crate::ErrorBody;

/// The replacement of a key.
const REDACTED: &str = "[redacted]";

/// The minimum length of a removed form. Shorter ones would match unrelated text and corrupt results, so a shorter key
/// is removed only where it is the whole text.
const SHORTEST: usize = 4;

/// The minimum length of a removed piece of base64, for the same reason.
const SHORTEST_BASE64: usize = 8;

/// Removes one key, in every form in which an upstream may return it.
pub struct Redactor {
    key: Zeroizing<String>,
    /// Longest first, so that `Bearer KEY` is removed as a whole, not just the key in it.
    forms: Zeroizing<Vec<String>>,
}

impl Redactor {
    /// Computes the forms of a key.
    pub fn new(key: &str) -> Self {
        Self { key: Zeroizing::new(key.to_owned()), forms: Zeroizing::new(forms(key)) }
    }

    /// Removes the key from a text.
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.removed(text).map_or(Cow::Borrowed(text), Cow::Owned)
    }

    /// Returns the text without the key; `None` if it does not contain the key.
    fn removed(&self, text: &str) -> Option<String> {
        // This also removes a key that is too short to be searched for within a text.
        if text.strip_prefix("Bearer ").unwrap_or(text) == self.key.as_str() {
            return Some(REDACTED.to_owned());
        }
        let mut clean = None;
        // One search per form: an automaton for all forms would have to be built for each call, and some keys make
        // that slow.
        for form in self.forms.iter() {
            let current = clean.as_deref().unwrap_or(text);
            if current.contains(form.as_str()) {
                clean = Some(current.replace(form.as_str(), REDACTED));
            }
        }
        clean
    }

    /// Removes the key from a value: from strings, numbers and member names.
    pub fn value(&self, value: &mut Value) {
        match value {
            Value::String(text) => {
                if let Some(clean) = self.removed(text) {
                    *text = clean;
                }
            }
            Value::Number(number) => {
                if self.removed(&number.to_string()).is_some() {
                    // As a whole: the remaining digits would be a different number.
                    *value = Value::String(REDACTED.to_owned());
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.value(item)),
            Value::Object(members) => {
                // Names cannot change in place, so the object is rebuilt if one of them has the
                // key.
                let named = members.keys().any(|name| self.removed(name).is_some());
                members.values_mut().for_each(|member| self.value(member));
                if named {
                    *members = std::mem::take(members)
                        .into_iter()
                        .map(|(name, member)| (self.text(&name).into_owned(), member))
                        .collect();
                }
            }
            Value::Null | Value::Bool(_) => {}
        }
    }

    /// Removes the key from an error.
    pub fn error(&self, mut error: ErrorBody) -> ErrorBody {
        error.message = self.text(&error.message).into_owned();
        error.hint = self.text(&error.hint).into_owned();
        self.value(&mut error.details);
        error
    }
}

/// Returns a key in every form in which an upstream may return it, longest first.
fn forms(key: &str) -> Vec<String> {
    let bytes = key.as_bytes();
    let json = escaped(key);
    // The form of serializers that escape everything beyond ASCII, such as Python's `json.dumps`.
    let ascii: String = key.chars().fold(String::new(), |mut out, letter| {
        match letter {
            ' '..='~' => out.push_str(&escaped(letter.encode_utf8(&mut [0; 4]))),
            _ => letter.encode_utf16(&mut [0; 2]).iter().for_each(|unit| {
                // Writing to a string does not fail.
                let _ = write!(out, "\\u{unit:04x}");
            }),
        }
        out
    });
    let hex = data_encoding::HEXLOWER.encode(bytes);
    let percent = percent(bytes);
    let mut forms = vec![
        format!("Bearer {key}"),
        key.to_owned(),
        // JSON within JSON, and JSON with slashes escaped, as PHP does.
        escaped(&json),
        json.replace('/', "\\/"),
        json,
        ascii,
        percent.to_ascii_lowercase_escapes(),
        // Form encoding writes a space as `+`.
        percent.0.replace("%20", "+"),
        percent.0,
        hex.to_uppercase(),
        hex,
    ];
    forms.retain(|form| form.len() >= SHORTEST);
    let mut encoded: Vec<String> =
        [BASE64, BASE64_NOPAD, BASE64URL, BASE64URL_NOPAD].map(|e| e.encode(bytes)).into();
    // Without padding, which occurs only at the end of the whole encoded text.
    encoded.extend([BASE64_NOPAD, BASE64URL_NOPAD].iter().flat_map(|e| within(e, bytes)));
    encoded.retain(|form| form.len() >= SHORTEST_BASE64);
    forms.extend(encoded);
    // Sorted by text as well, so that equal forms are adjacent for `dedup`.
    forms.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
    forms.dedup();
    forms
}

/// Returns the base64 digits of a key in the middle of a longer text, for each of the three alignments. The digits that
/// also depend on neighbouring bytes are omitted.
fn within(encoding: &Encoding, key: &[u8]) -> Vec<String> {
    (0..3)
        .filter_map(|before| {
            let text = encoding.encode(&[&vec![0; before], key].concat());
            // Bits of the preceding bytes reach into the first digits: those of one byte into the
            // second digit, those of two bytes into the third.
            let first = [0, 2, 3][before];
            let last = text.len() - usize::from(!(before + key.len()).is_multiple_of(3));
            text.get(first..last).map(str::to_owned)
        })
        .collect()
}

/// Returns the JSON form of a text, without the quotes.
fn escaped(text: &str) -> String {
    let quoted = Value::String(text.to_owned()).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

/// A text in its URL encoding.
struct Percent(String);

impl Percent {
    /// Returns the text with lower-case hex digits in its escapes.
    fn to_ascii_lowercase_escapes(&self) -> String {
        let mut out = String::with_capacity(self.0.len());
        let mut digits = 0;
        for letter in self.0.chars() {
            out.push(if digits > 0 { letter.to_ascii_lowercase() } else { letter });
            digits = if letter == '%' { 2 } else { digits - i32::from(digits > 0) };
        }
        out
    }
}

fn percent(bytes: &[u8]) -> Percent {
    let mut out = String::new();
    for &byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    Percent(out)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::ErrorCode;

    const KEY: &str = "tvly-Ca\"n/a+r y\\7f3a91==é";

    /// SE-02: a key is removed in every form in which an upstream may return it.
    #[test]
    fn removes_every_form_of_a_key() {
        let redactor = Redactor::new(KEY);
        let json = json!(KEY).to_string();
        let texts = [
            KEY.to_owned(),
            format!("Authorization: Bearer {KEY}!"),
            format!("{{\"echo\":{json}}}"),
            json!(json).to_string(),
            json.replace('/', "\\/"),
            "tvly-Ca\\\"n/a+r y\\\\7f3a91==\\u00e9".to_owned(),
            "?k=tvly-Ca%22n%2Fa%2Br%20y%5C7f3a91%3D%3D%C3%A9&x".to_owned(),
            "?k=tvly-Ca%22n%2fa%2br%20y%5c7f3a91%3d%3d%c3%a9&x".to_owned(),
            "?k=tvly-Ca%22n%2Fa%2Br+y%5C7f3a91%3D%3D%C3%A9&x".to_owned(),
            data_encoding::HEXUPPER.encode(KEY.as_bytes()),
            data_encoding::HEXLOWER.encode(KEY.as_bytes()),
        ];
        for text in texts {
            let clean = redactor.text(&text);
            assert!(clean.contains(REDACTED), "{text} -> {clean}");
            assert!(!clean.contains("7f3a91") && !clean.contains("Ca"), "{text} -> {clean}");
        }
    }

    /// SE-02: also in the middle of a longer encoded text.
    #[test]
    fn removes_a_key_within_base64() {
        let redactor = Redactor::new(KEY);
        for encoding in [BASE64, BASE64_NOPAD, BASE64URL, BASE64URL_NOPAD] {
            for before in ["", "u", "us", "user:", "Bearer "] {
                for after in ["", "x", "xy", "xyz"] {
                    let text = encoding.encode(format!("{before}{KEY}{after}").as_bytes());
                    let clean = redactor.text(&text);
                    assert!(clean.contains(REDACTED), "{before}{after}: {text} -> {clean}");
                    assert!(clean.len() < REDACTED.len() + 24, "{text} -> {clean}");
                }
            }
        }
    }

    #[test]
    fn redacts_all_parts_of_values_and_errors() {
        let redactor = Redactor::new("12345678");
        let mut value = json!({
            "content": [{ "type": "text", "text": "x 12345678 y" }],
            "structuredContent": { "n": 12345678, "12345678": [true, null, 1.5], "deep": [["12345678"]] },
        });
        redactor.value(&mut value);
        assert_eq!(
            value,
            json!({
                "content": [{ "type": "text", "text": "x [redacted] y" }],
                "structuredContent": { "n": REDACTED, REDACTED: [true, null, 1.5], "deep": [[REDACTED]] },
            })
        );
        let error = ErrorBody::new(ErrorCode::ToolFailed, "bad key 12345678")
            .with_details(json!({ "k": "12345678" }));
        let error = redactor.error(error);
        assert_eq!(
            (error.message.as_str(), &error.details["k"]),
            ("bad key [redacted]", &json!(REDACTED))
        );
    }

    /// Other text is unchanged, also if the key is short.
    #[test]
    fn leaves_other_text_unchanged() {
        let redactor = Redactor::new("abc");
        for text in ["abcdef", "an abc", "", "YWJj"] {
            assert_eq!(redactor.text(text), text);
        }
        assert_eq!(redactor.text("abc"), REDACTED);
        assert_eq!(redactor.text("Bearer abc"), REDACTED);
        let long = Redactor::new(&"k".repeat(8_192));
        assert_eq!(long.text(&"k".repeat(8_191)), "k".repeat(8_191));
        assert_eq!(long.text(&"k".repeat(8_192)), REDACTED);
    }
}
