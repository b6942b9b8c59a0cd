//! Rotation of the master key.
//!
//! Only data keys are rewrapped, in batches of one transaction each; the content that they encrypt does not change.
//! Each data key names its master key, so an interrupted rotation can be repeated, and gateways with both keys are
//! not affected.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use protocol::Scope;
use serde::Serialize;
use serde_json::json;

use super::MasterKeys;
use super::data_keys::{OpenError, WrappedKey};
use crate::RegistryError;
use crate::accounts::scopes::ensure_scope;
use crate::database::operator::Operator;
use crate::database::transaction::in_tenant;
use crate::identity::tenant::Tenant;
use crate::records::audit::{self, AuditEvent, AuditOutcome};

/// The status of a master key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MasterKeyStatus {
    /// Its name.
    pub id: String,
    /// Whether new data keys are wrapped with it.
    pub current: bool,
    /// The number of data keys that it wraps; at zero, the key is no longer needed.
    pub data_keys: i64,
    /// When it was first used.
    pub created_at: DateTime<Utc>,
}

/// The result of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rewrapped {
    /// The data keys that are wrapped with the current master key now.
    pub done: usize,
    /// The data keys that cannot be unwrapped, by organisation and version.
    pub unreadable: Vec<(String, i32)>,
    /// The position of the next batch; `None` if this was the last one.
    pub next: Option<(String, i32)>,
}

impl Operator {
    /// Lists the master keys that are not retired, the current one first.
    ///
    /// # Errors
    /// Returns [`RegistryError::Unavailable`] when the database does not answer.
    pub async fn master_keys(&self) -> Result<Vec<MasterKeyStatus>, RegistryError> {
        in_tenant(self.pool.clone(), &Tenant::of(Scope::public()), |connection| {
            Box::pin(async move {
                let keys = sqlx::query_as!(
                    MasterKeyStatus,
                    r#"select m.id, m.is_current as current, m.created_at,
                        (select count(*) from data_keys d where d.master_key = m.id) as "data_keys!"
                    from master_keys m order by m.is_current desc, m.created_at desc, m.id"#
                )
                .fetch_all(connection)
                .await?;
                Ok(keys)
            })
        })
        .await
    }

    /// Makes a master key the current one. From then on, every gateway needs it.
    ///
    /// # Errors
    /// Returns [`RegistryError::WrongMasterKey`] when a key that the database needs is not among `keys`; then nothing
    /// changes.
    pub async fn begin_rotation(
        &self,
        keys: &Arc<MasterKeys>,
        to: &str,
    ) -> Result<(), RegistryError> {
        let keys = Arc::clone(keys);
        let to = to.to_owned();
        let actor = Tenant::of(Scope::public());
        in_tenant(self.pool.clone(), &actor.clone(), move |connection| {
            Box::pin(async move {
                ensure_scope(connection, &Scope::public()).await?;
                let rows = sqlx::query!("select id, check_value, is_current from master_keys")
                    .fetch_all(&mut *connection)
                    .await?;
                for row in &rows {
                    let known = keys.get(&row.id).is_some_and(|key| key.opens(&row.check_value));
                    if !known {
                        return Err(RegistryError::WrongMasterKey { id: row.id.clone() });
                    }
                }
                // An interrupted rotation is repeated with the same command.
                if rows.iter().any(|row| row.is_current && row.id == to) {
                    return Ok(());
                }
                let key = keys
                    .get(&to)
                    .ok_or_else(|| RegistryError::WrongMasterKey { id: to.clone() })?;
                let from = rows.iter().find(|row| row.is_current).map(|row| row.id.clone());
                let event =
                    AuditEvent::new("master_key.rotate", to.as_str(), AuditOutcome::Allowed)
                        .with_detail(json!({ "from": from }));
                audit::record(connection, &actor, event).await?;
                // Before the insert: a unique index allows one current key.
                sqlx::query!("update master_keys set is_current = false where is_current")
                    .execute(&mut *connection)
                    .await?;
                // A rotation can lead back to an earlier key, which may still have a row.
                sqlx::query!(
                    "insert into master_keys (id, check_value, is_current) values ($1, $2, true)
                    on conflict (id) do update set is_current = true",
                    to,
                    key.check_value()?,
                )
                .execute(connection)
                .await?;
                Ok(())
            })
        })
        .await
    }

