//! `POST /mcp`: MCP Streamable HTTP, in both protocol eras.

mod refusal;

use std::sync::{Arc, OnceLock};

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::{FromRequest as _, Request};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use protocol::meta_tools::{self, META_TOOLS, MetaTool};
use protocol::{
    ContinueRequest, CreateRequest, Envelope, ErrorBody, ErrorCode, ExecuteRequest, ToolId,
};
use registry::{Caller, Right};
use rmcp::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CompleteRequestMethod,
    CompleteRequestParams, CompleteResult, CustomRequest, CustomResult, Implementation,
    ListPromptsRequestMethod, ListPromptsResult, ListResourceTemplatesRequestMethod,
    ListResourceTemplatesResult, ListResourcesRequestMethod, ListResourcesResult, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use utoipa::ToSchema;

use crate::auth::Requester;
use crate::config::Serve;
use crate::create;
use crate::discover::{self, DiscoverRequest};
use crate::error::MissingRight;
use crate::execute;
use crate::state::SharedGateway;

/// The MCP endpoint as a tower service.
pub type McpService = StreamableHttpService<McpHandler, NeverSessionManager>;

/// Builds the MCP endpoint.
pub fn service(gateway: SharedGateway, serve: &Serve, shutdown: CancellationToken) -> McpService {
    let mut hosts: Vec<String> =
        ["localhost", "127.0.0.1", "::1"].into_iter().map(str::to_owned).collect();
    hosts.extend(serve.allowed_hosts.iter().cloned());
    // No sessions: every request stands alone, so any replica can answer it.
    let mut config = StreamableHttpServerConfig::default();
    config.legacy_session_mode = false;
    config.json_response = true;
    config.cancellation_token = shutdown;
    config.allowed_hosts = hosts;
    // A page of this machine may call a gateway that runs on it, for example the MCP inspector.
    config.allowed_origins = ["localhost", "127.0.0.1", "[::1]"]
        .into_iter()
        .map(|host| format!("http://{host}:*"))
        .chain(serve.allowed_origins.iter().cloned())
        .collect();
    config.max_request_body_bytes = super::BODY_LIMIT;
    let config = config.enforce_origin_validation();
    StreamableHttpService::new(
        move || Ok(McpHandler { gateway: gateway.clone() }),
        Arc::new(NeverSessionManager::default()),
        config,
    )
}

/// A message of MCP.
#[derive(ToSchema)]
#[schema(as = JsonRpcMessage)]
#[expect(dead_code, reason = "it only describes what rmcp reads")]
struct Message {
    #[schema(pattern = "^2\\.0$")]
    jsonrpc: String,
    /// A request has one, a notification none.
    id: Option<Value>,
    /// For example `tools/call`.
    method: String,
    /// As MCP has them for the method.
    #[schema(value_type = Option<Object>)]
    params: Option<Value>,
}

/// Answers a message of MCP Streamable HTTP.
///
/// The caller is in the request's extensions.
#[utoipa::path(post, path = "/mcp", tag = "mcp",
    params(("Accept" = String, Header, description = "Both kinds of answers", example = "application/json, text/event-stream")),
    request_body(content = Message, description = "A JSON-RPC 2.0 message",
        example = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" })),
    responses(
        (status = 200, description = "The JSON-RPC response", body = Object),
        (status = 202, description = "A notification was taken"),
        (status = 400, description = "Not a message of MCP; a JSON-RPC error says why", body = Object),
        (status = 404, description = "Streamable HTTP has no such method, or no such session", body = Object),
        (status = 406, description = "`Accept` lacks `application/json` or `text/event-stream`", body = String, content_type = "text/plain")))]
pub async fn post_message(
    Extension(service): Extension<Arc<McpService>>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    if refusal::is_encoded(&parts.headers) {
        let message = "the body is compressed; send it as it is";
        return (StatusCode::UNSUPPORTED_MEDIA_TYPE, message).into_response();
    }
    let read = Bytes::from_request(Request::from_parts(parts.clone(), body), &()).await;
    let body = match read {
        Ok(body) => body,
        // Too large, or cut off.
        Err(rejection) => return rejection.into_response(),
    };
    let headers = parts.headers.clone();
    let mut request = Request::from_parts(parts, Body::from(body.clone()));
    let wait = Wait::default();
    request.extensions_mut().insert(wait.clone());
    let lacks = Lacks::default();
    request.extensions_mut().insert(lacks.clone());
    let mut response = service.handle(request).await.into_response();
    if let Some(right) = lacks.0.get() {
        *response.status_mut() = StatusCode::FORBIDDEN;
        response.extensions_mut().insert(MissingRight(*right));
    }
    if let Some(seconds) = wait.0.get() {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(*seconds));
    }
    // rmcp says why in plain text, and does not say that it is text.
    if response.status().is_client_error() {
        let text = HeaderValue::from_static("text/plain; charset=utf-8");
        response.headers_mut().entry(header::CONTENT_TYPE).or_insert(text);
    }
    refusal::of_body(response.status(), &headers, &body).unwrap_or(response)
}

/// How many seconds the caller of a tool is asked to wait before it tries again, if it is: what stands in the
/// result is for the agent, and the header for the client that sends for it.
#[derive(Clone, Default)]
struct Wait(Arc<OnceLock<u64>>);

