//! The rows of `api_keys`.

use chrono::{DateTime, Utc};
use protocol::Scope;
use serde::Serialize;
use sqlx::PgConnection;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::RegistryError;
use crate::identity::right::Rights;
use crate::identity::role::Role;
use crate::paging::Total;

/// A key's record; the key itself cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct KeyRecord {
    /// The key's id.
    pub id: Uuid,
    /// Its scope.
    #[schema(value_type = String)]
    pub scope: Scope,
    /// The principal.
    pub principal: String,
    /// A label.
    pub name: String,
    /// Its rights.
    #[serde(rename = "can")]
    pub rights: Rights,
    /// When it was created.
    pub created_at: DateTime<Utc>,
    /// When it expires.
    pub expires_at: Option<DateTime<Utc>>,
    /// When it was revoked.
    pub revoked_at: Option<DateTime<Utc>>,
    /// The key that replaced it.
    pub replaced_by: Option<Uuid>,
    /// The highest organisation role that can act through it.
    pub org_role: Option<Role>,
    /// Who created the key and saw it: a principal, or `operator`; `null` for keys that predate this field.
    pub made_by: Option<String>,
}

/// A page of the tenant's keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct KeyPage {
    /// The keys, the oldest first.
    pub items: Vec<KeyRecord>,
    /// The cursor of the next page; `None` on the last.
    #[serde(rename = "nextCursor", skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// The total number of keys.
    #[serde(flatten)]
    pub total: Total,
}

/// A row of `api_keys`.
pub(super) struct KeyRow {
    pub(super) id: Uuid,
    pub(super) principal: String,
    pub(super) name: String,
    pub(super) rights: Vec<String>,
    pub(super) created_at: DateTime<Utc>,
    pub(super) expires_at: Option<DateTime<Utc>>,
    pub(super) revoked_at: Option<DateTime<Utc>>,
    pub(super) replaced_by: Option<Uuid>,
    pub(super) org_role: Option<String>,
    pub(super) made_by: Option<String>,
}

impl KeyRow {
    pub(super) fn into_record(self, scope: &Scope) -> Result<KeyRecord, RegistryError> {
        Ok(KeyRecord {
            id: self.id,
            scope: scope.clone(),
            principal: self.principal,
            name: self.name,
            rights: Rights::of_words(&self.rights)?,
            created_at: self.created_at,
            expires_at: self.expires_at,
            revoked_at: self.revoked_at,
            replaced_by: self.replaced_by,
            org_role: self.org_role.map(|role| role.parse()).transpose()?,
            made_by: self.made_by,
        })
    }
}

/// Reads a key of a scope.
pub(super) async fn find(
    connection: &mut PgConnection,
    scope: &Scope,
    id: Uuid,
) -> Result<KeyRecord, RegistryError> {
    sqlx::query_as!(
        KeyRow,
        "select id, principal, name, rights, created_at, expires_at, revoked_at, replaced_by, org_role, made_by
        from api_keys where org = $1 and project = $2 and id = $3",
        scope.org(),
        scope.project(),
        id,
    )
    .fetch_optional(connection)
    .await?
    .ok_or_else(|| RegistryError::NotFound(id.to_string()))?
    .into_record(scope)
}

/// Inserts a key; returns the time of its creation.
pub(super) async fn insert(
    connection: &mut PgConnection,
    record: &KeyRecord,
    hash: &[u8; 32],
) -> Result<DateTime<Utc>, RegistryError> {
    let created_at = sqlx::query_scalar!(
        "insert into api_keys
            (id, org, project, principal, name, key_hash, rights, expires_at, org_role, made_by)
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
        returning created_at",
        record.id,
        record.scope.org(),
        record.scope.project(),
        record.principal,
        record.name,
        hash.as_slice(),
        &record.rights.words(),
        record.expires_at,
        record.org_role.map(Role::as_str),
        record.made_by.as_deref(),
    )
    .fetch_one(connection)
    .await?;
    Ok(created_at)
}

/// Encodes a cursor opaquely, so that clients do not depend on its form.
pub(super) fn write_cursor(last: &KeyRecord) -> String {
    // Postgres stores microseconds, so nothing of the time is lost.
    format!("{:016x}{}", last.created_at.timestamp_micros(), last.id.simple())
}

/// Parses the output of [`write_cursor`].
pub(super) fn read_cursor(cursor: &str) -> Result<(DateTime<Utc>, Uuid), RegistryError> {
    let invalid = || RegistryError::Invalid("the cursor does not belong to this list".to_owned());
    // Checked before the parsing, which would also accept a sign.
    let is_hex = cursor.len() == 48 && cursor.bytes().all(|byte| byte.is_ascii_hexdigit());
    let (time, id) = cursor.split_at_checked(16).filter(|_| is_hex).ok_or_else(invalid)?;
    let micros = i64::from_str_radix(time, 16).map_err(|_| invalid())?;
    let time = DateTime::from_timestamp_micros(micros).ok_or_else(invalid)?;
    Ok((time, id.parse().map_err(|_| invalid())?))
}
