//! Answers HTTP requests: those of MCP clients that have the token.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use rmcp::transport::streamable_http_server::session::local::{LocalSessionManager, SessionConfig};
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio_util::sync::CancellationToken;

use super::token::Token;
use crate::agent::AgentHandler;

/// The path of the MCP endpoint.
pub(super) const PATH: &str = "/mcp";

/// The largest message, in bytes: an argument of 1 MiB and a program of 64 KiB, with escaping.
const MESSAGE_LIMIT: usize = 5 * 512 * 1024;

/// The time limit for the body of a request.
const BODY_TIME: Duration = Duration::from_secs(30);

/// How long a session is kept that nobody uses. A client gets 404 then, and has to begin a new one, which not every
/// client does by itself.
const SESSION_TIME: Duration = Duration::from_secs(12 * 60 * 60);

/// The maximum number of sessions. A session is a few kilobytes.
const SESSIONS_LIMIT: usize = 1_000;

type Answer = Response<BoxBody<Bytes, Infallible>>;

/// The requests to a server.
pub(super) struct Requests {
    mcp: StreamableHttpService<AgentHandler, LocalSessionManager>,
    sessions: Arc<LocalSessionManager>,
    token: Token,
}

impl Requests {
    /// Creates them for the holders of a token, until `stop`.
    pub(super) fn new(handler: AgentHandler, token: Token, stop: CancellationToken) -> Self {
        let mut config = StreamableHttpServerConfig::default();
        // Clients of 2025 versions are asked within a call, which needs a session. Those of 2026-07-28 have none.
        config.legacy_session_mode = true;
        config.cancellation_token = stop;
        // The names of this machine, on any port: it may be forwarded. Another name that leads here is that of an
        // attacker's page (DNS rebinding).
        let hosts = ["localhost", "127.0.0.1", "[::1]"];
        config.allowed_hosts = hosts.map(str::to_owned).to_vec();
        config.allowed_origins = hosts.map(|host| format!("http://{host}:*")).to_vec();
        config.max_request_body_bytes = MESSAGE_LIMIT;
        let config = config.enforce_origin_validation();
        let mut sessions = LocalSessionManager::default();
        sessions.session_config = SessionConfig::default();
        sessions.session_config.keep_alive = Some(SESSION_TIME);
        let sessions = Arc::new(sessions);
        let made = Arc::clone(&sessions);
        let mcp = StreamableHttpService::new(move || Ok(handler.clone()), made, config);
        Self { mcp, sessions, token }
    }

    /// Answers a request.
    pub(super) async fn answer(&self, request: Request<Incoming>) -> Answer {
        let mut answer = match self.checked(request).await {
            // It checks `Host` and `Origin`, before anything else.
            Ok(request) => self.mcp.handle(request).await,
            Err(refusal) => refusal,
        };
        let headers = answer.headers_mut();
        headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        answer
    }

    /// Checks who sends a request, and reads it.
    async fn checked(&self, request: Request<Incoming>) -> Result<Request<Full<Bytes>>, Answer> {
        if request.uri().path() != PATH {
            let text = format!("MCP is at {PATH}");
            return Err(refusal(StatusCode::NOT_FOUND, &text));
        }
        let bearer = bearer(request.headers());
        if !bearer.is_some_and(|token| self.token.is(token)) {
            let text = match bearer {
                Some(_) => "this is not the token in .pml/serve-token",
                None => "send the token in .pml/serve-token, as `Authorization: Bearer TOKEN`",
            };
            let mut answer = refusal(StatusCode::UNAUTHORIZED, text);
            // RFC 6750, section 3.
            let challenge = match bearer {
                Some(_) => r#"Bearer realm="pml", error="invalid_token""#,
                None => r#"Bearer realm="pml""#,
            };
            answer
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
            return Err(answer);
        }
        // rmcp would report the compressed bytes as invalid JSON.
        let encoding = request.headers().get(header::CONTENT_ENCODING);
        if encoding.is_some_and(|encoding| encoding != "identity") {
            let text = "the body is compressed; send it uncompressed";
            return Err(refusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
        }
        let begins = request.method() == Method::POST
            && !request.headers().contains_key("mcp-session-id")
            && self.sessions.sessions.read().await.len() >= SESSIONS_LIMIT;
        if begins {
            let text = "too many sessions are open; clients end theirs with DELETE";
            return Err(refusal(StatusCode::SERVICE_UNAVAILABLE, text));
        }
        let (parts, body) = request.into_parts();
        let body = tokio::time::timeout(BODY_TIME, Limited::new(body, MESSAGE_LIMIT).collect());
        let body = match body.await {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(error)) if error.is::<LengthLimitError>() => {
                let text = format!("the message is larger than {MESSAGE_LIMIT} bytes");
                return Err(refusal(StatusCode::PAYLOAD_TOO_LARGE, &text));
            }
            Ok(Err(_)) => return Err(refusal(StatusCode::BAD_REQUEST, "the body is incomplete")),
            Err(_) => return Err(refusal(StatusCode::REQUEST_TIMEOUT, "the body is too slow")),
        };
        Ok(Request::from_parts(parts, Full::new(body)))
    }
}

/// Returns the bearer token of a request; `None` without one, or with several `Authorization` headers.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let value = values.next()?.to_str().ok()?;
    if values.next().is_some() {
        return None;
    }
    // RFC 9110, section 11.1: the scheme is case-insensitive.
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("Bearer").then(|| token.trim_start_matches(' '))
}

fn refusal(status: StatusCode, text: &str) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(format!("{text}\n"))).boxed());
    *answer.status_mut() = status;
    let text = HeaderValue::from_static("text/plain; charset=utf-8");
    answer.headers_mut().insert(header::CONTENT_TYPE, text);
    answer
}
