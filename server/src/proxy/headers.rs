//! The headers of a proxied message: checks them against the body, and forwards only listed ones.

use axum::http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use data_encoding::BASE64;
use execution::mcp_version;
use execution::trace_context::TraceContext;

use super::message::Message;
use crate::config::Secret;

/// The header of a session: to the client with our handle, to the server with its own id.
pub(super) const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");
/// The prefix of headers with a tool's arguments.
const PARAMS: &str = "mcp-param-";
/// The prefix and suffix of a value that MCP encodes because it is not a valid header value.
const ENCODED: (&str, &str) = ("=?base64?", "?=");

/// Returns the protocol version of a request: that of its body, else that of its header.
pub(super) fn version<'a>(headers: &'a HeaderMap, message: &'a Message) -> Option<&'a str> {
    let header = || headers.get(VERSION).and_then(|value| value.to_str().ok());
    message.version.as_deref().or_else(header)
}

/// Checks that the headers agree with the body: permission rules look only at the body, but a server may use the
/// headers.
///
/// # Errors
/// Returns which header is missing, duplicated or different.
pub(super) fn check(headers: &HeaderMap, message: &Message) -> Result<(), String> {
    let version = single(headers, &VERSION)?;
    if let (Some(header), Some(body)) = (version, message.version.as_deref())
        && header != body
    {
        return Err("`MCP-Protocol-Version` differs from the version in the body".to_owned());
    }
    // Stateless versions require the headers; with earlier versions, they are optional.
    let needed = self::version(headers, message).is_some_and(mcp_version::is_stateless);
    if needed && version.is_none() {
        return Err("`MCP-Protocol-Version` is missing".to_owned());
    }
    match single(headers, &METHOD)? {
        Some(method) if method != message.method => {
            return Err("`Mcp-Method` differs from the method in the body".to_owned());
        }
        // A response has no method, so it needs no header either.
        None if needed && !message.method.is_empty() => {
            return Err("`Mcp-Method` is missing".to_owned());
        }
        _ => {}
    }
    match (single(headers, &NAME)?.map(decoded), message.subject()) {
        (Some(None), _) => Err("`Mcp-Name` is not encoded as MCP requires".to_owned()),
        (Some(Some(name)), Some(subject)) if name != subject => {
            Err("`Mcp-Name` differs from the name in the body".to_owned())
        }
        (Some(Some(_)), None) if !message.method.is_empty() => {
            Err("`Mcp-Name` is set, but the body has no name".to_owned())
        }
        (None, Some(_)) if needed => Err("`Mcp-Name` is missing".to_owned()),
        _ => Ok(()),
    }
}

/// Returns a header that must be unique.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, String> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    match (value.to_str(), values.next()) {
        (Ok(text), None) => Ok(Some(text.trim())),
        _ => Err(format!("`{name}` is duplicated, or is not text")),
    }
}

/// Decodes a header value; `None` if its encoding is invalid.
fn decoded(value: &str) -> Option<String> {
    let encoded = value.strip_prefix(ENCODED.0).and_then(|value| value.strip_suffix(ENCODED.1));
    match encoded {
        Some(encoded) => String::from_utf8(BASE64.decode(encoded.as_bytes()).ok()?).ok(),
        None => Some(value.to_owned()),
    }
}

