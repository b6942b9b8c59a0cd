//! The current rights of callers with a token or a session: their principal's, and those of the key behind a session.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use protocol::Scope;
use uuid::Uuid;

use crate::identity::caller::Caller;
use crate::identity::principal::Principal;
use crate::identity::right::Rights;
use crate::identity::role::Role;
use crate::{Registry, RegistryError};

/// The subject of a look-up, which is the cache key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Subject {
    scope: Scope,
    principal: Principal,
    /// The key behind a session.
    key_id: Option<Uuid>,
}

/// The rights of a subject, from the database.
#[derive(Debug)]
pub(crate) struct Standing {
    /// Whether it has any rights.
    is_valid: bool,
    /// The upper bound of its rights; `None` if only the credential limits them.
    at_most: Option<Rights>,
    org_role: Option<Role>,
    expires_at: Option<DateTime<Utc>>,
    key_made_by: Option<Arc<str>>,
}

impl Registry {
    /// Reduces a caller that a token or a session claims to what the database permits now: its scope must exist, its
    /// principal's membership bounds its rights, and the key behind a session must still be valid.
    ///
    /// # Errors
    /// Returns [`RegistryError::InvalidCredential`] when no rights remain, and
    /// [`RegistryError::Unavailable`] when the database does not answer.
    pub async fn admit(&self, claimed: Caller) -> Result<Arc<Caller>, RegistryError> {
        let subject = Subject {
            scope: claimed.scope.clone(),
            principal: claimed.principal.clone(),
            key_id: claimed.session.and_then(|session| session.key_id),
        };
        let standing = match self.keys.standings.get(&subject) {
            Some(standing) => standing,
            None => {
                let generation = self.keys.standings.generation();
                let standing = Arc::new(self.standing(&claimed, subject.key_id).await?);
                self.keys.standings.insert(subject, Arc::clone(&standing), generation);
                standing
            }
        };
        // Checked at each use, because the answer of the database is cached.
        let ended = |at: Option<DateTime<Utc>>| at.is_some_and(|at| at <= Utc::now());
        if !standing.is_valid || ended(standing.expires_at) {
            return Err(RegistryError::InvalidCredential);
        }
        let rights = match &standing.at_most {
            Some(at_most) => claimed.rights.within(at_most),
            None => claimed.rights,
        };
        Ok(Arc::new(Caller {
            rights,
            org_role: standing.org_role,
            key_made_by: standing.key_made_by.clone(),
            ..claimed
        }))
    }

    async fn standing(
        &self,
        claimed: &Caller,
        key_id: Option<Uuid>,
    ) -> Result<Standing, RegistryError> {
        let (scope, principal) = (claimed.scope.clone(), claimed.principal.clone());
        self.in_tenant(&claimed.tenant(), move |connection| {
            Box::pin(async move {
                let its = sqlx::query!(
                    r#"select is_open as "is_open!", is_bound as "is_bound!", role, org_role,
                        rights as "rights!"
                    from standing($1, $2, $3)"#,
                    scope.org(),
                    scope.project(),
                    principal.as_str(),
                )
                .fetch_one(&mut *connection)
                .await?;
                // A principal that never was a member is limited by its credential only; one whose
                // role was removed has no rights.
                let mut standing = Standing {
                    is_valid: its.is_open && (!its.is_bound || its.role.is_some()),
                    at_most: None,
                    org_role: its.org_role.map(|role| role.parse()).transpose()?,
                    expires_at: None,
                    key_made_by: None,
                };
                if its.is_bound {
                    standing.at_most = Some(Rights::of_words(&its.rights)?);
                }
                let Some(key_id) = key_id else { return Ok(standing) };
                // A rotated key stays valid for its grace time, but its sessions end at once.
                let key = sqlx::query!(
                    "select rights, expires_at, org_role, made_by from api_keys
                    where org = $1 and project = $2 and principal = $3 and id = $4
                        and revoked_at is null and replaced_by is null",
                    scope.org(),
                    scope.project(),
                    principal.as_str(),
                    key_id,
                )
                .fetch_optional(connection)
                .await?;
                let Some(key) = key else {
                    return Ok(Standing { is_valid: false, ..standing });
                };
                let its_rights = Rights::of_words(&key.rights)?;
                let ceiling: Option<Role> = key.org_role.map(|role| role.parse()).transpose()?;
                Ok(Standing {
                    at_most: Some(match &standing.at_most {
                        Some(at_most) => its_rights.within(at_most),
                        None => its_rights,
                    }),
                    // `None` is the lowest: a role remains only if the principal has one and the
                    // key allows one.
                    org_role: standing.org_role.min(ceiling),
                    expires_at: key.expires_at,
                    is_valid: standing.is_valid,
                    key_made_by: key.made_by.map(Arc::from),
                })
            })
        })
        .await
    }
}
