//! `pml stdio`: an MCP server on stdin and stdout.
//!
//! The only writer to stdout is the one in `lines`; logs go to stderr.

mod lines;

use std::sync::Arc;

use execution::mcp_server::{envelope_result, parse};
use protocol::discovery::DiscoverRequest;
use protocol::meta_tools;
use protocol::{
    ContinueRequest, CreateRequest, Envelope, ErrorBody, ErrorCode, ExecuteRequest, ToolId,
};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, Implementation, ResultType,
    ServerCapabilities, ServerConfig,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::{ServerHandler, ServiceExt as _};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::discover;
use crate::run::{Runs, create, execute, progress, resume};

/// Serves MCP on stdin and stdout until stdin ends or `stop` is cancelled.
///
/// # Errors
/// Returns an error if the handshake fails, unless stdin was closed.
pub(crate) async fn serve(app: Arc<App>, stop: CancellationToken) -> anyhow::Result<()> {
    let runs = Arc::new(Runs::of(app));
    let handler = StdioHandler { runs: Arc::clone(&runs) };
    let served = async {
        let (transport, mut written) = lines::connect(tokio::io::stdin(), tokio::io::stdout());
        let greeted = tokio::select! {
            greeted = handler.serve(transport) => greeted,
            // If stdout is closed, the client is gone, whether or not stdin has ended.
            _ = &mut written => return Ok(()),
        };
        match greeted {
            Ok(service) => {
                tokio::select! {
                    _ = service.waiting() => {
                        // Wait until the last answers are written to stdout.
                        let _ = written.await;
                    }
                    _ = &mut written => {}
                }
                Ok(())
            }
            // A client that disconnects before the handshake is not an error.
            Err(rmcp::service::ServerInitializeError::ConnectionClosed(_)) => Ok(()),
            Err(error) => Err(anyhow::Error::new(error)),
        }
    };
    let ended = tokio::select! {
        ended = served => ended,
        () = stop.cancelled() => Ok(()),
    };
    // In every case, also after an error: no server may outlive the connection.
    runs.shut_down().await;
    ended
}

/// Answers the MCP requests of the agent that started this process.
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

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, rmcp::ErrorData> {
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        let token = context.meta.get_progress_token();
        let answer = self.dispatch(&request.name, arguments, context.ct);
        let mut result = match token {
            // MCP allows progress notifications only for a request with a progress token.
            Some(token) => progress::notify(&context.peer, token, answer).await,
            None => answer.await,
        };
        // Set on every result, also on the gateway's; rmcp removes it for clients of older versions.
        result.result_type = Some(ResultType::COMPLETE);
        Ok(result.into())
    }

    execution::meta_tools_only!();
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

    /// Calls one tool by its id, as a program with that one call. So the same analysis, permissions and questions
    /// apply as to every program.
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
        // The names are written as JSON strings and the arguments passed as `args`, so that no text
        // of the request becomes code.
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