    /// Wraps up to `limit` data keys after `after` with the current master key.
    ///
    /// # Errors
    /// Returns [`RegistryError::WrongMasterKey`] when a key that the database needs is not among `keys`.
    pub async fn rewrap(
        &self,
        keys: &Arc<MasterKeys>,
        after: Option<(String, i32)>,
        limit: u32,
    ) -> Result<Rewrapped, RegistryError> {
        let keys = Arc::clone(keys);
        let actor = Tenant::of(Scope::public());
        in_tenant(self.pool.clone(), &actor.clone(), move |connection| {
            Box::pin(async move {
                let current = sqlx::query_scalar!("select id from master_keys where is_current")
                    .fetch_optional(&mut *connection)
                    .await?;
                let Some(current) = current else { return Ok(Rewrapped::default()) };
                let master = keys
                    .get(&current)
                    .ok_or_else(|| RegistryError::WrongMasterKey { id: current.clone() })?;
                // The default sorts before every data key, because versions begin at 1.
                let (org, version) = after.unwrap_or_default();
                let rows = sqlx::query!(
                    "select org, version, master_key, wrapped from data_keys
                    where master_key <> $1 and (org, version) > ($2, $3)
                    order by org, version limit $4 for update",
                    current,
                    org,
                    version,
                    i64::from(limit),
                )
                .fetch_all(&mut *connection)
                .await?;
                let mut report = Rewrapped::default();
                // A full batch may be the last one; then the next batch is empty.
                if rows.len() == limit as usize {
                    report.next = rows.last().map(|row| (row.org.clone(), row.version));
                }
                for row in rows {
                    let (org, version) = (row.org, row.version);
                    let wrapped =
                        WrappedKey { version, master_key: row.master_key, wrapped: row.wrapped };
                    let key = match wrapped.open(&keys, &org) {
                        Ok(key) => key,
                        Err(OpenError::Registry(error)) => return Err(error),
                        // A data key that was tampered with must not block the rotation of the others.
                        Err(OpenError::Unreadable) => {
                            report.unreadable.push((org, version));
                            continue;
                        }
                    };
                    sqlx::query!(
                        "update data_keys set master_key = $3, wrapped = $4, rewrapped_at = now()
                        where org = $1 and version = $2",
                        org,
                        version,
                        current,
                        master.wrap(&org, version, &key)?,
                    )
                    .execute(&mut *connection)
                    .await?;
                    report.done += 1;
                }
                if report.done > 0 {
                    let event =
                        AuditEvent::new("master_key.rewrap", current, AuditOutcome::Allowed)
                            .with_detail(json!({ "data_keys": report.done }));
                    audit::record(connection, &actor, event).await?;
                }
                Ok(report)
            })
        })
        .await
    }

    /// Deletes the records of master keys that wrap no data key any more; returns their ids.
    ///
    /// # Errors
    /// Returns [`RegistryError::Unavailable`] when the database does not answer.
    pub async fn retire_master_keys(&self) -> Result<Vec<String>, RegistryError> {
        let actor = Tenant::of(Scope::public());
        in_tenant(self.pool.clone(), &actor.clone(), move |connection| {
            Box::pin(async move {
                // If a gateway wraps a data key with one of them concurrently, the foreign key makes this fail.
                let retired = sqlx::query_scalar!(
                    "delete from master_keys m where not is_current
                        and not exists (select from data_keys d where d.master_key = m.id)
                    returning id"
                )
                .fetch_all(&mut *connection)
                .await?;
                for id in &retired {
                    let event =
                        AuditEvent::new("master_key.retire", id.as_str(), AuditOutcome::Allowed);
                    audit::record(connection, &actor, event).await?;
                }
                Ok(retired)
            })
        })
        .await
    }
}
