//! `POST /mcp`: MCP Streamable HTTP, in both protocol eras.

mod refusal;
mod running;

use std::sync::{Arc, OnceLock};

use axum::Extension;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use execution::mcp_server::{envelope_result, parse, progress, structured_result};
use execution::spans::{self, Side, Span, Transport};
use execution::trace_context::{self, TraceContext};
use protocol::discovery::DiscoverRequest;
use protocol::meta_tools;
use protocol::{
    ContinueRequest, CreateRequest, Envelope, ErrorBody, ErrorCode, ExecuteRequest, ToolId,
};
use registry::{Caller, Right};
use rmcp::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, Implementation,
    InitializeRequestParams, InitializeResult, ResultType, ServerCapabilities, ServerConfig,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use utoipa::ToSchema;
use uuid::Uuid;

use self::running::{Name, Running};
use crate::admission::memory::Parsed;
use crate::config::Serve;
use crate::error::{ApiError, MissingRight};
use crate::execution::{discover, execute};
use crate::identity::progress::Progress;
use crate::identity::requester::Requester;
use crate::metrics::OperationError;
use crate::publish::create;
use crate::state::SharedGateway;

/// The largest message, in bytes: an argument of 1 MiB and a program of 64 KiB, with escaping.
pub(crate) const MESSAGE_LIMIT: usize = 5 * 512 * 1024;

/// The MCP endpoint: the request handler, and the running requests.
pub(crate) struct McpService {
    rmcp: StreamableHttpService<McpHandler, NeverSessionManager>,
    running: Arc<Running>,
    gateway: SharedGateway,
}

/// Builds the MCP endpoint.
pub(crate) fn service(gateway: SharedGateway, serve: &Serve) -> McpService {
    let mut hosts: Vec<String> =
        ["localhost", "127.0.0.1", "::1"].into_iter().map(str::to_owned).collect();
    hosts.extend(serve.hosts());
    // No sessions: every request is independent, so any replica can answer it.
    let mut config = StreamableHttpServerConfig::default();
    config.legacy_session_mode = false;
    // One JSON document instead of a stream with one event. If progress notifications precede the
    // answer, rmcp sends a stream anyway.
    config.json_response = true;
    config.allowed_hosts = hosts;
    // Pages that this machine serves may call the gateway, for example the MCP inspector.
    config.allowed_origins = ["localhost", "127.0.0.1", "[::1]"]
        .into_iter()
        .map(|host| format!("http://{host}:*"))
        .chain(serve.allowed_origins.iter().cloned())
        .collect();
    config.max_request_body_bytes = MESSAGE_LIMIT;
    // An empty list of origins would otherwise disable the check. The list above is never empty,
    // but the check must not depend on that.
    let config = config.enforce_origin_validation();
    let running = Arc::new(Running::default());
    let handler = McpHandler { gateway: Arc::clone(&gateway), running: Arc::clone(&running) };
    let manager = Arc::new(NeverSessionManager::default());
    McpService {
        rmcp: StreamableHttpService::new(move || Ok(handler.clone()), manager, config),
        running,
        gateway,
    }
}

/// An MCP message.
#[derive(ToSchema)]
#[schema(as = JsonRpcMessage)]
#[expect(dead_code, reason = "it only describes what rmcp reads")]
struct Message {
    #[schema(pattern = "^2\\.0$")]
    jsonrpc: String,
    /// Present in requests, absent in notifications.
    id: Option<Value>,
    /// For example `tools/call`.
    method: String,
    /// The method's parameters, as MCP defines them.
    #[schema(value_type = Option<Object>)]
    params: Option<Value>,
}

/// Answers an MCP Streamable HTTP message.
///
/// The caller is in the request's extensions.
#[utoipa::path(post, path = "/mcp", tag = "mcp",
    params(("Accept" = String, Header, description = "Both response media types", pattern = "^application/json, text/event-stream$", example = "application/json, text/event-stream")),
    request_body(content = Message, description = "A JSON-RPC 2.0 message",
        example = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" })),
    responses(
        (status = 200, description = "The JSON-RPC response", body = Object),
        (status = 202, description = "A notification was accepted"),
        (status = 400, description = "Not an MCP message; the JSON-RPC error has the reason", body = Object),
        (status = 404, description = "Streamable HTTP has no such method, or no such session", body = Object),
        (status = 406, description = "`Accept` lacks `application/json` or `text/event-stream`", body = super::openapi::Problem, content_type = "application/problem+json")))]
