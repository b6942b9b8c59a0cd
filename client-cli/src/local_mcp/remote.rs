//! An HTTP MCP server in `.pml.json`, which is called from this machine with the user's own headers.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use execution::mcp_process::{
    Diagnosis, LINE_LIMIT, Notices, Refusals, Session, StartFailure, client_config,
};
use execution::mcp_version;
use protocol::redaction::keys_in_use;
use reqwest::header::{HeaderName, HeaderValue};
use rmcp::service::{ClientInitializeError, ClientServiceExt as _};
use rmcp::transport::DynamicTransportError;
use rmcp::transport::streamable_http_client::{
    StreamableHttpClientTransportConfig, StreamableHttpError,
};
use serde_json::Value;
use tokio::sync::watch;
use url::Url;

use super::LocalMcpError;
use crate::http_client::{self, Credential};
use crate::processes::environment::{Environment, EnvironmentError};

/// The minimum length of a literal header value that is redacted: a shorter one also occurs in ordinary results.
const LITERAL_MIN: usize = 8;

/// The minimum length of a variable's value that is redacted. It is surely secret, so the limit is lower.
const SECRET_MIN: usize = 4;

/// The maximum number of concurrent calls. It exceeds the limit for one program, so that slow calls of one run do not
/// delay other runs.
const CALLS_LIMIT: usize = 256;

/// Headers that HTTP or the MCP transport sets.
const RESERVED: &[&str] = &[
    "accept",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "host",
    "last-event-id",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// The address of a server, and the headers of every request to it.
#[derive(Clone, PartialEq, Eq)]
pub struct Remote {
    /// Its address.
    pub(crate) url: Url,
    /// Headers; `${NAME}` in a value expands to the user's variable.
    pub(crate) headers: BTreeMap<String, String>,
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Their values may be secret.
        let names: Vec<&String> = self.headers.keys().collect();
        f.debug_struct("Remote").field("url", &self.url.as_str()).field("headers", &names).finish()
    }
}

impl fmt::Display for Remote {
    /// Describes its address and headers, without anything that may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.origin(), self.url.path())?;
        if self.url.query().is_some() {
            f.write_str("?…")?;
        }
        if !self.headers.is_empty() {
            let names: Vec<&str> = self.headers.keys().map(String::as_str).collect();
            write!(f, ", with the headers {}", names.join(", "))?;
        }
        Ok(())
    }
}

impl Remote {
    /// Creates a server from an entry of `.pml.json`.
    ///
    /// # Errors
    /// Returns the problem; the message never contains the value of a header.
    pub(crate) fn new(url: &str, headers: BTreeMap<String, String>) -> Result<Self, String> {
        // The user trusts the file, so the file must show where calls go.
        if url.contains("${") {
            return Err(
                "its `url` contains a variable; `${NAME}` is only supported in headers".to_owned()
            );
        }
        let url = Url::parse(url).map_err(|error| format!("its `url` is not a URL: {error}"))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err("its `url` contains a user name or password; use `headers`".to_owned());
        }
        let remote = Self { url, headers };
        match remote.url.scheme() {
            "https" => {}
            "http" if remote.headers.is_empty() || remote.is_loopback() => {}
            "http" => {
                return Err(
                    "its `url` is not encrypted: `headers` are sent only over `https` or to this machine"
                        .to_owned(),
                );
            }
            _ => return Err("its `url` is neither `https` nor `http`".to_owned()),
        }
        for name in remote.headers.keys() {
            let shown = name.escape_debug();
            let lower = name.to_ascii_lowercase();
            if HeaderName::try_from(name.as_str()).is_err() {
                return Err(format!("`{shown}` is not a valid header name"));
            }
            if RESERVED.contains(&lower.as_str()) || lower.starts_with("mcp-") {
                return Err(format!("the header `{shown}` is set by `pml` itself; remove it"));
            }
        }
        Ok(remote)
    }

    /// Returns the scheme, host and port, for display.
    pub(crate) fn origin(&self) -> String {
        self.url.origin().ascii_serialization()
    }

    /// Returns whether the server is on this machine.
    pub(crate) fn is_loopback(&self) -> bool {
        http_client::is_this_machine(&self.url)
    }

    /// Expands the variables in the headers, and collects the secrets in them.
    pub(super) fn prepare(&self, environment: &Environment) -> Result<Prepared, EnvironmentError> {
        let mut headers = HashMap::new();
        let mut secrets = Vec::new();
        for (name, text) in &self.headers {
            let (value, used) = environment.expand(text)?;
            let malformed = || EnvironmentError::Header { name: name.clone() };
            let header = HeaderName::try_from(name.as_str()).map_err(|_| malformed())?;
            let mut sent = HeaderValue::try_from(value.as_str()).map_err(|_| malformed())?;
            // The debug output of the HTTP library then hides the value.
            sent.set_sensitive(true);
            headers.insert(header, sent);
            secrets.extend(used);
            // In `Bearer x` and `Basic x`, the scheme is not secret.
            let credential = value.rsplit(' ').next().unwrap_or_default().to_owned();
            secrets.extend([value, credential].into_iter().filter(|v| v.len() >= LITERAL_MIN));
        }
        // A key in the query of the URL is redacted like one in a header.
        secrets.extend(self.url.query().map(str::to_owned));
        let pairs = self.url.query_pairs().map(|(_, value)| value.into_owned());
        secrets.extend(pairs.filter(|value| value.len() >= LITERAL_MIN));
        secrets.retain(|secret| secret.len() >= SECRET_MIN);
        Ok(Prepared { remote: self.clone(), headers, redactor: Redactor::new(secrets) })
    }
}

