//! A plain HTTP client, and MCP over HTTP without an SDK.

use std::sync::OnceLock;
use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::mcp_client::{Era, envelope, with_all_details};
use super::server::Tenant;

/// Runs a future to its end; the tests themselves are not async.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    let runtime = RUNTIME.get_or_init(|| {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime starts")
    });
    runtime.block_on(future)
}

fn client() -> reqwest::Client {
    static CLIENT: OnceLock<reqwest::Client> = OnceLock::new();
    let client = CLIENT.get_or_init(|| {
        // The client requires a TLS provider although most tests use plain HTTP.
        let _ = rustls::crypto::ring::default_provider().install_default();
        #[expect(clippy::disallowed_methods, reason = "the tests must not use a proxy either")]
        reqwest::Client::builder()
            .no_proxy()
            // Whether a certificate is accepted is tested with `curl` and `pml`.
            .tls_danger_accept_invalid_certs(true)
            .redirect(reqwest::redirect::Policy::none())
            .timeout(Duration::from_secs(90))
            .build()
            .expect("a client can be made")
    });
    client.clone()
}

/// A complete HTTP response.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    /// The status.
    pub(crate) status: u16,
    /// The headers.
    pub(crate) headers: HeaderMap,
    /// The body.
    pub(crate) body: Vec<u8>,
}

impl Reply {
    /// Returns a header, or an empty string.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// Returns the body as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| {
            panic!("{} {error}: `{}`", self.status, String::from_utf8_lossy(&self.body))
        })
    }
}

/// Sends a request.
#[track_caller]
pub(crate) fn send(
    method: &str,
    url: &str,
    headers: &[(&str, &str)],
    body: Option<Vec<u8>>,
) -> Reply {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(
            HeaderName::from_bytes(name.as_bytes()).expect("a header name"),
            HeaderValue::from_str(value).expect("a header value"),
        );
    }
    block_on(async {
        let method = method.parse().expect("a method");
        let mut request = client().request(method, url).headers(map);
        if let Some(body) = body {
            request = request.body(body);
        }
        let response = request.send().await.unwrap_or_else(|error| panic!("{url}: {error:?}"));
        Reply {
            status: response.status().as_u16(),
            headers: response.headers().clone(),
            body: response.bytes().await.expect("the whole body arrives").to_vec(),
        }
    })
}

/// Sends a GET.
#[track_caller]
pub(crate) fn get(url: &str, headers: &[(&str, &str)]) -> Reply {
    send("GET", url, headers, None)
}

/// An MCP client on `POST /mcp`.
pub(crate) struct HttpMcp {
    url: String,
    key: String,
    era: Era,
    package: bool,
    secret: Option<(String, String)>,
}

impl HttpMcp {
    /// Prepares a plain client of a tenant: a web app, or a script.
    pub(crate) fn new(tenant: &Tenant, era: Era) -> Self {
        let url = format!("{}/mcp", tenant.url);
        Self { url, key: tenant.key.clone(), era, package: false, secret: None }
    }

    /// Marks the client as one that can run programs itself, like `pml`.
    pub(crate) fn with_package(mut self) -> Self {
        self.package = true;
        self
    }

    /// Sends a secret with each request, in a header of this name.
    pub(crate) fn with_secret(mut self, header: &str, value: &str) -> Self {
        self.secret = Some((header.to_owned(), value.to_owned()));
        self
    }

    /// Posts a body with the headers of its method and name.
    #[track_caller]
    pub(crate) fn post(&self, body: &[u8], method: &str, name: Option<&str>) -> Reply {
        let authorization = format!("Bearer {}", self.key);
        let mut headers = vec![
            ("authorization", authorization.as_str()),
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
            ("mcp-protocol-version", self.era.version()),
        ];
        if self.era == Era::Stateless {
            headers.push(("mcp-method", method));
            headers.extend(name.map(|name| ("mcp-name", name)));
        }
        if self.package {
            headers.push(("x-pml-client", "package"));
        }
        headers.extend(self.secret.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        send("POST", &self.url, &headers, Some(body.to_owned()))
    }

    /// Sends a request and returns the JSON-RPC answer.
    #[track_caller]
    pub(crate) fn request(&self, method: &str, params: Value) -> Value {
        let name = params["name"].as_str().map(str::to_owned);
        let body = self.era.request(1, method, params).to_string();
        self.post(body.as_bytes(), method, name.as_deref()).json()
    }

    /// Calls a tool and returns its MCP result.
    #[track_caller]
    pub(crate) fn call(&self, name: &str, arguments: Value) -> Value {
        let answer = self.request("tools/call", json!({ "name": name, "arguments": arguments }));
        answer.get("result").cloned().unwrap_or_else(|| panic!("`{name}`: {answer}"))
    }

    /// Runs a program and returns its envelope.
    #[track_caller]
    pub(crate) fn execute(&self, code: &str) -> Value {
        self.execute_request(json!({ "code": code }))
    }

    /// Runs `pml_execute` with these arguments and returns its whole envelope.
    #[track_caller]
    pub(crate) fn execute_request(&self, arguments: Value) -> Value {
        envelope(&self.call("pml_execute", with_all_details(arguments)))
    }
}
