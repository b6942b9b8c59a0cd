//! The MCP proxy: forwards messages to one MCP server over HTTP.
//!
//! A message is parsed strictly and checked; then its exact bytes are forwarded, with the secret that the server
//! needs and without the caller's credential. The answer is returned as it arrives. Sessions belong to the server; the
//! caller gets an encrypted handle that only it can use.

mod events;
mod headers;
mod message;
mod refusal;
mod relay;
mod strict;

use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use execution::mcp_version;
use execution::{NotKept, gather};
use protocol::redaction::Redactor;
use protocol::{EntryType, ErrorBody, ErrorCode, Routing, Scope, ToolId};
use registry::{AuditEvent, AuditOutcome, Changes, McpServer, RegistryError};
use reqwest::Url;
use serde_json::json;

use self::events::{Events, JsonTexts, StreamRedactor};
use self::message::{BadMessage, Kind, Message};
use self::refusal::Refusal;
use self::relay::Relay;
use crate::error::{ApiError, registry_error};
use crate::execution::calls::TOOL_TIMEOUT;
use crate::identity::requester::Requester;
use crate::state::SharedGateway;
use crate::upstreams::secrets::{self, FoundSecret, Need, Receiver};

/// The largest JSON answer, and the largest event from which a secret is removed.
const ANSWER_LIMIT: usize = 8 * 1024 * 1024;
/// The forwarded methods. The effects of other methods have not been reviewed.
const METHODS: [&str; 19] = [
    "initialize",
    "ping",
    "server/discover",
    "tools/list",
    "tools/call",
    "prompts/list",
    "prompts/get",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "resources/subscribe",
    "resources/unsubscribe",
    "subscriptions/listen",
    "completion/complete",
    "logging/setLevel",
    "notifications/initialized",
    "notifications/cancelled",
    "notifications/progress",
    "notifications/roots/list_changed",
];

/// One exchange of a caller with a server: a request that is forwarded, and its answer.
pub(crate) struct Exchange {
    gateway: SharedGateway,
    requester: Requester,
    headers: HeaderMap,
    server: McpServer,
    url: Url,
    /// The state of changes from before the caller's credential was checked.
    seen: Changes,
}

impl Exchange {
    /// Prepares an exchange with a server that the caller can see.
    ///
    /// # Errors
    /// Returns a refusal for a server that is not of kind `http`, is routed to the user's machine, or has no permitted
    /// address.
    pub(crate) fn new(
        gateway: SharedGateway,
        requester: Requester,
        headers: HeaderMap,
        server: McpServer,
        seen: Changes,
    ) -> Result<Self, ApiError> {
        let name = &server.fqdn;
        let unavailable = |what: String| ApiError::new(ErrorCode::ToolUnavailable, what);
        if server.kind != EntryType::Http {
            let what = format!(
                "the gateway cannot proxy `{name}`: it is a `{}` server; only `http` servers can be proxied, and `pml stdio` runs others on the user's machine",
                server.kind.as_str()
            );
            return Err(unavailable(what).with_status(StatusCode::NOT_IMPLEMENTED));
        }
        if server.routing == Routing::Client {
            let what = format!("server `{name}` runs on the user's machine");
            let error = ApiError::new(ErrorCode::ClientToolsRequirePackage, what);
            return Err(error.with_status(StatusCode::FORBIDDEN));
        }
        let url = server
            .proxy_to
            .as_deref()
            .ok_or_else(|| "its registry entry has no upstream".to_owned())
            .and_then(|url| gateway.upstreams.check(url))
            .map_err(|why| {
                unavailable(format!("server `{name}`: {why}")).with_status(StatusCode::BAD_GATEWAY)
            })?;
        Ok(Self { gateway, requester, headers, server, url, seen })
    }

    /// Returns the caller's scope.
    pub(crate) fn scope(&self) -> &Scope {
        self.requester.scope()
    }