pub(crate) async fn post_message(
    Extension(service): Extension<Arc<McpService>>,
    Extension(caller): Extension<Arc<Caller>>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    // rmcp ignores `Content-Encoding`: it would report the compressed bytes as invalid JSON.
    if refusal::is_encoded(&parts.headers) {
        let message = "the body is compressed; send it uncompressed";
        return (StatusCode::UNSUPPORTED_MEDIA_TYPE, message).into_response();
    }
    let memory = &service.gateway.memory;
    let read = async {
        let request = Request::from_parts(parts.clone(), body);
        let body = super::body::read_message(memory, request, MESSAGE_LIMIT).await?;
        let reserved = memory.parsed(&caller.scope, &body, Parsed::Message).await?;
        Ok::<_, ApiError>((body, reserved))
    };
    let (body, reserved) = match read.await {
        Ok(read) => read,
        // The body is too large, too slow or incomplete, or there are too many large messages.
        Err(refusal) => return refusal.into_response(),
    };
    let headers = parts.headers.clone();
    // The clone shares the bytes. They are needed again for a cancellation, and for the refusal of
    // a body that rmcp could not parse.
    let mut request = Request::from_parts(parts, Body::from(body.clone()));
    let head = Arc::new(AnswerHead::default());
    request.extensions_mut().insert(Arc::clone(&head));
    let rmcp = service.rmcp.clone();
    // The future also frees the parsed message, which for a large one takes long.
    let answer = async move { rmcp.handle(request).await.into_response() };
    let mut response = memory.work(&reserved, answer).await;
    if let Some(right) = head.missing_right.get() {
        *response.status_mut() = StatusCode::FORBIDDEN;
        // `oauth::challenge` derives the header `WWW-Authenticate` from it.
        response.extensions_mut().insert(MissingRight(*right));
    }
    if let Some(seconds) = head.retry_after.get() {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(*seconds));
    }
    // The id only distinguishes clients that share a credential; see `running`.
    if head.initialized.get().is_some() {
        let id = Uuid::new_v4().simple().to_string();
        response.headers_mut().extend(HeaderValue::from_str(&id).map(|id| (running::SESSION, id)));
    }
    // Only notifications are answered with 202, so no other body is read twice.
    if response.status() == StatusCode::ACCEPTED
        && let Some(id) = running::cancelled(&body)
    {
        service.running.cancel(&Name::new(&caller, &headers, id));
    }
    // rmcp answers in plain text without a content type.
    if response.status().is_client_error() {
        let text = HeaderValue::from_static("text/plain; charset=utf-8");
        response.headers_mut().entry(header::CONTENT_TYPE).or_insert(text);
    }
    refusal::of_body(response.status(), &headers, &body).unwrap_or(response)
}

/// What a handler contributes to the status and the headers of its HTTP answer, which rmcp builds.
#[derive(Default)]
struct AnswerHead {
    /// How many seconds the caller of a tool should wait before a retry. The field in the result is for the agent;
    /// the header is for its client.
    retry_after: OnceLock<u64>,
    /// The right that the caller's token lacks. The status makes the client request it from the issuer. The rights of
    /// an API key are fixed, so its agent reads the result instead.
    missing_right: OnceLock<Right>,
    /// Set if this is the answer to a handshake, which gets a session id.
    initialized: OnceLock<()>,
}

/// Answers MCP requests.
#[derive(Clone)]
pub(crate) struct McpHandler {
    gateway: SharedGateway,
    running: Arc<Running>,
}

