//! The response to one message: a JSON body, a stream of events, or a status.

use std::borrow::Cow;

use futures::TryStreamExt as _;
use http::{StatusCode, header};
use rmcp::model::{ErrorCode, ErrorData, RequestId, ServerJsonRpcMessage};
use rmcp::transport::common::http_header::{
    EVENT_STREAM_MIME_TYPE, HEADER_SESSION_ID, JSON_MIME_TYPE,
};
use rmcp::transport::streamable_http_client::{StreamableHttpError, StreamableHttpPostResponse};

use super::{RequestInfo, TOO_LARGE, events};
use crate::budget::{Budget, NotKept, gather};

/// The largest body of a response with an error status, in bytes.
const ERROR_BODY: usize = 64 * 1024;

type Answer = Result<StreamableHttpPostResponse, StreamableHttpError<reqwest::Error>>;

/// Reads a response as the Streamable HTTP transport defines it.
pub(super) async fn read<B: Budget>(
    budget: &B,
    answer: reqwest::Response,
    info: RequestInfo<B::Held>,
    largest: usize,
) -> Answer {
    let status = answer.status();
    if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
        return Ok(StreamableHttpPostResponse::Accepted);
    }
    // The transport defines 404 for a request with a session as the end of the session.
    if status == StatusCode::NOT_FOUND && info.has_session {
        return Err(StreamableHttpError::SessionExpired);
    }
    let kind = answer.headers().get(header::CONTENT_TYPE);
    let kind = kind.map(|kind| String::from_utf8_lossy(kind.as_bytes()).into_owned());
    // A prefix, because parameters such as `charset` may follow.
    let is = |other: &str| kind.as_deref().is_some_and(|kind| kind.starts_with(other));
    let session = answer.headers().get(HEADER_SESSION_ID);
    let session = session.and_then(|session| session.to_str().ok()).map(str::to_owned);
    if !status.is_success() {
        return refused(budget, answer, info, is(JSON_MIME_TYPE), session).await;
    }
    if is(EVENT_STREAM_MIME_TYPE) {
        let stream = events::bounded(budget.clone(), answer.bytes_stream(), largest);
        let stream = events::admitted(budget.clone(), stream, info.id, info.slot);
        return Ok(StreamableHttpPostResponse::Sse(stream, session));
    }
    let declared = answer.content_length();
    if !is(JSON_MIME_TYPE) {
        // The specification requires status 202 for a notification; some servers send an empty 200.
        return match info.id {
            None if declared == Some(0) => Ok(StreamableHttpPostResponse::Accepted),
            _ => Err(StreamableHttpError::UnexpectedContentType(kind)),
        };
    }
    let body = body(budget, answer, largest).await?;
    let Some(id) = info.id else {
        // A notification has no response.
        return Ok(StreamableHttpPostResponse::Accepted);
    };
    let Some(body) = body else {
        return Ok(StreamableHttpPostResponse::Json(too_large(id), session));
    };
    match budget.parsed(&body).await {
        Ok(held) => info.slot.keep(held),
        Err(_) => return Ok(StreamableHttpPostResponse::Json(too_large(id), session)),
    }
    match serde_json::from_slice(&body) {
        Ok(message) => Ok(StreamableHttpPostResponse::Json(message, session)),
        Err(error) => Err(unexpected(format!("the answer is not an MCP message: {error}"))),
    }
}

/// Reads a response with an error status, which may contain a JSON-RPC error for the caller.
async fn refused<B: Budget>(
    budget: &B,
    answer: reqwest::Response,
    info: RequestInfo<B::Held>,
    is_json: bool,
    session: Option<String>,
) -> Answer {
    let status = answer.status();
    let error = answer.error_for_status_ref().map(|_| ());
    // These statuses concern the credential, and must reach the caller as they are, whatever the
    // body says.
    let is_of_the_caller = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
    // If the body cannot be read, the status says enough.
    let text = match is_json && !is_of_the_caller {
        true => body(budget, answer, ERROR_BODY).await.ok().flatten(),
        false => None,
    };
    let message = text.and_then(|text| match serde_json::from_slice(&text) {
        Ok(ServerJsonRpcMessage::Error(error)) => Some(error),
        _ => None,
    });
    // Servers of older versions do not know `server/discover` and refuse it in many ways.
    if let (true, false, Some(id)) = (info.is_discovery, info.has_session, info.id)
        && status.is_client_error()
        && !is_of_the_caller
    {
        let error = message.map(|message| message.error);
        let error = error.unwrap_or_else(|| {
            ErrorData::invalid_request(format!("HTTP status {}", status.as_u16()), None)
        });
        let message = ServerJsonRpcMessage::error(error, Some(id));
        return Ok(StreamableHttpPostResponse::Json(message, None));
    }
    match (message, error) {
        (Some(error), _) => {
            let message = ServerJsonRpcMessage::Error(error);
            Ok(StreamableHttpPostResponse::Json(message, session))
        }
        // The URL may contain a key.
        (None, Err(error)) => Err(StreamableHttpError::Client(error.without_url())),
        (None, Ok(())) => Err(unexpected(format!("HTTP status {}", status.as_u16()))),
    }
}

/// Reads a body; `None` when it is too large or no memory became free.
async fn body<B: Budget>(
    budget: &B,
    answer: reqwest::Response,
    most: usize,
) -> Result<Option<bytes::Bytes>, StreamableHttpError<reqwest::Error>> {
    let declared = answer.content_length().map(|size| usize::try_from(size).unwrap_or(usize::MAX));
    let pieces = answer.bytes_stream().map_err(reqwest::Error::without_url);
    match gather(budget, pieces, declared, most, false).await {
        Ok(body) => Ok(Some(body)),
        Err(NotKept::TooLarge | NotKept::NoRoom(_)) => Ok(None),
        Err(NotKept::Cut(error)) => Err(StreamableHttpError::Client(error)),
    }
}

fn unexpected(what: String) -> StreamableHttpError<reqwest::Error> {
    StreamableHttpError::UnexpectedServerResponse(Cow::Owned(what))
}

/// Creates the error that replaces a response too large to parse.
pub(super) fn too_large(id: RequestId) -> ServerJsonRpcMessage {
    let what = "the server's answer is too large";
    ServerJsonRpcMessage::error(ErrorData::new(ErrorCode(TOO_LARGE), what, None), Some(id))
}