    /// Forwards a message of the client.
    pub(crate) async fn post(&self, body: Bytes) -> Response {
        let message = match Message::parse(&body) {
            Ok(message) => message,
            Err(BadMessage { code, message }) => {
                // Read leniently, so that the client can match the error to its request.
                let id = message::id_of(&body);
                return Refusal::Protocol(StatusCode::BAD_REQUEST, id, code, message)
                    .answer_to(None, false);
            }
        };
        let answer = match self.check(&message).await {
            Ok(()) => self.send(Method::POST, Some((&message, body))).await,
            Err(refusal) => Err(refusal),
        };
        answer.unwrap_or_else(|refusal| {
            refusal.answer_to(Some(&message), self.is_stateless(&message))
        })
    }

    /// Opens the stream of server-initiated messages, or ends a session.
    pub(crate) async fn without_body(&self, method: Method) -> Response {
        self.send(method, None).await.unwrap_or_else(|refusal| refusal.answer_to(None, false))
    }

    /// Checks whether a message may be forwarded.
    async fn check(&self, message: &Message) -> Result<(), Refusal> {
        let id = || message.id().cloned().unwrap_or_default();
        if let Err(what) = headers::check(&self.headers, message) {
            let code = message::HEADER_MISMATCH;
            return Err(Refusal::Protocol(StatusCode::BAD_REQUEST, id(), code, what));
        }
        if message.kind == Kind::Response {
            // Without a session, the server could take it for the response of another client.
            if !self.headers.contains_key(headers::SESSION) {
                let what = "a response needs the `Mcp-Session-Id` of the session of the request"
                    .to_owned();
                let code = message::INVALID_REQUEST;
                return Err(Refusal::Protocol(StatusCode::BAD_REQUEST, id(), code, what));
            }
            return Ok(());
        }
        if !METHODS.contains(&message.method.as_str()) {
            let what = format!("`{}` is not forwarded", shown(&message.method));
            let status = match self.is_stateless(message) {
                // The stateless version of MCP requires 404. In earlier versions, a request gets
                // its error with 200, and only the status can refuse a notification, which has no
                // answer.
                true => StatusCode::NOT_FOUND,
                false if message.id().is_none() => StatusCode::BAD_REQUEST,
                false => StatusCode::OK,
            };
            return Err(Refusal::Protocol(status, id(), message::METHOD_NOT_FOUND, what));
        }
        if message.method == "tools/call" { self.check_call(message).await } else { Ok(()) }
    }

    /// Checks whether a tool may be called: by its routing and quotas, never by the server's own hints.
    async fn check_call(&self, message: &Message) -> Result<(), Refusal> {
        let namespace = self.server.fqdn.namespace();
        let name = message.name.as_deref().unwrap_or_default();
        let Ok(tool) = ToolId::new(namespace, name) else {
            // No rule can contain such a name, so it would evade the rules.
            let what = format!("`{}` is not a valid tool name", shown(name));
            let error = ErrorBody::new(ErrorCode::ToolNotFound, what);
            return Err(Refusal::Refused(StatusCode::NOT_FOUND, error));
        };
        if self.gateway.registry.route_at(&self.server, &tool) == Routing::Server {
            let (limits, scope) = (&self.gateway.limits, self.requester.scope());
            let counted = limits.count_call(&self.gateway.registry, scope, &tool).await;
            return counted.map_err(|error| {
                // Created only for the status that belongs to the code.
                Refusal::Refused(ApiError::new(error.error_code, "").status(), error)
            });
        }
        let error = ErrorBody::new(
            ErrorCode::ClientToolsRequirePackage,
            format!("tool `{tool}` runs on the user's machine"),
        );
        let event = AuditEvent::new("call_tool", tool.as_str(), AuditOutcome::Refused)
            .with_detail(json!({ "reason": error.error_code }));
        // The call is refused, whether or not that can be recorded.
        if let Err(error) = self.gateway.registry.audit(&self.requester.tenant(), event).await {
            tracing::error!(error = %error, "Could not record a refused call");
        }
        Err(Refusal::Refused(StatusCode::FORBIDDEN, error))
    }

