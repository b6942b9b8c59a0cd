//! API keys: made, shown once, checked, revoked.

mod secret;

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use protocol::Scope;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use secret::ApiKey;

use crate::audit::{self, AuditEvent, AuditOutcome};
use crate::tenant::on_live;
use crate::{Principal, Registry, RegistryError, Tenant};

/// How long a checked key is believed. A revocation is told at once; this is
/// for the case that the telling fails.
const BELIEVED: Duration = Duration::from_secs(1);
/// How many keys are remembered at most.
const REMEMBERED: usize = 10_000;

/// What a key may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Right {
    /// Run programs and call tools.
    Execute,
    /// Read the tenant's entries and records.
    Read,
    /// Publish entries.
    Publish,
    /// Manage keys and settings of the tenant.
    Admin,
}

impl Right {
    /// Every right.
    pub const ALL: [Self; 4] = [Self::Execute, Self::Read, Self::Publish, Self::Admin];

    /// Returns the word used on the wire and in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Execute => "execute",
            Self::Read => "read",
            Self::Publish => "publish",
            Self::Admin => "admin",
        }
    }
}

impl FromStr for Right {
    type Err = RegistryError;

    fn from_str(text: &str) -> Result<Self, RegistryError> {
        Self::ALL.into_iter().find(|right| right.as_str() == text).ok_or_else(|| {
            RegistryError::Invalid(format!(
                "`{}` is not a right; there are `execute`, `read`, `publish` and `admin`",
                text.escape_debug()
            ))
        })
    }
}

/// A set of rights; written as a list, `execute,read`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rights(Vec<Right>);

impl Rights {
    /// Tells whether a right is among them.
    pub fn contains(&self, right: Right) -> bool {
        self.0.contains(&right)
    }

    /// Tells whether every one of them is among others.
    pub fn is_subset(&self, others: &Self) -> bool {
        self.0.iter().all(|right| others.contains(*right))
    }

    fn words(&self) -> Vec<String> {
        self.0.iter().map(|right| right.as_str().to_owned()).collect()
    }
}

impl FromIterator<Right> for Rights {
    fn from_iter<I: IntoIterator<Item = Right>>(rights: I) -> Self {
        let mut all: Vec<Right> = rights.into_iter().collect();
        all.sort();
        all.dedup();
        Self(all)
    }
}

impl FromStr for Rights {
    type Err = RegistryError;

    fn from_str(text: &str) -> Result<Self, RegistryError> {
        text.split(',').map(|word| word.trim().parse()).collect()
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words().join(","))
    }
}

/// Who calls: a key that was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The key's id, for logs.
    pub key_id: Uuid,
    /// Who acts with it.
    pub principal: Principal,
    /// For which scope.
    pub scope: Scope,
    /// What it may do.
    pub rights: Rights,
    /// From when on it is refused.
    pub expires_at: Option<DateTime<Utc>>,
}

impl Caller {
    /// Returns the tenant on whose behalf the caller acts.
    pub fn tenant(&self) -> Tenant {
        Tenant::member(self.scope.clone(), self.principal.clone())
    }
}

/// What a new key is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewKey {
    /// Who acts with it; without one, the key itself is the principal.
    pub principal: Option<Principal>,
    /// What its owner calls it; may be empty.
    pub name: String,
    /// What it may do.
    pub rights: Rights,
    /// From when on it is refused; `None` means never.
    pub expires_at: Option<DateTime<Utc>>,
}

/// A key as it is listed; the key itself cannot be had again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KeyRecord {
    /// Names the key.
    pub id: Uuid,
    /// Who acts with it.
    pub principal: String,
    /// What its owner calls it.
    pub name: String,
    /// What it may do.
    pub rights: Rights,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// From when on it is refused.
    pub expires_at: Option<DateTime<Utc>>,
    /// Since when it is refused.
    pub revoked_at: Option<DateTime<Utc>>,
}

/// By the key's hash: who it is, and since when that is known.
type Known = HashMap<[u8; 32], (Arc<Caller>, Instant)>;

/// Remembers checked keys for a moment.
#[derive(Default)]
pub(crate) struct KeyCache {
    known: Mutex<Known>,
    /// Rises when everything is forgotten, so that a look-up from before does
    /// not remember its answer after.
    generation: AtomicU64,
}

impl KeyCache {
    pub(crate) fn forget(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
        self.lock().clear();
    }

    fn get(&self, hash: &[u8; 32]) -> Option<Arc<Caller>> {
        let known = self.lock();
        let (caller, since) = known.get(hash)?;
        let expired = caller.expires_at.is_some_and(|at| at <= Utc::now());
        (since.elapsed() < BELIEVED && !expired).then(|| Arc::clone(caller))
    }

