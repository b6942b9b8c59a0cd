//! Request parts that must be unique: a request that two implementations could parse differently is refused.
//!
//! A proxy, a firewall or a log in front of the gateway may use the first of two headers where the gateway uses the
//! last. So every route refuses duplicates before anything else, even with equal values, because an implementation
//! may also join the two.

use axum::extract::Request;
use axum::http::uri::{Authority, Scheme};
use axum::http::{HeaderMap, HeaderValue, Uri, Version, header};
use protocol::ErrorCode;

use crate::error::ApiError;

/// Headers that must not be repeated, because a decision depends on them. `Accept`, `X-Forwarded-For` and other lists
/// may be split over several lines.
const ONCE: [&str; 14] = [
    "authorization",
    "content-length",
    "content-type",
    "host",
    "idempotency-key",
    "last-event-id",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
    "mcp-session-id",
    "origin",
    "transfer-encoding",
    "x-api-key",
    "x-pml-client",
];
/// Prefixes of further such headers: arguments of MCP calls, and secrets for tools.
const ONCE_EACH: [&str; 2] = ["mcp-param-", SECRET];
/// The prefix of headers with a secret.
const SECRET: &str = "x-pml-key-";

/// Checks that a request has no duplicate parts.
///
/// # Errors
/// Returns `INVALID_REQUEST` for a duplicate header, and for a host that is missing, malformed or different from that
/// of the request's target.
pub(super) fn check(request: &Request) -> Result<(), ApiError> {
    let headers = request.headers();
    // Comparing the two counts is enough for most requests: they have no duplicate header at all.
    if headers.len() != headers.keys_len()
        && let Some(name) = duplicate(headers)
    {
        let detail = format!("the request has more than one header `{name}`");
        let refused = ApiError::new(ErrorCode::InvalidRequest, detail);
        // The end of the body is ambiguous, and so is the beginning of the next request on this connection.
        let is_length = matches!(name, "content-length" | "transfer-encoding");
        return Err(match is_length {
            true => refused.with_header(header::CONNECTION, HeaderValue::from_static("close")),
            false => refused,
        });
    }
    if let Some(name) = repeated_secret(headers) {
        let detail = format!("the request has more than one header for the variable of `{name}`");
        return Err(ApiError::new(ErrorCode::InvalidRequest, detail));
    }
    check_host(request.version(), request.uri(), headers)
}

/// Returns a header with a secret for the same variable as another one: in their names, `-` and `_` are the same.
fn repeated_secret(headers: &HeaderMap) -> Option<&str> {
    let mut names = headers.keys().map(|name| name.as_str());
    // Without an underscore, different names are different variables.
    names.find(|name| {
        let other = || headers.keys().map(|name| name.as_str()).filter(|other| other != name);
        let is_same = |other: &str| other.replace('_', "-") == name.replace('_', "-");
        name.starts_with(SECRET) && name.contains('_') && other().any(is_same)
    })
}

/// Returns a header that occurs more than once but must not.
fn duplicate(headers: &HeaderMap) -> Option<&str> {
    headers.keys().map(|name| name.as_str()).find(|name| {
        let must_be_unique =
            ONCE.contains(name) || ONCE_EACH.iter().any(|start| name.starts_with(start));
        must_be_unique && headers.get_all(*name).iter().nth(1).is_some()
    })
}

/// Checks the host: `Host` is present, and equals the host in the target, if there is one.
fn check_host(version: Version, uri: &Uri, headers: &HeaderMap) -> Result<(), ApiError> {
    let refused = |detail: &str| Err(ApiError::new(ErrorCode::InvalidRequest, detail));
    let Some(host) = headers.get(header::HOST) else {
        // HTTP/2 has the host in the target (RFC 9113, 8.3.1). HTTP/1.0 may omit it: some load balancers call `/health`
        // this way.
        let is_named = version == Version::HTTP_2 && uri.authority().is_some();
        return match is_named || version == Version::HTTP_10 {
            true => Ok(()),
            false => refused("the request has no `Host`"),
        };
    };
    let host = std::str::from_utf8(host.as_bytes()).ok();
    let host = host.and_then(|host| host.parse::<Authority>().ok());
    // An authority may have a user name, but `Host` may not (RFC 9110, 7.2).
    let Some(host) = host.filter(|host| !host.as_str().contains('@')) else {
        return refused("`Host` is not a host, with or without a port");
    };
    match uri.authority() {
        Some(target) if !is_same(target, &host, uri.scheme()) => {
            refused("the request's target and its `Host` name different hosts")
        }
        _ => Ok(()),
    }
}

