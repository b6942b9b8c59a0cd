//! Spans of OpenTelemetry, by the semantic conventions of MCP.
//!
//! The only module that names the libraries. While nothing is exported, a span is `None`: it allocates nothing, and the
//! trace context of the request is passed on as it came.
//!
//! A span has names, ids and codes. It never has code, arguments, results, the text of an error, a path, a key or a URL.

mod export;
mod settings;

use std::str::FromStr as _;
use std::sync::Arc;

use opentelemetry::trace::{
    Span as _, SpanBuilder, SpanContext, SpanId, SpanKind, Status, TraceContextExt as _,
    TraceFlags, TraceId, TraceState, Tracer as _,
};
use opentelemetry::{Context, KeyValue};
use protocol::{ErrorCode, ToolId, meta_tools};
use rmcp::ServiceError;
use rmcp::model::{CallToolResponse, CallToolResult, RequestId};

pub use self::export::{dropped, flush, start};
pub use self::settings::{NAMES_OF_SECRETS, Settings, WrongSetting};
use crate::trace_context::{self, TraceContext};

/// The method of the requests that have spans.
const CALL: &str = "tools/call";

/// The longest id of a request that a span has.
const ID_LIMIT: usize = 64;

/// Whose side of an operation a span is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Of the program that answers a request.
    Server,
    /// Of the program that sends it.
    Client,
}

/// How a request is transported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// On stdin and stdout.
    Pipe,
    /// Over HTTP.
    Tcp,
}

/// An operation that goes on. It ends when this is dropped, as cancelled unless [`end`](Self::end) was called.
pub struct Span(Option<Box<Live>>);

struct Live {
    span: opentelemetry_sdk::trace::Span,
    context: Option<Arc<TraceContext>>,
    has_ended: bool,
}

impl Span {
    /// Begins the span of a `tools/call`. `tool` is `None` if what the client sent cannot be the name of a tool.
    pub fn of_call(
        side: Side,
        transport: Transport,
        tool: impl FnOnce() -> Option<String>,
    ) -> Self {
        let kind = match side {
            Side::Server => SpanKind::Server,
            Side::Client => SpanKind::Client,
        };
        Self::begin(kind, || {
            let tool = tool();
            let name =
                tool.as_ref().map_or_else(|| CALL.to_owned(), |tool| format!("{CALL} {tool}"));
            let transport = match transport {
                Transport::Pipe => "pipe",
                Transport::Tcp => "tcp",
            };
            let mut attributes = vec![
                KeyValue::new("mcp.method.name", CALL),
                KeyValue::new("gen_ai.operation.name", "execute_tool"),
                KeyValue::new("network.transport", transport),
            ];
            attributes.extend(tool.map(|tool| KeyValue::new("gen_ai.tool.name", tool)));
            (name, attributes)
        })
    }

    /// Begins the span of a program's call of a tool, which may be made here or elsewhere. Its name has no scope: that is
    /// the name of a tenant.
    pub fn of_tool(id: &ToolId) -> Self {
        Self::begin(SpanKind::Internal, || {
            let tool = id.plain().to_string();
            let name = format!("execute_tool {tool}");
            let attributes = vec![
                KeyValue::new("gen_ai.operation.name", "execute_tool"),
                KeyValue::new("gen_ai.tool.name", tool),
            ];
            (name, attributes)
        })
    }

    /// Begins the span of a part of the work on a request.
    pub fn of_step(name: &'static str) -> Self {
        Self::begin(SpanKind::Internal, || (name.to_owned(), Vec::new()))
    }

    /// Begins a span within the one that this task works for.
    fn begin(kind: SpanKind, describe: impl FnOnce() -> (String, Vec<KeyValue>)) -> Self {
        let Some(tracer) = export::tracer() else { return Self(None) };
        let parent = trace_context::current();
        let remote = parent.as_deref().and_then(to_library);
        let around = match remote {
            Some(remote) => Context::new().with_remote_span_context(remote),
            None => Context::new(),
        };
        let (name, attributes) = describe();
        let builder = SpanBuilder::from_name(name).with_kind(kind).with_attributes(attributes);
        let span = tracer.build_with_context(builder, &around);
        let context = from_library(span.span_context()).or(parent);
        Self(Some(Box::new(Live { span, context, has_ended: false })))
    }

    /// Returns the context for what happens within this span.
    pub fn context(&self) -> Option<Arc<TraceContext>> {
        match &self.0 {
            Some(live) => live.context.clone(),
            None => trace_context::current(),
        }
    }

    /// Does work within this span.
    pub fn within<F: Future>(&self, work: F) -> impl Future<Output = F::Output> + use<F> {
        trace_context::within(self.context(), work)
    }

