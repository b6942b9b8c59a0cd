//! A running server that is open for calls: what it lists, and what it answers.

use std::sync::Arc;

use execution::mcp_client::{TOO_LARGE, traced};
use execution::mcp_process::{InUse, NoAnswer};
use execution::spans::{self, Side, Span, Transport};
use protocol::ToolDescriptor;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientRequest, PaginatedRequestParams, ServerResult,
};
use rmcp::service::ServiceError;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::LocalMcpError;
use super::StartCheck;
use super::remote::{self, Redactor};
use super::server::Server;

/// The maximum number of tools of a server.
const TOOLS_LIMIT: usize = 2_000;

/// The maximum number of pages of tools that are read.
const PAGES_LIMIT: usize = 100;

/// A number of notices that no server reaches: the list is to be made again.
const NEVER: u64 = u64::MAX;

/// A server that runs. While this exists, it is not stopped as idle; what it lists and what it is called for come from
/// the same process.
pub(crate) struct Opened {
    server: Arc<Server>,
    running: InUse,
    redactor: Redactor,
}

impl Opened {
    /// Opens a server: starts it if it does not run, and if `check` permits.
    ///
    /// # Errors
    /// Returns [`LocalMcpError`] if it does not start.
    pub(super) async fn open(
        server: Arc<Server>,
        check: &StartCheck<'_>,
        cancel: &CancellationToken,
    ) -> Result<Self, LocalMcpError> {
        let redactor = server.redactor()?;
        match server.running(check, cancel).await {
            Ok(running) => Ok(Self { server, running, redactor }),
            Err(error) => Err(redactor.error(error)),
        }
    }

    /// Calls a tool that [`LocalServers::open`](super::LocalServers::open) has checked; the values of headers are redacted in
    /// the answer. `refused` gets the connections that the server was refused meanwhile.
    ///
    /// # Errors
    /// Returns [`LocalMcpError`]; a result with `isError` is not an error here.
    pub(crate) async fn call(
        &self,
        action: &str,
        arguments: Value,
        refused: &mut Option<String>,
        cancel: &CancellationToken,
    ) -> Result<Value, LocalMcpError> {
        let mut answer = self.call_unredacted(action, arguments, refused, cancel).await;
        if let Ok(value) = &mut answer {
            self.redactor.value(value);
        }
        answer.map_err(|error| self.redactor.error(error))
    }

    /// Returns the tools that can be called, as the server listed them last. It is asked again only after it said that
    /// they changed.
    ///
    /// # Errors
    /// Returns [`LocalMcpError`] if it does not answer.
    pub(crate) async fn tools(
        &self,
        cancel: &CancellationToken,
    ) -> Result<Arc<Vec<ToolDescriptor>>, LocalMcpError> {
        // Held while the server answers, so that concurrent calls share one list.
        let mut listed = self.running.0.listed.lock().await;
        // Before the list: a notice that arrives in between makes it old.
        let notices = self.running.0.session.notices.count();
        if let Some((at, tools)) = &*listed
            && *at == notices
        {
            return Ok(Arc::clone(tools));
        }
        let tools = self.list(cancel).await?;
        let known = listed.take().map(|(_, known)| known).filter(|known| **known == tools);
        let tools = known.unwrap_or_else(|| Arc::new(tools));
        *listed = Some((notices, Arc::clone(&tools)));
        Ok(tools)
    }

    /// Asks the server for its tools as they are now.
    ///
    /// # Errors
    /// As [`tools`](Self::tools).
    pub(super) async fn current_tools(
        &self,
        cancel: &CancellationToken,
    ) -> Result<Vec<ToolDescriptor>, LocalMcpError> {
        // What it says now counts for the next call as well, with a notice or without one.
        if let Some((at, _)) = &mut *self.running.0.listed.lock().await {
            *at = NEVER;
        }
        self.tools(cancel).await.map(|tools| tools.to_vec())
    }

    async fn list(&self, cancel: &CancellationToken) -> Result<Vec<ToolDescriptor>, LocalMcpError> {
        let listed = self.list_unredacted(cancel).await;
        let mut tools = listed.map_err(|error| self.redactor.error(error))?;
        tools.retain(|tool| self.server.spec().offers(&tool.name));
        if self.server.spec().remote.is_none() {
            return Ok(tools);
        }
        let invalid_answer = |error: serde_json::Error| self.invalid_answer(error.to_string());
        let mut value = serde_json::to_value(tools).map_err(invalid_answer)?;
        self.redactor.value(&mut value);
        serde_json::from_value(value).map_err(invalid_answer)
    }

