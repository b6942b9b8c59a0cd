//! The part of a policy about web addresses.

use std::fmt;

use url::{Host, Url};

use super::Source;

/// The maximum number of redirects that a policy may allow, and the number without a setting.
pub(super) const REDIRECTS_LIMIT: u32 = 10;
pub(super) const REDIRECTS: u32 = 5;

/// The web addresses that may be opened.
#[derive(Debug, Clone, Default)]
pub(super) struct Web {
    pub(super) allow: Vec<HostPattern>,
    pub(super) deny: Vec<HostPattern>,
    /// Hosts that may have private addresses; they are allowed as well.
    pub(super) private: Vec<HostPattern>,
    pub(super) max_bytes: Option<u64>,
    pub(super) timeout_ms: Option<u64>,
    pub(super) max_redirects: Option<u32>,
}

impl Web {
    /// Checks an address.
    pub(super) fn allows(&self, source: &Source, url: &Url) -> Result<(), String> {
        let host = protocol::escape_text(url.host_str().unwrap_or_default());
        if let Some(pattern) = self.deny.iter().find(|pattern| pattern.denies(url)) {
            return Err(format!("{} has `{pattern}`", source.named("web.deny")));
        }
        match self.allow.iter().chain(&self.private).any(|pattern| pattern.covers(url)) {
            true => Ok(()),
            false => {
                let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
                Err(format!("{} has no pattern for `{host}{port}`", source.named("web.allow")))
            }
        }
    }
}

/// A pattern of hosts: `example.com`, `*.example.com`, `*`, or an address; with a port or without.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPattern {
    hosts: Hosts,
    /// Without a port, it covers those of `https` and `http`.
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Hosts {
    Any,
    /// This host.
    One(Host),
    /// All names beneath this one, at any depth, and not the name itself.
    Beneath(String),
}

