//! The keys for upstreams that a caller sends along with its request.

use std::collections::HashMap;

use axum::http::HeaderMap;
use registry::KeyHost;

use crate::config::Secret;

/// The prefix of headers that carry a caller's own keys, `X-PML-Key-TAVILY-API-KEY`.
const KEY_HEADER_PREFIX: &str = "x-pml-key-";
/// The prefix of headers that name the hosts which such a key may go to, `X-PML-Host-TAVILY-API-KEY`.
const HOST_HEADER_PREFIX: &str = "x-pml-host-";

/// The keys that a caller sent along for upstreams; used once, never stored.
#[derive(Debug, Clone, Default)]
pub(crate) struct CallerKeys(HashMap<String, CallerKey>);

/// One of them.
#[derive(Debug, Clone)]
pub(crate) struct CallerKey {
    /// The key.
    pub value: Secret,
    /// The allowed hosts; `None` if the caller sent none, and empty if they cannot be parsed.
    pub hosts: Option<Vec<KeyHost>>,
}

impl CallerKeys {
    /// Reads the keys from a request's headers.
    pub(crate) fn from_headers(headers: &HeaderMap) -> Self {
        let keys = headers.iter().filter_map(|(name, value)| {
            let name = name.as_str().strip_prefix(KEY_HEADER_PREFIX)?;
            let value = value.to_str().ok()?.parse().ok()?;
            let hosts = hosts(headers, &format!("{HOST_HEADER_PREFIX}{name}"));
            Some((name.to_ascii_uppercase().replace('-', "_"), CallerKey { value, hosts }))
        });
        Self(keys.collect())
    }

    /// Returns the key for a variable, if the caller sent one.
    pub(crate) fn get(&self, variable: &str) -> Option<&CallerKey> {
        self.0.get(variable)
    }
}

/// Parses the hosts in a header, also in several lines. A single invalid one makes all of them void, because the
/// intent is unknown.
fn hosts(headers: &HeaderMap, name: &str) -> Option<Vec<KeyHost>> {
    let mut named = headers.get_all(name).iter().peekable();
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
    fn keys_come_from_their_headers_and_stay_hidden() {
        let mut headers = HeaderMap::new();
        headers.insert("x-pml-key-tavily-api-key", "canary".parse().unwrap());
        headers.insert("x-api-key", "other".parse().unwrap());
        let keys = CallerKeys::from_headers(&headers);
        assert_eq!(keys.get("TAVILY_API_KEY").unwrap().value.expose(), "canary");
        assert!(keys.get("API_KEY").is_none());
        assert!(!format!("{keys:?}").contains("canary"));
    }

    /// P4: an invalid host is not treated as an absent one.
    #[test]
    fn hosts_of_a_key_are_read_whole_or_not_at_all() {
        let read = |lines: &[&str]| {
            let mut headers = HeaderMap::new();
            headers.insert("x-pml-key-a-token", "canary".parse().unwrap());
            for line in lines {
                headers.append("x-pml-host-a-token", line.parse().unwrap());
            }
            let keys = CallerKeys::from_headers(&headers);
            let hosts = keys.get("A_TOKEN").unwrap().hosts.clone();
            hosts.map(|hosts| hosts.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        let (a, b) = ("a.example".to_owned(), "http://b.example:8080".to_owned());
        assert_eq!(read(&[]), None);
        assert_eq!(read(&["A.example"]), Some(vec![a.clone()]));
        assert_eq!(read(&["a.example, http://b.example:8080"]), Some(vec![a.clone(), b.clone()]));
        assert_eq!(read(&["a.example", "http://b.example:8080"]), Some(vec![a, b]));
        for void in [&["*"][..], &[""], &["a.example,"], &["a.example", "*.example"]] {
            assert_eq!(read(void), Some(Vec::new()), "{void:?}");
        }
    }
}
