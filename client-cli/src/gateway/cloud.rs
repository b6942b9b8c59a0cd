//! A client for the gateway: one HTTP request per call, without a session.

mod answer;
mod api;
mod credential;
mod executions;
mod secrets;

use std::sync::Arc;
use std::time::Duration;

use execution::mcp_version;
use execution::spans::{self, Side, Span, Transport};
use execution::trace_context::TraceContext;
use protocol::meta_tools::RUN_META;
use protocol::{
    Envelope, ErrorBody, ErrorCode, ExecuteRequest, Integrity, RegistryEntry, ToolId, meta_tools,
};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

pub(crate) use executions::{Execution, ExecutionFilter, Executions};

use crate::capabilities::MODULE_LIMIT;
use crate::gateway::keys::{Gateway, KeySource, Login};
use crate::http_client::{self, Credential};

/// The maximum size of an answer in bytes. A tool result alone may have 8 MiB.
const ANSWER_LIMIT: usize = 16 * 1024 * 1024;

/// The time limit of one call, including queueing and execution.
const TIMEOUT: Duration = Duration::from_secs(90);

/// A gateway and the key for it.
#[derive(Clone)]
pub(crate) struct Cloud {
    http: reqwest::Client,
    gateway: Gateway,
    keys: KeySource,
}

/// Identifies a forwarded call within its run. The gateway makes one call under a name, and answers the next ones with
/// its outcome.
#[derive(Debug, Clone)]
pub(crate) struct CallName<'a> {
    /// The run.
    pub(crate) run_id: &'a str,
    /// The call's name in the record of the run.
    pub(crate) call: &'a str,
    /// When the user had it made again, in milliseconds since 1970.
    pub(crate) again_ms: Option<i64>,
}

impl CallName<'_> {
    /// Returns the value of `_meta["ai.casys.pml/run"]`.
    fn meta(&self) -> Value {
        let index =
            self.call.parse::<u64>().map_or_else(|_| json!(self.call), |number| json!(number));
        let mut meta = json!({ "run_id": self.run_id, "call_index": index });
        if let Some(again) = self.again_ms {
            meta["again_ms"] = again.into();
        }
        meta
    }
}

impl Cloud {
    /// Prepares calls to a gateway; connects only when needed.
    ///
    /// # Errors
    /// Returns `CONFIG_INVALID` if the HTTP client cannot be created.
    pub(crate) fn new(gateway: Gateway, keys: KeySource) -> Result<Self, ErrorBody> {
        let invalid = |error: &dyn std::error::Error| {
            ErrorBody::new(ErrorCode::ConfigInvalid, error.to_string())
        };
        let http = http_client::builder(&gateway.join(""), Credential::Sent)
            .map_err(|error| invalid(&error))?
            .timeout(TIMEOUT)
            .build()
            .map_err(|error| invalid(&error))?;
        Ok(Self { http, gateway, keys })
    }

    /// Returns the gateway that is called.
    pub(crate) fn gateway(&self) -> &Gateway {
        &self.gateway
    }

    /// Returns whether there is an API key or a sign-in for the gateway, which rejects requests without one.
    pub(crate) async fn has_key(&self) -> bool {
        self.keys.find().await.login.is_some()
    }

    /// Returns the hash of the API key or of the sign-in, which separates the cached answers of different principals.
    pub(crate) async fn principal(&self) -> Option<Integrity> {
        self.keys.principal().await
    }

    /// Submits a program.
    ///
    /// # Errors
    /// Returns why there is no envelope; an envelope with `status: "error"` is not an error here.
    pub(crate) async fn execute(
        &self,
        request: &ExecuteRequest,
        cancel: &CancellationToken,
    ) -> Result<Envelope, ErrorBody> {
        let arguments = serde_json::to_value(request)
            .map_err(|error| ErrorBody::new(ErrorCode::Internal, error.to_string()))?;
        let result = self.call(meta_tools::EXECUTE.name, arguments, None, cancel).await?;
        self.envelope(&result)
    }