    fn remember(&self, hash: [u8; 32], caller: Arc<Caller>, generation: u64) {
        let mut known = self.lock();
        if known.len() >= REMEMBERED {
            known.retain(|_, (_, since)| since.elapsed() < BELIEVED);
        }
        // Within the lock: `forget` raises the number before it clears.
        if known.len() < REMEMBERED && self.generation.load(Ordering::SeqCst) == generation {
            known.insert(hash, (caller, Instant::now()));
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Registry {
    /// Makes a key of the tenant and returns it, for the only time.
    ///
    /// # Errors
    /// Returns [`RegistryError::NotFound`] when the scope does not exist and
    /// [`RegistryError::Invalid`] when the key would have no right.
    pub async fn create_key(
        &self,
        tenant: &Tenant,
        new: NewKey,
    ) -> Result<(ApiKey, KeyRecord), RegistryError> {
        let scope = tenant.require_scope()?.clone();
        if new.rights == Rights::default() {
            return Err(RegistryError::Invalid("a key needs at least one right".to_owned()));
        }
        let key = ApiKey::generate()?;
        let hash = key.hash();
        let id = Uuid::now_v7();
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
                    let created_at = sqlx::query_scalar!(
                        "insert into api_keys
                            (id, org, project, principal, name, key_hash, rights, expires_at)
                        values ($1, $2, $3, $4, $5, $6, $7, $8)
                        returning created_at",
                        id,
                        scope.org(),
                        scope.project(),
                        principal.as_str(),
                        new.name,
                        hash.as_slice(),
                        &new.rights.words(),
                        new.expires_at,
                    )
                    .fetch_one(&mut *connection)
                    .await?;
                    audit::record(connection, &actor, event).await?;
                    Ok(KeyRecord {
                        id,
                        principal: principal.as_str().to_owned(),
                        name: new.name,
                        rights: new.rights,
                        created_at,
                        expires_at: new.expires_at,
                        revoked_at: None,
                    })
                })
            })
            .await?;
        Ok((key, record))
    }

    /// Checks a presented key. Its checksum is checked before the database is asked.
    ///
    /// # Errors
    /// Returns [`RegistryError::InvalidCredential`] for whatever is not a valid
    /// key, and [`RegistryError::Unavailable`] when the database does not answer.
    pub async fn authenticate(&self, presented: &str) -> Result<Arc<Caller>, RegistryError> {
        let hash = presented.parse::<ApiKey>()?.hash();
        if let Some(caller) = self.keys.get(&hash) {
            return Ok(caller);
        }
        let generation = self.keys.generation.load(Ordering::SeqCst);
        let row = on_live(&self.pool, || {
            sqlx::query!(
                r#"select id as "id!", org as "org!", project as "project!",
                    principal as "principal!", rights as "rights!", expires_at as "expires_at?"
                from key_by_hash($1)"#,
                hash.as_slice(),
            )
            .fetch_optional(&self.pool)
        })
        .await?
        .ok_or(RegistryError::InvalidCredential)?;
        let caller = Arc::new(Caller {
            key_id: row.id,
            principal: row.principal.parse()?,
            scope: Scope::new(&row.org, &row.project)?,
            rights: row.rights.iter().map(|word| word.parse()).collect::<Result<_, _>>()?,
            expires_at: row.expires_at,
        });
        self.keys.remember(hash, Arc::clone(&caller), generation);
        Ok(caller)
    }

    /// Lists the keys of the tenant, the oldest first.
    ///
    /// # Errors
    /// Returns [`RegistryError::Unavailable`] when the database does not answer.
    pub async fn keys(&self, tenant: &Tenant) -> Result<Vec<KeyRecord>, RegistryError> {
        let scope = tenant.require_scope()?.clone();
        let rows = self
            .in_tenant(tenant, move |connection| {
                Box::pin(async move {
                    let rows = sqlx::query!(
                        "select id, principal, name, rights, created_at, expires_at, revoked_at
                        from api_keys where org = $1 and project = $2
                        order by created_at, id",
                        scope.org(),
                        scope.project(),
                    )
                    .fetch_all(connection)
                    .await?;
                    Ok(rows)
                })
            })
            .await?;
        rows.into_iter()
            .map(|row| {
                Ok(KeyRecord {
                    id: row.id,
                    principal: row.principal,
                    name: row.name,
                    rights: row.rights.iter().map(|word| word.parse()).collect::<Result<_, _>>()?,
                    created_at: row.created_at,
                    expires_at: row.expires_at,
                    revoked_at: row.revoked_at,
                })
            })
            .collect()
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
