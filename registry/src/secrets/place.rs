//! The place of a secret (tenant, owner, name), and encryption bound to exactly that place.

use chrono::{DateTime, Utc};
use serde_json::json;
use sqlx::PgConnection;
use zeroize::Zeroizing;

use super::data_keys::{self, OpenError, WrappedKey};
use super::seal::{Purpose, Unreadable};
use super::{
    KeyHost, MasterKeys, SecretName, SecretOwner, SecretRecord, SecretStamp, SecretUse, SecretValue,
};
use crate::RegistryError;
use crate::identity::tenant::Tenant;
use crate::records::audit::{self, AuditEvent, AuditOutcome};

/// Reads the owner from its column, which is empty for the project.
pub(super) fn owner_of(column: &str) -> SecretOwner {
    if column.is_empty() { SecretOwner::Project } else { SecretOwner::Me }
}

/// The result of opening a secret.
pub(super) enum Opened {
    /// There is none.
    Absent,
    /// There are some, but none may be sent to the host.
    NotForHost,
    /// This one.
    Value(SecretStamp, SecretValue),
}

/// The result of searching for a secret, which is still encrypted.
pub(super) enum Found {
    /// There is none.
    Absent,
    /// There are some, but none may be sent to the host.
    NotForHost,
    /// This one.
    Row(Row),
}

/// A stored secret with the data key that seals it.
pub(super) struct Row {
    owner: String,
    version: i64,
    updated_at: DateTime<Utc>,
    sealed: Vec<u8>,
    hosts: Option<Vec<String>>,
    data_key: i32,
    master_key: String,
    wrapped: Vec<u8>,
}

impl Row {
    /// Returns the stamp of this secret.
    pub(super) fn stamp(&self) -> SecretStamp {
        SecretStamp {
            owner: self.owner.clone(),
            version: self.version,
            updated_at: self.updated_at,
        }
    }
}

