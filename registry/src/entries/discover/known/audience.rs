//! Who shares an index.

use protocol::Scope;

use crate::identity::principal::Principal;
use crate::identity::tenant::Tenant;

/// Whose tools an index has.
///
/// `visible_to` in the database is the rule of who may see an entry. The audiences only divide what it shows to a
/// tenant, so that indexes can be shared: those of [`Audience::of`] together must have everything of the tenant's
/// organisation and of the catalog that `visible_to` shows to the tenant, and nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Audience {
    /// The catalog.
    Everybody,
    /// The entries of its organisation that a project can see.
    Project(Scope),
    /// The entries that are private to a principal of a project.
    Principal(Scope, Principal),
}

impl Audience {
    /// Returns those to which a tenant belongs, its own first.
    pub(super) fn of(tenant: &Tenant) -> Vec<Self> {
        let mut audiences = Vec::new();
        if let Some(scope) = tenant.scope() {
            let private = tenant.principal();
            audiences.extend(private.map(|who| Self::Principal(scope.clone(), who.clone())));
            audiences.push(Self::Project(scope.clone()));
        }
        // The organisation that owns the catalog has it among its own.
        if tenant.org() != Scope::public().org() {
            audiences.push(Self::Everybody);
        }
        audiences
    }

    /// Returns the tenant that its index is read as: what `visible_to` shows to it is a superset of the index.
    pub(super) fn tenant(&self) -> Tenant {
        match self {
            Self::Everybody => Tenant::anonymous(),
            Self::Project(scope) => Tenant::of(scope.clone()),
            Self::Principal(scope, who) => Tenant::member(scope.clone(), who.clone()),
        }
    }

    /// Returns the scope whose entries it has.
    pub(super) fn scope(&self) -> Scope {
        match self {
            Self::Everybody => Scope::public(),
            Self::Project(scope) | Self::Principal(scope, _) => scope.clone(),
        }
    }

    /// Returns whether it also has entries of the other projects of that organisation.
    pub(super) fn spans_projects(&self) -> bool {
        matches!(self, Self::Project(_))
    }

    /// Returns whether it has private entries, and only those; otherwise it has none.
    pub(super) fn is_private(&self) -> bool {
        matches!(self, Self::Principal(..))
    }
}
