//! The secrets for upstreams that a caller sends with its request.

use std::collections::HashMap;

use axum::http::{HeaderMap, HeaderName};
use registry::KeyHost;

use crate::config::Secret;

/// The prefix of headers with a secret, `X-PML-Key-TAVILY-API-KEY`.
const KEY_HEADER_PREFIX: &str = "x-pml-key-";
/// The prefix of headers with the hosts that may receive such a secret, `X-PML-Host-TAVILY-API-KEY`.
const HOST_HEADER_PREFIX: &str = "x-pml-host-";

/// The secrets that a caller sent with a request; used only for that request, never stored.
#[derive(Debug, Clone, Default)]
pub(crate) struct SentSecrets(HashMap<String, SentSecret>);

/// A secret that a caller sent.
#[derive(Debug, Clone)]
pub(crate) struct SentSecret {
    /// The value.
    pub value: Secret,
    /// The allowed hosts; `None` if the caller sent none, and empty if they cannot be parsed.
    pub hosts: Option<Vec<KeyHost>>,
}

impl SentSecrets {
    /// Reads the secrets from a request's headers.
    pub(crate) fn from_headers(headers: &HeaderMap) -> Self {
        let secrets = headers.iter().filter_map(|(name, value)| {
            let variable = variable(name, KEY_HEADER_PREFIX)?;
            // A value that is not ASCII text is treated as absent.
            let value = value.to_str().ok()?.parse().ok()?;
            let hosts = hosts(headers, &variable);
            Some((variable, SentSecret { value, hosts }))
        });
        Self(secrets.collect())
    }

    /// Returns the secret for a variable, if the caller sent one.
    pub(crate) fn get(&self, variable: &str) -> Option<&SentSecret> {
        self.0.get(variable)
    }
}

/// Returns the variable that a header with this prefix names. `http::singular` refuses two secrets for one variable.
fn variable(name: &HeaderName, prefix: &str) -> Option<String> {
    let variable = name.as_str().strip_prefix(prefix)?;
    Some(variable.to_ascii_uppercase().replace('-', "_"))
}

/// Parses the hosts for a variable, also in several lines. If one is invalid, none is allowed, because the intent is
/// unknown.
fn hosts(headers: &HeaderMap, of: &str) -> Option<Vec<KeyHost>> {
    // A list may be split over several lines, so `singular` lets this header be repeated.
    let is_named = |name| variable(name, HOST_HEADER_PREFIX).is_some_and(|named| named == of);
    let named = headers.iter().filter(|(name, _)| is_named(name)).map(|(_, line)| line);
    let mut named = named.peekable();
    named.peek()?;
    let read: Option<Vec<KeyHost>> = named
        .map(|line| {
            let hosts = line.to_str().ok()?.split(',');
            hosts.map(|host| host.trim().parse().ok()).collect::<Option<Vec<_>>>()
        })
        .collect::<Option<Vec<_>>>()
        .map(|lines| lines.concat());
    Some(read.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_read_from_their_headers_and_redacted() {
        let mut headers = HeaderMap::new();
        headers.insert("x-pml-key-tavily-api-key", "canary".parse().unwrap());
        headers.insert("x-api-key", "other".parse().unwrap());
        let secrets = SentSecrets::from_headers(&headers);
        assert_eq!(secrets.get("TAVILY_API_KEY").unwrap().value.expose(), "canary");
        assert!(secrets.get("API_KEY").is_none());
        assert!(!format!("{secrets:?}").contains("canary"));
    }

    /// P4: an invalid host is not treated as an absent one.
    #[test]
    fn one_invalid_host_voids_all_hosts() {
        let read = |lines: &[&str]| {
            let mut headers = HeaderMap::new();
            headers.insert("x-pml-key-a-token", "canary".parse().unwrap());
            for line in lines {
                headers.append("x-pml-host-a-token", line.parse().unwrap());
            }
            let secrets = SentSecrets::from_headers(&headers);
            let hosts = secrets.get("A_TOKEN").unwrap().hosts.clone();
            hosts.map(|hosts| hosts.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        let (a, b) = ("a.example".to_owned(), "http://b.example:8080".to_owned());
        assert_eq!(read(&[]), None);
        assert_eq!(read(&["A.example"]), Some(vec![a.clone()]));
        assert_eq!(read(&["a.example, http://b.example:8080"]), Some(vec![a.clone(), b.clone()]));
        assert_eq!(read(&["a.example", "http://b.example:8080"]), Some(vec![a, b]));
        // In the name, `-` and `_` are the same, as in that of the secret.
        let mut headers = HeaderMap::new();
        headers.insert("x-pml-key-a-token", "canary".parse().unwrap());
        headers.insert("x-pml-host-a_token", "b.example".parse().unwrap());
        let secrets = SentSecrets::from_headers(&headers);
        let hosts = secrets.get("A_TOKEN").unwrap().hosts.clone().unwrap();
        assert_eq!(hosts.iter().map(ToString::to_string).collect::<Vec<_>>(), ["b.example"]);
        // Omitting only the invalid host would be a guess at what the sender meant.
        for void in [&["*"][..], &[""], &["a.example,"], &["a.example", "*.example"]] {
            assert_eq!(read(void), Some(Vec::new()), "{void:?}");
        }
    }
}