/// The place of a secret.
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

    /// Returns the purpose that a value is sealed for. It includes the hosts, so that hosts cannot be added to or
    /// removed from a stored secret in the database.
    fn purpose(&self, version: i64, hosts: Option<&[String]>) -> Purpose {
        let version = version.to_string();
        let (org, project) = (self.tenant.org(), self.tenant.project());
        let mut parts = vec![org, project, &self.owner, &self.name, &version];
        // Two different kinds, so that removing the hosts of a row does not make it open. Values
        // without hosts keep the form from before secrets had hosts.
        let Some(hosts) = hosts else { return Purpose::new("secret", &parts) };
        parts.extend(hosts.iter().map(String::as_str));
        Purpose::new("secret for hosts", &parts)
    }

    /// Seals a value and stores it, with its record.
    pub(super) async fn store(
        &self,
        connection: &mut PgConnection,
        keys: &MasterKeys,
        value: &SecretValue,
        hosts: Vec<KeyHost>,
    ) -> Result<SecretRecord, OpenError> {
        let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
        // Null, not an empty list, means that no host was named; a constraint refuses an empty
        // list.
        let hosts = Some(hosts).filter(|hosts| !hosts.is_empty());
        // Also locks the row of the data key, which serializes the following statements per organisation.
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
        // A deleted secret leaves no row, so its versions begin at 1 again. That is why a stamp
        // also contains the time.
        let version = last.unwrap_or(0) + 1;
        let sealed =
            key.seal(&self.purpose(version, hosts.as_deref()), value.expose().as_bytes())?;
        let row = sqlx::query!(
            "insert into secrets (org, project, owner, name, version, data_key, sealed, hosts)
            values ($1, $2, $3, $4, $5, $6, $7, $8)
            on conflict (org, project, owner, name) do update set version = excluded.version,
                data_key = excluded.data_key, sealed = excluded.sealed, hosts = excluded.hosts,
                updated_at = now()
            returning created_at, updated_at",
            org,
            project,
            self.owner,
            self.name,
            version,
            wrapped.version,
            sealed,
            hosts.as_deref(),
        )
        .fetch_one(&mut *connection)
        .await
        .map_err(RegistryError::from)?;
        let owner = owner_of(&self.owner);
        let event = AuditEvent::new("secret.put", self.name.as_str(), AuditOutcome::Allowed)
            .with_detail(json!({ "for": owner.as_str(), "version": version, "hosts": hosts }));
        audit::record(connection, &self.tenant, event).await?;
        Ok(SecretRecord {
            name: self.name.clone(),
            owner,
            version,
            hosts,
            created_at: row.created_at,
            updated_at: row.updated_at,
        })
    }

    /// Finds the secret that applies to the caller, without decrypting it.
    pub(super) async fn find(
        &self,
        connection: &mut PgConnection,
        purpose: &SecretUse,
    ) -> Result<Found, RegistryError> {
        // `owner desc` puts the caller's own secret first: the owner of the project's is empty.
        let mut rows = sqlx::query_as!(
            Row,
            r#"select s.owner, s.version, s.updated_at, s.sealed, s.hosts,
                k.version as data_key, k.master_key, k.wrapped
            from secrets s join data_keys k on k.org = s.org and k.version = s.data_key
            where s.org = $1 and s.project = $2 and s.name = $3 and s.owner in ('', $4)
            order by s.owner desc"#,
            self.tenant.org(),
            self.tenant.project(),
            self.name,
            self.tenant.principal_name(),
        )
        .fetch_all(connection)
        .await?;
        if rows.is_empty() {
            return Ok(Found::Absent);
        }
        let fits = rows.iter().position(|row| {
            let stored = row.hosts.as_ref();
            // An invalid host was not written by this program; opening the row will fail as well.
            let hosts: Option<Vec<KeyHost>> =
                stored.map(|hosts| hosts.iter().filter_map(|host| host.parse().ok()).collect());
            purpose.may_have(hosts.as_deref())
        });
        Ok(fits.map_or(Found::NotForHost, |place| Found::Row(rows.swap_remove(place))))
    }

    /// Decrypts the secret that applies to the caller, and sets this place's owner to the secret's.
    pub(super) async fn open(
        &mut self,
        connection: &mut PgConnection,
        keys: &MasterKeys,
        purpose: &SecretUse,
    ) -> Result<Opened, OpenError> {
        let row = match self.find(connection, purpose).await? {
            Found::Absent => return Ok(Opened::Absent),
            Found::NotForHost => return Ok(Opened::NotForHost),
            Found::Row(row) => row,
        };
        // Checked after the search: a missing secret is reported as missing even without a master
        // key.
        if keys.is_empty() {
            return Err(OpenError::Registry(RegistryError::NoMasterKey));
        }
        let stamp = row.stamp();
        // Set before the value is opened: the value is bound to this owner, and the audit event of
        // a failure names it.
        self.owner = row.owner;
        let wrapped =
            WrappedKey { version: row.data_key, master_key: row.master_key, wrapped: row.wrapped };
        let key = wrapped.open(keys, self.tenant.org())?;
        let mut bytes = key.open(&self.purpose(row.version, row.hosts.as_deref()), &row.sealed)?;
        // Moved, not copied: the plaintext stays in one allocation, which its new owner wipes.
        let text = String::from_utf8(std::mem::take(&mut *bytes)).map_err(|_| Unreadable)?;
        let value = SecretValue::new(Zeroizing::new(text)).map_err(|_| Unreadable)?;
        Ok(Opened::Value(stamp, value))
    }

    /// Records that the stored secret cannot be opened.
    pub(super) async fn record_unreadable(
        &self,
        connection: &mut PgConnection,
    ) -> Result<(), RegistryError> {
        let event = AuditEvent::new("secret.unreadable", self.name.as_str(), AuditOutcome::Failed)
            .with_detail(json!({ "for": owner_of(&self.owner).as_str() }));
        audit::record(connection, &self.tenant, event).await
    }
}
