//! The MCP server that agents talk to, whatever its transport: `pml stdio` and `pml serve`.

mod asking;
mod capability;
mod described;
mod offered;
mod tasks;

use std::sync::Arc;

use execution::mcp_server::{envelope_result, listed_tool, listed_tools, parse};
use execution::spans::{self, Side, Span, Transport};
use execution::trace_context::{self, TraceContext};
use protocol::discovery::DiscoverRequest;
use protocol::meta_tools;
use protocol::{
    Approval, ContinueRequest, CreateRequest, Envelope, ErrorBody, ErrorCode, ExecuteRequest,
    Integrity, ToolId,
};
use rmcp::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams, GetTaskParams,
    GetTaskResult, Implementation, ListToolsResult, PaginatedRequestParams, ProtocolVersion,
    RequestId, ResultType, ServerCapabilities, ServerConfig, SubscriptionFilter, Tool,
    UpdateTaskParams,
};
use rmcp::service::{NotificationContext, RequestContext, RoleServer, SubscriptionContext};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use self::asking::{Channel, Rounds};
pub(crate) use self::capability::CapabilityHandler;
use self::tasks::{Created, Tasks};
use crate::consent::question;
use crate::discover;
use crate::exposed::Exposed;
use crate::run::{Runs, create, execute, progress, resume};

/// Answers the MCP requests of agents. Its clones share the questions and tasks: a client of 2026-07-28 may answer on
/// another connection.
#[derive(Clone)]
pub(crate) struct AgentHandler {
    runs: Arc<Runs>,
    rounds: Arc<Rounds>,
    tasks: Arc<Tasks>,
    /// The tools next to the meta-tools; `None` if the project exposes none.
    exposed: Option<Arc<Exposed>>,
}

impl ServerHandler for AgentHandler {
    fn get_info(&self) -> ServerConfig {
        let mut info = ServerConfig::default();
        info.capabilities = ServerCapabilities::builder().enable_tools().enable_tasks().build();
        if let Some(tools) = info.capabilities.tools.as_mut().filter(|_| self.exposed.is_some()) {
            tools.list_changed = Some(true);
        }
        info.server_info = Implementation::new("pml", env!("CARGO_PKG_VERSION"));
        info.instructions = Some(meta_tools::INSTRUCTIONS.to_owned());
        info
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        self.announce_changes(context.peer);
    }

