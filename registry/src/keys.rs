//! API keys: their rights, and how one that is presented is checked.

mod manage;
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
use utoipa::ToSchema;
use uuid::Uuid;

pub use manage::{KeyPage, KeyRecord, NewKey};
pub use secret::ApiKey;

use crate::tenant::outside;
use crate::{Principal, Registry, RegistryError, Tenant};

/// How long a checked key is believed. A revocation is told at once; this is
/// for the case that the telling fails.
const BELIEVED: Duration = Duration::from_secs(1);
/// How many keys are remembered at most.
const REMEMBERED: usize = 10_000;

/// What a key may be used for.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema,
)]
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
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
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

/// Who calls: a key or a token that was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The key's id; `None` for a token of somebody else's making.
    pub key_id: Option<Uuid>,
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
    /// Returns the first of some rights that the caller lacks.
    pub fn missing(&self, needed: &Rights) -> Option<Right> {
        needed.0.iter().copied().find(|right| !self.rights.contains(*right))
    }

    /// Returns the tenant on whose behalf the caller acts.
    pub fn tenant(&self) -> Tenant {
        Tenant::member(self.scope.clone(), self.principal.clone())
    }
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
        let row = outside(self.pool.clone(), move |connection| {
            let found = sqlx::query!(
                r#"select id as "id!", org as "org!", project as "project!",
                    principal as "principal!", rights as "rights!", expires_at as "expires_at?"
                from key_by_hash($1)"#,
                hash.as_slice(),
            )
            .fetch_optional(connection);
            Box::pin(found)
        })
        .await?
        .ok_or(RegistryError::InvalidCredential)?;
        let caller = Arc::new(Caller {
            key_id: Some(row.id),
            principal: row.principal.parse()?,
            scope: Scope::new(&row.org, &row.project)?,
            rights: row.rights.iter().map(|word| word.parse()).collect::<Result<_, _>>()?,
            expires_at: row.expires_at,
        });
        self.keys.remember(hash, Arc::clone(&caller), generation);
        Ok(caller)
    }
}
