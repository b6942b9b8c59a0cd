//! `/api/v1/keys`: the API keys of the caller's scope.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use chrono::{DateTime, TimeDelta, Utc};
use protocol::ErrorCode;
use registry::{
    ApiKey, AuditEvent, AuditOutcome, Caller, KeyPage, KeyRecord, NewKey, Principal, RegistryError,
    Right, Rights,
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::api::{checked_name, explain, invalid, page_size, private, require, shown_once};
use super::body::ApiJson;
use crate::config::KEY_DAYS_LIMIT;
use crate::error::ApiError;
use crate::state::SharedGateway;

/// The largest page.
const PAGE_LIMIT: u32 = 100;
/// The longest grace time of a rotated key, in seconds: a week.
const GRACE_LIMIT: u64 = 7 * 24 * 3_600;

/// The query parameters of the list.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeysQuery {
    /// Opaque cursor of the next page.
    cursor: Option<String>,
    /// Keys per page, 1 to 100.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<u32>,
}

/// A request for a new key.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CreateKey {
    /// A label: 1 to 200 characters, without control characters.
    #[schema(min_length = 1, max_length = 200, pattern = "^[^\\u0000-\\u001f\\u007f-\\u009f]+$")]
    name: String,
    /// The rights of the key; at most those of the creating key.
    #[schema(min_items = 1)]
    can: Vec<Right>,
    /// The principal that acts with the key: the caller, or a `service:NAME`. Default: the key itself.
    #[schema(pattern = "^[A-Za-z0-9._:@+-]{1,128}$")]
    principal: Option<String>,
    /// When the key expires.
    expires_at: Option<DateTime<Utc>>,
    /// The lifetime in days, instead of `expires_at`.
    #[schema(minimum = 1, maximum = 3650)]
    #[serde(default, deserialize_with = "super::body::whole_number")]
    expires_in_days: Option<u16>,
}

/// A request to rotate a key.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RotateKey {
    /// How long the old key stays valid, in seconds.
    #[schema(maximum = 604_800)]
    #[serde(default, deserialize_with = "super::body::whole_number")]
    grace_seconds: u64,
}

/// A new key, shown only once.
#[derive(Serialize, ToSchema)]
struct MadeKey<'a> {
    /// The key itself.
    key: &'a str,
    #[serde(flatten)]
    #[schema(value_type = KeyRecord)]
    record: &'a KeyRecord,
}

/// Lists the keys of the scope, for an administrator.
#[utoipa::path(get, path = "/api/v1/keys", tag = "keys", params(KeysQuery),
    responses((status = 200, description = "A page of keys, the oldest first", body = KeyPage)))]
pub(crate) async fn list_keys(
    State(gateway): State<SharedGateway>,
    Extension(caller): Extension<Arc<Caller>>,
    query: Result<Query<KeysQuery>, QueryRejection>,
) -> Result<Response, ApiError> {
    require(&caller, Right::Admin)?;
    let Query(query) = query.map_err(|error| invalid(error.body_text()))?;
    let limit = page_size(query.limit, PAGE_LIMIT)?;
    let page =
        gateway.registry.keys(&caller.tenant(), super::cursor(query.cursor.as_ref()), limit).await;
    Ok(private(Json(page.map_err(explain)?)))
}

/// Returns a key's record, never the key.
#[utoipa::path(get, path = "/api/v1/keys/{id}", tag = "keys",
    params(("id" = String, Path, description = "The key's id, or `self`", example = "self")),
    responses((status = 200, description = "The key's record", body = KeyRecord)))]
pub(crate) async fn get_key(
    State(gateway): State<SharedGateway>,
    Extension(caller): Extension<Arc<Caller>>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, ApiError> {
    let id = requested_key(&caller, id)?;
    Ok(private(Json(gateway.registry.key(&caller.tenant(), id).await?)))
}

/// Creates a key with at most the rights of the creating key.
#[utoipa::path(post, path = "/api/v1/keys", tag = "keys",
    request_body(content = CreateKey, example = json!({ "name": "build", "can": ["execute", "read"], "expires_in_days": 30 })),
    responses((status = 201, description = "The key, shown only once", body = MadeKey)))]
pub(crate) async fn create_key(
    State(gateway): State<SharedGateway>,
    Extension(caller): Extension<Arc<Caller>>,
    ApiJson(body, _room): ApiJson<CreateKey>,
) -> Result<Response, ApiError> {
    require(&caller, Right::Admin)?;
    let new = NewKey {
        principal: body.principal.as_deref().map(parse_principal).transpose()?,
        name: checked_name(body.name)?,
        rights: body.can.into_iter().collect(),
        expires_at: parse_end(body.expires_at, body.expires_in_days)?,
        // Whatever its principal is, the key cannot have a higher role in the organisation than its creator.
        org_role: caller.org_role,
    };
    if new.rights == Rights::default() {
        return Err(invalid("`can` is empty; a key needs at least one right"));
    }
    // The audit event names the label, because the key has no id yet.
    require_all(&gateway, &caller, "key.create", &new.name, &new.rights).await?;
    let created = gateway.registry.create_key(&caller.tenant(), new).await;
    Ok(new_key(created.map_err(explain)?))
}

