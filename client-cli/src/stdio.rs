//! `pml stdio`: an MCP server on stdin and stdout.
//!
//! The only writer to stdout is the one in `lines`; logs go to stderr.

mod asking;
mod lines;

use std::sync::Arc;

use execution::mcp_server::{envelope_result, parse};
use protocol::discovery::DiscoverRequest;
use protocol::meta_tools;
use protocol::{
    ContinueRequest, CreateRequest, Envelope, ErrorBody, ErrorCode, ExecuteRequest, Integrity,
    ToolId,
};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, Implementation, ResultType,
    ServerCapabilities, ServerConfig,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::{ServerHandler, ServiceExt as _};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use self::asking::{Channel, Rounds};
use crate::app::App;
use crate::consent::question;
use crate::discover;
use crate::run::{Runs, create, execute, progress, resume};

/// Serves MCP on stdin and stdout until stdin ends or `stop` is cancelled.
///
/// # Errors
/// Returns an error if the handshake fails, unless stdin was closed.
pub(crate) async fn serve(app: Arc<App>, stop: CancellationToken) -> anyhow::Result<()> {
    let runs = Arc::new(Runs::with_posted_questions(app));
    let handler = StdioHandler { runs: Arc::clone(&runs), rounds: Arc::default() };
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
    rounds: Arc<Rounds>,
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
        let token = context.meta.get_progress_token();
        let channel = Channel::of(&context);
        let answer = self.answer(request, channel, context.ct);
        let mut answer = match token {
            // MCP allows progress notifications only for a request with a progress token.
            Some(token) => progress::notify(&context.peer, token, answer).await,
            None => answer.await,
        };
        if let CallToolResponse::Complete(result) = &mut answer {
            // Set on every result, also on the gateway's; rmcp removes it for clients of older versions.
            result.result_type = Some(ResultType::COMPLETE);
        }
        Ok(answer)
    }

    execution::meta_tools_only!();
}

/// The answer to a call, before it becomes an MCP result.
enum Reply {
    /// The outcome of a run.
    Envelope(Envelope),
    /// Any other result.
    Result(CallToolResult),
}

impl StdioHandler {
    /// Makes a call, and lets the client ask the person about it, if it can.
    async fn answer(
        &self,
        request: CallToolRequestParams,
        channel: Option<Channel>,
        cancel: CancellationToken,
    ) -> CallToolResponse {
        let name = request.name.as_ref();
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        let call = Integrity::of_json(&json!([name, arguments]));
        let is_direct = !meta_tools::META_TOOLS.iter().any(|tool| tool.is(name));
        let mut envelope = if request.request_state.is_some() || request.input_responses.is_some() {
            let (state, responses) = (request.request_state, request.input_responses);
            match self.rounds.answer(state.as_deref(), responses.as_ref(), call) {
                Ok(Ok(decision)) => {
                    let by = question::Channel::Client;
                    resume::resume(&self.runs, &decision, by, false, cancel.clone()).await
                }
                // Not asked again: the client would have to decide how often.
                Ok(Err(unanswered)) => {
                    return self
                        .complete(Envelope::ApprovalRequired(Box::new(unanswered)), is_direct)
                        .await;
                }
                Err(error) => Envelope::error(error),
            }
        } else {
            // A client that shows forms is shown this question, too.
            let waits = channel.is_none();
            match self.dispatch(name, arguments, waits, cancel.clone()).await {
                Reply::Envelope(envelope) => envelope,
                Reply::Result(result) => return result.into(),
            }
        };
        while let Envelope::ApprovalRequired(approval) = &envelope {
            match &channel {
                Some(Channel::Result) => return self.rounds.ask((**approval).clone(), call).into(),
                Some(Channel::Request(peer)) => {
                    let id = &approval.workflow_id;
                    let answer = tokio::select! {
                        answer = asking::ask(peer, approval) => answer,
                        // The run of the gateway is not paused here, so only the form can answer it.
                        outcome = self.runs.answered_elsewhere(id, &cancel), if id.starts_with("wl_") => {
                            match outcome {
                                Some(outcome) => {
                                    envelope = outcome;
                                    continue;
                                }
                                None => None,
                            }
                        }
                        () = cancel.cancelled() => {
                            self.runs.abandon(id);
                            None
                        }
                    };
                    // Without an answer, the question becomes the result: another channel can answer it.
                    let Some(decision) = answer else { break };
                    let by = question::Channel::Client;
                    envelope =
                        resume::resume(&self.runs, &decision, by, false, cancel.clone()).await;
                }
                None => break,
            }
        }
        self.complete(envelope, is_direct).await
    }

    /// Makes a call. `waits` says whether an answer that only a person can give is waited for.
    async fn dispatch(
        &self,
        name: &str,
        arguments: Value,
        waits: bool,
        cancel: CancellationToken,
    ) -> Reply {
        let runs = &self.runs;
        Reply::Envelope(if meta_tools::EXECUTE.is(name) {
            match parse::<ExecuteRequest>(name, arguments) {
                Ok(request) => execute::execute(runs, request, cancel).await,
                Err(error) => Envelope::error(error),
            }
        } else if meta_tools::CONTINUE.is(name) {
            match parse::<ContinueRequest>(name, arguments) {
                Ok(request) => {
                    let by = question::Channel::Agent;
                    resume::resume(runs, &request, by, waits, cancel).await
                }
                Err(error) => Envelope::error(error),
            }
        } else if meta_tools::CREATE.is(name) {
            match parse::<CreateRequest>(name, arguments) {
                Ok(request) => create::create(runs, request, cancel).await,
                Err(error) => Envelope::error(error),
            }
        } else if meta_tools::DISCOVER.is(name) {
            let found = match parse::<DiscoverRequest>(name, arguments) {
                Ok(request) => discover::discover(&runs.app, request, &cancel).await,
                Err(error) => Err(error),
            };
            match found {
                Ok(found) => return Reply::Result(CallToolResult::structured(found)),
                Err(error) => Envelope::error(error),
            }
        } else {
            self.call_one(name, arguments, cancel).await
        })
    }

    /// Calls one tool by its id, as a program with that one call. So the same analysis, permissions and questions
    /// apply as to every program.
    async fn call_one(&self, name: &str, arguments: Value, cancel: CancellationToken) -> Envelope {
        let id = match ToolId::from_wire(name) {
            Ok(id) => id,
            Err(error) => {
                return Envelope::error(ErrorBody::new(ErrorCode::ToolNotFound, error.to_string()));
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
        execute::execute(&self.runs, request, cancel).await
    }

    /// Returns the MCP result of a run. A direct call of a tool returns the tool's result, not that of its program.
    async fn complete(&self, envelope: Envelope, is_direct: bool) -> CallToolResponse {
        match envelope {
            Envelope::Success(success) if is_direct => {
                CallToolResult::structured(json!({ "value": success.result })).into()
            }
            Envelope::ApprovalRequired(mut approval) => {
                // What the agent can answer with `pml_continue`: it cannot make rules.
                approval.options.retain(|option| option != "always");
                if approval.context.get("needs_person").is_some() {
                    approval.options.retain(|option| option != "continue");
                    let id = &approval.workflow_id;
                    let page = match self.runs.open_page(id).await {
                        true => "the user answers on the page that `pml` had the browser open, or ",
                        false => "the user ",
                    };
                    approval.context["answer_with"] = format!(
                        "{page}runs `pml approve {id}` in a terminal; then call `pml_continue` with this id for the outcome"
                    )
                    .into();
                }
                envelope_result(&Envelope::ApprovalRequired(approval)).into()
            }
            other => envelope_result(&other).into(),
        }
    }
}
