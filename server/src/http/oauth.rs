//! How a client gets a token: the resource metadata of RFC 9728, and challenges.

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use registry::Right;

use super::openapi::Problem;
use crate::error::{ApiError, MissingRight};
use crate::identity::tokens::{Tokens, word_of};
use crate::state::SharedGateway;

/// The rights that a client should request first: those of an agent.
const FIRST: [Right; 2] = [Right::Execute, Right::Read];

/// Serves the metadata; 404 without an issuer.
#[utoipa::path(get, path = "/.well-known/oauth-protected-resource", tag = "identity", responses(
    (status = 200, description = "The resource metadata of RFC 9728", body = Object),
    (status = 404, description = "No issuer is configured", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn get_metadata(
    State(gateway): State<SharedGateway>,
    uri: Uri,
) -> Result<Response, ApiError> {
    let tokens =
        gateway.credentials.tokens.as_ref().ok_or_else(|| ApiError::no_such_path(uri.path()))?;
    let headers = [
        (header::CACHE_CONTROL, "public, max-age=3600"),
        // It is public, and clients in browsers must be able to read it.
        (header::ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
    ];
    Ok((headers, Json(tokens.metadata())).into_response())
}

/// Serves the metadata at the path that RFC 9728 derives from the address of `/mcp`.
#[utoipa::path(get, path = "/.well-known/oauth-protected-resource/mcp", tag = "identity", responses(
    (status = 200, description = "The resource metadata of RFC 9728", body = Object),
    (status = 404, description = "No issuer is configured", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn get_mcp_metadata(
    gateway: State<SharedGateway>,
    uri: Uri,
) -> Result<Response, ApiError> {
    get_metadata(gateway, uri).await
}

/// Adds `WWW-Authenticate` to a refusal, with which a client gets a sufficient token (RFC 6750, 3, and MCP).
pub(crate) async fn challenge(gateway: &SharedGateway, request: Request, next: Next) -> Response {
    // RFC 6750, 3.1: a request without a credential gets no error code.
    let presented = request.headers().contains_key(header::AUTHORIZATION);
    let mut response = next.run(request).await;
    // Without an issuer, a 401 keeps the plain challenge that `ApiError` has set.
    let Some(tokens) = &gateway.credentials.tokens else { return response };
    let (error, rights) = match (response.status(), response.extensions().get::<MissingRight>()) {
        (StatusCode::UNAUTHORIZED, _) if presented => (Some("invalid_token"), FIRST.to_vec()),
        (StatusCode::UNAUTHORIZED, _) => (None, FIRST.to_vec()),
        (StatusCode::FORBIDDEN, Some(MissingRight(right))) => {
            (Some("insufficient_scope"), vec![*right])
        }
        // No token would help against any other refusal.
        _ => return response,
    };
    if let Ok(value) = HeaderValue::from_str(&challenge_text(tokens, error, &rights)) {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, value);
    }
    response
}

fn challenge_text(tokens: &Tokens, error: Option<&str>, rights: &[Right]) -> String {
    let words: Vec<String> = rights.iter().copied().map(word_of).collect();
    let error = error.map(|error| format!(", error=\"{error}\"")).unwrap_or_default();
    // Rights and the origin of a URL contain nothing that would have to be escaped.
    format!(
        "Bearer realm=\"pml\"{error}, resource_metadata=\"{}\", scope=\"{}\"",
        tokens.metadata_url(),
        words.join(" ")
    )
}
