//! Users' stored secrets for the upstreams of their tools.
//!
//! A value is encrypted with the data key of its organisation, which is wrapped by a master key that is never in the
//! database. Encrypted content can be decrypted only for the organisation, project, owner, name and version that it
//! was encrypted for. The only access to a value is [`Registry::use_secret`], which records the use before it returns
//! the value.

mod data_keys;
mod host;
mod master;
mod place;
mod rotate;
mod seal;
mod sessions;
mod value;

use std::sync::Arc;

use serde_json::json;

pub use host::KeyHost;
pub use master::{DerivedKey, MasterKey, MasterKeyError, MasterKeys};
pub use rotate::{MasterKeyStatus, Rewrapped};
pub use value::{SecretName, SecretOwner, SecretRecord, SecretStamp, SecretValue, UsedSecret};

use crate::identity::tenant::Tenant;
use crate::records::audit::{self, AuditEvent, AuditOutcome};
use crate::{Registry, RegistryError};
use data_keys::OpenError;
use place::{Found, Opened, Place, owner_of};

/// The use of a stored secret, for the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretUse {
    /// The tool that is called with it.
    pub tool: String,
    /// The host that it is sent to.
    pub host: KeyHost,
    /// Whether the entry with this host is in the catalog, which only the operator writes.
    pub by_operator: bool,
}

impl SecretUse {
    /// Returns whether a secret with these hosts may be sent to this host.
    ///
    /// The hosts of a secret apply to every entry. A secret without hosts is sent only to hosts of the operator's
    /// entries: a tenant's entry names both the variable and the address, so it could send any secret anywhere.
    pub fn may_have(&self, hosts: Option<&[KeyHost]>) -> bool {
        hosts.map_or(self.by_operator, |hosts| hosts.contains(&self.host))
    }
}

impl Registry {
    /// Sets the master keys for stored secrets. Without any, storing and using a secret fails with
    /// [`RegistryError::NoMasterKey`].
    ///
    /// If the database has no master key yet, the first of `keys` becomes the current one.
    ///
    /// # Errors
    /// Returns [`RegistryError::WrongMasterKey`] when the database has secrets under a master key that is not among
    /// `keys`.
    pub async fn with_master_keys(mut self, keys: MasterKeys) -> Result<Self, RegistryError> {
        if let Some(first) = keys.first() {
            let (id, check_value) = (first.id().to_owned(), first.check_value()?);
            self.in_tenant(&Tenant::anonymous(), move |connection| {
                Box::pin(async move {
                    // An existing current key is kept.
                    sqlx::query!(
                        "insert into master_keys (id, check_value, is_current)
                        values ($1, $2, true) on conflict do nothing",
                        id,
                        check_value,
                    )
                    .execute(connection)
                    .await?;
                    Ok(())
                })
            })
            .await?;
        }
        self.master_keys = Arc::new(keys);
        // Without any master key, the gateway serves everything that needs no stored secret.
        match self.check_secrets().await {
            Ok(()) | Err(RegistryError::NoMasterKey) => Ok(self),
            Err(error) => Err(error),
        }
    }

    /// Derives a key for another purpose from each master key. Sign with the first one; accept all of them.
    ///
    /// # Errors
    /// Returns [`RegistryError::Invalid`] when a key cannot be derived.
    pub fn derived_keys(&self, purpose: &str) -> Result<Vec<DerivedKey>, RegistryError> {
        self.master_keys.derive(purpose)
    }

    /// Returns whether secrets can be stored and read.
    ///
    /// # Errors
    /// Returns [`RegistryError::NoMasterKey`] or [`RegistryError::WrongMasterKey`].
    pub async fn check_secrets(&self) -> Result<(), RegistryError> {
        if self.master_keys.is_empty() {
            return Err(RegistryError::NoMasterKey);
        }
        let rows = self
            .in_tenant(&Tenant::anonymous(), |connection| {
                Box::pin(async move {
                    let rows = sqlx::query!("select id, check_value from master_keys")
                        .fetch_all(connection)
                        .await?;
                    Ok(rows)
                })
            })
            .await?;
        // Every listed key must be configured, not only the current one: a key is listed until it
        // wraps no data key.
        for row in rows {
            let key = self.master_keys.get(&row.id);
            if !key.is_some_and(|key| key.opens(&row.check_value)) {
                return Err(RegistryError::WrongMasterKey { id: row.id });
            }
        }
        Ok(())
    }

