//! Authentication by API key.

pub(crate) mod manage;
pub(crate) mod record;
pub(crate) mod secret;
mod standing;
mod ttl_cache;

use std::sync::Arc;
use std::time::Duration;

use chrono::Utc;
use protocol::Scope;

use crate::identity::caller::Caller;
use crate::identity::right::Rights;
use crate::stats::CacheStats;
use crate::{Registry, RegistryError};
use secret::ApiKey;
use standing::{Standing, Subject};
use ttl_cache::TtlCache;

/// Caches, for a short time, the callers of keys and the rights of principals.
#[derive(Default)]
pub(crate) struct KeyCache {
    callers: TtlCache<[u8; 32], Arc<Caller>>,
    standings: TtlCache<Subject, Arc<Standing>>,
}

impl KeyCache {
    pub(crate) fn clear(&self) {
        self.callers.clear();
        self.standings.clear();
    }

    /// Returns the figures of the two caches, by name.
    pub(crate) fn stats(&self) -> [(&'static str, CacheStats); 2] {
        [("keys", self.callers.stats()), ("members", self.standings.stats())]
    }

    pub(crate) fn set_ttl(&self, time: Duration) {
        self.callers.set_ttl(time);
        self.standings.set_ttl(time);
    }
}

impl Registry {
    /// Verifies a presented key. Its checksum is verified before the database is queried.
    ///
    /// # Errors
    /// Returns [`RegistryError::InvalidCredential`] for anything that is not a valid
    /// key, and [`RegistryError::Unavailable`] when the database does not answer.
    pub async fn authenticate(&self, presented: &str) -> Result<Arc<Caller>, RegistryError> {
        let hash = presented.parse::<ApiKey>()?.hash();
        // A key can expire while its caller is cached.
        let ended = |caller: &Arc<Caller>| caller.expires_at.is_some_and(|at| at <= Utc::now());
        if let Some(caller) = self.keys.callers.get(&hash).filter(|caller| !ended(caller)) {
            return Ok(caller);
        }
        let generation = self.keys.callers.generation();
        // Outside of a tenant's transaction, because only the key reveals the tenant. An unknown
        // key is not cached, so that guesses cannot fill the cache.
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
        self.keys.callers.insert(hash, Arc::clone(&caller), generation);
        Ok(caller)
    }
}