/// Returns whether two authorities are equal, ignoring case and the default port.
fn is_same(target: &Authority, host: &Authority, scheme: Option<&Scheme>) -> bool {
    let default_port = match scheme {
        Some(scheme) if *scheme == Scheme::HTTP => Some(80),
        Some(scheme) if *scheme == Scheme::HTTPS => Some(443),
        _ => None,
    };
    let port = |authority: &Authority| authority.port_u16().or(default_port);
    // `host()` omits a user name, in which another implementation could find a different host.
    let has_user = target.as_str().contains('@');
    !has_user && target.host().eq_ignore_ascii_case(host.host()) && port(target) == port(host)
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn is_accepted(version: Version, target: &str, pairs: &[(&str, &str)]) -> bool {
        let mut request = Request::builder().version(version).uri(target);
        for (name, value) in pairs {
            request = request.header(*name, *value);
        }
        check(&request.body(Body::empty()).unwrap()).is_ok()
    }

    /// NX-14: the target and `Host` must name the same host, up to case and the default port.
    #[test]
    fn target_and_host_must_agree() {
        let host = |host| [("host", host)];
        for (version, target, headers) in [
            (Version::HTTP_11, "/x", &host("gw.example")[..]),
            (Version::HTTP_11, "/x", &host("[::1]:3001")),
            (Version::HTTP_11, "http://gw.example/x", &host("GW.example:80")),
            (Version::HTTP_11, "https://gw.example:443/x", &host("gw.example")),
            (Version::HTTP_2, "https://gw.example/x", &host("gw.example")),
            (Version::HTTP_2, "https://gw.example/x", &[]),
            (Version::HTTP_10, "/health", &[]),
        ] {
            assert!(is_accepted(version, target, headers), "{version:?} {target} {headers:?}");
        }
        for (version, target, headers) in [
            (Version::HTTP_11, "/x", &[][..]),
            (Version::HTTP_11, "http://gw.example/x", &[]),
            (Version::HTTP_2, "/x", &[]),
            (Version::HTTP_11, "http://gw.example/x", &host("other.example")),
            (Version::HTTP_11, "http://gw.example/x", &host("gw.example:8080")),
            (Version::HTTP_11, "http://gw.example:443/x", &host("gw.example")),
            (Version::HTTP_11, "http://a@gw.example/x", &host("gw.example")),
            (Version::HTTP_11, "/x", &host("a@gw.example")),
            (Version::HTTP_11, "/x", &host("gw.example, other.example")),
            (Version::HTTP_11, "/x", &host("gw.example/")),
            (Version::HTTP_11, "/x", &host("")),
            (Version::HTTP_2, "https://gw.example/x", &host("other.example")),
            (Version::HTTP_10, "/x", &[("host", "a"), ("host", "a")]),
        ] {
            assert!(!is_accepted(version, target, headers), "{version:?} {target} {headers:?}");
        }
    }

    /// NX-14: list headers may be repeated, headers that decide something may not.
    #[test]
    fn only_list_headers_may_be_repeated() {
        let twice = |name| {
            let pairs = [("host", "gw.example"), (name, "a"), (name, "a")];
            is_accepted(Version::HTTP_11, "/x", &pairs)
        };
        for list in ["accept", "x-forwarded-for", "x-pml-host-tavily-api-key", "if-none-match"] {
            assert!(twice(list), "{list}");
        }
        for name in ONCE.into_iter().chain(["mcp-param-region", "x-pml-key-tavily-api-key"]) {
            assert!(!twice(name), "{name}");
        }
        for (one, other, is_right) in [
            ("x-pml-key-a-b", "x-pml-key-a_b", false),
            ("x-pml-key-a_b-c", "x-pml-key-a-b_c", false),
            ("x-pml-key-a_b", "x-pml-key-ab", true),
            ("x-pml-key-a_b", "x-pml-host-a-b", true),
            ("x-a-b", "x-a_b", true),
        ] {
            let pairs = [("host", "gw.example"), (one, "a"), (other, "a")];
            assert_eq!(is_accepted(Version::HTTP_11, "/x", &pairs), is_right, "{one} {other}");
        }
    }
}