    fn is_stateless(&self, message: &Message) -> bool {
        headers::version(&self.headers, message).is_some_and(mcp_version::is_stateless)
    }

    /// Sends a request to the server and returns its answer, or a stream of it.
    async fn send(
        &self,
        method: Method,
        message: Option<(&Message, Bytes)>,
    ) -> Result<Response, Refusal> {
        let started = Instant::now();
        // Moves into `trace`, which lives as long as the answer is relayed.
        let slot = self.gateway.exchanges.enter(self.requester.scope())?;
        // `initialize` begins a new session, even if the client still sends the handle of an old one.
        let is_first = message.as_ref().is_some_and(|(message, _)| message.method == "initialize");
        let handle = self.headers.get(headers::SESSION).filter(|_| !is_first);
        // Before the secret is looked up, so that a foreign handle causes no recorded use of it.
        let session = handle.map(|handle| self.open(handle)).transpose()?;
        let what = message.as_ref().and_then(|(message, _)| {
            let name = message.name.as_deref().filter(|_| message.method == "tools/call")?;
            Some(format!("{}:{name}", self.server.fqdn.namespace()))
        });
        let found = self.secret(what.as_deref()).await?;
        let trace = relay::Trace {
            slot,
            server: self.server.fqdn.to_string(),
            tool: what,
            started,
            status: 0,
            bytes: 0,
        };
        let secret = found.as_ref().map(|found| &found.value);
        let mut request = self
            .gateway
            .upstreams
            .http()
            .request(method.clone(), self.url.clone())
            .headers(headers::onward(&self.headers, session.as_deref(), secret));
        if let Some((_, body)) = &message {
            request = request.body(body.clone());
        }
        let redactor = secret.map(|secret| Redactor::new(secret.expose()));
        // The time until the head of the answer; its body has separate limits.
        let answer = tokio::time::timeout(TOOL_TIMEOUT, request.send()).await;
        // Never sent a second time: the message may have taken effect.
        let answer = match answer {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => {
                let text = format!("{error:?}");
                let text = redactor.as_ref().map_or(text.clone(), |r| r.text(&text).into_owned());
                tracing::warn!(server = %self.server.fqdn, error = text, "Could not reach an upstream");
                return Err(self.unavailable("cannot be reached"));
            }
            Err(_) => return Err(self.timed_out()),
        };
        let known = handle.zip(session.as_deref());
        let listens = message.is_some_and(|(message, _)| message.method == "subscriptions/listen");
        self.answer(method, listens, answer, known, found, redactor, trace).await
    }

    /// Decrypts a session handle of the caller.
    fn open(&self, handle: &HeaderValue) -> Result<String, Refusal> {
        let handle = handle.to_str().unwrap_or_default();
        let tenant = self.requester.tenant();
        let (server, url) = (&self.server.fqdn, self.url.as_str());
        let opened = self.gateway.registry.open_session(&tenant, server, url, handle);
        opened.map_err(|error| Refusal::Api(error.into()))
    }

    /// Finds the secret that the server needs.
    async fn secret(&self, tool: Option<&str>) -> Result<Option<FoundSecret>, Refusal> {
        let Some(variable) = self.server.env_required.first() else { return Ok(None) };
        let what = tool.unwrap_or(self.server.fqdn.namespace());
        let receiver = Receiver::Url(self.url.as_str());
        let need = Need { what, scope: self.server.fqdn.scope(), receiver, variable };
        let found = secrets::find(&self.gateway.registry, &self.requester, need).await;
        found.map(Some).map_err(|error| {
            let status = match error.error_code {
                // Not 401, which would make a client replace its credential for the gateway.
                ErrorCode::ApiKeyRequired => StatusCode::FORBIDDEN,
                code => ApiError::new(code, "").status(),
            };
            Refusal::Refused(status, error)
        })
    }

