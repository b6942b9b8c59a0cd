//! The origin of a registry, as it is written in `.pml.json` and in the lock.

use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use url::Url;

use crate::http_client::is_this_machine;

/// The scheme, host and port of a registry. The scheme is `https`, or `http` for this machine.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Origin(String);

/// Why a text is not the origin of a registry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the registry{} cannot be used: {reason}", quoted(.text))]
pub(crate) struct OriginError {
    /// The text; empty if it may contain a secret.
    text: String,
    reason: String,
}

fn quoted(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(" `{}`", protocol::escape_text(text)) }
}

impl Origin {
    /// Returns it as text, without a slash at the end.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Origin {
    type Err = OriginError;

    fn from_str(text: &str) -> Result<Self, OriginError> {
        let refused = |text: &str, reason: String| OriginError { text: text.to_owned(), reason };
        // A query or user info may hold a key, which must not be repeated in an error.
        let may_be_secret = text.contains(['@', '?', '#']);
        let quotable = if may_be_secret { "" } else { text };
        let instead = |host: &str| format!("write `\"https://{}\"`", protocol::escape_text(host));
        if !text.contains("://") && !may_be_secret {
            // Also for `https:/mcp.acme.test`, which has a scheme and no host.
            let rest = text.trim_start_matches("https:").trim_start_matches("http:");
            let host = rest.trim_start_matches('/').split('/').next().unwrap_or_default();
            return Err(refused(
                text,
                format!("it does not begin with `https://`; {}", instead(host)),
            ));
        }
        let url = Url::parse(text).map_err(|error| refused(quotable, error.to_string()))?;
        // First, so that no later error shows a password.
        if !url.username().is_empty() || url.password().is_some() {
            let reason = "it contains a user name or password; keys are stored per registry, by `pml login --url URL`";
            return Err(refused("", reason.to_owned()));
        }
        // The parser drops an empty user name, which a reader could take for a part of the host.
        if may_be_secret || url.query().is_some() || url.fragment().is_some() {
            let origin = url.origin().ascii_serialization();
            return Err(refused("", format!("it contains more than a host; write `\"{origin}\"`")));
        }
        match url.scheme() {
            "https" => {}
            "http" if is_this_machine(&url) => {}
            "http" => {
                let authority = url.authority();
                let reason = format!("`http` is for this machine only; {}", instead(authority));
                return Err(refused(text, reason));
            }
            other => {
                let reason = format!("the scheme `{other}` is not supported; use `https`");
                return Err(refused(text, reason));
            }
        }
        let origin = url.origin().ascii_serialization();
        if !matches!(url.path(), "" | "/") {
            let reason = format!(
                "it has a path, but a registry is at the root of its host; write `\"{origin}\"`"
            );
            return Err(refused(text, reason));
        }
        Ok(Self(origin))
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Origin {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

impl Serialize for Origin {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_has_one_form() {
        for (text, expected) in [
            ("https://mcp.acme.test", "https://mcp.acme.test"),
            ("https://mcp.acme.test/", "https://mcp.acme.test"),
            ("HTTPS://MCP.Acme.Test:443/", "https://mcp.acme.test"),
            ("https://mcp.acme.test:8443", "https://mcp.acme.test:8443"),
            ("https://m\u{fc}nchen.test", "https://xn--mnchen-3ya.test"),
            ("http://127.0.0.1:3001", "http://127.0.0.1:3001"),
            ("http://[::1]:3001/", "http://[::1]:3001"),
            ("http://localhost", "http://localhost"),
        ] {
            assert_eq!(text.parse::<Origin>().unwrap().as_str(), expected, "{text}");
        }
    }

    /// The error for what is not an origin says what to write, and never repeats a password.
    #[test]
    fn what_is_not_an_origin_is_refused_with_what_to_write() {
        for (text, words) in [
            ("https://pml.casys.ai/registry", "it has a path"),
            ("https://pml.casys.ai/registry", "write `\"https://pml.casys.ai\"`"),
            ("https://pml.casys.ai//", "write `\"https://pml.casys.ai\"`"),
            ("http://127.0.0.1:3001/mcp", "write `\"http://127.0.0.1:3001\"`"),
            (
                "mcp.acme.test",
                "it does not begin with `https://`; write `\"https://mcp.acme.test\"`",
            ),
            (
                "mcp.acme.test/registry",
                "it does not begin with `https://`; write `\"https://mcp.acme.test\"`",
            ),
            ("http://mcp.acme.test", "this machine only; write `\"https://mcp.acme.test\"`"),
            ("http://127.0.0.1.acme.test", "for this machine only"),
            ("https://ana:canary@acme.test", "a user name or password"),
            ("https://canary@acme.test", "a user name or password"),
            ("https://@acme.test", "more than a host; write `\"https://acme.test\"`"),
            ("https://acme.test?key=canary", "more than a host; write `\"https://acme.test\"`"),
            ("https://acme.test/#canary", "more than a host; write `\"https://acme.test\"`"),
            ("ftp://acme.test", "the scheme `ftp` is not supported"),
            ("file:///etc/passwd", "the scheme `file` is not supported"),
            ("https://", "empty host"),
            ("https:/acme.test/", "write `\"https://acme.test\"`"),
            ("", "it does not begin with `https://`"),
        ] {
            let error = text.parse::<Origin>().unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
            assert!(!error.contains("canary"), "{text}: {error}");
        }
    }
}