    /// Forwards the answer to a question of a run that is paused on the gateway.
    ///
    /// # Errors
    /// As [`Cloud::execute`].
    pub(crate) async fn resume(
        &self,
        arguments: Value,
        cancel: &CancellationToken,
    ) -> Result<Envelope, ErrorBody> {
        let result = self.call(meta_tools::CONTINUE.name, arguments, None, cancel).await?;
        self.not_delegated(self.envelope(&result)?)
    }

    /// Publishes a program.
    ///
    /// # Errors
    /// As [`Cloud::execute`].
    pub(crate) async fn create(
        &self,
        arguments: Value,
        cancel: &CancellationToken,
    ) -> Result<Envelope, ErrorBody> {
        let result = self.call(meta_tools::CREATE.name, arguments, None, cancel).await?;
        let mut envelope = self.not_delegated(self.envelope(&result)?)?;
        if let Envelope::Success(success) = &mut envelope {
            // The gateway's own texts, not the value of a program.
            answer::clean(&mut success.result);
        }
        Ok(envelope)
    }

    /// Searches the gateway's tools and returns the raw MCP result.
    ///
    /// # Errors
    /// Returns why there is no answer.
    pub(crate) async fn discover(
        &self,
        arguments: Value,
        cancel: &CancellationToken,
    ) -> Result<Value, ErrorBody> {
        self.call(meta_tools::DISCOVER.name, arguments, None, cancel).await
    }

    /// Calls a server tool and returns its raw MCP result.
    ///
    /// # Errors
    /// Returns why there is no result, or the gateway's own refusal.
    pub(crate) async fn call_tool(
        &self,
        id: &ToolId,
        arguments: Value,
        name: &CallName<'_>,
        cancel: &CancellationToken,
    ) -> Result<Value, ErrorBody> {
        let result = self.call(id.as_str(), arguments, Some(name), cancel).await?;
        // A refusal is an envelope; a tool's own failure is a plain MCP error result.
        let refused = result.get("isError").and_then(Value::as_bool) == Some(true);
        match self.envelope(&result) {
            Ok(Envelope::Error(refusal)) if refused => Err(refusal.error),
            _ => Ok(result),
        }
    }

    /// Reads a registry entry.
    ///
    /// # Errors
    /// Returns `TOOL_NOT_FOUND` when the registry does not know the name.
    pub(crate) async fn entry(&self, fqdn: &str) -> Result<RegistryEntry, ErrorBody> {
        let body = self.fetch(fqdn, "application/json", ANSWER_LIMIT).await?;
        serde_json::from_slice(&body).map_err(|error| self.invalid_answer(&error.to_string()))
    }

    /// Reads the program of a capability with its entry, unverified.
    ///
    /// # Errors
    /// Returns `TOOL_NOT_FOUND` when the registry does not know the name.
    pub(crate) async fn module(&self, fqdn: &str) -> Result<String, ErrorBody> {
        let body = self.fetch(fqdn, "application/typescript", MODULE_LIMIT).await?;
        String::from_utf8(body).map_err(|_| self.invalid_answer("a program that is not UTF-8"))
    }

    async fn fetch(&self, fqdn: &str, kind: &str, limit: usize) -> Result<Vec<u8>, ErrorBody> {
        let url = self.gateway.join(&format!("mcp/{fqdn}"));
        let response = self.send(self.http.get(url).header(ACCEPT, kind)).await?;
        let status = response.status();
        let body = self.read_at_most(response, limit).await?;
        match status.as_u16() {
            200 => Ok(body),
            404 => Err(ErrorBody::new(
                ErrorCode::ToolNotFound,
                format!("`{}` is not in the registry", protocol::escape_text(fqdn)),
            )),
            401 => Err(self.unauthorized()),
            other => Err(self.invalid_answer(&format!("HTTP status {other}"))),
        }
    }

    async fn call(
        &self,
        name: &str,
        arguments: Value,
        run: Option<&CallName<'_>>,
        cancel: &CancellationToken,
    ) -> Result<Value, ErrorBody> {
        let mut span = Span::of_call(Side::Client, Transport::Tcp, || spans::tool_name(name));
        span.set("mcp.protocol.version", || mcp_version::CURRENT.to_string());
        // Boxed, because the future is large.
        let sent = Box::pin(self.send_call(name, arguments, run, cancel, span.context()));
        let answer = sent.await;
        let error = match &answer {
            // An envelope or a tool's own failure.
            Ok(result) if result["isError"] == true => Some(spans::TOOL_ERROR),
            Ok(_) => None,
            Err(error) => Some(error.error_code.name()),
        };
        span.end(error);
        answer
    }