    /// Converts the server's answer to ours.
    #[expect(clippy::too_many_arguments, reason = "they are the state of one exchange")]
    async fn answer(
        &self,
        method: Method,
        listens: bool,
        answer: reqwest::Response,
        known: Option<(&HeaderValue, &str)>,
        found: Option<FoundSecret>,
        redactor: Option<Redactor>,
        mut trace: relay::Trace,
    ) -> Result<Response, Refusal> {
        let status = answer.status();
        trace.status = status.as_u16();
        match status {
            // The challenge is addressed to the gateway. A client would take it for the gateway's own, and send a
            // credential that is meant for another party.
            StatusCode::UNAUTHORIZED
            | StatusCode::FORBIDDEN
            | StatusCode::PROXY_AUTHENTICATION_REQUIRED => {
                let what = match self.server.env_required.first() {
                    Some(variable) => format!("does not accept the secret `{variable}`"),
                    None => {
                        "requires a credential that its registry entry does not name".to_owned()
                    }
                };
                return Err(self.unavailable(&what));
            }
            status if status.is_redirection() || status.is_informational() => {
                return Err(self.unavailable("answers with a redirect, which is not followed"));
            }
            _ => {}
        }
        let mut out = HeaderMap::new();
        if let Some(session) = self.session(answer.headers(), known)? {
            out.insert(headers::SESSION, session);
        }
        if let Some(seconds) = answer.headers().get(header::RETRY_AFTER).and_then(seconds) {
            out.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        // RFC 9110, section 15.5.6, requires `Allow`. Servers without streams or sessions answer
        // GET and DELETE this way.
        if status == StatusCode::METHOD_NOT_ALLOWED {
            out.insert(header::ALLOW, HeaderValue::from_static("POST"));
        }
        out.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        let kind = answer.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let kind = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default().trim();
        let is_json = kind.eq_ignore_ascii_case("application/json");
        let is_events = kind.eq_ignore_ascii_case("text/event-stream");
        // The answer to `subscriptions/listen` is a stream, whatever media type the server declares.
        if status.is_success() && (is_events || (is_json && listens)) {
            let kind = if is_json { "application/json" } else { "text/event-stream" };
            out.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
            // Intermediaries must not buffer events.
            out.insert("x-accel-buffering", HeaderValue::from_static("no"));
            // Only a stored secret can change while the stream is open, which then ends.
            let stored = found.and_then(|found| found.stored);
            let waits = listens || method == Method::GET;
            let (caller, headers) = (&self.requester, &self.headers);
            let relay = Relay::new(&self.gateway, caller, headers, self.seen, stored, waits, trace);
            let cleaner = redactor.map(|redactor| match is_json {
                true => StreamRedactor::JsonTexts(JsonTexts::new(redactor, ANSWER_LIMIT)),
                false => StreamRedactor::Events(Events::new(redactor, ANSWER_LIMIT)),
            });
            let stream = relay.stream(answer, cleaner);
            return Ok((status, out, Body::from_stream(stream)).into_response());
        }
        if is_json {
            let size = answer.content_length().and_then(|size| usize::try_from(size).ok());
            let memory = self.gateway.memory.of(self.requester.scope());
            let body = gather(&memory, answer.bytes_stream(), size, ANSWER_LIMIT, false);
            let body = match tokio::time::timeout(TOOL_TIMEOUT, body).await {
                Ok(Ok(body)) => body,
                Ok(Err(NotKept::TooLarge)) => {
                    let what = format!(
                        "server `{}` answered with more than {ANSWER_LIMIT} bytes",
                        self.server.fqdn
                    );
                    let error = ErrorBody::new(ErrorCode::ToolResultTooLarge, what);
                    return Err(Refusal::Refused(StatusCode::BAD_GATEWAY, error));
                }
                Ok(Err(NotKept::NoRoom(refusal))) => return Err(refusal.into()),
                Ok(Err(NotKept::Cut(_))) => {
                    return Err(self.unavailable("sent an incomplete answer"));
                }
                Err(_) => return Err(self.timed_out()),
            };
            trace.bytes = body.len();
            let body = match redactor {
                Some(redactor) => redacted(&redactor, body),
                None => body,
            };
            out.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            return Ok((status, out, body).into_response());
        }
        // Other responses: forward the status only.
        let has_no_body = matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT)
            || (method != Method::POST
                && (status.is_success() || status == StatusCode::METHOD_NOT_ALLOWED));
        if has_no_body {
            return Ok((status, out).into_response());
        }
        if status.is_success() {
            return Err(self.unavailable("sent an answer that is not MCP"));
        }
        let what =
            format!("server `{}` answered {status} without an MCP message", self.server.fqdn);
        let mut response =
            ApiError::new(ErrorCode::ToolUnavailable, what).with_status(status).into_response();
        out.remove(header::CONTENT_TYPE);
        response.headers_mut().extend(out);
        Ok(response)
    }

