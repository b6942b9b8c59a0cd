//! Management of keys: create, list, rotate, revoke.

use std::time::Duration;

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::record::{KeyPage, KeyRecord, KeyRow, find, insert, read_cursor, write_cursor};
use super::secret::ApiKey;
use crate::identity::principal::{Principal, PrincipalKind};
use crate::identity::right::Rights;
use crate::identity::role::Role;
use crate::identity::tenant::Tenant;
use crate::paging::{EXACT_TOTAL, Total, cut};
use crate::records::audit::{self, AuditEvent, AuditOutcome};
use crate::{Registry, RegistryError};

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

impl Registry {
    /// Creates a key of the tenant and returns it, which cannot be shown again.
    ///
    /// The holder of a key acts as its principal. So a caller may create keys for its own principal, for a service,
    /// and keys that are their own principal; only the operator creates keys for other people.
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
            // In a transaction of its own, so that the event of a refusal is committed.
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
                        // A placeholder: the database sets the time, and `insert` returns it.
                        created_at: DateTime::UNIX_EPOCH,
                        expires_at: new.expires_at,
                        revoked_at: None,
                        replaced_by: None,
                        org_role: new.org_role,
                        made_by: Some(creator(&actor)),
                    };
                    record.created_at = insert(&mut *connection, &record, &hash).await?;
                    audit::record(connection, &actor, event).await?;
                    Ok(record)
                })
            })
            .await?;
        Ok((key, record))
    }

    /// Lists the keys of the tenant, oldest first, including revoked ones.
    ///
    /// # Errors
    /// Returns [`RegistryError::Invalid`] for a cursor of another list, and
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
                let next_cursor = cut(&mut items, limit, write_cursor);
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
        // Read here for its principal and creator, which never change, and again in the
        // transaction.
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
                        made_by: Some(creator(&actor)),
                        ..old
                    };
                    // Inserted first, because `replaced_by` of the old key refers to the new one.
                    // If the old key cannot be rotated, the error below undoes the insert.
                    record.created_at = insert(&mut *connection, &record, &hash).await?;
                    // Of two concurrent rotations, this condition lets one succeed.
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
        // Also after an error: the commit may have taken effect.
        self.keys.clear();
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
        // Do not wait for this process's own notification.
        self.keys.clear();
        revoked
    }
}

/// Returns the name of the key's creator, who is the only one to see it, as in the audit log.
fn creator(actor: &Tenant) -> String {
    actor.principal().map_or("operator", Principal::as_str).to_owned()
}

/// Returns the error for a reserved name.
pub(crate) fn reserved(principal: &Principal) -> RegistryError {
    RegistryError::Invalid(format!("the principal `{principal}` is reserved; use another name"))
}