    async fn send_call(
        &self,
        name: &str,
        arguments: Value,
        run: Option<&CallName<'_>>,
        cancel: &CancellationToken,
        context: Option<Arc<TraceContext>>,
    ) -> Result<Value, ErrorBody> {
        let mut meta = json!({
            "io.modelcontextprotocol/protocolVersion": mcp_version::CURRENT,
            "io.modelcontextprotocol/clientInfo": { "name": "pml", "version": env!("CARGO_PKG_VERSION") },
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        if let Some(run) = run {
            meta[RUN_META] = run.meta();
        }
        let mut headers = HeaderMap::new();
        if let Some(context) = context {
            meta.as_object_mut().into_iter().for_each(|meta| context.add_to(meta));
            context.add_to_headers(&mut headers);
        }
        let id = request_id();
        let body = json!({
            "jsonrpc": "2.0",
            "id": id,
            "method": "tools/call",
            "params": { "name": name, "arguments": arguments, "_meta": meta },
        });
        let request = self
            .http
            .post(self.gateway.join("mcp"))
            .header(ACCEPT, "application/json, text/event-stream")
            .header(CONTENT_TYPE, "application/json")
            .header("mcp-protocol-version", mcp_version::CURRENT)
            // In the current version of the protocol, these headers repeat parts of the body.
            .header("mcp-method", "tools/call")
            .header("mcp-name", name)
            // Without this header, the gateway refuses a program for this machine and delegates
            // nothing.
            .header("x-pml-client", "package")
            .headers(headers)
            .body(body.to_string());
        // Dropping the request closes the connection, which cancels it on the gateway.
        let exchange = async {
            let response = self.send(request).await?;
            let status = response.status();
            let body = self.read(response).await?;
            Ok::<_, ErrorBody>((status, body))
        };
        let (status, body) = tokio::select! {
            answer = exchange => answer?,
            () = cancel.cancelled() => {
                return Err(ErrorBody::new(ErrorCode::Cancelled, "the call was cancelled"));
            }
        };
        if status.as_u16() == 401 {
            return Err(self.unauthorized());
        }
        let answer: Value = match serde_json::from_slice(&body) {
            Ok(answer) => answer,
            Err(_) => {
                return Err(
                    self.invalid_answer(&format!("HTTP status {status}, a body that is not JSON"))
                );
            }
        };
        if let Some(result) =
            answer::result(&answer, id).map_err(|what| self.invalid_answer(&what))?
        {
            return Ok(result);
        }
        // A request that is refused before it reaches MCP, for example by a rate limit, gets an RFC
        // 9457 problem instead of JSON-RPC.
        if let Some(problem) = self.problem(&answer) {
            return Err(problem);
        }
        Err(self.invalid_answer(&format!("HTTP status {status}, JSON that is not an MCP answer")))
    }

    /// Parses an RFC 9457 problem and keeps the error code of the gateway.
    fn problem(&self, answer: &Value) -> Option<ErrorBody> {
        let code = answer.get("code")?.as_str()?.parse().ok()?;
        let detail = answer.get("detail").and_then(Value::as_str).unwrap_or("no detail");
        let detail = protocol::escape_text(detail);
        Some(ErrorBody::new(code, format!("the gateway at {}: {detail}", self.gateway)))
    }

    fn envelope(&self, result: &Value) -> Result<Envelope, ErrorBody> {
        let structured = result
            .get("structuredContent")
            .ok_or_else(|| self.invalid_answer("a result without `structuredContent`"))?;
        answer::envelope(structured).map_err(|what| self.invalid_answer(&what))
    }

    /// Refuses a delegation, which only answers a submitted program.
    fn not_delegated(&self, envelope: Envelope) -> Result<Envelope, ErrorBody> {
        match envelope {
            Envelope::ExecuteLocally(_) => {
                Err(self.invalid_answer("a delegation, although no program was submitted to run"))
            }
            other => Ok(other),
        }
    }

    async fn read(&self, response: reqwest::Response) -> Result<Vec<u8>, ErrorBody> {
        self.read_at_most(response, ANSWER_LIMIT).await
    }

    async fn read_at_most(
        &self,
        mut response: reqwest::Response,
        limit: usize,
    ) -> Result<Vec<u8>, ErrorBody> {
        let mut body = Vec::new();
        // Not `bytes()`, which would collect an answer of any size before it could be refused.
        while let Some(chunk) = response.chunk().await.map_err(|error| self.unreachable(&error))? {
            if body.len() + chunk.len() > limit {
                let limit = limit / (1024 * 1024);
                return Err(self.invalid_answer(&format!("an answer of more than {limit} MiB")));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    fn unreachable(&self, error: &reqwest::Error) -> ErrorBody {
        let what = if error.is_timeout() { "did not answer in time" } else { "cannot be reached" };
        // The outermost error only says that the request failed; the innermost one has the cause.
        let mut source: &dyn std::error::Error = error;
        while let Some(inner) = source.source() {
            source = inner;
        }
        let source = source.to_string();
        // The TLS library reports this for an answer that is not TLS.
        let has_no_tls = source.contains("InvalidContentType");
        let what = if has_no_tls {
            format!("{what}: that port does not use TLS")
        } else {
            format!("{what}: {source}")
        };
        let mut error = ErrorBody::new(
            ErrorCode::GatewayUnreachable,
            format!("the gateway at {} {what}", self.gateway),
        );
        if has_no_tls {
            error.hint = if self.gateway.is_this_machine() {
                "Write the URL with `http`, or give the gateway a certificate.".to_owned()
            } else {
                "Check the port: what answers there is not encrypted.".to_owned()
            };
        } else if self.gateway.is_default() {
            error.hint =
                "Name your gateway: `pml login --url URL`, `--url` or PML_CLOUD_URL.".to_owned();
        } else if !self.gateway.is_this_machine() {
            error.hint = "Check the URL (`--url`, `PML_CLOUD_URL`, `cloud.url` or `pml login`) and the network.".to_owned();
        }
        error
    }

    fn invalid_answer(&self, what: &str) -> ErrorBody {
        let what: String = protocol::escape_text(what).chars().take(300).collect();
        ErrorBody::new(
            ErrorCode::GatewayBadAnswer,
            format!("the gateway at {} sent an invalid answer: {what}", self.gateway),
        )
    }

    /// Returns the error for a request without an API key or access token that the gateway accepts.
    pub(crate) fn unauthorized(&self) -> ErrorBody {
        // Every caller has looked for the key before, so its source is known here.
        let found = self.keys.known();
        let message = match found.and_then(|found| found.login.as_ref()) {
            Some((Login::SignIn(sign_in), _)) => {
                let message = format!(
                    "the gateway at {} does not accept the access token of {}",
                    self.gateway, sign_in.issuer
                );
                let mut error = ErrorBody::new(ErrorCode::Unauthorized, message);
                error.hint = format!("Run `pml login --browser --url {}`.", self.gateway);
                return error;
            }
            Some((Login::Key(_), _)) => {
                format!("the gateway at {} does not accept the API key", self.gateway)
            }
            None if self.gateway.is_default() => format!(
                "the gateway at {} needs an API key; `pml` sends none because you did not name this gateway",
                self.gateway
            ),
            None => format!("the gateway at {} needs an API key, but none is set", self.gateway),
        };
        let mut error = ErrorBody::new(ErrorCode::Unauthorized, message);
        error.hint = if self.gateway.is_default() {
            "Name your gateway and its key: `pml login --url URL`, or set PML_CLOUD_URL and PML_API_KEY.".into()
        } else if let Some(keyring_error) = found.and_then(|found| found.keyring_error.as_ref()) {
            format!(
                "The keyring may have the API key, but {keyring_error}. Unlock it and retry, or set PML_API_KEY."
            )
        } else {
            format!(
                "Run `pml login --url {}` or set PML_API_KEY; `pml-server keys create --scope ORG.PROJECT` creates a key.",
                self.gateway
            )
        };
        error
    }
}

/// Returns a new JSON-RPC request id, to match the answer to its request.
fn request_id() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}
