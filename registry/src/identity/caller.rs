//! The sender of an authenticated request.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use protocol::Scope;
use uuid::Uuid;

use crate::identity::principal::Principal;
use crate::identity::right::{Right, Rights};
use crate::identity::role::Role;
use crate::identity::tenant::Tenant;

/// The caller: a verified key or token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The key's id; `None` for a token of an identity provider.
    pub key_id: Option<Uuid>,
    /// The principal.
    pub principal: Principal,
    /// The scope in which it acts.
    pub scope: Scope,
    /// Its rights.
    pub rights: Rights,
    /// When its credential expires.
    pub expires_at: Option<DateTime<Utc>>,
    /// The caller's role in its organisation: at most that of its principal, and that of its key's creator.
    pub org_role: Option<Role>,
    /// The session of the request, if it was authenticated by one.
    pub session: Option<Session>,
    /// Who created the API key, or the API key of the session; `None` if that is unknown.
    pub key_made_by: Option<Arc<str>>,
}

/// A short-lived credential that was created from another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Session {
    /// The session's id in the audit log.
    pub id: Uuid,
    /// The API key that it was created from, with which it ends.
    pub key_id: Option<Uuid>,
}

impl Caller {
    /// Returns the first of the needed rights that the caller lacks.
    pub fn missing(&self, needed: &Rights) -> Option<Right> {
        needed.iter().find(|right| !self.rights.contains(*right))
    }

    /// Returns the tenant on whose behalf the caller acts.
    pub fn tenant(&self) -> Tenant {
        Tenant::member(self.scope.clone(), self.principal.clone())
            .with_key_made_by(self.key_made_by.clone())
    }
}