/// A server with expanded headers.
pub(super) struct Prepared {
    remote: Remote,
    headers: HashMap<HeaderName, HeaderValue>,
    pub(super) redactor: Redactor,
}

/// Connects to a server and completes the MCP handshake.
pub(super) async fn connect(prepared: &Prepared, limit: Duration) -> Result<Session, StartFailure> {
    let failure = |reason: String| StartFailure {
        reason: prepared.redactor.text(&reason),
        stderr: String::new(),
        refused: None,
    };
    let remote = &prepared.remote;
    let credential = if prepared.headers.is_empty() { Credential::None } else { Credential::Sent };
    // Without a time limit for requests: `limit` covers the handshake, and the clock of the run
    // covers calls.
    let client = http_client::builder(&remote.url, credential)
        .map_err(|error| failure(error.to_string()))?
        .build()
        .map_err(|error| failure(error.to_string()))?;
    let mut config = StreamableHttpClientTransportConfig::with_uri(remote.url.to_string());
    config.custom_headers.clone_from(&prepared.headers);
    config.max_sse_event_size = LINE_LIMIT;
    config.max_concurrent_requests = CALLS_LIMIT;
    let transport = http_client::mcp_transport(client, config);
    let hello = client_config().serve_with_lifecycle(transport, mcp_version::lifecycle());
    let origin = remote.origin();
    match tokio::time::timeout(limit, hello).await {
        Ok(Ok(service)) => {
            // There is no process whose end could be reported.
            let (_, ended) = watch::channel(None);
            Ok(Session {
                service,
                ended,
                diagnosis: Diagnosis::default(),
                group: None,
                refusals: Refusals::default(),
                notices: Notices::default(),
                held: None,
                kept: None,
            })
        }
        Ok(Err(error)) => Err(failure(format!("{origin} {}", start_reason(&error)))),
        Err(_) => Err(failure(format!("{origin} did not answer within {} s", limit.as_secs()))),
    }
}

/// Returns why a connection failed, with a bounded length.
fn start_reason(error: &ClientInitializeError) -> String {
    match error {
        ClientInitializeError::TransportError { error, .. } => reason(error),
        other => format!("did not answer with MCP: {}", bounded(&other.to_string())),
    }
}

/// Returns why a server cannot be reached, with a bounded length and without its URL, which may contain a secret.
pub(super) fn reason(error: &DynamicTransportError) -> String {
    let detail = match error.error.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
        Some(StreamableHttpError::Client(error)) => match error.status() {
            Some(status) => return format!("answers with HTTP status {status}"),
            None => {
                // The HTTP library's own message contains the URL; the innermost error does not.
                let mut innermost: &dyn std::error::Error = error;
                while let Some(source) = innermost.source() {
                    innermost = source;
                }
                innermost.to_string()
            }
        },
        Some(other) => other.to_string(),
        None => error.error.to_string(),
    };
    format!("cannot be reached, or did not answer with MCP: {}", bounded(&detail))
}

fn bounded(text: &str) -> String {
    protocol::escape_text(text).chars().take(500).collect()
}

/// Removes the values of headers from the answers of a server.
#[derive(Clone, Default)]
pub(super) struct Redactor(Vec<String>);

