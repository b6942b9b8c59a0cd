//! Members: the roles of principals in an organisation or in one of its projects.
//!
//! A membership bounds what its principal's keys and tokens may do. A removed membership stays as a row without a
//! role: a principal without a row is not bound by a membership, a principal without a role has no rights.

mod actor;
mod change;
mod page;

use chrono::{DateTime, Utc};
use protocol::Scope;
use serde::Serialize;
use utoipa::ToSchema;

pub(crate) use self::actor::Actor;
pub(crate) use self::change::lock_org;
use self::change::{Changed, change};
use self::page::{PAGE_LIMIT, page, read_cursor};
use crate::database::operator::Operator;
use crate::database::transaction::in_tenant;
use crate::identity::caller::Caller;
use crate::identity::principal::Principal;
use crate::identity::role::Role;
use crate::identity::tenant::Tenant;
use crate::paging::Total;
use crate::{Registry, RegistryError};

/// The membership of a principal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Membership {
    /// The principal.
    pub principal: String,
    /// Its role.
    pub role: Role,
    /// The project that the role is limited to; absent for the whole organisation.
    pub project: Option<String>,
    /// When it first became a member.
    pub created_at: DateTime<Utc>,
    /// When its role was last changed.
    pub updated_at: DateTime<Utc>,
}

/// A page of members.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct MemberPage {
    /// The members, sorted by principal.
    pub items: Vec<Membership>,
    /// The cursor of the next page; `None` on the last.
    #[serde(rename = "nextCursor", skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// The total number.
    #[serde(flatten)]
    pub total: Total,
}

impl Registry {
    /// Lists the members of one project, or of the caller's organisation and all its projects.
    ///
    /// # Errors
    /// Returns [`RegistryError::NotAllowed`] to callers who do not manage them, [`RegistryError::NotFound`] for
    /// another project, and [`RegistryError::Invalid`] for a cursor of another list.
    pub async fn members(
        &self,
        caller: &Caller,
        project: Option<&Scope>,
        cursor: Option<&str>,
        limit: u32,
    ) -> Result<MemberPage, RegistryError> {
        let (actor, project) = (Actor::of(caller), project.cloned());
        let after = cursor.map(read_cursor).transpose()?;
        self.in_tenant(&caller.tenant(), move |connection| {
            Box::pin(async move { page(connection, &actor, project, after, limit).await })
        })
        .await
    }

    /// Assigns a role to a principal, in one project or in the whole organisation; returns it, and whether it is new.
    ///
    /// # Errors
    /// Returns [`RegistryError::NotAllowed`] when the caller may not assign or change the role, and
    /// [`RegistryError::Conflict`] when the last owner would lose the role.
    pub async fn set_member(
        &self,
        caller: &Caller,
        project: Option<&Scope>,
        principal: &Principal,
        role: Role,
    ) -> Result<(Membership, bool), RegistryError> {
        let actor = Actor::of(caller);
        let work = change(actor, project.cloned(), principal.clone(), Some(role));
        let changed = self.in_tenant(&caller.tenant(), work).await;
        // Do not wait for this process's own notification.
        self.keys.clear();
        changed?.and_then(Changed::given)
    }

    /// Removes a principal's role in one project, or in the organisation and all its projects. Its keys and tokens
    /// lose all rights there.
    ///
    /// # Errors
    /// As [`Registry::set_member`], and [`RegistryError::NotFound`] when it has none.
    pub async fn remove_member(
        &self,
        caller: &Caller,
        project: Option<&Scope>,
        principal: &Principal,
    ) -> Result<(), RegistryError> {
        let actor = Actor::of(caller);
        let work = change(actor, project.cloned(), principal.clone(), None);
        let changed = self.in_tenant(&caller.tenant(), work).await;
        // Do not wait for this process's own notification.
        self.keys.clear();
        changed?.map(|_| ())
    }
}

impl Operator {
    /// Lists the members of a project, or of an organisation and all its projects.
    ///
    /// # Errors
    /// As [`Registry::members`].
    pub async fn members(
        &self,
        org: &str,
        project: Option<&Scope>,
        cursor: Option<&str>,
    ) -> Result<MemberPage, RegistryError> {
        let (actor, project) = (Actor::operator(org), project.cloned());
        let after = cursor.map(read_cursor).transpose()?;
        in_tenant(self.pool.clone(), &Tenant::of(Scope::public()), move |connection| {
            Box::pin(async move { page(connection, &actor, project, after, PAGE_LIMIT).await })
        })
        .await
    }

    /// Assigns a role to a principal, in one project or in a whole organisation; returns it, and whether it is new.
    ///
    /// # Errors
    /// Returns [`RegistryError::NotFound`] when there is no such organisation or project, and otherwise the errors of
    /// [`Registry::set_member`].
    pub async fn set_member(
        &self,
        org: &str,
        project: Option<&Scope>,
        principal: &Principal,
        role: Role,
    ) -> Result<(Membership, bool), RegistryError> {
        let work = change(Actor::operator(org), project.cloned(), principal.clone(), Some(role));
        in_tenant(self.pool.clone(), &Tenant::of(Scope::public()), work)
            .await?
            .and_then(Changed::given)
    }

    /// Removes a principal's role, as [`Registry::remove_member`] does.
    ///
    /// # Errors
    /// As [`Registry::remove_member`].
    pub async fn remove_member(
        &self,
        org: &str,
        project: Option<&Scope>,
        principal: &Principal,
    ) -> Result<(), RegistryError> {
        let work = change(Actor::operator(org), project.cloned(), principal.clone(), None);
        in_tenant(self.pool.clone(), &Tenant::of(Scope::public()), work).await?.map(|_| ())
    }
}
