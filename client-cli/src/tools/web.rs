//! `web:get`: opens a web address.
//!
//! It connects directly and only to public addresses, or to hosts that the policy lists as private: whoever wrote the
//! URL may have chosen a machine in the user's network. Each redirect is checked like the first address.

use std::error::Error as _;
use std::time::Duration;

use execution::addresses::{GuardedResolver, PrivateAddress, PrivateHosts, Words};
use protocol::{ErrorCode, ToolDescriptor, escape_text};
use reqwest::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, LOCATION};
use reqwest::{Method, Response, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use url::Url;

use super::{NativeError, arguments};
use crate::http_client;
use crate::policy::{Judged, Policy};
use crate::workspace::touched::{Granted, Touched};

const TOOL: &str = "web:get";

/// The maximum length of a URL, in bytes.
const URL_LIMIT: usize = 8 * 1024;

/// The size of the largest answer that is returned, in bytes: by default, and at most.
const DEFAULT_BYTES: u64 = 1024 * 1024;
const BYTES_LIMIT: u64 = 4 * 1024 * 1024;

/// The time limit of a call: by default, and at most.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
const TIMEOUT_LIMIT: Duration = Duration::from_secs(120);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Get {
    url: String,
    #[serde(default)]
    method: Verb,
    max_bytes: Option<u64>,
    timeout_ms: Option<u64>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum Verb {
    #[default]
    Get,
    Head,
}

/// Returns the descriptor of `web:get`.
pub(super) fn descriptor() -> ToolDescriptor {
    let input = json!({
        "type": "object",
        "properties": {
            "url": { "type": "string", "description": "The address, with `https` or `http`." },
            "method": { "enum": ["GET", "HEAD"], "description": "`GET` by default." },
            "max_bytes": { "type": "integer", "minimum": 1, "maximum": BYTES_LIMIT, "description": "The size of the largest answer; 1048576 by default. A larger one is an error." },
            "timeout_ms": { "type": "integer", "minimum": 1, "maximum": 120_000, "description": "30000 by default." },
        },
        "required": ["url"],
        "additionalProperties": false,
    });
    let output = json!({
        "type": "object",
        "properties": {
            "url": { "type": "string", "description": "The address that answered, after redirects." },
            "status": { "type": "integer", "description": "The HTTP status. One of 400 or more is a result, not an error." },
            "ok": { "type": "boolean", "description": "Whether the status is from 200 to 299." },
            "content_type": { "type": ["string", "null"] },
            "text": { "type": "string" },
        },
        "required": ["url", "status", "ok", "content_type", "text"],
    });
    ToolDescriptor {
        name: "get".to_owned(),
        description: "Opens a web address from the user's machine and returns its status and text. Follows redirects. Sends no cookies and no credentials. An answer that is not UTF-8 text is an error.".to_owned(),
        input_schema: input,
        output_schema: Some(output),
        annotations: Some(json!({ "readOnlyHint": true, "openWorldHint": true })),
    }
}

/// Checks that a call can run: its arguments and the policy. Returns what it touches.
pub(super) fn check(value: Value, policy: &Policy) -> Result<Touched, NativeError> {
    let (_, url) = parse(value)?;
    judge(policy, &url)?;
    Ok(Touched { url: Some(url), ..Touched::default() })
}

/// Opens a web address.
pub(super) async fn get(
    value: Value,
    granted: &Granted,
    cancel: &CancellationToken,
) -> Result<Value, NativeError> {
    let (input, url) = parse(value)?;
    let policy = granted.policy().policy();
    if let Judged::Beyond(reason) = judge(policy, &url)?
        && !granted.was_asked()
    {
        // Not reached: the user is asked about such an address.
        return Err(NativeError::new(ErrorCode::PolicyDenied, reason));
    }
    let lower = |limit: Duration, ms: Option<u64>| {
        ms.map_or(limit, |ms| limit.min(Duration::from_millis(ms)))
    };
    let asked =
        lower(TIMEOUT_LIMIT, Some(input.timeout_ms.unwrap_or(DEFAULT_TIMEOUT.as_millis() as u64)));
    let limit = lower(asked, policy.web_ms());
    tokio::select! {
        () = cancel.cancelled() => Err(NativeError::new(ErrorCode::Cancelled, format!("`{TOOL}` was cancelled"))),
        done = tokio::time::timeout(limit, open(&input, url, granted)) => done.unwrap_or_else(|_| {
            let message = format!("`{}` did not answer in full within {} ms", escape_text(&input.url), limit.as_millis());
            Err(NativeError::new(ErrorCode::ToolTimeout, message))
        }),
    }
}

/// Requests an address, follows its redirects, and reads the answer.
async fn open(input: &Get, mut url: Url, granted: &Granted) -> Result<Value, NativeError> {
    let policy = granted.policy().policy();
    let approved = granted.was_asked().then(|| url.clone());
    let method = match input.method {
        Verb::Get => Method::GET,
        Verb::Head => Method::HEAD,
    };
    let redirects = policy.web_redirects();
    let mut followed = 0;
    let answer = loop {
        // A client for each request: what another run or address may connect to must not be used here.
        let resolver = GuardedResolver::new(private_hosts(policy, &url)?);
        let client = http_client::for_web(resolver).build();
        let client = client.map_err(|error| failed(&url, &error.to_string()))?;
        // Compressed content can be a thousand times larger than what is sent.
        let request =
            client.request(method.clone(), url.clone()).header(ACCEPT_ENCODING, "identity");
        let answer = request.send().await.map_err(|error| not_sent(&url, &error))?;
        let Some(location) = redirect(answer.status(), answer.headers()) else { break answer };
        if followed == redirects {
            return Err(failed(
                &url,
                &format!("it redirects, and {redirects} redirects were followed already"),
            ));
        }
        followed += 1;
        let next = hop(&url, location)?;
        allow_hop(policy, approved.as_ref(), &next)?;
        url = next;
    };
    let most = input.max_bytes.unwrap_or(DEFAULT_BYTES).min(BYTES_LIMIT);
    let most = policy.web_bytes().map_or(most, |bytes| bytes.min(most));
    read(answer, &url, most).await
}

/// Parses the arguments and the address.
fn parse(value: Value) -> Result<(Get, Url), NativeError> {
    let input: Get = arguments(TOOL, value)?;
    if input.timeout_ms == Some(0) {
        return Err(invalid("`timeout_ms` must be at least 1"));
    }
    if input.max_bytes == Some(0) {
        return Err(invalid("`max_bytes` must be at least 1"));
    }
    if input.url.len() > URL_LIMIT {
        return Err(invalid(&format!("`url` is longer than {URL_LIMIT} bytes")));
    }
    let parsed =
        Url::parse(&input.url).map_err(|error| invalid(&format!("`url` is not a URL: {error}")))?;
    let url = usable(parsed).map_err(|why| invalid(&format!("`url` {why}")))?;
    Ok((input, url))
}

/// Returns a URL as it is requested, or why it cannot be.
fn usable(mut url: Url) -> Result<Url, String> {
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!(
            "has the scheme `{}`; only `https` and `http` are supported",
            escape_text(url.scheme())
        ));
    }
    // It would be in the record, and perhaps in a question.
    if !url.username().is_empty() || url.password().is_some() {
        return Err("contains a user name or a password".to_owned());
    }
    url.set_fragment(None);
    Ok(url)
}