    async fn call_unredacted(
        &self,
        action: &str,
        arguments: Value,
        noted: &mut Option<String>,
        cancel: &CancellationToken,
    ) -> Result<Value, LocalMcpError> {
        let mut params = CallToolRequestParams::new(action.to_owned());
        params.arguments = match arguments {
            Value::Object(fields) => Some(fields),
            // `check_call` has refused everything else.
            _ => Some(serde_json::Map::new()),
        };
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let refusals = &self.running.0.session.refusals;
        let mark = refusals.mark();
        let transport = match self.server.spec().remote {
            Some(_) => Transport::Tcp,
            None => Transport::Pipe,
        };
        let span = Span::of_call(Side::Client, transport, || Some(action.to_owned()));
        let answer = span.within(self.ask(request, cancel)).await;
        span.end(error_of(&answer));
        // Calls at the same time may have caused it as well: the proxy does not know for which call the server connects.
        let refused = refusals.since(mark);
        *noted = Some(refused.clone()).filter(|refused| !refused.is_empty());
        let answer = answer.map_err(|error| match refused.is_empty() {
            true => error,
            false => error.with_note(&refused_note(&refused)),
        })?;
        let value = match answer {
            ServerResult::CallToolResult(result) => serde_json::to_value(result),
            ServerResult::InputRequiredResult(_) => {
                return Err(
                    self.invalid_answer("it asks the user for input, which is not supported yet")
                );
            }
            ServerResult::CreateTaskResult(_) => {
                return Err(self.invalid_answer("it created a task, which was not requested"));
            }
            // The library recognises results by their fields, so it may read an unusual one as
            // another type. What counts is checked below.
            other => serde_json::to_value(other),
        };
        let mut value = value.map_err(|error| self.invalid_answer(error.to_string()))?;
        if !refused.is_empty() && value["isError"] == true {
            let note = serde_json::json!({ "type": "text", "text": refused_note(&refused) });
            if let Some(content) = value["content"].as_array_mut() {
                content.push(note);
            }
        }
        let is_result = value.get("content").is_some_and(Value::is_array)
            || value.get("structuredContent").is_some();
        if is_result { Ok(value) } else { Err(self.invalid_answer("it is not a tool result")) }
    }

    async fn list_unredacted(
        &self,
        cancel: &CancellationToken,
    ) -> Result<Vec<ToolDescriptor>, LocalMcpError> {
        let running = &self.running.0;
        let invalid_answer = |reason: String| self.invalid_answer(reason);
        let mut tools: Vec<ToolDescriptor> = Vec::new();
        let mut page = PaginatedRequestParams::default();
        // A server can return a cursor with every page, even with empty ones.
        for _ in 0..PAGES_LIMIT {
            let listing = running.session.service.peer().list_tools(Some(page.clone()));
            let listed = tokio::select! {
                () = cancel.cancelled() => return Err(self.server.cancelled()),
                listed = tokio::time::timeout(self.server.shared.timing.start, listing) => listed,
            };
            let listed = match listed {
                Ok(Ok(listed)) => listed,
                Ok(Err(error)) => return Err(self.failure(error).await),
                Err(_) => {
                    return Err(invalid_answer("it did not list its tools in time".to_owned()));
                }
            };
            for tool in listed.tools {
                let tool = serde_json::to_value(tool).and_then(serde_json::from_value);
                let tool: ToolDescriptor =
                    tool.map_err(|error| invalid_answer(error.to_string()))?;
                if tools.iter().any(|known| known.name == tool.name) {
                    return Err(invalid_answer(format!("it has two tools named `{}`", tool.name)));
                }
                tools.push(tool);
            }
            match listed.next_cursor {
                Some(cursor) if tools.len() <= TOOLS_LIMIT => page.cursor = Some(cursor),
                Some(_) => break,
                None if tools.len() <= TOOLS_LIMIT => return Ok(tools),
                None => break,
            }
        }
        Err(invalid_answer(format!("it lists more than {TOOLS_LIMIT} tools")))
    }

    /// Sends a request and waits for its answer.
    async fn ask(
        &self,
        request: ClientRequest,
        cancel: &CancellationToken,
    ) -> Result<ServerResult, LocalMcpError> {
        let grace = self.server.shared.timing.cancel_grace;
        // No time limit here: the clock of the run cancels the call, and stops while the user is
        // asked.
        match self.running.ask(request, traced(), grace, cancel).await {
            Ok(answer) => Ok(answer),
            Err(NoAnswer::Cancelled) => Err(self.server.cancelled()),
            Err(NoAnswer::Failed(error)) => Err(self.failure(error).await),
        }
    }

    async fn failure(&self, error: ServiceError) -> LocalMcpError {
        let (server, running) = (self.server.name.clone(), &self.running.0);
        match error {
            ServiceError::McpError(error) if error.code.0 == TOO_LARGE => {
                LocalMcpError::TooLarge { server }
            }
            ServiceError::McpError(error) => LocalMcpError::Refused {
                server,
                code: error.code.0,
                message: error.message.into_owned(),
            },
            ServiceError::TransportSend(error) if self.server.spec().remote.is_some() => {
                let reason = remote::reason(&error);
                LocalMcpError::Died { server, reason, stderr: String::new() }
            }
            ServiceError::TransportClosed
            | ServiceError::TransportSend(_)
            | ServiceError::Cancelled { .. } => {
                let reason = running.exit_reason().await;
                LocalMcpError::Died { server, reason, stderr: running.session.diagnosis.stderr() }
            }
            other => LocalMcpError::Answer { server, reason: other.to_string() },
        }
    }

    fn invalid_answer(&self, reason: impl Into<String>) -> LocalMcpError {
        LocalMcpError::Answer { server: self.server.name.clone(), reason: reason.into() }
    }
}

/// Returns the kind of the error of a call, for its span.
fn error_of(answer: &Result<ServerResult, LocalMcpError>) -> Option<&'static str> {
    match answer {
        Ok(ServerResult::CallToolResult(result)) if result.is_error == Some(true) => {
            Some(spans::TOOL_ERROR)
        }
        Ok(_) => None,
        Err(LocalMcpError::Refused { .. }) => Some("rpc_error"),
        Err(LocalMcpError::Died { .. }) => Some("connection_error"),
        Err(_) => Some("failed"),
    }
}

/// Returns what to say about a call during which the server was refused connections.
fn refused_note(refused: &str) -> String {
    format!("`pml` refused it a connection: {refused}")
}
