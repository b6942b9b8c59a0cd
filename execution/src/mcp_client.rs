//! The client side of MCP over Streamable HTTP.
//!
//! rmcp limits the bytes of a response and then parses it. Depending on its shape the parsed form takes up to a
//! hundred times as much memory, so here each message passes a [`Budget`] first. A refused response is replaced by a
//! JSON-RPC error with the code [`TOO_LARGE`], so that the connection and its other calls continue.

mod answer;
mod events;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures::stream::BoxStream;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResponse, CancelledNotificationParam,
    ClientJsonRpcMessage, ClientRequest, GetExtensions as _, GetMeta as _, RequestId,
    RequestMetaObject, ServerResult,
};
use rmcp::service::{Peer, PeerRequestOptions, RoleClient, ServiceError};
use rmcp::transport::common::http_header::{
    EVENT_STREAM_MIME_TYPE, HEADER_SESSION_ID, JSON_MIME_TYPE,
};
use rmcp::transport::streamable_http_client::{
    StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream::Sse;

use crate::budget::Budget;
use crate::spans::{self, Side, Span, Transport};
use crate::trace_context::{self, TraceContext};

/// The JSON-RPC code that replaces a response too large to parse.
pub const TOO_LARGE: i32 = -32099;

/// Sends messages to a server and keeps its responses within a budget.
#[derive(Debug, Clone)]
pub struct BudgetedClient<B> {
    http: reqwest::Client,
    budget: B,
}

impl<B: Budget> BudgetedClient<B> {
    /// Creates a client that sends requests with `http`.
    pub fn new(http: reqwest::Client, budget: B) -> Self {
        Self { http, budget }
    }
}

/// The memory reserved for the response to one call. The caller keeps it as long as it uses the result.
#[derive(Debug)]
pub struct Slot<H>(Arc<Mutex<Vec<H>>>);

impl<H> Clone for Slot<H> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<H> Default for Slot<H> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<H> Slot<H> {
    /// Keeps a reservation as long as the slot exists.
    pub fn keep(&self, held: H) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(held);
    }
}

/// Returns the options of a request that carries the trace context of this task.
pub fn traced() -> PeerRequestOptions {
    let options = PeerRequestOptions::no_options();
    let Some(context) = trace_context::current() else { return options };
    let mut meta = RequestMetaObject::new();
    context.add_to(&mut meta);
    options.with_meta(meta)
}

/// Calls a tool once, without answering `input_required`. The response's reservation is put into `slot`. Dropping the
/// future sends `notifications/cancelled`.
///
/// # Errors
/// As rmcp's method of that name. A [`ServiceError::McpError`] with [`TOO_LARGE`] means that the response exceeded the
/// budget.
pub async fn call_tool_once<H: Send + Sync + 'static>(
    peer: &Peer<RoleClient>,
    params: CallToolRequestParams,
    slot: &Slot<H>,
) -> Result<CallToolResponse, ServiceError> {
    // The name is the action of a tool's id.
    let name = || Some(params.name.to_string());
    let mut span = Span::of_call(Side::Client, Transport::Tcp, name);
    let context = span.context();
    let sent = send_once(peer, params, slot, &mut span);
    let answer = trace_context::within(context, sent).await;
    spans::end_call(span, &answer);
    answer
}

async fn send_once<H: Send + Sync + 'static>(
    peer: &Peer<RoleClient>,
    params: CallToolRequestParams,
    slot: &Slot<H>,
    span: &mut Span,
) -> Result<CallToolResponse, ServiceError> {
    let mut request = CallToolRequest::new(params);
    // The transport receives the request with its extensions, so the slot reaches `post_message`.
    request.extensions.insert(slot.clone());
    let request = ClientRequest::CallToolRequest(request);
    let handle = peer.send_cancellable_request(request, traced()).await?;
    span.set_request_id(&handle.id);
    let mut abandoned = Abandoned { peer: peer.clone(), request: Some(handle.id.clone()) };
    let result = handle.await_response().await;
    // Before the `?` below: a request that has ended, even with an error, has nothing to cancel.
    abandoned.request = None;
    match result? {
        ServerResult::CallToolResult(result) => Ok(CallToolResponse::Complete(result)),
        ServerResult::InputRequiredResult(result) => Ok(CallToolResponse::InputRequired(result)),
        ServerResult::CreateTaskResult(result) => Ok(CallToolResponse::Task(result)),
        _ => Err(ServiceError::UnexpectedResponse),
    }
}

