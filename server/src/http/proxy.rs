//! `/mcp/proxy/{server}`: one HTTP MCP server, proxied.

use std::sync::Arc;

use axum::Extension;
use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequestParts, Path, Request, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::Response;
use protocol::ErrorCode;
use registry::{Caller, Changes, EntryName, Right};

use super::api::require;
use super::body;
use super::pages::Pages;
use crate::admission::memory::Parsed;
use crate::error::ApiError;
use crate::identity::requester::Requester;
use crate::proxy::Exchange;
use crate::state::SharedGateway;

/// Forwards a message to one MCP server, and returns its answer.
#[utoipa::path(post, path = "/mcp/proxy/{server}", tag = "mcp",
    params(("server" = String, Path, description = "A namespace, or a full name", example = "acme.web.notes")),
    request_body(content = Object, description = "A JSON-RPC 2.0 message",
        example = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" })),
    responses(
        (status = 200, description = "The server's answer, as JSON or as events", body = Object),
        (status = 202, description = "A notification or a response was accepted"),
        (status = 400, description = "Not an MCP message, or headers that contradict it", body = Object),
        (status = 410, description = "The server was deleted", body = Object, content_type = "application/problem+json"),
        (status = 501, description = "The gateway does not run servers of this type", body = Object, content_type = "application/problem+json"),
        (status = 502, description = "The server is unreachable, or does not answer with MCP", body = Object, content_type = "application/problem+json"),
        (status = 504, description = "The server did not answer in time", body = Object, content_type = "application/problem+json")))]
pub(crate) async fn pass_message(
    State(gateway): State<SharedGateway>,
    incoming: Incoming,
    request: Request,
) -> Result<Response, ApiError> {
    // Evaluated first because `exchange` consumes the headers; refused only after the caller and the server are
    // checked.
    let is_json = body::is_json(&incoming.headers);
    let exchange = incoming.exchange(&gateway).await?;
    if !is_json {
        let what = "the body must be uncompressed `application/json`";
        let error = ApiError::new(ErrorCode::InvalidRequest, what);
        return Err(error.with_status(StatusCode::UNSUPPORTED_MEDIA_TYPE));
    }
    let memory = &gateway.memory;
    let body = body::read(memory, request).await?;
    // Held until the end, because `post` parses the message.
    let _reserved = memory.parsed(exchange.scope(), &body, Parsed::Names).await?;
    Ok(exchange.post(body).await)
}

/// Opens or resumes the stream of server-initiated messages of one MCP server.
#[utoipa::path(get, path = "/mcp/proxy/{server}", tag = "mcp",
    params(("server" = String, Path, description = "A namespace, or a full name", example = "acme.web.notes")),
    responses(
        (status = 200, description = "Events", body = String, content_type = "text/event-stream"),
        (status = 405, description = "The server has no such stream"),
        (status = 406, description = "`Accept` lacks `text/event-stream`", body = Object, content_type = "application/problem+json"),
        (status = 410, description = "The server was deleted", body = Object, content_type = "application/problem+json"),
        (status = 501, description = "The gateway does not run servers of this type", body = Object, content_type = "application/problem+json"),
        (status = 502, description = "The server is unreachable, or does not answer with MCP", body = Object, content_type = "application/problem+json"),
        (status = 504, description = "The server did not answer in time", body = Object, content_type = "application/problem+json")))]
pub(crate) async fn open_stream(
    State(gateway): State<SharedGateway>,
    incoming: Incoming,
) -> Result<Response, ApiError> {
    let accepts_events = accepts_events(&incoming.headers);
    let exchange = incoming.exchange(&gateway).await?;
    if !accepts_events {
        let what = "a GET opens a stream of events: send `Accept: text/event-stream`";
        let error = ApiError::new(ErrorCode::InvalidRequest, what);
        return Err(error.with_status(StatusCode::NOT_ACCEPTABLE));
    }
    Ok(exchange.without_body(Method::GET).await)
}

/// Ends a session with one MCP server.
#[utoipa::path(delete, path = "/mcp/proxy/{server}", tag = "mcp",
    params(("server" = String, Path, description = "A namespace, or a full name", example = "acme.web.notes"),
        ("Mcp-Session-Id" = String, Header, description = "The session")),
    responses(
        (status = 200, description = "The session has ended"),
        (status = 405, description = "The server does not let clients end sessions"),
        (status = 410, description = "The server was deleted", body = Object, content_type = "application/problem+json"),
        (status = 501, description = "The gateway does not run servers of this type", body = Object, content_type = "application/problem+json"),
        (status = 502, description = "The server is unreachable, or does not answer with MCP", body = Object, content_type = "application/problem+json"),
        (status = 504, description = "The server did not answer in time", body = Object, content_type = "application/problem+json")))]
pub(crate) async fn end_session(
    State(gateway): State<SharedGateway>,
    incoming: Incoming,
) -> Result<Response, ApiError> {
    let has_session = incoming.headers.contains_key("mcp-session-id");
    let exchange = incoming.exchange(&gateway).await?;
    if !has_session {
        let what = "a DELETE ends a session: send its `Mcp-Session-Id`";
        return Err(ApiError::new(ErrorCode::InvalidRequest, what));
    }
    Ok(exchange.without_body(Method::DELETE).await)
}

/// The parts of a request to the proxy: the caller, the server and the headers.
#[derive(FromRequestParts)]
pub(crate) struct Incoming {
    pages: Extension<Arc<Pages>>,
    caller: Extension<Arc<Caller>>,
    seen: Extension<Changes>,
    server: Result<Path<String>, PathRejection>,
    uri: Uri,
    headers: HeaderMap,
}

impl Incoming {
    /// Checks the page and the caller, and resolves the server's name.
    async fn exchange(self, gateway: &SharedGateway) -> Result<Exchange, ApiError> {
        let Self { pages, caller: Extension(caller), seen: Extension(seen), server, uri, headers } =
            self;
        pages.check(&uri, &headers)?;
        require(&caller, Right::Execute)?;
        // An invalid name cannot be that of a server, so it gets the same answer as an unknown one.
        let name = server.ok().and_then(|Path(name)| name.parse::<EntryName>().ok());
        let name = name.ok_or_else(ApiError::not_found)?;
        let requester = Requester::new(caller, &headers);
        let server = gateway.registry.server(&requester.tenant(), &name).await?;
        Exchange::new(Arc::clone(gateway), requester, headers, server, seen)
    }
}

fn accepts_events(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut kinds = accepted.flat_map(|value| value.split(','));
    kinds.any(|kind| {
        let kind = kind.split(';').next().unwrap_or_default().trim();
        kind.eq_ignore_ascii_case("text/event-stream") || kind == "*/*"
    })
}