/// Returns the headers for the server. They never contain the caller's credential for the gateway.
pub(super) fn onward(
    headers: &HeaderMap,
    session: Option<&str>,
    key: Option<&Secret>,
) -> HeaderMap {
    const LISTED: [HeaderName; 6] = [ACCEPT, CONTENT_TYPE, VERSION, METHOD, NAME, LAST_EVENT];
    let mut out = HeaderMap::with_capacity(8);
    // The names of parameters depend on the tool, so they cannot be listed.
    let is_forwarded =
        |name: &HeaderName| LISTED.contains(name) || name.as_str().starts_with(PARAMS);
    // A list such as that of `Accept` may be split over several lines (RFC 9110, 5.3).
    for (name, value) in headers.iter().filter(|(name, _)| is_forwarded(name)) {
        out.append(name, value.clone());
    }
    // In its canonical form, and only if it is valid.
    if let Some(context) = TraceContext::of_headers(headers) {
        context.add_to_headers(&mut out);
    }
    if let Some(session) = session.and_then(|session| HeaderValue::from_str(session).ok()) {
        out.insert(SESSION, session);
    }
    let bearer = key.map(|key| zeroize::Zeroizing::new(format!("Bearer {}", key.expose())));
    // Never omitted: `upstreams::secrets::find` has refused values that a header cannot contain.
    if let Some(mut bearer) = bearer.and_then(|bearer| HeaderValue::from_str(&bearer).ok()) {
        // Keeps the value out of debug output, for example in the log of the HTTP client.
        bearer.set_sensitive(true);
        out.insert(AUTHORIZATION, bearer);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    fn call(version: &str) -> Message {
        let meta = match version {
            "" => String::new(),
            version => {
                format!(r#","_meta":{{"io.modelcontextprotocol/protocolVersion":"{version}"}}"#)
            }
        };
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"föö"{meta}}}}}"#
        );
        Message::parse(body.as_bytes()).unwrap()
    }

    /// GW-14: missing, duplicate and contradicting headers are refused.
    #[test]
    fn headers_must_agree_with_the_body() {
        const V: (&str, &str) = ("mcp-protocol-version", "2026-07-28");
        const M: (&str, &str) = ("mcp-method", "tools/call");
        const N: (&str, &str) = ("mcp-name", "=?base64?ZsO2w7Y=?=");
        check(&headers(&[V, M, N]), &call("2026-07-28")).unwrap();
        for wrong in [
            &[V, M][..],
            &[V, N],
            &[M, N],
            &[],
            &[V, V, M, N],
            &[V, M, M, N],
            &[V, M, N, N],
            &[("mcp-protocol-version", "2025-11-25"), M, N],
            &[V, ("mcp-method", "tools/list"), N],
            &[V, ("mcp-method", "Tools/Call"), N],
            &[V, M, ("mcp-name", "foo")],
            &[V, M, ("mcp-name", "=?base64?!!?=")],
        ] {
            check(&headers(wrong), &call("2026-07-28")).expect_err(&format!("{wrong:?}"));
        }
        // Earlier versions do not require these headers, but they must not contradict the body either.
        const OLD: (&str, &str) = ("mcp-protocol-version", "2025-11-25");
        for right in [&[][..], &[OLD], &[OLD, M, N]] {
            check(&headers(right), &call("")).unwrap();
        }
        for wrong in
            [&[OLD, ("mcp-method", "ping")][..], &[OLD, ("mcp-name", "bar")], &[OLD, OLD], &[V]]
        {
            check(&headers(wrong), &call("")).expect_err(&format!("{wrong:?}"));
        }
    }

    /// GW-08: only listed headers are forwarded.
    #[test]
    fn only_listed_headers_are_forwarded() {
        let sent = headers(&[
            ("authorization", "Bearer pml_key_canary"),
            ("x-api-key", "pml_key_canary"),
            ("x-pml-key-other", "canary"),
            ("cookie", "canary"),
            ("x-forwarded-for", "10.0.0.1"),
            ("mcp-session-id", "canary"),
            ("mcp-param-region", "eu"),
            ("last-event-id", "7"),
            ("accept", "application/json"),
            ("accept", "text/event-stream"),
        ]);
        let bare = onward(&sent, None, None);
        assert!(!format!("{bare:?}").contains("canary") && bare.len() == 4, "{bare:?}");
        let accepted: Vec<_> = bare.get_all(ACCEPT).iter().collect();
        assert_eq!(accepted, ["application/json", "text/event-stream"]);
        let whole = onward(&sent, Some("theirs"), Some(&Secret::new("key")));
        assert_eq!(
            (&whole[SESSION], &whole[AUTHORIZATION]),
            (&HeaderValue::from_static("theirs"), &HeaderValue::from_static("Bearer key"))
        );
        assert!(!format!("{whole:?}").contains("Bearer"), "{whole:?}");
    }
}
