//! Links to a project's registry, for clients that cannot authenticate.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Utc};
use data_encoding::HEXLOWER;
use protocol::Scope;
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::database::transaction::lock;
use crate::identity::tenant::Tenant;
use crate::records::audit::{self, AuditEvent, AuditOutcome};
use crate::{Registry, RegistryError};

/// The maximum number of a project's active links; revoked ones are not counted.
const MAX_LINKS: i64 = 100;
/// The number of random bytes in a slug.
const SLUG_BYTES: usize = 16;

/// The unguessable part of a link's address: 128 random bits as 32 hex digits.
///
/// It grants read access to the project's registry, so it never appears in debug output or logs.
#[derive(Clone, PartialEq, Eq)]
pub struct Slug(Zeroizing<String>);

impl Slug {
    fn generate() -> Result<Self, RegistryError> {
        let mut bytes = Zeroizing::new([0; SLUG_BYTES]);
        getrandom::fill(bytes.as_mut_slice())
            .map_err(|error| RegistryError::Invalid(format!("no random numbers: {error}")))?;
        Ok(Self(Zeroizing::new(HEXLOWER.encode(bytes.as_slice()))))
    }

    /// Returns the slug, to show it once.
    pub fn expose(&self) -> &str {
        &self.0
    }

    fn hash(&self) -> [u8; 32] {
        Sha256::digest(self.0.as_bytes()).into()
    }
}

impl FromStr for Slug {
    type Err = RegistryError;

    fn from_str(text: &str) -> Result<Self, RegistryError> {
        // Lower case only: a slug has one spelling, of which the hash is stored.
        let digits = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        if text.len() == 2 * SLUG_BYTES && text.bytes().all(digits) {
            Ok(Self(Zeroizing::new(text.to_owned())))
        } else {
            // The text is not quoted: it may be a valid slug with a typing error.
            Err(RegistryError::NotFound("the link".to_owned()))
        }
    }
}

impl fmt::Debug for Slug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

/// A link, without its slug.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct LinkRecord {
    /// Its id in lists and logs.
    pub id: Uuid,
    /// A label.
    pub name: String,
    /// The principal that created it.
    pub created_by: String,
    /// When it was created.
    pub created_at: DateTime<Utc>,
    /// When it was revoked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<DateTime<Utc>>,
}

impl Registry {
    /// Creates a link to the registry of the tenant's project and returns its slug, which cannot be shown again.
    ///
    /// # Errors
    /// Returns [`RegistryError::NotFound`] when the scope does not exist, and [`RegistryError::Conflict`] when the
    /// project has reached its limit of links.
    pub async fn create_link(
        &self,
        tenant: &Tenant,
        name: &str,
    ) -> Result<(Slug, LinkRecord), RegistryError> {
        let scope = tenant.require_scope()?.clone();
        let slug = Slug::generate()?;
        let (hash, id) = (slug.hash(), Uuid::now_v7());
        let (name, actor) = (name.to_owned(), tenant.clone());
        let record = self
            .in_tenant(tenant, move |connection| {
                Box::pin(async move {
                    // Without the lock, concurrent creations could exceed the limit.
                    let key = format!("pml links {scope}");
                    lock(connection, &key).await?;
                    let active = sqlx::query_scalar!(
                        r#"select count(*) as "count!" from registry_links
                        where org = $1 and project = $2 and revoked_at is null"#,
                        scope.org(),
                        scope.project(),
                    )
                    .fetch_one(&mut *connection)
                    .await?;
                    if active >= MAX_LINKS {
                        let message = format!(
                            "project `{scope}` has {MAX_LINKS} links; revoke an unused one"
                        );
                        return Err(RegistryError::Conflict(message));
                    }
                    let event =
                        AuditEvent::new("link.create", id.to_string(), AuditOutcome::Allowed);
                    audit::record(connection, &actor, event).await?;
                    let record = sqlx::query_as!(
                        LinkRecord,
                        "insert into registry_links (id, org, project, name, slug_hash, created_by)
                        values ($3, $1, $2, $4, $5, $6)
                        returning id, name, created_by, created_at, revoked_at",
                        scope.org(),
                        scope.project(),
                        id,
                        name,
                        hash.as_slice(),
                        actor.principal_name(),
                    )
                    .fetch_one(connection)
                    .await?;
                    Ok(record)
                })
            })
            .await?;
        Ok((slug, record))
    }

    /// Lists the active links of the tenant's project, oldest first.
    ///
    /// # Errors
    /// Returns [`RegistryError::Unavailable`] when the database does not answer.
    pub async fn links(&self, tenant: &Tenant) -> Result<Vec<LinkRecord>, RegistryError> {
        let scope = tenant.require_scope()?.clone();
        self.in_tenant(tenant, move |connection| {
            Box::pin(async move {
                let links = sqlx::query_as!(
                    LinkRecord,
                    "select id, name, created_by, created_at, revoked_at from registry_links
                    where org = $1 and project = $2 and revoked_at is null
                    order by created_at, id limit $3",
                    scope.org(),
                    scope.project(),
                    MAX_LINKS,
                )
                .fetch_all(connection)
                .await?;
                Ok(links)
            })
        })
        .await
    }

    /// Revokes a link, on every gateway at once.
    ///
    /// # Errors
    /// Returns the same [`RegistryError::NotFound`] for links that do not exist, are revoked, or are another tenant's.
    pub async fn revoke_link(&self, tenant: &Tenant, id: Uuid) -> Result<(), RegistryError> {
        let scope = tenant.require_scope()?.clone();
        let actor = tenant.clone();
        self.in_tenant(tenant, move |connection| {
            Box::pin(async move {
                let revoked = sqlx::query!(
                    "update registry_links set revoked_at = now()
                    where org = $1 and project = $2 and id = $3 and revoked_at is null",
                    scope.org(),
                    scope.project(),
                    id,
                )
                .execute(&mut *connection)
                .await?;
                if revoked.rows_affected() == 0 {
                    return Err(RegistryError::NotFound(id.to_string()));
                }
                let event = AuditEvent::new("link.revoke", id.to_string(), AuditOutcome::Allowed);
                audit::record(connection, &actor, event).await
            })
        })
        .await
    }

    /// Finds the project of a slug. It queries the database each time, so that a revoked link ends at once.
    ///
    /// # Errors
    /// Returns [`RegistryError::NotFound`] for anything that is not the slug of an active link.
    pub async fn scope_of_link(&self, slug: &str) -> Result<Scope, RegistryError> {
        let hash = slug.parse::<Slug>()?.hash();
        let found = self
            .pool
            .outside(move |connection| {
                let found = sqlx::query!(
                    r#"select org as "org!", project as "project!" from scope_by_slug($1)"#,
                    hash.as_slice(),
                )
                .fetch_optional(connection);
                Box::pin(found)
            })
            .await?
            .ok_or_else(|| RegistryError::NotFound("the link".to_owned()))?;
        Ok(Scope::new(&found.org, &found.project)?)
    }
}
