//! Counts and checks JSON text without building a tree of values.
//!
//! A parsed tree takes many times the memory of its text, by a factor that depends on its shape. So the values of
//! untrusted input are counted first.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

/// The maximum number of values and names in one message of a tool's server: about as many as fit into a sandbox's
/// heap.
pub const MESSAGE_VALUES: usize = 500_000;

/// Counts the values and names of a text. Invalid JSON gets a count as well; its parser reports the error.
pub fn values(text: &[u8]) -> usize {
    let mut values = 0;
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            // Every value and name except the outermost value follows one of these bytes. An empty
            // list or object counts twice.
            b',' | b':' | b'[' | b'{' => values += 1,
            b'"' => {
                // Up to the end of the string.
                while let Some(byte) = bytes.next() {
                    match byte {
                        // The escaped byte may be a quote, which would seem to end the string.
                        b'\\' => drop(bytes.next()),
                        b'"' => break,
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    values
}

/// Parses a text exactly as [`serde_json::Value`] would be parsed, and discards the result.
///
/// # Errors
/// Returns the parser's error, also for too deep nesting and for numbers that are out of range.
pub fn check(text: &[u8]) -> Result<(), serde_json::Error> {
    serde_json::from_slice::<Nothing>(text).map(|_| ())
}

/// Any value, which is discarded. Unlike `IgnoredAny`, it also checks that numbers are in range.
struct Nothing;

impl<'de> Deserialize<'de> for Nothing {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for Nothing {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }
    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }
    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }
    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }
    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }
    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }
    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self, A::Error> {
        while items.next_element::<Self>()?.is_some() {}
        Ok(self)
    }
    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self, A::Error> {
        while members.next_entry::<Self, Self>()?.is_some() {}
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn does_not_count_inside_strings() {
        assert_eq!(values(b"[1,2]"), 2);
        assert_eq!(values(br#"{"a,[{:\"":1}"#), 2);
        assert_eq!(values(br#""never ends\"#), 0);
    }

    /// `check` accepts exactly the texts from which `serde_json::Value` can be parsed.
    #[test]
    fn accepts_what_the_parser_accepts() {
        let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let (flat, deep) = (deep(100), deep(200));
        for text in [
            "null",
            "true",
            "[1,-2,3.5,\"a\\n\"]",
            "{\"a\":{\"b\":[]},\"a\":1}",
            "1e308",
            "1e999",
            "-1e999",
            "18446744073709551616",
            "\"\\ud800\"",
            "\"\\u00e9\"",
            "[1,]",
            "{\"a\"}",
            "{1:2}",
            "",
            "nul",
            "\"a",
            "1 2",
            "\"\u{1}\"",
            &flat,
            &deep,
        ] {
            let read = serde_json::from_str::<Value>(text).map(|_| ());
            let (checked, parsed) = (check(text.as_bytes()), read);
            assert_eq!(checked.is_ok(), parsed.is_ok(), "{text}: {checked:?}");
        }
        assert!(check(b"\"\xff\"").is_err());
    }
}