/// Applies the policy to an address, as far as possible without a look-up.
fn judge(policy: &Policy, url: &Url) -> Result<Judged, NativeError> {
    let judged = policy.url(url);
    if let Judged::Denied(reason) = judged {
        let message = format!("the policy does not allow `{}`: {reason}", shown(url));
        return Err(NativeError::new(ErrorCode::PolicyDenied, message));
    }
    private_hosts(policy, url)?
        .check(url.as_str())
        .map_err(|why| NativeError::new(ErrorCode::PolicyDenied, why))?;
    Ok(judged)
}

/// Returns the host of an address if it may be private, else none: the port counts as well.
fn private_hosts(policy: &Policy, url: &Url) -> Result<PrivateHosts, NativeError> {
    let host = url.host_str().filter(|_| policy.allows_private(url));
    let hosts: Vec<String> = host.map(str::to_owned).into_iter().collect();
    let remedy = format!("list the host in {}", policy.private_list(url)).into();
    PrivateHosts::new(&hosts, Words { who: "`pml`", remedy })
        .map_err(|why| NativeError::new(ErrorCode::PolicyDenied, format!("`web.private`: {why}")))
}

/// Returns where an answer redirects to.
fn redirect(status: StatusCode, headers: &HeaderMap) -> Option<&[u8]> {
    match status.as_u16() {
        301 | 302 | 303 | 307 | 308 => headers.get(LOCATION).map(|location| location.as_bytes()),
        _ => None,
    }
}

/// Returns the address that a redirect leads to.
fn hop(from: &Url, location: &[u8]) -> Result<Url, NativeError> {
    let text = String::from_utf8_lossy(location);
    let wrong =
        |why: &str| failed(from, &format!("it redirects to `{}`, which {why}", escape_text(&text)));
    if location.len() > URL_LIMIT {
        return Err(failed(from, &format!("it redirects to a URL of more than {URL_LIMIT} bytes")));
    }
    let next = from.join(&text).map_err(|_| wrong("is not a URL"))?;
    let next = usable(next).map_err(|why| wrong(&why))?;
    // What was requested in secret would be requested in clear text.
    if from.scheme() == "https" && next.scheme() == "http" {
        return Err(wrong("is not encrypted"));
    }
    Ok(next)
}

