//! The tenant of a query.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use protocol::Scope;

use crate::RegistryError;
use crate::identity::principal::Principal;

/// The tenant of a read or write: a scope and a principal in it, or anonymous, which sees only public entries.
#[derive(Debug, Clone, Default)]
pub struct Tenant {
    scope: Option<Scope>,
    principal: Option<Principal>,
    /// The creator of the key that the principal acts with, for the audit log only.
    key_made_by: Option<Arc<str>>,
}

/// Ignores the creator of the key, which has no influence on what a principal may see or do.
impl PartialEq for Tenant {
    fn eq(&self, other: &Self) -> bool {
        (&self.scope, &self.principal) == (&other.scope, &other.principal)
    }
}

impl Eq for Tenant {}

impl Hash for Tenant {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.scope, &self.principal).hash(state);
    }
}

impl Tenant {
    /// Returns the tenant without a scope.
    pub fn anonymous() -> Self {
        Self::default()
    }

    /// Returns a scope without a principal; entries that are private to one stay hidden.
    pub fn of(scope: Scope) -> Self {
        Self { scope: Some(scope), ..Self::default() }
    }

    /// Returns a principal in a scope.
    pub fn member(scope: Scope, principal: Principal) -> Self {
        Self { scope: Some(scope), principal: Some(principal), key_made_by: None }
    }

    /// Adds the creator of the key that the principal acts with.
    #[must_use]
    pub fn with_key_made_by(mut self, creator: Option<Arc<str>>) -> Self {
        self.key_made_by = creator;
        self
    }

    /// Returns the creator of the key that the principal acts with, if it is somebody else.
    pub(crate) fn other_key_creator(&self) -> Option<&str> {
        self.key_made_by.as_deref().filter(|creator| *creator != self.principal_name())
    }

    /// Returns the scope, if there is one.
    pub fn scope(&self) -> Option<&Scope> {
        self.scope.as_ref()
    }

    /// Returns the principal.
    pub fn principal(&self) -> Option<&Principal> {
        self.principal.as_ref()
    }

    pub(crate) fn org(&self) -> &str {
        // Empty like the setting: `app_org()` reads that as null, which equals no organisation.
        self.scope.as_ref().map_or("", Scope::org)
    }

    pub(crate) fn project(&self) -> &str {
        self.scope.as_ref().map_or("", Scope::project)
    }

    pub(crate) fn principal_name(&self) -> &str {
        self.principal.as_ref().map_or("", Principal::as_str)
    }

    /// Returns the statement that opens a transaction of this tenant, in one round trip.
    pub(crate) fn begin(&self) -> Arc<str> {
        // The settings are local to the transaction (`true`), so a pooled connection carries no
        // tenant over to its next user.
        // Safe without escaping: the grammars of scopes and principals allow neither quotes nor backslashes.
        format!(
            "begin; select set_config('app.org', '{}', true), \
             set_config('app.project', '{}', true), set_config('app.principal', '{}', true)",
            self.org(),
            self.project(),
            self.principal_name(),
        )
        .into()
    }

    /// Returns the scope of a tenant that writes; fails for an anonymous one.
    pub(crate) fn require_scope(&self) -> Result<&Scope, RegistryError> {
        self.scope.as_ref().ok_or_else(|| RegistryError::Invalid("this needs a scope".to_owned()))
    }
}
