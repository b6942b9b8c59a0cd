//! Data keys: one for each organisation, wrapped by a master key, replaced when used up.

use sqlx::PgConnection;

use super::MasterKeys;
use super::seal::{SealingKey, Unreadable};
use crate::RegistryError;

/// The number of encryptions with a data key before a new one replaces it. With random nonces, a collision becomes
/// likely after about 2^48; NIST SP 800-38D, section 8.3, allows 2^32, and a constraint of the table refuses more.
const MAX_USES: i64 = 1 << 30;

/// A data key as it is stored.
pub(super) struct WrappedKey {
    pub(super) version: i32,
    pub(super) master_key: String,
    pub(super) wrapped: Vec<u8>,
}

impl WrappedKey {
    /// Unwraps it with its master key.
    pub(super) fn open(&self, keys: &MasterKeys, org: &str) -> Result<SealingKey, OpenError> {
        let master = keys.get(&self.master_key).ok_or_else(|| {
            OpenError::Registry(RegistryError::WrongMasterKey { id: self.master_key.clone() })
        })?;
        Ok(master.unwrap(org, self.version, &self.wrapped)?)
    }
}

/// Why sealed content could not be opened.
pub(super) enum OpenError {
    /// It was changed, or moved from the place that it was sealed for. The caller records this.
    Unreadable,
    /// Anything else.
    Registry(RegistryError),
}

impl From<Unreadable> for OpenError {
    fn from(Unreadable: Unreadable) -> Self {
        Self::Unreadable
    }
}

impl From<RegistryError> for OpenError {
    fn from(error: RegistryError) -> Self {
        Self::Registry(error)
    }
}

/// Returns the newest data key of an organisation and counts a use of it; creates one if there is none or it is used
/// up.
pub(super) async fn newest(
    connection: &mut PgConnection,
    keys: &MasterKeys,
    org: &str,
) -> Result<WrappedKey, RegistryError> {
    // Usually a key exists, and then its own row lock suffices.
    if let Some(key) = count_use(connection, org).await? {
        return Ok(key);
    }
    // Serialized, so that two concurrent callers do not both create one.
    sqlx::query!("select pg_advisory_xact_lock(hashtextextended('pml data key ' || $1, 0))", org)
        .execute(&mut *connection)
        .await?;
    // Another caller may have created it while this one waited for the lock.
    if let Some(key) = count_use(connection, org).await? {
        return Ok(key);
    }
    // The database, not the settings, defines the current master key, so that gateways with old and
    // with new settings agree during a rotation.
    let current = sqlx::query_scalar!("select id from master_keys where is_current")
        .fetch_optional(&mut *connection)
        .await?
        .ok_or(RegistryError::NoMasterKey)?;
    let master =
        keys.get(&current).ok_or_else(|| RegistryError::WrongMasterKey { id: current.clone() })?;
    let last = sqlx::query_scalar!("select max(version) from data_keys where org = $1", org)
        .fetch_one(&mut *connection)
        .await?;
    let version = last.unwrap_or(0) + 1;
    // The insert below counts the use for which the key is created.
    let wrapped = master.wrap(org, version, &SealingKey::generate()?)?;
    sqlx::query!(
        "insert into data_keys (org, version, master_key, wrapped, uses) values ($1, $2, $3, $4, 1)",
        org,
        version,
        current,
        wrapped,
    )
    .execute(connection)
    .await
    .map_err(|error| match error.as_database_error().and_then(|refused| refused.constraint()) {
        // The master key was retired concurrently; a retry finds the new one.
        Some("data_keys_master_key_fkey") => RegistryError::Unavailable(error),
        _ => error.into(),
    })?;
    Ok(WrappedKey { version, master_key: current, wrapped })
}

async fn count_use(
    connection: &mut PgConnection,
    org: &str,
) -> Result<Option<WrappedKey>, RegistryError> {
    let key = sqlx::query_as!(
        WrappedKey,
        "update data_keys set uses = uses + 1
        where org = $1 and uses < $2
            and version = (select max(version) from data_keys where org = $1)
        returning version, master_key, wrapped",
        org,
        MAX_USES,
    )
    .fetch_optional(connection)
    .await?;
    Ok(key)
}