/// A guard that cancels a request when it is dropped.
struct Abandoned {
    peer: Peer<RoleClient>,
    request: Option<RequestId>,
}

impl Drop for Abandoned {
    fn drop(&mut self) {
        // Outside of a runtime, as during a shutdown, nothing can be sent.
        let (Some(request), Ok(runtime)) =
            (self.request.take(), tokio::runtime::Handle::try_current())
        else {
            return;
        };
        let peer = self.peer.clone();
        // A destructor cannot wait.
        runtime.spawn(async move {
            let cancelled = CancelledNotificationParam::new(Some(request), None);
            // On a closed connection, the request is cancelled anyway.
            let _ = peer.notify_cancelled(cancelled).await;
        });
    }
}

/// The largest event of a stream, in bytes, unless the transport sets a limit.
const EVENT: usize = 8 * 1024 * 1024;

impl<B: Budget> StreamableHttpClient for BudgetedClient<B> {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        token: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, StreamableHttpError<reqwest::Error>> {
        self.post_message_with_max_sse_event_size(uri, message, session, token, headers, EVENT)
            .await
    }

    async fn post_message_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        token: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
        largest: usize,
    ) -> Result<StreamableHttpPostResponse, StreamableHttpError<reqwest::Error>> {
        let mut headers = HeaderMap::from_iter(headers);
        // For what is between here and the server, which reads `_meta`.
        if let ClientJsonRpcMessage::Request(request) = &message
            && let Some(context) = TraceContext::of_request(request.request.get_meta(), None)
        {
            context.add_to_headers(&mut headers);
        }
        let mut request = self
            .http
            .post(uri.as_ref())
            // The transport requires both types, because the server chooses.
            .header(header::ACCEPT, format!("{EVENT_STREAM_MIME_TYPE}, {JSON_MIME_TYPE}"))
            .headers(headers);
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        let has_session = session.is_some();
        if let Some(session) = session {
            request = request.header(HEADER_SESSION_ID, session.as_ref());
        }
        let answer = request.json(&message).send().await?;
        let info = RequestInfo::of(&message, has_session);
        answer::read(&self.budget, answer, info, largest).await
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        token: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), StreamableHttpError<reqwest::Error>> {
        self.http.delete_session(uri, session, token, headers).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        token: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<
        BoxStream<'static, Result<Sse, sse_stream::Error>>,
        StreamableHttpError<reqwest::Error>,
    > {
        self.get_stream_with_max_sse_event_size(uri, session, last_event, token, headers, EVENT)
            .await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        token: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
        largest: usize,
    ) -> Result<
        BoxStream<'static, Result<Sse, sse_stream::Error>>,
        StreamableHttpError<reqwest::Error>,
    > {
        let stream = self
            .http
            .get_stream_with_max_sse_event_size(uri, session, last_event, token, headers, largest)
            .await?;
        // The messages of this stream belong to no call, unless it resumes an interrupted stream.
        Ok(events::admitted(self.budget.clone(), stream, None, Slot::default()))
    }
}

/// The facts about a request that are needed to read its response.
struct RequestInfo<H> {
    /// `None` for a notification or a response.
    id: Option<RequestId>,
    is_discovery: bool,
    has_session: bool,
    slot: Slot<H>,
}

impl<H: Send + Sync + 'static> RequestInfo<H> {
    fn of(message: &ClientJsonRpcMessage, has_session: bool) -> Self {
        let ClientJsonRpcMessage::Request(request) = message else {
            return Self { id: None, is_discovery: false, has_session, slot: Slot::default() };
        };
        let slot = request.request.extensions().get::<Slot<H>>().cloned();
        Self {
            id: Some(request.id.clone()),
            is_discovery: matches!(request.request, ClientRequest::DiscoverRequest(_)),
            has_session,
            slot: slot.unwrap_or_default(),
        }
    }
}
