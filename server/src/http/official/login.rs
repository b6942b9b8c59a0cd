//! `POST /v0.1/auth/github-at`: the login of `mcp-publisher`.
//!
//! Of its login methods, this one accepts an existing token: `mcp-publisher login github --token KEY`. The token is
//! an API key of this gateway, and it is exchanged for the key itself, with the key's expiry.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use protocol::ErrorCode;
use registry::Right;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::error::ApiError;
use crate::http::api::{private, require};
use crate::http::authentication;
use crate::http::body::ApiBytes;
use crate::http::openapi::Problem;
use crate::state::SharedGateway;

/// The largest body.
pub(crate) const BODY_LIMIT: usize = 16 * 1024;

/// The token to exchange.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Exchange {
    /// An API key of this gateway with the right `publish`.
    #[schema(min_length = 1, max_length = 4096)]
    github_token: String,
}

/// The credential to publish with.
#[derive(Serialize, ToSchema)]
struct RegistryToken {
    /// The key.
    registry_token: String,
    /// When it expires, in seconds since 1970; 0 if it does not.
    expires_at: i64,
}

/// Exchanges an API key for the credential that `mcp-publisher` publishes with: the key itself.
#[utoipa::path(post, path = "/v0.1/auth/github-at", tag = "official",
    request_body(content = Exchange, example = json!({ "github_token": "pml_key_…" })),
    responses(
        (status = 200, description = "The key is valid and has the right `publish`", body = RegistryToken),
        (status = 401, description = "The body has no valid key", body = Problem, content_type = "application/problem+json"),
        (status = 403, description = "The key lacks the right `publish`", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "The database is unavailable", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn exchange_key(
    State(gateway): State<SharedGateway>,
    ApiBytes(body): ApiBytes,
) -> Result<Response, ApiError> {
    let refused = || ApiError::new(ErrorCode::Unauthorized, "the API key is not valid");
    // The credential is in the body, so an invalid body gets the same answer as an invalid key.
    let body: Exchange = serde_json::from_slice(&body).map_err(|_| refused())?;
    let bearer = format!("Bearer {}", body.github_token);
    let mut value = HeaderValue::from_str(&bearer).map_err(|_| refused())?;
    // Never shown in debug output.
    value.set_sensitive(true);
    // Checked and counted like a key in the request's header.
    let headers = HeaderMap::from_iter([(header::AUTHORIZATION, value)]);
    // Never `None`, because the header is present; the closure only satisfies the type.
    let caller = authentication::find_caller(&gateway, &headers).await?.ok_or_else(refused)?;
    require(&caller, Right::Publish)?;
    let expires_at = caller.expires_at.map_or(0, |at| at.timestamp());
    let answer = RegistryToken { registry_token: body.github_token, expires_at };
    Ok(private(Json(answer)).into_response())
}
