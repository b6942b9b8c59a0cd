//! Management of keys: create, list, rotate, revoke.

use std::time::Duration;

use chrono::{DateTime, Utc};
use protocol::Scope;
use serde::Serialize;
use sqlx::PgConnection;
use utoipa::ToSchema;
use uuid::Uuid;

use super::{ApiKey, Rights};
use crate::audit::{self, AuditEvent, AuditOutcome};
use crate::catalog::{EXACT_TOTAL, Total};
use crate::{Principal, PrincipalKind, Registry, RegistryError, Role, Tenant};

/// The most keys on one page.
const PAGE_LIMIT: u32 = 100;

/// The properties of a new key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewKey {
    /// The principal; by default, the key itself.
    pub principal: Option<Principal>,
    /// A label; may be empty.
    pub name: String,
    /// Its rights.
    pub rights: Rights,
    /// When it expires; `None` means never.
    pub expires_at: Option<DateTime<Utc>>,
    /// The highest organisation role that can act through it: its creator's.
    pub org_role: Option<Role>,
}

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
struct KeyRow {
    id: Uuid,
    principal: String,
    name: String,
    rights: Vec<String>,
    created_at: DateTime<Utc>,
    expires_at: Option<DateTime<Utc>>,
    revoked_at: Option<DateTime<Utc>>,
    replaced_by: Option<Uuid>,
    org_role: Option<String>,
    made_by: Option<String>,
}