/// Allows a redirect to the host that the user approved, and to those that the policy allows.
fn allow_hop(policy: &Policy, approved: Option<&Url>, next: &Url) -> Result<(), NativeError> {
    let is_same =
        |approved: &Url| approved.host() == next.host() && (approved.port() == next.port());
    match judge(policy, next)? {
        Judged::Within => Ok(()),
        _ if approved.is_some_and(is_same) => Ok(()),
        _ => {
            let message = format!(
                "the address redirects to `{}`, which was not approved; call it directly",
                shown(next)
            );
            Err(NativeError::new(ErrorCode::PolicyDenied, message))
        }
    }
}

/// Reads an answer of at most this many bytes.
async fn read(mut answer: Response, url: &Url, most: u64) -> Result<Value, NativeError> {
    let too_large = || failed(url, &format!("the answer has more than {most} bytes"));
    let header =
        |name| answer.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let (content_type, encoding) = (header(CONTENT_TYPE), header(CONTENT_ENCODING));
    if let Some(encoding) = encoding.filter(|encoding| !encoding.eq_ignore_ascii_case("identity")) {
        return Err(failed(
            url,
            &format!(
                "the answer is compressed (`{}`), which was not requested",
                escape_text(&encoding)
            ),
        ));
    }
    if answer.content_length().is_some_and(|length| length > most) {
        return Err(too_large());
    }
    let mut body = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(|error| failed(url, &reason(&error)))? {
        if (body.len() + chunk.len()) as u64 > most {
            return Err(too_large());
        }
        body.extend_from_slice(&chunk);
    }
    let text = String::from_utf8(body).map_err(|_| {
        let kind = content_type.as_deref().unwrap_or("unknown");
        failed(url, &format!("the answer is not UTF-8 text (content type `{}`)", escape_text(kind)))
    })?;
    let status = answer.status();
    let result = json!({
        "url": url.as_str(),
        "status": status.as_u16(),
        "ok": status.is_success(),
        "content_type": content_type,
        "text": text,
    });
    Ok(json!({
        "content": [{ "type": "text", "text": result.to_string() }],
        "structuredContent": result,
    }))
}

/// Returns the error for a request without an answer.
fn not_sent(url: &Url, error: &reqwest::Error) -> NativeError {
    let mut cause = error.source();
    while let Some(inner) = cause {
        if let Some(refused) = inner.downcast_ref::<PrivateAddress>() {
            return NativeError::new(ErrorCode::PolicyDenied, refused.to_string());
        }
        cause = inner.source();
    }
    failed(url, &reason(error))
}

/// Returns the innermost reason of an error; the outer ones say only that the request failed.
fn reason(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    escape_text(&cause.to_string())
}

fn failed(url: &Url, why: &str) -> NativeError {
    NativeError::new(ErrorCode::ToolFailed, format!("cannot get `{}`: {why}", shown(url)))
}

fn invalid(reason: &str) -> NativeError {
    NativeError::new(
        ErrorCode::InvalidArguments,
        format!("invalid arguments for `{TOOL}`: {reason}"),
    )
}

/// Returns an address for messages: its beginning, if it is long.
fn shown(url: &Url) -> String {
    let text = escape_text(url.as_str());
    match text.char_indices().nth(200) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    /// NP-05: a redirect keeps to `http` and `https`, is never downgraded, and has no credential.
    #[test]
    fn redirects_lead_only_to_usable_addresses() {
        for (from, location, to) in [
            ("https://a.test/x/y", "/z", Some("https://a.test/z")),
            ("https://a.test/x/y", "z", Some("https://a.test/x/z")),
            ("https://a.test/x", "//b.test/z#part", Some("https://b.test/z")),
            ("http://a.test/", "https://a.test/", Some("https://a.test/")),
            ("https://a.test/", "http://a.test/", None),
            ("https://a.test/", "file:///etc/passwd", None),
            ("https://a.test/", "gopher://b.test/", None),
            ("https://a.test/", "data:text/plain,x", None),
            ("https://a.test/", "javascript:1", None),
            ("https://a.test/", "https://user@b.test/", None),
            ("https://a.test/", "https://user:key@b.test/", None),
            ("https://a.test/", "https://", None),
            ("https://a.test/", "https://[", None),
        ] {
            let found = hop(&url(from), location.as_bytes());
            assert_eq!(found.as_ref().ok().map(Url::as_str), to, "{from} {location}");
        }
        hop(&url("https://a.test/"), &[b'x'; URL_LIMIT + 1]).unwrap_err();
    }

    /// NP-05: an approval covers the host that was shown.
    #[test]
    fn a_redirect_from_an_approved_address_stays_at_its_host() {
        let policy = Policy::default();
        let approved = url("https://a.test/x");
        for (next, is_allowed) in [
            ("https://a.test/y", true),
            ("https://b.test/y", false),
            ("https://a.test:8443/y", false),
            ("https://sub.a.test/", false),
            ("http://127.0.0.1/", false),
            ("http://169.254.169.254/", false),
        ] {
            let allowed = allow_hop(&policy, Some(&approved), &url(next));
            assert_eq!(allowed.is_ok(), is_allowed, "{next}");
            allow_hop(&policy, None, &url(next)).unwrap_err();
        }
    }
}