impl ServerHandler for McpHandler {
    fn get_info(&self) -> ServerConfig {
        let mut info = ServerConfig::default();
        info.capabilities = ServerCapabilities::builder().enable_tools().build();
        info.server_info = Implementation::new("pml-server", env!("CARGO_PKG_VERSION"));
        info.instructions = Some(meta_tools::INSTRUCTIONS.to_owned());
        info
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, rmcp::ErrorData> {
        // These two statements are rmcp's default; the method is overridden for what follows them.
        let answer = self.negotiate_initialize(&request)?;
        context.peer.set_peer_info(request);
        let parts = context.extensions.get::<http::request::Parts>();
        if let Some(head) = parts.and_then(|parts| parts.extensions.get::<Arc<AnswerHead>>()) {
            // A request has one handshake, so this is never set twice.
            let _ = head.initialized.set(());
        }
        Ok(answer)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, rmcp::ErrorData> {
        let parts = context.extensions.get::<http::request::Parts>().ok_or_else(|| {
            rmcp::ErrorData::internal_error("the request has no HTTP parts", None)
        })?;
        let caller =
            parts.extensions.get::<Arc<Caller>>().cloned().ok_or_else(|| {
                rmcp::ErrorData::internal_error("the request has no caller", None)
            })?;
        let name = Name::new(&caller, &parts.headers, context.id.clone());
        let mut measured = self.gateway.metrics.operations.server.begin();
        // Registered before the call begins, because its cancellation may arrive at any time from
        // now on. `running` is kept to the end: dropping it removes the call from the table.
        let running = self.running.enter(name, &context.ct);
        let mut requester = Requester::new(caller, &parts.headers);
        let run = context.meta.get(meta_tools::RUN_META).cloned();
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        let cancel = running.cancel.clone();
        // With a token, a missing right is reported by the status, so that the client can request it (MCP
        // authorization).
        let needed = needed_right(&request.name);
        let head = parts.extensions.get::<Arc<AnswerHead>>();
        if let Some(head) = head
            && requester.caller.key_id.is_none()
            && requester.caller.session.is_none()
            && !requester.caller.rights.contains(needed)
        {
            let _ = head.missing_right.set(needed);
        }
        let progress = context.meta.get_progress_token().map(|token| {
            let (progress, calls) = Progress::channel();
            requester.progress = progress;
            (token, calls)
        });
        // Boxed, because a call's future is large, and a program that calls tools nests many of them.
        let mut answer =
            Box::pin(self.dispatch(&requester, &request.name, arguments, run, cancel.clone()));
        // Not by rmcp's own token: with that, the client would get no answer.
        let abandoned = self.gateway.stopping.abandoned.clone();
        let answer = async move {
            tokio::select! {
                answer = &mut answer => return answer,
                () = abandoned.cancelled() => cancel.cancel(),
            }
            answer.await
        };
        let trace = TraceContext::of_request(&context.meta, Some(&parts.headers));
        let answer = trace_context::within(trace, async {
            let name = || spans::tool_name(&request.name);
            let mut span = Span::of_call(Side::Server, Transport::Tcp, name);
            span.set_request_id(&context.id);
            if let Some(version) = context.protocol_version() {
                span.set("mcp.protocol.version", || version.to_string());
            }
            let result = span.within(answer).await;
            spans::end_answer(span, &result);
            result
        });
        let mut result = match progress {
            None => answer.await,
            Some((token, calls)) => progress::notify(&context.peer, token, calls, answer).await,
        };
        measured.error = match result.is_error {
            Some(true) => OperationError::Tool,
            _ => OperationError::None,
        };
        // Set on every result, including results of servers with an older version; rmcp removes it for older clients.
        result.result_type = Some(ResultType::COMPLETE);
        let content = result.structured_content.as_ref();
        let seconds = content.and_then(|it| it.pointer("/details/retry_after_s")?.as_u64());
        if let (Some(head), Some(seconds)) = (head, seconds) {
            let _ = head.retry_after.set(seconds);
        }
        Ok(result.into())
    }

    execution::meta_tools_only!();
}

impl McpHandler {
    async fn dispatch(
        &self,
        requester: &Requester,
        name: &str,
        arguments: Value,
        run: Option<Value>,
        cancel: CancellationToken,
    ) -> CallToolResult {
        // Not checked by the route, because the needed right depends on the tool.
        let needed = needed_right(name);
        if !requester.caller.rights.contains(needed) {
            return envelope_result(&Envelope::error(ErrorBody::new(
                ErrorCode::Forbidden,
                format!("the key lacks the right `{}`", needed.as_str()),
            )));
        }
        let gateway = &self.gateway;
        if meta_tools::EXECUTE.is(name) {
            return match parse::<ExecuteRequest>(name, arguments) {
                Ok(request) => {
                    envelope_result(&execute::execute(gateway, requester, request, cancel).await)
                }
                Err(error) => envelope_result(&Envelope::error(error)),
            };
        }
        if meta_tools::CONTINUE.is(name) {
            return envelope_result(&match parse::<ContinueRequest>(name, arguments) {
                Ok(request) => execute::continue_workflow(&request),
                Err(error) => Envelope::error(error),
            });
        }
        if meta_tools::CREATE.is(name) {
            return envelope_result(&match parse::<CreateRequest>(name, arguments) {
                Ok(request) => create::create(gateway, requester, request).await,
                Err(error) => Envelope::error(error),
            });
        }
        if meta_tools::DISCOVER.is(name) {
            let found = match parse::<DiscoverRequest>(name, arguments) {
                Ok(request) => discover::discover(gateway, requester, request).await,
                Err(error) => Err(error),
            };
            return match found {
                Ok(found) => structured_result(&found, false),
                Err(error) => envelope_result(&Envelope::error(error)),
            };
        }
        // Tools are not listed in `tools/list`, but can be called by their ids.
        match ToolId::from_wire(name) {
            Ok(id) => {
                crate::execution::calls::call_directly(
                    gateway, requester, &id, arguments, run, cancel,
                )
                .await
            }
            Err(error) => envelope_result(&Envelope::error(ErrorBody::new(
                ErrorCode::ToolNotFound,
                error.to_string(),
            ))),
        }
    }
}

/// Returns the right that a caller of a tool needs.
fn needed_right(name: &str) -> Right {
    if meta_tools::DISCOVER.is(name) {
        Right::Read
    } else if meta_tools::CREATE.is(name) {
        Right::Publish
    } else {
        Right::Execute
    }
}