    fn accepted_subscription_filter(&self, _: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        self.exposed.as_ref().map(|_| SubscriptionFilter::builder().tools_list_changed().build())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), rmcp::ErrorData> {
        if let Some(exposed) = &self.exposed {
            offered::announce_to(exposed, &context).await;
        }
        Ok(())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, rmcp::ErrorData> {
        let mut tools = listed_tools();
        tools.extend(self.offered_tools().await);
        Ok(ListToolsResult::with_all_items(tools))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        listed_tool(name).or_else(|| self.offered_tool(name))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, rmcp::ErrorData> {
        Ok(match self.find_offered(&request.name).await? {
            Some(tool) => {
                let schema = tool.is_capability.then_some(&tool.descriptor.input_schema);
                let place = Place::of(&context);
                let name = || Some(tool.id.plain().to_string());
                let answer = self.call_described(request, &tool.id, schema, context);
                place.answer(name, Box::pin(answer)).await
            }
            None => {
                let (place, name) = (Place::of(&context), request.name.clone());
                let answer = self.call_named(request, context);
                place.answer(|| spans::tool_name(&name), Box::pin(answer)).await
            }
        })
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, rmcp::ErrorData> {
        self.tasks.get(&request.task_id).ok_or_else(|| {
            let id = protocol::escape_text(&request.task_id);
            rmcp::ErrorData::invalid_params(format!("there is no task `{id}`"), None)
        })
    }

    // Both are acknowledged for any id: SEP-2663, "Task Input Requests" and "Task Cancellation".

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), rmcp::ErrorData> {
        self.tasks.update(&request.task_id, &request.input_responses);
        Ok(())
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), rmcp::ErrorData> {
        self.tasks.cancel(&request.task_id);
        Ok(())
    }

    execution::tools_only!();
}

/// Marks a result as that of a complete call: every result, also the gateway's. rmcp removes it for clients of older
/// versions.
fn mark_complete(result: &mut CallToolResult) {
    result.result_type = Some(ResultType::COMPLETE);
}

/// The place of a call in its client's trace.
struct Place {
    trace: Option<Arc<TraceContext>>,
    transport: Transport,
    version: Option<ProtocolVersion>,
    id: RequestId,
}

impl Place {
    fn of(context: &RequestContext<RoleServer>) -> Self {
        let parts = context.extensions.get::<http::request::Parts>();
        Self {
            trace: TraceContext::of_request(&context.meta, parts.map(|parts| &parts.headers)),
            transport: if parts.is_some() { Transport::Tcp } else { Transport::Pipe },
            version: context.protocol_version(),
            id: context.id.clone(),
        }
    }

    /// Answers the call, as a part of that trace.
    async fn answer(
        self,
        name: impl FnOnce() -> Option<String>,
        work: impl Future<Output = CallToolResponse>,
    ) -> CallToolResponse {
        trace_context::within(self.trace, async {
            let mut span = Span::of_call(Side::Server, self.transport, name);
            span.set_request_id(&self.id);
            if let Some(version) = self.version {
                span.set("mcp.protocol.version", || version.to_string());
            }
            let response = span.within(work).await;
            match &response {
                CallToolResponse::Complete(result) => spans::end_answer(span, result),
                // A question, or a task that has one.
                _ => span.end(None),
            }
            response
        })
        .await
    }
}

/// The answer to a call, before it becomes an MCP result.
enum Reply {
    /// The outcome of a run.
    Envelope(Envelope),
    /// Any other result.
    Result(CallToolResult),
}

impl AgentHandler {
    /// Creates a handler for the runs of this process.
    pub(crate) fn new(runs: Arc<Runs>) -> Self {
        Self { runs, rounds: Arc::default(), tasks: Arc::default(), exposed: None }
    }

    /// Makes a call of a tool by its id, or of a meta-tool.
    async fn call_named(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> CallToolResponse {
        let token = context.meta.get_progress_token();
        let channel = Channel::of(&context);
        let answer = self.answer(request, channel, context.ct);
        let mut answer = match token {
            // MCP allows progress notifications only for a request with a progress token.
            Some(token) => {
                let activity = self.runs.app.package_activity();
                progress::notify(&context.peer, token, activity, answer).await
            }
            None => answer.await,
        };
        if let CallToolResponse::Complete(result) = &mut answer {
            mark_complete(result);
        }
        answer
    }

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
                Some(Channel::Task) => return self.begin_task((**approval).clone(), is_direct),
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

    /// Turns a call that asks into a task.
    fn begin_task(&self, approval: Approval, is_direct: bool) -> CallToolResponse {
        let Created { id, stop } = self.tasks.create();
        let answered = self.tasks.ask(&id, approval.clone());
        let handle = self.tasks.handle(&id).expect("it was just created");
        let handler = self.clone();
        let followed = async move {
            let envelope = handler.follow_task(&id, approval, answered, &stop).await;
            let result = match envelope {
                Some(envelope) => Some(handler.complete(envelope, is_direct).await),
                None => None,
            };
            let result = result.and_then(|response| {
                let CallToolResponse::Complete(mut result) = response else { return None };
                mark_complete(&mut result);
                serde_json::to_value(result).ok()?.as_object().cloned()
            });
            handler.tasks.end(&id, result);
        };
        tokio::spawn(trace_context::within(trace_context::current(), followed));
        CallToolResponse::Task(handle)
    }

    /// Follows a task until its run ends, or until the client has answered a question without a decision. Returns `None`
    /// if the task was cancelled.
    async fn follow_task(
        &self,
        id: &str,
        mut approval: Approval,
        mut answered: oneshot::Receiver<Option<ContinueRequest>>,
        stop: &CancellationToken,
    ) -> Option<Envelope> {
        let by = question::Channel::Client;
        loop {
            let workflow_id = approval.workflow_id.clone();
            let envelope = tokio::select! {
                decision = &mut answered => match decision.ok().flatten() {
                    Some(decision) => {
                        resume::resume(&self.runs, &decision, by, false, stop.clone()).await
                    }
                    // Not asked again: the client would have to decide how often. Another channel can answer.
                    None => return Some(Envelope::ApprovalRequired(Box::new(approval))),
                },
                // A run of the gateway is not paused here, so only the client can answer it.
                outcome = self.runs.answered_elsewhere(&workflow_id, stop), if workflow_id.starts_with("wl_") => {
                    self.tasks.works(id);
                    match outcome {
                        Some(envelope) => envelope,
                        // The question is no longer open. The error says why.
                        None => {
                            let denial = ContinueRequest {
                                workflow_id,
                                approved: false,
                                always: false,
                                without: Vec::new(),
                            };
                            resume::resume(&self.runs, &denial, by, false, stop.clone()).await
                        }
                    }
                }
                () = stop.cancelled() => {
                    self.runs.abandon(&workflow_id);
                    return None;
                }
            };
            match envelope {
                Envelope::ApprovalRequired(next) => {
                    approval = *next;
                    answered = self.tasks.ask(id, approval.clone());
                }
                Envelope::Error(error)
                    if stop.is_cancelled() && error.error.error_code == ErrorCode::Cancelled =>
                {
                    return None;
                }
                ended => return Some(ended),
            }
        }
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
