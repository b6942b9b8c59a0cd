//! The operator's token for the gateway's figures.

use std::path::Path;

use anyhow::bail;

use crate::private_settings;

/// The minimum length. A random token of this length cannot be guessed.
const MIN_LENGTH: usize = 32;

/// The operator's token, of which only a hash is kept.
#[derive(Debug)]
pub(crate) struct MetricsToken(blake3::Hash);

impl MetricsToken {
    /// Reads the token from `PML_METRICS_TOKEN` or from its file; `None` if neither is set.
    ///
    /// # Errors
    /// Returns an error for a token that can be guessed or not be sent, and for a file that others can read.
    pub(crate) fn read(file: Option<&Path>) -> anyhow::Result<Option<Self>> {
        let given = private_settings::given("PML_METRICS_TOKEN", file, "token")?;
        given.map(|(text, place)| Self::new(&text, &place)).transpose()
    }

    fn new(text: &str, place: &str) -> anyhow::Result<Self> {
        let text = text.trim();
        // Other characters cannot stand in the header.
        if text.len() < MIN_LENGTH || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            bail!(
                "{place} is not a token of at least {MIN_LENGTH} visible characters; `openssl rand -hex 32` creates one"
            );
        }
        Ok(Self(blake3::hash(text.as_bytes())))
    }

    /// Returns whether a request sent this token. The hashes are compared in constant time.
    pub(crate) fn is(&self, sent: &str) -> bool {
        self.0 == blake3::hash(sent.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_long_and_can_be_sent() {
        let token = "0123456789abcdef0123456789abcdef";
        let read = MetricsToken::new(&format!("{token}\n"), "x").unwrap();
        assert!(read.is(token) && !read.is("") && !read.is(&token[1..]));
        let invalid = ["", "changeme", &token[1..], &format!("{token} {token}"), &"é".repeat(32)];
        for text in invalid {
            let message = MetricsToken::new(text, "PML_METRICS_TOKEN").unwrap_err().to_string();
            assert!(message.contains("openssl rand -hex 32"), "{message}");
            assert!(text.is_empty() || !message.contains(text), "{message}");
        }
    }
}