/// Replaces a key with a new one; the old key expires after a grace time.
#[utoipa::path(post, path = "/api/v1/keys/{id}/rotate", tag = "keys",
    params(("id" = String, Path, description = "The key's id, or `self`", example = "0195d2a0-0000-7000-8000-000000000000")),
    request_body(content = RotateKey, example = json!({ "grace_seconds": 3600 })),
    responses((status = 201, description = "The new key, shown only once", body = MadeKey)))]
pub(crate) async fn rotate_key(
    State(gateway): State<SharedGateway>,
    Extension(caller): Extension<Arc<Caller>>,
    id: Result<Path<String>, PathRejection>,
    ApiJson(body, _room): ApiJson<RotateKey>,
) -> Result<Response, ApiError> {
    let id = requested_key(&caller, id)?;
    if body.grace_seconds > GRACE_LIMIT {
        let detail = format!("`grace_seconds` is {}; at most {GRACE_LIMIT}", body.grace_seconds);
        return Err(invalid(detail));
    }
    let tenant = caller.tenant();
    // A key may always rotate itself: the new key has the same rights.
    if caller.key_id != Some(id) {
        // The caller receives the new key, so it must have all rights of the old one.
        let old = gateway.registry.key(&tenant, id).await?;
        require_all(&gateway, &caller, "key.rotate", &id.to_string(), &old.rights).await?;
        // `None`, a caller without a role, is lower than every role.
        if old.org_role > caller.org_role {
            let event = AuditEvent::new("key.rotate", id.to_string(), AuditOutcome::Refused);
            gateway.registry.audit(&tenant, event).await?;
            return Err(ApiError::new(
                ErrorCode::Forbidden,
                "the key has a higher role in the organisation than you",
            ));
        }
    }
    let grace = Duration::from_secs(body.grace_seconds);
    Ok(new_key(gateway.registry.rotate_key(&tenant, id, grace).await?))
}

/// Revokes a key on every gateway at once.
#[utoipa::path(delete, path = "/api/v1/keys/{id}", tag = "keys",
    params(("id" = String, Path, description = "The key's id, or `self`", example = "0195d2a0-0000-7000-8000-000000000000")),
    responses((status = 204, description = "Revoked")))]
pub(crate) async fn revoke_key(
    State(gateway): State<SharedGateway>,
    Extension(caller): Extension<Arc<Caller>>,
    id: Result<Path<String>, PathRejection>,
) -> Result<StatusCode, ApiError> {
    let id = requested_key(&caller, id)?;
    gateway.registry.revoke_key(&caller.tenant(), id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Returns the id of the requested key: the caller's own key, by its id or as `self`, or any key for an administrator.
/// Other callers cannot learn which ids exist.
fn requested_key(
    caller: &Caller,
    id: Result<Path<String>, PathRejection>,
) -> Result<Uuid, ApiError> {
    // An id that is not UTF-8 cannot exist.
    let id = id.map(|Path(id)| id).unwrap_or_default();
    if id == "self" {
        return caller.key_id.ok_or_else(ApiError::not_found);
    }
    // Only the canonical spelling is accepted, so that each key has one URL.
    let parsed = Uuid::try_parse(&id).ok().filter(|parsed| parsed.to_string() == id);
    // Tokens and sessions have no key id: without the first condition, any invalid id matches.
    if parsed.is_some() && parsed == caller.key_id {
        return parsed.ok_or_else(ApiError::not_found);
    }
    // Before the answer 404, so that callers without the right get 403 for every id.
    require(caller, Right::Admin)?;
    parsed.ok_or_else(ApiError::not_found)
}

/// Refuses and records an attempt to grant a right that the caller lacks.
async fn require_all(
    gateway: &SharedGateway,
    caller: &Caller,
    action: &str,
    key: &str,
    rights: &Rights,
) -> Result<(), ApiError> {
    let Some(missing) = caller.missing(rights) else { return Ok(()) };
    let event = AuditEvent::new(action, key, AuditOutcome::Refused)
        .with_detail(json!({ "lacks": missing.as_str() }));
    gateway.registry.audit(&caller.tenant(), event).await?;
    let word = missing.as_str();
    Err(ApiError::forbidden(
        missing,
        format!("a key cannot grant the right `{word}`, which it lacks"),
    ))
}

pub(super) fn parse_principal(text: &str) -> Result<Principal, ApiError> {
    text.parse().map_err(|error: RegistryError| invalid(format!("`principal`: {error}")))
}

fn new_key((key, record): (ApiKey, KeyRecord)) -> Response {
    let location = format!("/api/v1/keys/{}", record.id);
    let body = Json(MadeKey { key: key.expose(), record: &record });
    let answer =
        (StatusCode::CREATED, [(header::LOCATION, location)], private(body)).into_response();
    shown_once("key", record.id, answer)
}

/// Returns when a key expires, from either of the two fields.
fn parse_end(
    at: Option<DateTime<Utc>>,
    in_days: Option<u16>,
) -> Result<Option<DateTime<Utc>>, ApiError> {
    let now = Utc::now();
    match (at, in_days) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => {
            Err(invalid("`expires_at` and `expires_in_days` are mutually exclusive"))
        }
        (Some(at), None) if at <= now => Err(invalid("`expires_at` is not in the future")),
        (Some(at), None) => Ok(Some(at)),
        (None, Some(days)) if (1..=KEY_DAYS_LIMIT).contains(&days) => {
            Ok(Some(now + TimeDelta::days(days.into())))
        }
        (None, Some(_)) => Err(invalid(format!("`expires_in_days` must be 1 to {KEY_DAYS_LIMIT}"))),
    }
}
