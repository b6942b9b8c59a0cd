//! The hosts to which a secret may be sent.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};
use url::Url;

use crate::RegistryError;

/// The longest text of a host.
const MAX_LENGTH: usize = 300;
/// The maximum number of hosts of one secret.
const MAX_HOSTS: usize = 16;

/// A destination of a secret: scheme, host and port, in a canonical form for comparison.
///
/// It is written `api.example.com` or `api.example.com:8443` for `https`, and `http://localhost:3000` for an
/// unencrypted connection: a secret for one is never sent to the other. There are no wildcards.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyHost(String);

impl KeyHost {
    /// Returns the host of requests to a URL; `None` if it is not the address of an HTTP server.
    pub fn of_url(url: &str) -> Option<Self> {
        let url = Url::parse(url).ok()?;
        let before = match url.scheme() {
            // The scheme is left out for `https` only, so that the two schemes never have the same
            // text.
            "https" => "",
            "http" => "http://",
            _ => return None,
        };
        let host = url.host_str().filter(|host| !host.is_empty())?;
        // `Url` omits the default port of the scheme.
        let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
        Some(Self(format!("{before}{host}{port}")))
    }

    /// Returns the canonical text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Sorts and deduplicates the hosts of one secret, as they are stored.
    ///
    /// # Errors
    /// Returns [`RegistryError::Invalid`] for more than the maximum.
    pub fn sorted(mut hosts: Vec<Self>) -> Result<Vec<Self>, RegistryError> {
        // A sealed value is bound to this list, so the order must not depend on the request.
        hosts.sort();
        hosts.dedup();
        if hosts.len() > MAX_HOSTS {
            return Err(RegistryError::Invalid(format!("a secret has at most {MAX_HOSTS} hosts")));
        }
        Ok(hosts)
    }
}

impl FromStr for KeyHost {
    type Err = RegistryError;

    fn from_str(text: &str) -> Result<Self, RegistryError> {
        // Wildcards, user names, paths and escapes are refused: different parsers could find different hosts in them.
        let is_plain = |letter: char| {
            letter.is_alphanumeric() || matches!(letter, '.' | '-' | '_' | ':' | '/' | '[' | ']')
        };
        let address =
            if text.contains("://") { text.to_owned() } else { format!("https://{text}") };
        let read = || {
            if text.len() > MAX_LENGTH || !text.chars().all(is_plain) {
                return None;
            }
            // Checked in the text, because `Url` replaces a missing path by `/`.
            let bare = address.split_once("://").map(|(_, host)| host)?;
            if bare.contains('/') {
                return None;
            }
            let host = Self::of_url(&address)?;
            // A trailing dot names the same host under a different text. The length is checked
            // again, because Punycode can be longer than the letters that it encodes.
            let name = host.0.strip_prefix("http://").unwrap_or(&host.0);
            let name = name.rsplit_once(':').map_or(name, |(name, _)| name);
            (!name.ends_with('.') && host.0.len() <= MAX_LENGTH).then_some(host)
        };
        read().ok_or_else(|| {
            // The input may be the secret's value, in the wrong field, so it is not repeated.
            RegistryError::Invalid(
                "write a host as `api.example.com`, with a port unless it is 443, or `http://…` for an unencrypted connection; no path, no wildcard, no trailing dot"
                    .to_owned(),
            )
        })
    }
}

impl fmt::Display for KeyHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for KeyHost {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_one_canonical_form() {
        for (written, form) in [
            ("api.tavily.com", "api.tavily.com"),
            ("API.Tavily.COM:443", "api.tavily.com"),
            ("https://api.tavily.com", "api.tavily.com"),
            ("api.tavily.com:8443", "api.tavily.com:8443"),
            ("http://localhost:3000", "http://localhost:3000"),
            ("http://localhost:80", "http://localhost"),
            ("http://api.tavily.com:443", "http://api.tavily.com:443"),
            ("bücher.example", "xn--bcher-kva.example"),
            ("[::1]:3000", "[::1]:3000"),
            ("127.1", "127.0.0.1"),
        ] {
            assert_eq!(written.parse::<KeyHost>().expect(written).as_str(), form);
        }
    }

    /// A text from which parsers could extract different hosts is refused.
    #[test]
    fn refuses_ambiguous_hosts() {
        for text in [
            "",
            "*",
            "*.tavily.com",
            "api.tavily.com.",
            "api.tavily.com.:443",
            "api.tavily.com/",
            "api.tavily.com/x",
            "https://api.tavily.com/x",
            "api.tavily.com@evil.example",
            "https://user:word@evil.example",
            "api.tavily.com?x",
            "api.tavily.com#x",
            "api.tavily.com\\@evil.example",
            "api%2etavily.com",
            " api.tavily.com",
            "api.tavily.com\n",
            "api.tavily.com\t.evil.example",
            "api.tavily.com, evil.example",
            "ftp://api.tavily.com",
            "ws://api.tavily.com",
            "javascript://x",
            "https://",
            "://",
            ":443",
            "host:99999",
            &"a".repeat(400),
        ] {
            text.parse::<KeyHost>().expect_err(text);
        }
    }

    /// Only URLs that a request would send to exactly this host match it.
    #[test]
    fn a_url_matches_exactly_its_host() {
        let own: KeyHost = "api.tavily.com".parse().unwrap();
        for url in [
            "https://api.tavily.com/mcp",
            "HTTPS://API.TAVILY.COM:443/mcp?x#y",
            "https:\\\\api.tavily.com\\mcp",
        ] {
            assert_eq!(KeyHost::of_url(url).as_ref(), Some(&own), "{url}");
        }
        for url in [
            "http://api.tavily.com/mcp",
            "http://api.tavily.com:443/mcp",
            "https://api.tavily.com:444/mcp",
            "https://api.tavily.com./mcp",
            "https://api.tavily.com.evil.example/mcp",
            "https://xapi.tavily.com/mcp",
            "https://tavily.com/mcp",
            "https://api.tavily.com@evil.example/mcp",
            "https://api.tavily.com:443@evil.example/mcp",
            "https://evil.example\\@api.tavily.com/",
            "https://api.tavi1y.com/mcp",
            "https://\u{430}pi.tavily.com/mcp",
            "ftp://api.tavily.com/",
            "data:api.tavily.com",
            "api.tavily.com",
        ] {
            assert_ne!(KeyHost::of_url(url).as_ref(), Some(&own), "{url}");
        }
    }

    #[test]
    fn hosts_are_sorted_deduplicated_and_limited() {
        let hosts = |all: &[&str]| all.iter().map(|one| one.parse().unwrap()).collect();
        let sorted = KeyHost::sorted(hosts(&["b.example", "a.example", "B.example"])).unwrap();
        assert_eq!(sorted, KeyHost::sorted(hosts(&["a.example", "b.example"])).unwrap());
        let many = (0..17).map(|n| format!("h{n}.example").parse().unwrap()).collect();
        KeyHost::sorted(many).expect_err("too many");
    }
}