impl HostPattern {
    /// Parses a pattern.
    ///
    /// # Errors
    /// Returns why it is none, with the pattern to write instead if that is known.
    pub(crate) fn new(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| {
            Err(format!("`{}` is no pattern of hosts: {why}", protocol::escape_text(text)))
        };
        if text.contains("://") || text.contains('/') {
            return wrong("write only a host, as `example.com`, without a scheme and a path");
        }
        if text.contains('@') {
            return wrong("it contains a user name");
        }
        // An address of IPv6 has colons of its own, and is in brackets.
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => match port.parse() {
                Ok(port) if port > 0 => (host, Some(port)),
                _ => return wrong("its port is not a number from 1 to 65535"),
            },
            _ => (text, None),
        };
        if host == "*" {
            return Ok(Self { hosts: Hosts::Any, port });
        }
        let (name, is_beneath) = match host.strip_prefix("*.") {
            Some(name) => (name, true),
            None => (host, false),
        };
        if name.contains('*') {
            return wrong("`*` stands for whole names at the beginning, as in `*.example.com`");
        }
        // The same rules as for the host of a URL: case, punycode, and spellings of addresses.
        let hosts = match (Host::parse(name), is_beneath) {
            (Ok(Host::Domain(name)), true) => Hosts::Beneath(bare(&name).to_owned()),
            (Ok(Host::Domain(name)), false) => Hosts::One(Host::Domain(bare(&name).to_owned())),
            (Ok(address), false) => Hosts::One(canonical(address)),
            (Ok(_), true) => return wrong("an address has no names beneath it"),
            (Err(error), _) => return wrong(&error.to_string()),
        };
        match &hosts {
            Hosts::Beneath(name) | Hosts::One(Host::Domain(name)) if name.is_empty() => {
                wrong("it has no name")
            }
            _ => Ok(Self { hosts, port }),
        }
    }

    /// Returns the host, as in URLs, if the pattern names exactly one.
    pub(super) fn one(&self) -> Option<String> {
        match &self.hosts {
            Hosts::One(host) => Some(host.to_string()),
            Hosts::Any | Hosts::Beneath(_) => None,
        }
    }

    /// Returns whether it covers every host.
    pub(super) fn is_any(&self) -> bool {
        self.hosts == Hosts::Any
    }

    /// Returns whether it allows an address.
    pub(crate) fn covers(&self, url: &Url) -> bool {
        let is_port = match self.port {
            Some(port) => url.port_or_known_default() == Some(port),
            None => url.port().is_none(),
        };
        is_port && self.is_host(url)
    }

    /// As [`HostPattern::covers`], but a name includes those beneath it, and no port stands for all.
    fn denies(&self, url: &Url) -> bool {
        let is_port = self.port.is_none_or(|port| url.port_or_known_default() == Some(port));
        let is_beneath = match (&self.hosts, url.host()) {
            (Hosts::One(Host::Domain(name)), Some(Host::Domain(host))) => is_beneath(host, name),
            _ => false,
        };
        is_port && (is_beneath || self.is_host(url))
    }

    /// Returns whether it names exactly this host, and not every host.
    pub(crate) fn is_one_of(&self, url: &Url) -> bool {
        matches!(self.hosts, Hosts::One(_)) && self.covers(url)
    }

    fn is_host(&self, url: &Url) -> bool {
        match (&self.hosts, url.host()) {
            (_, None) => false,
            (Hosts::Any, Some(_)) => true,
            (Hosts::Beneath(name), Some(Host::Domain(host))) => is_beneath(host, name),
            (Hosts::Beneath(_), Some(_)) => false,
            (Hosts::One(Host::Domain(name)), Some(Host::Domain(host))) => bare(host) == name,
            (Hosts::One(one), Some(host)) => *one == canonical(host.to_owned()),
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.hosts {
            Hosts::Any => f.write_str("*")?,
            Hosts::One(host) => write!(f, "{host}")?,
            Hosts::Beneath(name) => write!(f, "*.{name}")?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

/// Returns a name without a trailing dot, which does not change the host that it denotes.
fn bare(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

fn is_beneath(host: &str, name: &str) -> bool {
    bare(host).strip_suffix(name).is_some_and(|rest| rest.ends_with('.'))
}

/// Returns an address of IPv4 that is written as one of IPv6 as what it is.
fn canonical(host: Host) -> Host {
    match host {
        Host::Ipv6(address) => match address.to_ipv4_mapped() {
            Some(inner) => Host::Ipv4(inner),
            None => Host::Ipv6(address),
        },
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> HostPattern {
        HostPattern::new(text).unwrap_or_else(|error| panic!("{error}"))
    }

    /// NP-02: what each pattern covers as `allow` and as `deny`.
    #[test]
    fn hosts_match_exactly() {
        let both = |text: &str, url: &str| {
            let (pattern, url) = (pattern(text), Url::parse(url).unwrap());
            (pattern.covers(&url), pattern.denies(&url))
        };
        for (text, url, covers, denies) in [
            ("example.com", "https://example.com/", true, true),
            ("example.com", "http://example.com/", true, true),
            ("example.com", "https://EXAMPLE.com./x", true, true),
            ("Example.COM.", "https://example.com/", true, true),
            ("example.com", "https://example.com:443/", true, true),
            ("example.com", "https://example.com:80/", false, true),
            ("example.com", "https://example.com:8443/", false, true),
            ("example.com:8443", "https://example.com:8443/", true, true),
            ("example.com:8443", "https://example.com/", false, false),
            ("example.com:443", "https://example.com/", true, true),
            ("example.com:443", "http://example.com/", false, false),
            ("example.com", "https://evil-example.com/", false, false),
            ("example.com", "https://example.com.evil.test/", false, false),
            ("example.com", "https://evil.test/example.com", false, false),
            ("example.com", "https://evil.test/?example.com", false, false),
            ("example.com", "https://evil.test#example.com", false, false),
            ("example.com", "https://example.com@evil.test/", false, false),
            ("example.com", "https://example.com\\@evil.test/", true, true),
            ("example.com", "https://a.example.com/", false, true),
            ("*.example.com", "https://a.example.com/", true, true),
            ("*.example.com", "https://a.b.example.com./", true, true),
            ("*.example.com", "https://example.com/", false, false),
            ("*.example.com", "https://xexample.com/", false, false),
            ("*.example.com", "https://.example.com/", true, true),
            ("*.example.com:1", "https://a.example.com:1/", true, true),
            ("*.com", "https://com/", false, false),
            ("*", "https://anything.test/", true, true),
            ("*", "https://anything.test:1/", false, true),
            ("*:1", "https://anything.test:1/", true, true),
            ("*", "http://127.0.0.1/", true, true),
            ("bücher.example", "https://xn--bcher-kva.example/", true, true),
            ("xn--bcher-kva.example", "https://BÜCHER.example/", true, true),
            ("example.com", "https://еxample.com/", false, false),
            ("example.com", "https://ｅxample.com/", true, true),
            ("127.0.0.1", "http://2130706433/", true, true),
            ("127.0.0.1", "http://0x7f.1/", true, true),
            ("127.0.0.1", "http://[::ffff:7f00:1]/", true, true),
            ("0x7f000001", "http://127.0.0.1/", true, true),
            ("127.0.0.1", "http://127.0.0.2/", false, false),
            ("[::1]", "http://[0:0::1]/", true, true),
            ("[::1]:8080", "http://[::1]:8080/", true, true),
            ("*.0.0.1.example", "http://127.0.0.1/", false, false),
        ] {
            assert_eq!(both(text, url), (covers, denies), "{text} {url}");
        }
    }

    #[test]
    fn what_is_no_host_is_refused() {
        for text in [
            "",
            "*.",
            ".",
            "*.*.com",
            "a*.com",
            "*com",
            "https://example.com",
            "example.com/x",
            "user@example.com",
            "example.com:",
            "example.com:0",
            "example.com:65536",
            "example.com:x",
            "::1",
            "*.127.0.0.1",
            "a b",
            "%",
            "example.com:1:2",
            "*.[::1]",
        ] {
            HostPattern::new(text).expect_err(text);
        }
        assert_eq!(pattern("*.Example.com:1").to_string(), "*.example.com:1");
        assert_eq!(pattern("[::1]").one().unwrap(), "[::1]");
        assert_eq!(pattern("*.x").one(), None);
    }
}