impl KeyRow {
    fn into_record(self, scope: &Scope) -> Result<KeyRecord, RegistryError> {
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

impl Registry {
    /// Creates a key of the tenant and returns it, which cannot be shown again.
    ///
    /// Whoever holds a key acts as its principal. So a principal creates keys for itself, for a service, and keys
    /// that act for themselves; only the operator creates keys for somebody else.
    ///
    /// # Errors
    /// Returns [`RegistryError::NotFound`] when the scope does not exist, [`RegistryError::Invalid`] when the key
    /// would have no right or a reserved principal, and [`RegistryError::NotAllowed`] when it would act as somebody
    /// else.
    pub async fn create_key(
        &self,
        tenant: &Tenant,
        new: NewKey,
    ) -> Result<(ApiKey, KeyRecord), RegistryError> {
        let scope = tenant.require_scope()?.clone();
        if new.rights == Rights::default() {
            return Err(RegistryError::Invalid("a key needs at least one right".to_owned()));
        }
        let id = Uuid::now_v7();
        if let Some(wanted) = &new.principal {
            if wanted.kind() == PrincipalKind::Reserved {
                return Err(reserved(wanted));
            }
            self.require_holder(tenant, "key.create", &id.to_string(), wanted, None).await?;
        }
        let key = ApiKey::generate()?;
        let hash = key.hash();
        let principal = match new.principal {
            Some(principal) => principal,
            None => format!("key:{id}").parse()?,
        };
        let actor = tenant.clone();
        let record = self
            .in_tenant(tenant, move |connection| {
                Box::pin(async move {
                    let detail =
                        serde_json::json!({ "rights": new.rights, "for": principal.as_str() });
                    let event =
                        AuditEvent::new("key.create", id.to_string(), AuditOutcome::Allowed)
                            .with_detail(detail);
                    let mut record = KeyRecord {
                        id,
                        scope,
                        principal: principal.as_str().to_owned(),
                        name: new.name,
                        rights: new.rights,
                        created_at: DateTime::UNIX_EPOCH,
                        expires_at: new.expires_at,
                        revoked_at: None,
                        replaced_by: None,
                        org_role: new.org_role,
                        made_by: Some(maker(&actor)),
                    };
                    record.created_at = insert(&mut *connection, &record, &hash).await?;
                    audit::record(connection, &actor, event).await?;
                    Ok(record)
                })
            })
            .await?;
        Ok((key, record))
    }

    /// Lists the keys of the tenant, the oldest first, revoked ones too.
    ///
    /// # Errors
    /// Returns [`RegistryError::Invalid`] for a cursor that is not from here, and
    /// [`RegistryError::Unavailable`] when the database does not answer.
    pub async fn keys(
        &self,
        tenant: &Tenant,
        cursor: Option<&str>,
        limit: u32,
    ) -> Result<KeyPage, RegistryError> {
        let scope = tenant.require_scope()?.clone();
        let (after_time, after_id) = cursor.map(read_cursor).transpose()?.unzip();
        let limit = limit.clamp(1, PAGE_LIMIT) as usize;
        self.in_tenant(tenant, move |connection| {
            Box::pin(async move {
                let rows = sqlx::query_as!(
                    KeyRow,
                    "select id, principal, name, rights, created_at, expires_at, revoked_at, replaced_by, org_role,
                        made_by
                    from api_keys
                    where org = $1 and project = $2
                        and ($3::timestamptz is null or (created_at, id) > ($3, $4::uuid))
                    order by created_at, id limit $5",
                    scope.org(),
                    scope.project(),
                    after_time,
                    after_id,
                    limit as i64 + 1,
                )
                .fetch_all(&mut *connection)
                .await?;
                let counted = sqlx::query_scalar!(
                    r#"select count(*) as "count!" from (
                        select from api_keys where org = $1 and project = $2 limit $3
                    ) as counted"#,
                    scope.org(),
                    scope.project(),
                    EXACT_TOTAL + 1,
                )
                .fetch_one(connection)
                .await?;
                let mut items = rows
                    .into_iter()
                    .map(|row| row.into_record(&scope))
                    .collect::<Result<Vec<_>, _>>()?;
                let more = items.len() > limit;
                items.truncate(limit);
                let next_cursor = items.last().filter(|_| more).map(write_cursor);
                Ok(KeyPage { items, next_cursor, total: Total::of(counted) })
            })
        })
        .await
    }

    /// Returns a key of the tenant.
    ///
    /// # Errors
    /// Returns [`RegistryError::NotFound`] when the tenant has no such key.
    pub async fn key(&self, tenant: &Tenant, id: Uuid) -> Result<KeyRecord, RegistryError> {
        let scope = tenant.require_scope()?.clone();
        self.in_tenant(tenant, move |connection| {
            Box::pin(async move { find(connection, &scope, id).await })
        })
        .await
    }

    /// Creates a key with the same principal, rights and expiry, and expires the old one after a grace time. A key
    /// can be rotated once.
    ///
    /// # Errors
    /// Returns [`RegistryError::NotFound`] when the tenant has no such key, [`RegistryError::NotAllowed`] when it
    /// belongs to somebody else, and [`RegistryError::Conflict`] when it is no longer valid or has a successor.
    pub async fn rotate_key(
        &self,
        tenant: &Tenant,
        id: Uuid,
        grace: Duration,
    ) -> Result<(ApiKey, KeyRecord), RegistryError> {
        let scope = tenant.require_scope()?.clone();
        let old = self.key(tenant, id).await?;
        let holder: Principal = old.principal.parse()?;
        let target = id.to_string();
        self.require_holder(tenant, "key.rotate", &target, &holder, old.made_by.as_deref()).await?;
        let key = ApiKey::generate()?;
        let hash = key.hash();
        let new_id = Uuid::now_v7();
        let actor = tenant.clone();
        let rotated = self
            .in_tenant(tenant, move |connection| {
                Box::pin(async move {
                    let old = find(&mut *connection, &scope, id).await?;
                    let event =
                        AuditEvent::new("key.rotate", id.to_string(), AuditOutcome::Allowed)
                            .with_detail(serde_json::json!({
                                "new": new_id, "grace_seconds": grace.as_secs(),
                            }));
                    let mut record = KeyRecord {
                        id: new_id,
                        created_at: DateTime::UNIX_EPOCH,
                        revoked_at: None,
                        replaced_by: None,
                        made_by: Some(maker(&actor)),
                        ..old
                    };
                    record.created_at = insert(&mut *connection, &record, &hash).await?;
                    // The condition decides between two who rotate it at once.
                    let ended = sqlx::query!(
                        "update api_keys set replaced_by = $4,
                            expires_at = least(expires_at, now() + make_interval(secs => $5))
                        where org = $1 and project = $2 and id = $3 and replaced_by is null
                            and revoked_at is null and (expires_at is null or expires_at > now())",
                        scope.org(),
                        scope.project(),
                        id,
                        new_id,
                        grace.as_secs_f64(),
                    )
                    .execute(&mut *connection)
                    .await?;
                    if ended.rows_affected() == 0 {
                        return Err(RegistryError::Conflict(format!(
                            "key `{id}` was revoked, has expired or was already rotated"
                        )));
                    }
                    audit::record(connection, &actor, event).await?;
                    Ok(record)
                })
            })
            .await;
        self.keys.forget();
        Ok((key, rotated?))
    }

    /// Refuses and records an attempt to obtain a key of another principal. The operator, who owns the database, is
    /// recorded when the key is created.
    async fn require_holder(
        &self,
        tenant: &Tenant,
        action: &str,
        target: &str,
        holder: &Principal,
        made_by: Option<&str>,
    ) -> Result<(), RegistryError> {
        let Some(actor) = tenant.principal() else { return Ok(()) };
        if actor.may_hold_key_of(holder, made_by) {
            return Ok(());
        }
        let event = AuditEvent::new(action, target, AuditOutcome::Refused)
            .with_detail(serde_json::json!({ "for": holder.as_str() }));
        self.audit(tenant, event).await?;
        Err(RegistryError::NotAllowed(format!(
            "a key of `{holder}` acts as `{holder}`, and you are `{actor}`: create keys for yourself or for a `service:NAME`; only the operator or `{holder}` can create this key"
        )))
    }

    /// Revokes a key of the tenant, on every replica at once. Revoking it again
    /// changes nothing.
    ///
    /// # Errors
    /// Returns [`RegistryError::NotFound`] when the tenant has no such key.
    pub async fn revoke_key(&self, tenant: &Tenant, id: Uuid) -> Result<(), RegistryError> {
        let scope = tenant.require_scope()?.clone();
        let actor = tenant.clone();
        let revoked = self
            .in_tenant(tenant, move |connection| {
                Box::pin(async move {
                    let revoked = sqlx::query!(
                        "update api_keys set revoked_at = coalesce(revoked_at, now())
                        where org = $1 and project = $2 and id = $3",
                        scope.org(),
                        scope.project(),
                        id,
                    )
                    .execute(&mut *connection)
                    .await?;
                    if revoked.rows_affected() == 0 {
                        return Err(RegistryError::NotFound(id.to_string()));
                    }
                    let event =
                        AuditEvent::new("key.revoke", id.to_string(), AuditOutcome::Allowed);
                    audit::record(connection, &actor, event).await
                })
            })
            .await;
        // This process need not wait for its own notification.
        self.keys.forget();
        revoked
    }
}

async fn find(
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

/// Writes a new key; returns when it was made.
async fn insert(
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

/// Returns who is shown a new key, as the audit log names them.
fn maker(actor: &Tenant) -> String {
    actor.principal().map_or("operator", Principal::as_str).to_owned()
}

/// Returns the error for a reserved name.
pub(crate) fn reserved(principal: &Principal) -> RegistryError {
    RegistryError::Invalid(format!("the principal `{principal}` is reserved; use another name"))
}

/// Encodes a cursor opaquely, so that clients do not depend on its form.
fn write_cursor(last: &KeyRecord) -> String {
    format!("{:016x}{}", last.created_at.timestamp_micros(), last.id.simple())
}

fn read_cursor(cursor: &str) -> Result<(DateTime<Utc>, Uuid), RegistryError> {
    let invalid = || RegistryError::Invalid("the cursor does not belong to this list".to_owned());
    let is_hex = cursor.len() == 48 && cursor.bytes().all(|byte| byte.is_ascii_hexdigit());
    let (time, id) = cursor.split_at_checked(16).filter(|_| is_hex).ok_or_else(invalid)?;
    let micros = i64::from_str_radix(time, 16).map_err(|_| invalid())?;
    let time = DateTime::from_timestamp_micros(micros).ok_or_else(invalid)?;
    Ok((time, id.parse().map_err(|_| invalid())?))
}