    /// Returns whether the database already has a master key; then a gateway must not generate a new one.
    ///
    /// # Errors
    /// Returns [`RegistryError::Unavailable`] when the database does not answer.
    pub async fn has_master_key(&self) -> Result<bool, RegistryError> {
        self.in_tenant(&Tenant::anonymous(), |connection| {
            Box::pin(async move {
                let has =
                    sqlx::query_scalar!(r#"select exists (select from master_keys) as "has!""#);
                Ok(has.fetch_one(connection).await?)
            })
        })
        .await
    }

    /// Stores a secret of the caller or of the project; replaces an existing value and its hosts.
    ///
    /// Without hosts, it is sent only to hosts of catalog entries.
    ///
    /// # Errors
    /// Returns [`RegistryError::NoMasterKey`] without a master key and
    /// [`RegistryError::NotFound`] when the scope does not exist.
    pub async fn put_secret(
        &self,
        tenant: &Tenant,
        owner: SecretOwner,
        name: &SecretName,
        value: SecretValue,
        hosts: Vec<KeyHost>,
    ) -> Result<SecretRecord, RegistryError> {
        if self.master_keys.is_empty() {
            return Err(RegistryError::NoMasterKey);
        }
        let hosts = KeyHost::sorted(hosts)?;
        let place = Place::new(tenant, owner, name)?;
        let keys = Arc::clone(&self.master_keys);
        let stored = self
            .in_tenant(tenant, move |connection| {
                Box::pin(async move {
                    match place.store(connection, &keys, &value, hosts).await {
                        Ok(record) => Ok(Some(record)),
                        Err(OpenError::Registry(error)) => Err(error),
                        // A value, not an error, so that the transaction with the audit event commits.
                        Err(OpenError::Unreadable) => {
                            place.record_unreadable(connection).await?;
                            Ok(None)
                        }
                    }
                })
            })
            .await?;
        stored.ok_or_else(|| RegistryError::UnreadableSecret(name.to_string()))
    }

    /// Lists the caller's own secrets and those of the project, by name and without values.
    ///
    /// # Errors
    /// Returns [`RegistryError::Unavailable`] when the database does not answer.
    pub async fn secrets(&self, tenant: &Tenant) -> Result<Vec<SecretRecord>, RegistryError> {
        let scope = tenant.require_scope()?.clone();
        let principal = tenant.principal_name().to_owned();
        self.in_tenant(tenant, move |connection| {
            Box::pin(async move {
                let rows = sqlx::query!(
                    r#"select name, owner, version, hosts, created_at, updated_at
                    from secrets where org = $1 and project = $2 and owner in ('', $3)
                    order by name collate "C", owner desc"#,
                    scope.org(),
                    scope.project(),
                    principal,
                )
                .fetch_all(connection)
                .await?;
                let records = rows.into_iter().map(|row| SecretRecord {
                    name: row.name,
                    owner: owner_of(&row.owner),
                    version: row.version,
                    hosts: row.hosts,
                    created_at: row.created_at,
                    updated_at: row.updated_at,
                });
                Ok(records.collect())
            })
        })
        .await
    }

    /// Deletes a secret of the caller or of the project.
    ///
    /// # Errors
    /// Returns [`RegistryError::NotFound`] when there is none.
    pub async fn delete_secret(
        &self,
        tenant: &Tenant,
        owner: SecretOwner,
        name: &SecretName,
    ) -> Result<(), RegistryError> {
        let place = Place::new(tenant, owner, name)?;
        self.in_tenant(tenant, move |connection| {
            Box::pin(async move {
                let gone = sqlx::query!(
                    "delete from secrets
                    where org = $1 and project = $2 and owner = $3 and name = $4",
                    place.tenant.org(),
                    place.tenant.project(),
                    place.owner,
                    place.name,
                )
                .execute(&mut *connection)
                .await?;
                if gone.rows_affected() == 0 {
                    return Err(RegistryError::NotFound(place.name));
                }
                let event =
                    AuditEvent::new("secret.delete", place.name.as_str(), AuditOutcome::Allowed)
                        .with_detail(json!({ "for": owner.as_str() }));
                audit::record(connection, &place.tenant, event).await
            })
        })
        .await
    }

    /// Records one use of a stored secret and returns it: the caller's own, or else the project's. A secret that may
    /// not be sent to the host is skipped. Returns `None` if neither exists.
    ///
    /// # Errors
    /// Returns [`RegistryError::NotForHost`] when no stored secret may be sent to the host, which is recorded.
    /// Returns [`RegistryError::UnreadableSecret`] when it was changed or moved in the database, which is recorded as
    /// well. After any other error, no use was recorded, so the secret must not be used.
    pub async fn use_secret(
        &self,
        tenant: &Tenant,
        name: &SecretName,
        purpose: SecretUse,
    ) -> Result<Option<UsedSecret>, RegistryError> {
        // The owner is provisional: opening sets the one of the secret that applies.
        let mut place = Place::new(tenant, SecretOwner::Project, name)?;
        let keys = Arc::clone(&self.master_keys);
        let used = self
            .in_tenant(tenant, move |connection| {
                Box::pin(async move {
                    match place.open(connection, &keys, &purpose).await {
                        Ok(Opened::Absent) => Ok(Used::Absent),
                        Ok(Opened::NotForHost) => {
                            let event =
                                AuditEvent::new("secret.use", &place.name, AuditOutcome::Refused)
                                    .with_detail(json!({
                                        "reason": "host",
                                        "tool": purpose.tool,
                                        "host": purpose.host,
                                    }));
                            audit::record(connection, &place.tenant, event).await?;
                            Ok(Used::NotForHost(purpose.host))
                        }
                        // The value leaves this method only after the transaction with this event
                        // has committed.
                        Ok(Opened::Value(stamp, value)) => {
                            let event =
                                AuditEvent::new("secret.use", &place.name, AuditOutcome::Allowed)
                                    .with_detail(json!({
                                        "for": owner_of(&place.owner).as_str(),
                                        "version": stamp.version,
                                        "tool": purpose.tool,
                                        "host": purpose.host,
                                    }));
                            audit::record(connection, &place.tenant, event).await?;
                            Ok(Used::Value(UsedSecret { value, stamp }))
                        }
                        Err(OpenError::Registry(error)) => Err(error),
                        Err(OpenError::Unreadable) => {
                            place.record_unreadable(connection).await?;
                            Ok(Used::Unreadable)
                        }
                    }
                })
            })
            .await?;
        match used {
            Used::Absent => Ok(None),
            Used::Value(value) => Ok(Some(value)),
            Used::NotForHost(host) => {
                Err(RegistryError::NotForHost { name: name.to_string(), host: host.to_string() })
            }
            Used::Unreadable => Err(RegistryError::UnreadableSecret(name.to_string())),
        }
    }

    /// Returns the stamp of the secret that a use would get now, without decrypting or recording anything.
    ///
    /// # Errors
    /// Returns an error when the database cannot be read.
    pub async fn secret_stamp(
        &self,
        tenant: &Tenant,
        name: &SecretName,
        purpose: SecretUse,
    ) -> Result<Option<SecretStamp>, RegistryError> {
        let place = Place::new(tenant, SecretOwner::Project, name)?;
        self.in_tenant(tenant, move |connection| {
            Box::pin(async move {
                Ok(match place.find(connection, &purpose).await? {
                    Found::Row(row) => Some(row.stamp()),
                    Found::Absent | Found::NotForHost => None,
                })
            })
        })
        .await
    }
}

/// The result of a use. Failures are values, not errors, so that the transaction with their audit event commits.
enum Used {
    Absent,
    NotForHost(KeyHost),
    Value(UsedSecret),
    Unreadable,
}