    /// Returns the handle for the session id in an answer: the known one, or a new one for a new session.
    fn session(
        &self,
        answer: &HeaderMap,
        known: Option<(&HeaderValue, &str)>,
    ) -> Result<Option<HeaderValue>, Refusal> {
        let Some(session) = answer.get(headers::SESSION) else { return Ok(None) };
        let Ok(session) = session.to_str() else {
            return Err(self.unavailable(
                "sent a session id with characters that are not allowed in a header",
            ));
        };
        // Encrypting the same session again would result in another handle, which clients would take for a new session.
        if let Some((handle, _)) = known.filter(|(_, known)| *known == session) {
            return Ok(Some(handle.clone()));
        }
        let tenant = self.requester.tenant();
        let (server, url) = (&self.server.fqdn, self.url.as_str());
        let sealed = self.gateway.registry.seal_session(&tenant, server, url, session);
        match sealed {
            Ok(handle) => Ok(HeaderValue::from_str(&handle).ok()),
            Err(RegistryError::NoMasterKey) => {
                let what = "this gateway has no master key to encrypt sessions with; the operator must set PML_MASTER_KEY or PML_MASTER_KEY_FILE";
                Err(ApiError::new(ErrorCode::SecretsUnavailable, what).into())
            }
            Err(RegistryError::Invalid(_)) => {
                Err(self.unavailable("sent a session id that is too long"))
            }
            Err(other) => {
                Err(Refusal::Refused(StatusCode::INTERNAL_SERVER_ERROR, registry_error(&other)))
            }
        }
    }

    fn unavailable(&self, what: &str) -> Refusal {
        let what = format!("server `{}` {what}", self.server.fqdn);
        Refusal::Refused(StatusCode::BAD_GATEWAY, ErrorBody::new(ErrorCode::ToolUnavailable, what))
    }

    fn timed_out(&self) -> Refusal {
        let seconds = TOOL_TIMEOUT.as_secs();
        let what = format!("server `{}` did not answer within {seconds} s", self.server.fqdn);
        Refusal::Refused(StatusCode::GATEWAY_TIMEOUT, ErrorBody::new(ErrorCode::ToolTimeout, what))
    }
}

/// Parses `Retry-After` in seconds; longer than a day is ignored.
fn seconds(value: &HeaderValue) -> Option<u64> {
    value
        .to_str()
        .ok()?
        .parse()
        .ok()
        .filter(|seconds| *seconds <= Duration::from_secs(86_400).as_secs())
}

/// Removes a secret from a JSON answer.
fn redacted(redactor: &Redactor, body: Bytes) -> Bytes {
    let text = String::from_utf8_lossy(&body);
    match redactor.json(&text) {
        // Without the secret, the answer is forwarded byte by byte.
        text if text.as_bytes() == body => body,
        text => Bytes::from(text.into_owned()),
    }
}

/// Returns a client's text, shortened and escaped for a message.
fn shown(word: &str) -> String {
    protocol::escape_text(&word.chars().take(128).collect::<String>()).to_string()
}