    /// Sets an attribute. The value is one of a closed set, or an id that cannot contain what a span must not.
    pub fn set(&mut self, name: &'static str, value: impl FnOnce() -> String) {
        if let Some(live) = self.0.as_deref_mut().filter(|live| live.span.is_recording()) {
            live.span.set_attribute(KeyValue::new(name, value()));
        }
    }

    /// Sets the id of the request. One that is not plain is the client's text, and is left out.
    pub fn set_request_id(&mut self, id: &RequestId) {
        let text = id.to_string();
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
        if text.len() <= ID_LIMIT && text.bytes().all(is_plain) {
            self.set("jsonrpc.request.id", || text);
        }
    }

    /// Ends the span, with the kind of its error if it failed.
    pub fn end(mut self, error: Option<&'static str>) {
        self.finish(error);
    }

    fn finish(&mut self, error: Option<&'static str>) {
        let Some(live) = self.0.as_deref_mut().filter(|live| !live.has_ended) else { return };
        if let Some(error) = error {
            live.span.set_attribute(KeyValue::new("error.type", error));
            live.span.set_status(Status::error(""));
        }
        live.has_ended = true;
        live.span.end();
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        self.finish(Some("cancelled"));
    }
}

/// The kind of error of a call whose result says that it failed, in the conventions.
pub const TOOL_ERROR: &str = "tool_error";

/// Returns the name of a tool for a span: that of a meta-tool, or an id without a scope.
pub fn tool_name(sent: &str) -> Option<String> {
    match meta_tools::META_TOOLS.iter().find(|tool| tool.is(sent)) {
        Some(tool) => Some(tool.name.to_owned()),
        None => ToolId::from_wire(sent).ok().map(|id| id.plain().to_string()),
    }
}

/// Ends the span of a call that was answered with a result. Of an envelope, the span has what cannot be another's text.
pub fn end_answer(mut span: Span, result: &CallToolResult) {
    let field = |name: &str| result.structured_content.as_ref()?.get(name)?.as_str();
    let is_id = |text: &&str| {
        text.len() == 36 && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
    };
    if let Some(id) = field("execution_id").filter(is_id) {
        span.set("pml.execution.id", || id.to_owned());
    }
    if result.is_error != Some(true) {
        return span.end(None);
    }
    if let Some(code) = field("error_code").and_then(|code| code.parse::<ErrorCode>().ok()) {
        span.set("pml.error.code", || code.name().to_owned());
    }
    span.end(Some(TOOL_ERROR));
}

/// Ends the span of a part of the work, with the code of its error if it failed.
pub fn end_step(mut span: Span, error: Option<ErrorCode>) {
    if let Some(code) = error {
        span.set("pml.error.code", || code.name().to_owned());
    }
    span.end(error.map(ErrorCode::name));
}

/// Ends the span of a call that was sent to a server.
pub fn end_call(mut span: Span, answer: &Result<CallToolResponse, ServiceError>) {
    let error = match answer {
        Ok(CallToolResponse::Complete(result)) if result.is_error == Some(true) => Some(TOOL_ERROR),
        Ok(_) => None,
        Err(ServiceError::McpError(error)) => {
            span.set("rpc.response.status_code", || error.code.0.to_string());
            Some("rpc_error")
        }
        Err(ServiceError::Cancelled { .. }) => Some("cancelled"),
        Err(ServiceError::Timeout { .. }) => Some("timeout"),
        Err(_) => Some("connection_error"),
    };
    span.end(error);
}

/// Converts a context to that of the library. It was checked when it was parsed.
fn to_library(context: &TraceContext) -> Option<SpanContext> {
    let (trace, span, is_sampled) = context.ids()?;
    let flags = if is_sampled { TraceFlags::SAMPLED } else { TraceFlags::default() };
    // The library accepts a little less than the specification.
    let state = context.state().and_then(|state| TraceState::from_str(state).ok());
    Some(SpanContext::new(
        TraceId::from_hex(trace).ok()?,
        SpanId::from_hex(span).ok()?,
        flags,
        true,
        state.unwrap_or_default(),
    ))
}

fn from_library(context: &SpanContext) -> Option<Arc<TraceContext>> {
    let sampled = u8::from(context.is_sampled());
    let parent = format!("00-{}-{}-{sampled:02x}", context.trace_id(), context.span_id());
    let state = context.trace_state().header();
    TraceContext::parse(&parent, Some(&state)).map(Arc::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_survives_the_library() {
        let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        for (parent, state) in [
            (parent.to_owned(), Some("rojo=00f067aa0ba902b7,congo=t61")),
            (parent.replace("-01", "-00"), None),
        ] {
            let context = TraceContext::parse(&parent, state).unwrap();
            let library = to_library(&context).unwrap();
            assert_eq!(from_library(&library).as_deref(), Some(&context));
        }
    }
}
