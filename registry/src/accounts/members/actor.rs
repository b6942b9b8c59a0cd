//! The permissions to manage members.

use protocol::Scope;
use sqlx::PgConnection;

use crate::RegistryError;
use crate::accounts::scopes::ensure_scope;
use crate::database::transaction::act_for;
use crate::identity::caller::Caller;
use crate::identity::right::{Right, Rights};
use crate::identity::role::Role;
use crate::identity::tenant::Tenant;
use crate::records::audit::{self, AuditEvent};

/// The actor that manages an organisation: a caller of it, or the operator.
#[derive(Debug, Clone)]
pub(crate) struct Actor {
    /// The tenant in whose audit log its actions are recorded.
    pub(crate) log: Tenant,
    pub(crate) org: String,
    /// Its role in the organisation.
    pub(crate) org_role: Option<Role>,
    /// The project that it may manage without a role in the organisation.
    own: Option<Scope>,
    pub(super) rights: Rights,
}

impl Actor {
    pub(crate) fn of(caller: &Caller) -> Self {
        Self {
            log: caller.tenant(),
            org: caller.scope.org().to_owned(),
            org_role: caller.org_role,
            own: Some(caller.scope.clone()),
            rights: caller.rights.clone(),
        }
    }

    /// Returns the operator, whose actions are recorded in the log of the public scope.
    pub(crate) fn operator(org: &str) -> Self {
        Self {
            log: Tenant::of(Scope::public()),
            org: org.to_owned(),
            org_role: Some(Role::Owner),
            own: None,
            rights: Right::ALL.into_iter().collect(),
        }
    }

    /// Refuses callers who do not manage the organisation.
    pub(crate) fn require_org(&self, role: Role) -> Result<(), RegistryError> {
        // `None`, which is no role, is less than every role.
        if self.org_role >= Some(role) && self.rights.contains(Right::Admin) {
            return Ok(());
        }
        Err(RegistryError::NotAllowed(format!(
            "this needs the role `{role}` in the organisation, and a key that was created with it"
        )))
    }

    /// Refuses callers who do not manage the project, or the organisation if none is named. For them, projects other
    /// than their own do not exist.
    pub(super) fn require(&self, project: Option<&Scope>) -> Result<(), RegistryError> {
        match project {
            None => self.require_org(Role::Admin),
            Some(scope) if scope.org() != self.org => {
                Err(RegistryError::NotFound(scope.to_string()))
            }
            // The role alone does not suffice: the key must have the right `admin` as well.
            Some(_) if self.org_role >= Some(Role::Admin) => self.require_org(Role::Admin),
            Some(scope) if self.own.as_ref() == Some(scope) => {
                if self.rights.contains(Right::Admin) {
                    return Ok(());
                }
                Err(RegistryError::NotAllowed("this needs the right `admin`".to_owned()))
            }
            Some(scope) => Err(RegistryError::NotFound(scope.to_string())),
        }
    }

    /// Records an event in the actor's log, in the transaction of its action and before it.
    pub(crate) async fn record(
        &self,
        connection: &mut PgConnection,
        event: AuditEvent,
    ) -> Result<(), RegistryError> {
        // The caller of this method continues in this scope, and must switch back.
        act_for(connection, self.log.org(), self.log.project()).await?;
        if self.own.is_none() {
            // A database without a catalog has no public scope yet.
            ensure_scope(connection, &Scope::public()).await?;
        }
        audit::record(connection, &self.log, event).await
    }
}
