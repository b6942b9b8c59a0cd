//! Prepares JSON text before a child sends it, because the host's parser is stricter than JavaScript's.

use crate::limits::MAX_JSON_DEPTH;

/// Replaces lone surrogates, which Rust's strings cannot represent, and refuses text that is nested too deeply.
///
/// The text comes from `JSON.stringify`, which escapes only lone surrogates.
pub(crate) fn clean(text: &mut String) -> Result<(), String> {
    let mut depth = 0usize;
    let mut in_string = false;
    let mut lone = Vec::new();
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match (in_string, bytes[at]) {
            (true, b'\\') => {
                let escape = &bytes[at..bytes.len().min(at + 6)];
                if escape.starts_with(b"\\ud")
                    && matches!(escape.get(3), Some(b'8'..=b'9' | b'a'..=b'f'))
                {
                    lone.push(at);
                    // With the two steps below, this skips all six bytes of the escape.
                    at += 4;
                }
                at += 1;
            }
            (_, b'"') => in_string = !in_string,
            (false, b'{' | b'[') => {
                depth += 1;
                if depth > MAX_JSON_DEPTH {
                    return Err(format!("nested more than {MAX_JSON_DEPTH} levels deep"));
                }
            }
            (false, b'}' | b']') => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += 1;
    }
    for at in lone {
        // Both escapes have six bytes, so the other positions remain valid.
        text.replace_range(at..at + 6, "\\ufffd");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cleaned(text: &str) -> Result<String, String> {
        let mut text = text.to_owned();
        clean(&mut text).map(|()| text)
    }

    #[test]
    fn lone_surrogates_become_replacement_characters() {
        assert_eq!(cleaned(r#"{"a":"x\ud800y\udfff"}"#).unwrap(), r#"{"a":"x\ufffdy\ufffd"}"#);
        assert_eq!(
            cleaned(r#"["\\ud800","\"\\\\ud800"]"#).unwrap(),
            r#"["\\ud800","\"\\\\ud800"]"#
        );
        assert_eq!(cleaned("[\"\\u0007\\n😀\"]").unwrap(), "[\"\\u0007\\n😀\"]");
    }

    #[test]
    fn depth_counts_only_outside_of_strings() {
        let nested = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        assert!(cleaned(&nested(MAX_JSON_DEPTH)).is_ok());
        assert!(cleaned(&nested(MAX_JSON_DEPTH + 1)).is_err());
        assert!(cleaned(&format!("[\"{}\"]", "[".repeat(500))).is_ok());
        assert!(serde_json::from_str::<serde_json::Value>(&nested(MAX_JSON_DEPTH)).is_ok());
    }
}
