//! `/api/v1/sessions`: exchanges a credential for a short-lived token.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use chrono::{DateTime, Utc};
use protocol::{ErrorCode, Scope};
use registry::{AuditEvent, AuditOutcome, Caller, Right, Rights};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;
use uuid::Uuid;

use super::api::{invalid, private, shown_once};
use super::body::ApiJson;
use crate::error::ApiError;
use crate::identity::sessions::MAX_LIFETIME;
use crate::state::SharedGateway;

/// A request for a new session.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CreateSession {
    /// The rights of the session. Default: all rights of the credential.
    #[schema(min_items = 1)]
    can: Option<Vec<Right>>,
    /// The lifetime in seconds. Default: 900.
    #[schema(minimum = 1, maximum = 900)]
    #[serde(default, deserialize_with = "super::body::whole_number")]
    expires_in_seconds: Option<u64>,
}

/// A new session, shown only once.
#[derive(Serialize, ToSchema)]
struct NewSession<'a> {
    /// The token, for `Authorization: Bearer`.
    session: String,
    /// The session's id in the audit log.
    id: Uuid,
    /// The session's scope.
    #[schema(value_type = String)]
    scope: &'a Scope,
    /// The principal.
    principal: &'a str,
    /// The rights.
    can: &'a Rights,
    /// When the session expires.
    expires_at: DateTime<Utc>,
}

/// Creates a session with at most the rights of the credential.
#[utoipa::path(post, path = "/api/v1/sessions", tag = "keys",
    request_body(content = CreateSession, example = json!({ "can": ["read"], "expires_in_seconds": 300 })),
    responses((status = 201, description = "The session, shown only once", body = NewSession)))]
pub(crate) async fn create_session(
    State(gateway): State<SharedGateway>,
    Extension(caller): Extension<Arc<Caller>>,
    ApiJson(body, _room): ApiJson<CreateSession>,
) -> Result<Response, ApiError> {
    let id = Uuid::now_v7();
    let tenant = caller.tenant();
    let record = |outcome, detail| {
        let event = AuditEvent::new("session.create", id.to_string(), outcome).with_detail(detail);
        gateway.registry.audit(&tenant, event)
    };
    if caller.session.is_some() {
        // Otherwise a session could be renewed forever.
        record(AuditOutcome::Refused, json!({})).await?;
        let detail = "a session is created from an API key or a token, not from another session";
        return Err(ApiError::new(ErrorCode::Forbidden, detail));
    }
    let longest = MAX_LIFETIME.as_secs();
    let seconds = body.expires_in_seconds.unwrap_or(longest);
    if !(1..=longest).contains(&seconds) {
        return Err(invalid(format!("`expires_in_seconds` must be 1 to {longest}")));
    }
    let rights: Rights = match body.can {
        Some(can) if can.is_empty() => {
            return Err(invalid("`can` is empty; a session needs at least one right"));
        }
        Some(can) => can.into_iter().collect(),
        None => caller.rights.clone(),
    };
    if rights == Rights::default() {
        record(AuditOutcome::Refused, json!({})).await?;
        let detail = "your credential has no rights; a session needs at least one";
        return Err(ApiError::new(ErrorCode::Forbidden, detail));
    }
    // Compared with the effective rights of the caller, which the role of its principal may have
    // reduced below those of its API key.
    if let Some(missing) = caller.missing(&rights) {
        record(AuditOutcome::Refused, json!({ "lacks": missing.as_str() })).await?;
        let detail =
            format!("a session cannot have the right `{}`, which you lack", missing.as_str());
        return Err(ApiError::forbidden(missing, detail));
    }
    let Some(sessions) = &gateway.credentials.sessions else {
        let detail = "this gateway cannot create sessions: the operator has set neither PML_MASTER_KEY nor PML_MASTER_KEY_FILE";
        return Err(ApiError::new(ErrorCode::SecretsUnavailable, detail));
    };
    // Recorded before it takes effect: if the record fails, there is no session.
    record(AuditOutcome::Allowed, json!({ "rights": rights, "key": caller.key_id })).await?;
    let issued =
        sessions.create(&caller, id, &rights, Duration::from_secs(seconds)).map_err(|error| {
            tracing::error!(error = %error, "Could not encode a session");
            ApiError::new(ErrorCode::Internal, "could not create the session")
        })?;
    let body = NewSession {
        session: issued.token,
        id,
        scope: &caller.scope,
        principal: caller.principal.as_str(),
        can: &rights,
        // Not the requested time: a session ends with the credential that it was created from.
        expires_at: issued.expires_at,
    };
    let answer = (StatusCode::CREATED, private(Json(body))).into_response();
    Ok(shown_once("session", id, answer))
}