/// Which right the token of the caller lacks, if it does: its client asks the issuer for it when it is told so
/// by the status. A key has the rights that it has, and its agent reads the result.
#[derive(Clone, Default)]
struct Lacks(Arc<OnceLock<Right>>);

/// Answers MCP requests.
#[derive(Clone)]
pub struct McpHandler {
    gateway: SharedGateway,
}

impl ServerHandler for McpHandler {
    fn get_info(&self) -> ServerConfig {
        let mut info = ServerConfig::default();
        info.capabilities = ServerCapabilities::builder().enable_tools().build();
        info.server_info = Implementation::new("pml-server", env!("CARGO_PKG_VERSION"));
        info.instructions = Some(meta_tools::INSTRUCTIONS.to_owned());
        info
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, rmcp::ErrorData> {
        Ok(ListToolsResult::with_all_items(META_TOOLS.iter().map(listed_tool).collect()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        META_TOOLS.iter().find(|tool| tool.name == name).map(listed_tool)
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
        let requester = Requester::new(caller, &parts.headers);
        let run = context.meta.get(meta_tools::RUN_META).cloned();
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        let cancel = context.ct.clone();
        let needed = needed_right(&request.name);
        if let Some(lacks) = parts.extensions.get::<Lacks>()
            && requester.caller.key_id.is_none()
            && requester.caller.session.is_none()
            && !requester.caller.rights.contains(needed)
        {
            let _ = lacks.0.set(needed);
        }
        let result = self.dispatch(&requester, &request.name, arguments, run, cancel).await;
        let told = result.structured_content.as_ref();
        let seconds = told.and_then(|told| told.pointer("/details/retry_after_s")?.as_u64());
        if let (Some(wait), Some(seconds)) = (parts.extensions.get::<Wait>(), seconds) {
            let _ = wait.0.set(seconds);
        }
        Ok(result.into())
    }

    // rmcp answers empty lists where a server declares nothing; a client must hear
    // that there is no such method.

    async fn list_prompts(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, rmcp::ErrorData> {
        Err(rmcp::ErrorData::method_not_found::<ListPromptsRequestMethod>())
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, rmcp::ErrorData> {
        Err(rmcp::ErrorData::method_not_found::<ListResourcesRequestMethod>())
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, rmcp::ErrorData> {
        Err(rmcp::ErrorData::method_not_found::<ListResourceTemplatesRequestMethod>())
    }

    async fn complete(
        &self,
        _request: CompleteRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, rmcp::ErrorData> {
        Err(rmcp::ErrorData::method_not_found::<CompleteRequestMethod>())
    }

    /// Answers what did not decode as a request of MCP.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, rmcp::ErrorData> {
        let method = request.method;
        Err(if meta_tools::METHODS.contains(&method.as_str()) {
            let message = format!("the parameters of `{method}` are not as MCP has them");
            rmcp::ErrorData::invalid_params(message, None)
        } else {
            rmcp::ErrorData::new(rmcp::model::ErrorCode::METHOD_NOT_FOUND, method, None)
        })
    }
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
        match ToolId::from_wire(name) {
            Ok(id) => {
                crate::calls::call_directly(gateway, requester, &id, arguments, run, cancel).await
            }
            Err(error) => envelope_result(&Envelope::error(ErrorBody::new(
                ErrorCode::ToolNotFound,
                error.to_string(),
            ))),
        }
    }
}

/// Returns what a caller of a tool must be allowed to do.
fn needed_right(name: &str) -> Right {
    if meta_tools::DISCOVER.is(name) {
        Right::Read
    } else if meta_tools::CREATE.is(name) {
        Right::Publish
    } else {
        Right::Execute
    }
}

fn listed_tool(tool: &MetaTool) -> Tool {
    let schema = match tool.input_schema() {
        Value::Object(schema) => schema,
        _ => Default::default(),
    };
    Tool::new(tool.name, tool.description, schema)
}

/// Reads the arguments of a meta-tool.
fn parse<T: DeserializeOwned>(tool: &str, arguments: Value) -> Result<T, ErrorBody> {
    serde_json::from_value(arguments).map_err(|error| {
        ErrorBody::new(ErrorCode::InvalidRequest, format!("the arguments of `{tool}`: {error}"))
    })
}

/// Puts an envelope into an MCP result: structured, and the same as JSON text.
pub fn envelope_result(envelope: &Envelope) -> CallToolResult {
    structured_result(envelope, envelope.is_error())
}

fn structured_result(body: &impl Serialize, is_error: bool) -> CallToolResult {
    let structured = serde_json::to_value(body)
        .unwrap_or_else(|error| json!({ "status": "error", "message": error.to_string() }));
    if is_error {
        CallToolResult::structured_error(structured)
    } else {
        CallToolResult::structured(structured)
    }
}

/// Turns a raw MCP result from an upstream or a native tool into rmcp's type.
pub fn raw_result(raw: Value) -> CallToolResult {
    serde_json::from_value(raw).unwrap_or_else(|error| {
        envelope_result(&Envelope::error(ErrorBody::new(
            ErrorCode::ToolFailed,
            format!("the upstream's answer is not an MCP result: {error}"),
        )))
    })
}
