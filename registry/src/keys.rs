//! API keys: their rights, and how one that is presented is checked.

pub(crate) mod manage;
mod memory;
mod secret;
mod standing;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use protocol::Scope;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

pub use manage::{KeyPage, KeyRecord, NewKey};
pub use secret::ApiKey;

use crate::{Principal, Registry, RegistryError, Role, Tenant};
use memory::Memory;
use standing::{Standing, Subject};

/// A right of a key.
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
                "`{}` is not a right; use `execute`, `read`, `publish` or `admin`",
                text.escape_debug()
            ))
        })
    }
}

/// A set of rights; written as a list, `execute,read`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Rights(Vec<Right>);

impl Rights {
    /// Returns whether the set contains a right.
    pub fn contains(&self, right: Right) -> bool {
        self.0.contains(&right)
    }

    /// Returns whether the set is a subset of another.
    pub fn is_subset(&self, others: &Self) -> bool {
        self.0.iter().all(|right| others.contains(*right))
    }

    /// Returns those that are among others as well.
    #[must_use]
    pub fn within(&self, others: &Self) -> Self {
        self.0.iter().copied().filter(|right| others.contains(*right)).collect()
    }

    /// Returns each of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = Right> {
        self.0.iter().copied()
    }

    pub(crate) fn of_words(words: &[String]) -> Result<Self, RegistryError> {
        words.iter().map(|word| word.parse()).collect()
    }

    pub(crate) fn words(&self) -> Vec<String> {
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

/// The caller: a verified key or token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The key's id; `None` for a token of an identity provider.
    pub key_id: Option<Uuid>,
    /// The principal.
    pub principal: Principal,
    /// For which scope.
    pub scope: Scope,
    /// Its rights.
    pub rights: Rights,
    /// From when on it is refused.
    pub expires_at: Option<DateTime<Utc>>,
    /// The caller's role in its organisation: at most that of its principal, and that of its key's creator.
    pub org_role: Option<Role>,
    /// The session that it calls in.
    pub session: Option<Session>,
    /// Who created the API key, or the API key of the session; `None` if that is unknown.
    pub key_made_by: Option<Arc<str>>,
}

/// A short-lived credential that was created from another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Session {
    /// Names the session in the audit log.
    pub id: Uuid,
    /// The API key that it was created from, with which it ends.
    pub key_id: Option<Uuid>,
}

impl Caller {
    /// Returns the first of some rights that the caller lacks.
    pub fn missing(&self, needed: &Rights) -> Option<Right> {
        needed.0.iter().copied().find(|right| !self.rights.contains(*right))
    }

    /// Returns the tenant on whose behalf the caller acts.
    pub fn tenant(&self) -> Tenant {
        Tenant::member(self.scope.clone(), self.principal.clone())
            .with_key_made_by(self.key_made_by.clone())
    }
}

/// Remembers for a moment who a key is, and what a principal may do.
#[derive(Default)]
pub(crate) struct KeyCache {
    callers: Memory<[u8; 32], Arc<Caller>>,
    standings: Memory<Subject, Arc<Standing>>,
}

impl KeyCache {
    pub(crate) fn forget(&self) {
        self.callers.forget();
        self.standings.forget();
    }

    pub(crate) fn believe_for(&self, time: Duration) {
        self.callers.believe_for(time);
        self.standings.believe_for(time);
    }
}

impl Registry {
    /// Verifies a presented key. Its checksum is verified before the database is queried.
    ///
    /// # Errors
    /// Returns [`RegistryError::InvalidCredential`] for whatever is not a valid
    /// key, and [`RegistryError::Unavailable`] when the database does not answer.
    pub async fn authenticate(&self, presented: &str) -> Result<Arc<Caller>, RegistryError> {
        let hash = presented.parse::<ApiKey>()?.hash();
        let ended = |caller: &Arc<Caller>| caller.expires_at.is_some_and(|at| at <= Utc::now());
        if let Some(caller) = self.keys.callers.get(&hash).filter(|caller| !ended(caller)) {
            return Ok(caller);
        }
        let generation = self.keys.callers.generation();
        let row = self
            .pool
            .outside(move |connection| {
                let found = sqlx::query!(
                    r#"select id as "id!", org as "org!", project as "project!",
                    principal as "principal!", rights as "rights!", expires_at as "expires_at?",
                    org_role as "org_role?", made_by as "made_by?"
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
            rights: Rights::of_words(&row.rights)?,
            expires_at: row.expires_at,
            org_role: row.org_role.map(|role| role.parse()).transpose()?,
            session: None,
            key_made_by: row.made_by.map(Arc::from),
        });
        self.keys.callers.remember(hash, Arc::clone(&caller), generation);
        Ok(caller)
    }
}
