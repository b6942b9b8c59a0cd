//! `pml stdio`: an MCP server on stdin and stdout.
//!
//! The only writer to stdout is the one in `lines`; logs go to stderr.

mod lines;

use std::sync::Arc;

use protocol::discovery::DiscoverRequest;
use protocol::meta_tools::{self, META_TOOLS, MetaTool};
use protocol::{
    ContinueRequest, CreateRequest, Envelope, ErrorBody, ErrorCode, ExecuteRequest, ToolId,
};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CompleteRequestMethod,
    CompleteRequestParams, CompleteResult, CustomRequest, CustomResult, Implementation,
    ListPromptsRequestMethod, ListPromptsResult, ListResourceTemplatesRequestMethod,
    ListResourceTemplatesResult, ListResourcesRequestMethod, ListResourcesResult, ListToolsResult,
    MetaObject, PaginatedRequestParams, ResultType, ServerCapabilities, ServerConfig, Tool,
    ToolAnnotations,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::{ServerHandler, ServiceExt as _};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::discover;
use crate::run::{Runs, create, execute, progress, resume};

/// Serves MCP on stdin and stdout until stdin ends or `stop` is cancelled.
///
/// # Errors
/// Returns an error when the handshake fails for another reason than the end of stdin.
pub(crate) async fn serve(app: Arc<App>, stop: CancellationToken) -> anyhow::Result<()> {
    let runs = Arc::new(Runs::of(app));
    let handler = StdioHandler { runs: Arc::clone(&runs) };
    let served = async {
        let (transport, mut written) = lines::connect(tokio::io::stdin(), tokio::io::stdout());
        let greeted = tokio::select! {
            greeted = handler.serve(transport) => greeted,
            // A client that does not read our output is gone, whether or not stdin has ended.
            _ = &mut written => return Ok(()),
        };
        match greeted {
            Ok(service) => {
                tokio::select! {
                    _ = service.waiting() => {
                        // The last answers are still on their way to stdout.
                        let _ = written.await;
                    }
                    _ = &mut written => {}
                }
                Ok(())
            }
            // A client that leaves before the handshake is not a failure.
            Err(rmcp::service::ServerInitializeError::ConnectionClosed(_)) => Ok(()),
            Err(error) => Err(anyhow::Error::new(error)),
        }
    };
    let ended = tokio::select! {
        ended = served => ended,
        () = stop.cancelled() => Ok(()),
    };
    runs.shut_down().await;
    ended
}

/// Answers MCP requests of the agent that started us.
#[derive(Clone)]
struct StdioHandler {
    runs: Arc<Runs>,
}

impl ServerHandler for StdioHandler {
    fn get_info(&self) -> ServerConfig {
        let mut info = ServerConfig::default();
        info.capabilities = ServerCapabilities::builder().enable_tools().build();
        info.server_info = Implementation::new("pml", env!("CARGO_PKG_VERSION"));
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
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        let token = context.meta.get_progress_token();
        let answer = self.dispatch(&request.name, arguments, context.ct);
        let mut result = match token {
            Some(token) => progress::tell(&context.peer, token, answer).await,
            None => answer.await,
        };
        // Set on every result, also on the gateway's; rmcp removes it for clients of older versions.
        result.result_type = Some(ResultType::COMPLETE);
        Ok(result.into())
    }

    // rmcp answers empty lists if a server declares nothing, but a client must learn that the method does not exist.

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
            let message = format!("the parameters of `{method}` are invalid");
            rmcp::ErrorData::invalid_params(message, None)
        } else {
            rmcp::ErrorData::new(rmcp::model::ErrorCode::METHOD_NOT_FOUND, method, None)
        })
    }
}

impl StdioHandler {
    async fn dispatch(
        &self,
        name: &str,
        arguments: Value,
        cancel: CancellationToken,
    ) -> CallToolResult {
        let runs = &self.runs;
        if meta_tools::EXECUTE.is(name) {
            return envelope_result(&match parse::<ExecuteRequest>(name, arguments) {
                Ok(request) => execute::execute(runs, request, cancel).await,
                Err(error) => Envelope::error(error),
            });
        }
        if meta_tools::CONTINUE.is(name) {
            return envelope_result(&match parse::<ContinueRequest>(name, arguments) {
                Ok(request) => resume::resume(runs, &request, cancel).await,
                Err(error) => Envelope::error(error),
            });
        }
        if meta_tools::CREATE.is(name) {
            return envelope_result(&match parse::<CreateRequest>(name, arguments) {
                Ok(request) => create::create(runs, request, cancel).await,
                Err(error) => Envelope::error(error),
            });
        }
        if meta_tools::DISCOVER.is(name) {
            let found = match parse::<DiscoverRequest>(name, arguments) {
                Ok(request) => discover::discover(&runs.app, request, &cancel).await,
                Err(error) => Err(error),
            };
            return match found {
                Ok(found) => CallToolResult::structured(found),
                Err(error) => envelope_result(&Envelope::error(error)),
            };
        }
        self.call_one(name, arguments, cancel).await
    }

    /// Calls one tool by its id, as a program of that one call: the analysis, the
    /// permissions and the questions are those of every program.
    async fn call_one(
        &self,
        name: &str,
        arguments: Value,
        cancel: CancellationToken,
    ) -> CallToolResult {
        let id = match ToolId::from_wire(name) {
            Ok(id) => id,
            Err(error) => {
                return envelope_result(&Envelope::error(ErrorBody::new(
                    ErrorCode::ToolNotFound,
                    error.to_string(),
                )));
            }
        };
        let code = format!(
            "return await mcp[{}][{}](args);",
            json!(id.program_namespace()),
            json!(id.program_action())
        );
        let request =
            ExecuteRequest { code: Some(code), args: Some(arguments), ..ExecuteRequest::default() };
        match execute::execute(&self.runs, request, cancel).await {
            Envelope::Success(success) => {
                CallToolResult::structured(json!({ "value": success.result }))
            }
            other => envelope_result(&other),
        }
    }
}

fn listed_tool(tool: &MetaTool) -> Tool {
    let object = |schema| match schema {
        Value::Object(schema) => schema,
        _ => Default::default(),
    };
    let hints = tool.hints;
    Tool::new(tool.name, tool.description, object(tool.input_schema()))
        .with_title(tool.title)
        .with_raw_output_schema(Arc::new(object(tool.output_schema())))
        .with_annotations(
            ToolAnnotations::with_title(tool.title)
                .read_only(hints.read_only)
                .destructive(hints.destructive)
                .idempotent(hints.idempotent)
                .open_world(hints.open_world),
        )
}

fn parse<T: DeserializeOwned>(tool: &str, arguments: Value) -> Result<T, ErrorBody> {
    serde_json::from_value(arguments).map_err(|error| {
        ErrorBody::new(
            ErrorCode::InvalidRequest,
            format!("the arguments of `{}`: {error}", protocol::escape_text(tool)),
        )
    })
}

/// Puts an envelope into an MCP result: structured, and the same as JSON text.
fn envelope_result(envelope: &Envelope) -> CallToolResult {
    let structured = serde_json::to_value(envelope)
        .unwrap_or_else(|error| json!({ "status": "error", "message": error.to_string() }));
    let mut result = if envelope.is_error() {
        CallToolResult::structured_error(structured)
    } else {
        CallToolResult::structured(structured)
    };
    result.meta = meta_tools::run_meta(envelope).map(MetaObject);
    result
}
