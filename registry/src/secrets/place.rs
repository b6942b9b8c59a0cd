//! Where a secret stands, and what is sealed for exactly that place.

use serde_json::json;
use sqlx::PgConnection;
use zeroize::Zeroizing;

use super::data_keys::{self, OpenError, WrappedKey};
use super::seal::{Purpose, Unreadable};
use super::{MasterKeys, SecretName, SecretOwner, SecretRecord, SecretValue};
use crate::audit::{self, AuditEvent, AuditOutcome};
use crate::{RegistryError, Tenant};

/// Reads whose a secret is.
pub(super) fn owner_of(column: &str) -> SecretOwner {
    if column.is_empty() { SecretOwner::Project } else { SecretOwner::Me }
}

/// Where a secret stands.
pub(super) struct Place {
    pub(super) tenant: Tenant,
    /// Empty for the project.
    pub(super) owner: String,
    pub(super) name: String,
}

impl Place {
    pub(super) fn new(
        tenant: &Tenant,
        owner: SecretOwner,
        name: &SecretName,
    ) -> Result<Self, RegistryError> {
        tenant.require_scope()?;
        let owner = match owner {
            SecretOwner::Project => String::new(),
            SecretOwner::Me if tenant.principal_name().is_empty() => {
                return Err(RegistryError::Invalid("this needs a principal".to_owned()));
            }
            SecretOwner::Me => tenant.principal_name().to_owned(),
        };
        Ok(Self { tenant: tenant.clone(), owner, name: name.to_string() })
    }

    fn purpose(&self, version: i64) -> Purpose {
        let version = version.to_string();
        let (org, project) = (self.tenant.org(), self.tenant.project());
        Purpose::new("secret", &[org, project, &self.owner, &self.name, &version])
    }

    /// Seals a value and stores it, with its record.
    pub(super) async fn store(
        &self,
        connection: &mut PgConnection,
        keys: &MasterKeys,
        value: &SecretValue,
    ) -> Result<SecretRecord, OpenError> {
        // Locks the row of the data key, so that from here on one at a time stores
        // something in an organisation.
        let wrapped = data_keys::newest(connection, keys, self.tenant.org()).await?;
        let key = wrapped.open(keys, self.tenant.org())?;
        let (org, project) = (self.tenant.org(), self.tenant.project());
        let last = sqlx::query_scalar!(
            "select version from secrets
            where org = $1 and project = $2 and owner = $3 and name = $4",
            org,
            project,
            self.owner,
            self.name,
        )
        .fetch_optional(&mut *connection)
        .await
        .map_err(RegistryError::from)?;
        let version = last.unwrap_or(0) + 1;
        let sealed = key.seal(&self.purpose(version), value.expose().as_bytes())?;
        let row = sqlx::query!(
            "insert into secrets (org, project, owner, name, version, data_key, sealed)
            values ($1, $2, $3, $4, $5, $6, $7)
            on conflict (org, project, owner, name) do update set version = excluded.version,
                data_key = excluded.data_key, sealed = excluded.sealed, updated_at = now()
            returning created_at, updated_at",
            org,
            project,
            self.owner,
            self.name,
            version,
            wrapped.version,
            sealed,
        )
        .fetch_one(&mut *connection)
        .await
        .map_err(RegistryError::from)?;
        let owner = owner_of(&self.owner);
        let event = AuditEvent::new("secret.put", self.name.as_str(), AuditOutcome::Allowed)
            .with_detail(json!({ "for": owner.as_str(), "version": version }));
        audit::record(connection, &self.tenant, event).await?;
        Ok(SecretRecord {
            name: self.name.clone(),
            owner,
            version,
            created_at: row.created_at,
            updated_at: row.updated_at,
        })
    }

    /// Opens the secret that counts for whoever asks, and becomes its place.
    pub(super) async fn open(
        &mut self,
        connection: &mut PgConnection,
        keys: &MasterKeys,
    ) -> Result<Option<(i64, SecretValue)>, OpenError> {
        let row = sqlx::query!(
            r#"select s.owner, s.version, s.sealed,
                k.version as data_key, k.master_key, k.wrapped
            from secrets s join data_keys k on k.org = s.org and k.version = s.data_key
            where s.org = $1 and s.project = $2 and s.name = $3 and s.owner in ('', $4)
            order by s.owner desc limit 1"#,
            self.tenant.org(),
            self.tenant.project(),
            self.name,
            self.tenant.principal_name(),
        )
        .fetch_optional(connection)
        .await
        .map_err(RegistryError::from)?;
        let Some(row) = row else { return Ok(None) };
        if keys.is_empty() {
            return Err(OpenError::Registry(RegistryError::NoMasterKey));
        }
        self.owner = row.owner;
        let wrapped =
            WrappedKey { version: row.data_key, master_key: row.master_key, wrapped: row.wrapped };
        let key = wrapped.open(keys, self.tenant.org())?;
        let mut bytes = key.open(&self.purpose(row.version), &row.sealed)?;
        let text = String::from_utf8(std::mem::take(&mut *bytes)).map_err(|_| Unreadable)?;
        let value = SecretValue::new(Zeroizing::new(text)).map_err(|_| Unreadable)?;
        Ok(Some((row.version, value)))
    }

    /// Records that something here does not open.
    pub(super) async fn record_unreadable(
        &self,
        connection: &mut PgConnection,
    ) -> Result<(), RegistryError> {
        let event = AuditEvent::new("secret.unreadable", self.name.as_str(), AuditOutcome::Failed)
            .with_detail(json!({ "for": owner_of(&self.owner).as_str() }));
        audit::record(connection, &self.tenant, event).await
    }
}