impl Redactor {
    fn new(secrets: Vec<String>) -> Self {
        // Also redacted in logs, because libraries may log requests.
        secrets.iter().for_each(|secret| keys_in_use().keep(secret));
        let mut forms: Vec<String> = secrets
            .into_iter()
            .flat_map(|secret| {
                // Debug pages show a header as it is or in Base64.
                let encoded = STANDARD_NO_PAD.encode(&secret);
                // Without padding, so that padded text matches as well.
                [secret, encoded]
            })
            .collect();
        // The longest first: a short secret may be part of a longer one.
        forms.sort_by_key(|form| std::cmp::Reverse(form.len()));
        forms.dedup();
        Self(forms)
    }

    /// Redacts a text.
    pub(super) fn text(&self, text: &str) -> String {
        let clean = |text: String, form: &String| text.replace(form.as_str(), "[redacted]");
        self.0.iter().fold(text.to_owned(), clean)
    }

    /// Redacts the strings, keys and numbers of a value.
    pub(super) fn value(&self, value: &mut Value) {
        if self.0.is_empty() {
            return;
        }
        match value {
            Value::String(text) => *text = self.text(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.value(item)),
            Value::Object(members) => {
                *members = std::mem::take(members)
                    .into_iter()
                    .map(|(name, mut member)| {
                        self.value(&mut member);
                        (self.text(&name), member)
                    })
                    .collect();
            }
            Value::Number(number) => {
                // A secret that consists of digits may come back as a number.
                let text = number.to_string();
                if self.0.contains(&text) {
                    *value = Value::from("[redacted]");
                }
            }
            Value::Null | Value::Bool(_) => {}
        }
    }

    /// Redacts the texts of an error.
    pub(super) fn error(&self, error: LocalMcpError) -> LocalMcpError {
        use LocalMcpError as E;
        match error {
            E::Start { server, reason, stderr } => {
                E::Start { server, reason: self.text(&reason), stderr: self.text(&stderr) }
            }
            E::Died { server, reason, stderr } => {
                E::Died { server, reason: self.text(&reason), stderr: self.text(&stderr) }
            }
            E::BackingOff { server, failures, wait_s, last } => {
                E::BackingOff { server, failures, wait_s, last: self.text(&last) }
            }
            E::Refused { server, code, message } => {
                E::Refused { server, code, message: self.text(&message) }
            }
            E::Answer { server, reason } => E::Answer { server, reason: self.text(&reason) },
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn headers(name: &str, value: &str) -> BTreeMap<String, String> {
        BTreeMap::from([(name.to_owned(), value.to_owned())])
    }

    #[test]
    fn headers_are_sent_encrypted_or_locally_only() {
        let token = || headers("Authorization", "Bearer ${TOKEN}");
        for url in
            ["https://x.test/mcp", "http://127.0.0.1:1/mcp", "http://[::1]/", "http://localhost:9/"]
        {
            Remote::new(url, token()).unwrap();
        }
        Remote::new("http://x.test/mcp", BTreeMap::new()).unwrap();
        for url in [
            "http://x.test/",
            "http://localhost.x.test/",
            "ftp://x.test/",
            "https://a:b@x.test/",
            "x.test",
            "https://${HOST}/",
        ] {
            Remote::new(url, token()).unwrap_err();
        }
        for name in ["Host", "Mcp-Session-Id", "content-length", "a b", ""] {
            Remote::new("https://x.test/", headers(name, "v")).unwrap_err();
        }
    }

    #[test]
    fn values_of_headers_are_redacted_in_answers() {
        let environment = Environment::of([("TOKEN".to_owned(), "s3cr3t-canary".to_owned())]);
        let remote =
            Remote::new("https://x.test/", headers("Authorization", "Bearer ${TOKEN}")).unwrap();
        assert!(!format!("{remote:?}").contains("TOKEN"));
        let prepared = remote.prepare(&environment).unwrap();
        let mut value = json!({ "a s3cr3t-canary": ["Bearer s3cr3t-canary", STANDARD_NO_PAD.encode("s3cr3t-canary")], "n": 7 });
        prepared.redactor.value(&mut value);
        assert_eq!(value, json!({ "a [redacted]": ["[redacted]", "[redacted]"], "n": 7 }));
        let missing = remote.prepare(&Environment::default()).err();
        assert_eq!(missing, Some(EnvironmentError::Missing { name: "TOKEN".to_owned() }));
        let broken = Environment::of([("TOKEN".to_owned(), "a\nb".to_owned())]);
        let broken = remote.prepare(&broken).err();
        assert_eq!(broken, Some(EnvironmentError::Header { name: "Authorization".to_owned() }));
    }
}
