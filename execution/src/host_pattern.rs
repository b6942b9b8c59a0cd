//! Patterns of hosts, as users and registries write them.

use std::fmt;

use url::{Host, Url};

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
    pub fn new(text: &str) -> Result<Self, String> {
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
    pub fn one(&self) -> Option<String> {
        match &self.hosts {
            Hosts::One(host) => Some(host.to_string()),
            Hosts::Any | Hosts::Beneath(_) => None,
        }
    }

    /// Returns whether it covers every host.
    pub fn is_any(&self) -> bool {
        self.hosts == Hosts::Any
    }

    /// Returns whether it allows an address.
    pub fn covers(&self, url: &Url) -> bool {
        let is_port = match self.port {
            Some(port) => url.port_or_known_default() == Some(port),
            None => url.port().is_none(),
        };
        is_port && self.is_host(url)
    }

    /// As [`HostPattern::covers`], but a name includes those beneath it, and no port stands for all.
    pub fn denies(&self, url: &Url) -> bool {
        let is_port = self.port.is_none_or(|port| url.port_or_known_default() == Some(port));
        let is_beneath = match (&self.hosts, url.host()) {
            (Hosts::One(Host::Domain(name)), Some(Host::Domain(host))) => is_beneath(host, name),
            _ => false,
        };
        is_port && (is_beneath || self.is_host(url))
    }

    /// Returns whether it names exactly this host, and not every host.
    pub fn is_one_of(&self, url: &Url) -> bool {
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
