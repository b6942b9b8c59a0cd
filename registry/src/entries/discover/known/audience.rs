//! The groups of tenants that share an index.

use protocol::Scope;

use crate::identity::principal::Principal;
use crate::identity::tenant::Tenant;

/// The tenants that share an index.
///
/// `visible_to` in the database decides who may see an entry. Audiences only partition what it shows to a tenant, so
/// that indexes can be shared. Together, the indexes of [`Audience::of`] must contain exactly those entries of the
/// tenant's organisation and of the catalog that `visible_to` shows to the tenant.
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
    /// Returns the audiences to which a tenant belongs, the narrowest first.
    pub(super) fn of(tenant: &Tenant) -> Vec<Self> {
        let mut audiences = Vec::new();
        if let Some(scope) = tenant.scope() {
            let private = tenant.principal();
            audiences.extend(private.map(|who| Self::Principal(scope.clone(), who.clone())));
            audiences.push(Self::Project(scope.clone()));
        }
        // The organisation `pml` owns the catalog: its index already contains it.
        if tenant.org() != Scope::public().org() {
            audiences.push(Self::Everybody);
        }
        audiences
    }

    /// Returns the tenant as which the index is read; `visible_to` shows it at least the index's entries.
    pub(super) fn tenant(&self) -> Tenant {
        match self {
            Self::Everybody => Tenant::anonymous(),
            Self::Project(scope) => Tenant::of(scope.clone()),
            Self::Principal(scope, who) => Tenant::member(scope.clone(), who.clone()),
        }
    }

    /// Returns the scope of the indexed entries.
    pub(super) fn scope(&self) -> Scope {
        match self {
            Self::Everybody => Scope::public(),
            Self::Project(scope) | Self::Principal(scope, _) => scope.clone(),
        }
    }

    /// Returns whether the index also has entries of the organisation's other projects.
    pub(super) fn spans_projects(&self) -> bool {
        matches!(self, Self::Project(_))
    }

    /// Returns whether the index has only private entries; otherwise it has none.
    pub(super) fn is_private(&self) -> bool {
        matches!(self, Self::Principal(..))
    }
}
