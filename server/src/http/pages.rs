//! Checks `Host` and `Origin`: a web page must not reach a gateway on the user's machine, neither from the page's own
//! origin nor through DNS rebinding.

use axum::http::{HeaderMap, StatusCode, Uri, header};
use protocol::ErrorCode;
use reqwest::Url;

use crate::config::Serve;
use crate::error::ApiError;

/// Hosts that always name the gateway, and whose `http` pages may call it.
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// The names of the gateway and the origins of pages that may call it.
#[derive(Debug)]
pub(crate) struct Pages {
    hosts: Vec<String>,
    origins: Vec<String>,
    public_url: Option<String>,
    /// Whether the gateway itself serves HTTPS.
    has_tls: bool,
}

impl Pages {
    /// Creates the lists from the settings.
    pub(crate) fn new(serve: &Serve) -> Self {
        let origins = serve.allowed_origins.iter();
        Self {
            hosts: serve.hosts().collect(),
            origins: origins.map(|origin| origin.trim().to_ascii_lowercase()).collect(),
            public_url: serve.public_url.as_ref().map(|url| url.as_str().to_owned()),
            has_tls: serve.tls.is_set(),
        }
    }

    /// Returns the address under which clients reach the gateway: the configured one, else that of this request. A
    /// `Host` that is not a name of the gateway is never returned: it could be an attacker's, and clients that read the
    /// answer would send their keys there.
    pub(crate) fn address(&self, uri: &Uri, headers: &HeaderMap) -> Option<String> {
        if let Some(url) = &self.public_url {
            return Some(url.clone());
        }
        // HTTP/2 has the host in the target, and a client may omit `Host` (RFC 9113, 8.3.1).
        let named = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let host = named.or_else(|| uri.authority().map(|authority| authority.as_str()))?;
        if !self.is_host(host) {
            return None;
        }
        // Without TLS of its own, the gateway is reached under any other name through a proxy that terminates TLS.
        let is_loopback = LOOPBACK.contains(&without_port(&host.to_ascii_lowercase()));
        let scheme = if is_loopback && !self.has_tls { "http" } else { "https" };
        Some(format!("{scheme}://{host}"))
    }

    /// Checks the host that a request names and the page that it comes from.
    ///
    /// # Errors
    /// Returns `FORBIDDEN` for a host that is not the gateway's, and for a page that may not call it.
    pub(crate) fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), ApiError> {
        let refused = |what: &str| {
            let error = ApiError::new(ErrorCode::Forbidden, what);
            Err(error.with_status(StatusCode::FORBIDDEN))
        };
        let mut hosts = headers.get_all(header::HOST).iter().map(|host| host.to_str().ok());
        let named = [hosts.next().flatten(), uri.authority().map(|authority| authority.as_str())];
        let mut named = named.into_iter().flatten().peekable();
        let is_named = named.peek().is_some() && named.all(|host| self.is_host(host));
        // `singular` has already refused a second `Host`; this check does not rely on it.
        if hosts.next().is_some() || !is_named {
            return refused(
                "`Host` is not a name of this gateway; the operator can allow it with PML_ALLOWED_HOSTS",
            );
        }
        let mut origins = headers.get_all(header::ORIGIN).iter().map(|origin| origin.to_str().ok());
        if !origins.all(|origin| origin.is_some_and(|origin| self.is_origin(origin))) {
            return refused(
                "requests from this origin are not allowed; the operator can allow it with PML_ALLOWED_ORIGINS",
            );
        }
        Ok(())
    }

    fn is_host(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        let name = without_port(&host);
        LOOPBACK.contains(&name)
            || self.hosts.iter().any(|allowed| match without_port(allowed) == allowed {
                // The operator may list an IPv6 address without the brackets that it has in `Host`.
                true => name == allowed || name.trim_matches(['[', ']']) == allowed,
                false => host == *allowed,
            })
    }

    fn is_origin(&self, origin: &str) -> bool {
        let origin = origin.to_ascii_lowercase();
        // Parsed, because a comparison of prefixes would accept `http://localhost.evil.test`.
        let is_loopback = Url::parse(&origin).is_ok_and(|url| {
            url.scheme() == "http" && url.host_str().is_some_and(|host| LOOPBACK.contains(&host))
        });
        is_loopback || self.origins.contains(&origin)
    }
}

/// Returns a host without its port.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port))
            if port.bytes().all(|digit| digit.is_ascii_digit()) && !name.is_empty() =>
        {
            // An IPv6 address contains colons too.
            if name.contains(':') && !name.ends_with(']') { host } else { name }
        }
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages() -> Pages {
        let plain = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        Pages {
            hosts: plain(&["gw.example", "other.example:8443"]),
            origins: plain(&["https://console.example"]),
            public_url: None,
            has_tls: false,
        }
    }

    fn check(pairs: &[(&'static str, &str)]) -> bool {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        pages().check(&Uri::from_static("/mcp/proxy/x"), &headers).is_ok()
    }

    /// A name that is not the gateway's is never returned: clients would send their keys there.
    #[test]
    fn the_address_has_the_scheme_that_clients_use() {
        let address = |has_tls: bool, host: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, host.parse().unwrap());
            Pages { has_tls, ..pages() }.address(&Uri::from_static("/mcp"), &headers)
        };
        for (has_tls, host, expected) in [
            (false, "localhost:3001", Some("http://localhost:3001")),
            (true, "localhost:3001", Some("https://localhost:3001")),
            (false, "gw.example", Some("https://gw.example")),
            (true, "gw.example", Some("https://gw.example")),
            (true, "evil.test", None),
        ] {
            assert_eq!(address(has_tls, host).as_deref(), expected, "{has_tls} {host}");
        }
    }

    /// GW-17: only the gateway's own names are accepted, not names that contain them.
    #[test]
    fn hosts_must_match_exactly() {
        for host in [
            "localhost",
            "LOCALHOST:3001",
            "127.0.0.1:1",
            "[::1]:3001",
            "gw.example",
            "gw.example:443",
            "other.example:8443",
        ] {
            assert!(check(&[("host", host)]), "{host}");
        }
        for host in [
            "evil.test",
            "127.0.0.1.evil.test",
            "localhost.evil.test",
            "evil.test:3001",
            "x.gw.example",
            "other.example",
            "other.example:1",
            "127.0.0.2",
            "",
            "gw.example@evil.test",
        ] {
            assert!(!check(&[("host", host)]), "{host}");
        }
        assert!(!check(&[]) && !check(&[("host", "localhost"), ("host", "localhost")]));
    }

    /// GW-16: only listed origins are accepted.
    #[test]
    fn origins_must_match_exactly() {
        let from = |origin: &str| check(&[("host", "localhost"), ("origin", origin)]);
        for origin in [
            "http://localhost:6274",
            "http://127.0.0.1",
            "http://[::1]:1",
            "https://console.example",
        ] {
            assert!(from(origin), "{origin}");
        }
        for origin in [
            "null",
            "http://evil.test",
            "https://console.example.evil.test",
            "https://xconsole.example",
            "https://console.example:8443",
            "http://console.example",
            "http://localhost.evil.test",
            "https://localhost",
            "",
        ] {
            assert!(!from(origin), "{origin}");
        }
        assert!(check(&[("host", "localhost")]));
    }
}
