//! Projects and organisations: listing, creation, and permanent deletion.
//!
//! Deleting closes a project. Keys are revoked, stored secrets and servers are deleted, capabilities become
//! invisible, and each entry leaves a tombstone. The rows of the project, of published versions and of the logs
//! remain, so that no name is ever reused and no record is lost.

use chrono::{DateTime, Utc};
use protocol::Scope;
use serde::Serialize;
use serde_json::json;
use sqlx::PgConnection;
use utoipa::ToSchema;

use crate::accounts::members::{Actor, lock_org};
use crate::accounts::scopes::name_taken;
use crate::database::operator::Operator;
use crate::database::transaction::{act_for, in_tenant};
use crate::entries::official::current_versions;
use crate::identity::caller::Caller;
use crate::identity::role::Role;
use crate::identity::tenant::Tenant;
use crate::paging::{EXACT_TOTAL, Total, cut, hex, unhex};
use crate::records::audit::{AuditEvent, AuditOutcome};
use crate::{Registry, RegistryError};

/// The most projects on one page.
const PAGE_LIMIT: u32 = 100;

/// A project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ProjectRecord {
    /// Its name.
    pub name: String,
    /// Its scope, `org.project`.
    #[schema(value_type = String)]
    pub scope: Scope,
    /// When it was created.
    pub created_at: DateTime<Utc>,
}

/// A page of projects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ProjectPage {
    /// The projects, sorted by name.
    pub items: Vec<ProjectRecord>,
    /// The cursor of the next page; `None` on the last.
    #[serde(rename = "nextCursor", skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// The total number.
    #[serde(flatten)]
    pub total: Total,
}

/// An organisation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OrgRecord {
    /// Its name.
    pub name: String,
    /// When it was created.
    pub created_at: DateTime<Utc>,
    /// When it was deleted.
    pub deleted_at: Option<DateTime<Utc>>,
}

impl Registry {
    /// Lists the projects of the caller's organisation.
    ///
    /// # Errors
    /// Returns [`RegistryError::NotAllowed`] to callers who do not manage the organisation, and
    /// [`RegistryError::Invalid`] for a cursor of another list.
    pub async fn projects(
        &self,
        caller: &Caller,
        cursor: Option<&str>,
        limit: u32,
    ) -> Result<ProjectPage, RegistryError> {
        let actor = Actor::of(caller);
        actor.require_org(Role::Admin)?;
        let after = cursor.map(|cursor| read_cursor(&actor.org, cursor)).transpose()?;
        self.in_tenant(&caller.tenant(), move |connection| {
            Box::pin(async move { page(connection, &actor.org, after, limit).await })
        })
        .await
    }

    /// Creates a project in the caller's organisation.
    ///
    /// # Errors
    /// Returns [`RegistryError::NotAllowed`] to callers who do not manage the organisation, and
    /// [`RegistryError::Conflict`] for the name of an existing or a deleted project.
    pub async fn create_project(
        &self,
        caller: &Caller,
        name: &str,
    ) -> Result<ProjectRecord, RegistryError> {
        let actor = Actor::of(caller);
        let scope = Scope::new(&actor.org, name)?;
        // Checked before the transaction, which a refusal would roll back with its audit event.
        self.allowed(&actor, Role::Admin, "project.create", &scope).await?;
        self.in_tenant(&caller.tenant(), move |connection| {
            Box::pin(async move {
                let event =
                    AuditEvent::new("project.create", scope.to_string(), AuditOutcome::Allowed);
                actor.record(connection, event).await?;
                // The policies show and accept another project only to a transaction of the whole
                // organisation.
                act_for(connection, scope.org(), "").await?;
                let made = sqlx::query_scalar!(
                    "insert into projects (org, name) values ($1, $2)
                    on conflict do nothing returning created_at",
                    scope.org(),
                    scope.project(),
                )
                .fetch_optional(connection)
                .await?;
                // A deleted project gets the same error as an existing one: its name is never free again.
                let created_at = made.ok_or_else(|| name_taken(&scope))?;
                Ok(ProjectRecord { name: scope.project().to_owned(), scope, created_at })
            })
        })
        .await
    }

    /// Deletes a project of the caller's organisation permanently.
    ///
    /// # Errors
    /// Returns [`RegistryError::NotAllowed`] to callers who do not own the organisation, and
    /// [`RegistryError::NotFound`] when it has no such project.
    pub async fn delete_project(&self, caller: &Caller, name: &str) -> Result<(), RegistryError> {
        let actor = Actor::of(caller);
        let scope = Scope::new(&actor.org, name)?;
        self.allowed(&actor, Role::Owner, "project.delete", &scope).await?;
        let deleted = self
            .in_tenant(&caller.tenant(), move |connection| {
                Box::pin(async move { delete(connection, &actor, &scope).await })
            })
            .await;
        // Do not wait for this process's own notification.
        self.keys.clear();
        self.entries.clear();
        deleted
    }

    /// Refuses an action for which the actor's role is insufficient, and records the refusal.
    async fn allowed(
        &self,
        actor: &Actor,
        role: Role,
        action: &str,
        scope: &Scope,
    ) -> Result<(), RegistryError> {
        let Err(refused) = actor.require_org(role) else { return Ok(()) };
        let event = AuditEvent::new(action, scope.to_string(), AuditOutcome::Refused);
        self.audit(&actor.log, event).await?;
        Err(refused)
    }
}

impl Operator {
    /// Lists all organisations, including deleted ones, sorted by name.
    ///
    /// # Errors
    /// Returns [`RegistryError::Unavailable`] when the database does not answer.
    pub async fn orgs(&self) -> Result<Vec<OrgRecord>, RegistryError> {
        in_tenant(self.pool.clone(), &Tenant::of(Scope::public()), |connection| {
            Box::pin(async move {
                let rows = sqlx::query_as!(
                    OrgRecord,
                    r#"select name, created_at, deleted_at from orgs order by name collate "C""#
                );
                Ok(rows.fetch_all(connection).await?)
            })
        })
        .await
    }

    /// Lists the projects of an organisation.
    ///
    /// # Errors
    /// As [`Registry::projects`].
    pub async fn projects(
        &self,
        org: &str,
        cursor: Option<&str>,
    ) -> Result<ProjectPage, RegistryError> {
        let after = cursor.map(|cursor| read_cursor(org, cursor)).transpose()?;
        let org = org.to_owned();
        in_tenant(self.pool.clone(), &Tenant::of(Scope::public()), move |connection| {
            Box::pin(async move { page(connection, &org, after, PAGE_LIMIT).await })
        })
        .await
    }

    /// Deletes a project permanently.
    ///
    /// # Errors
    /// Returns [`RegistryError::NotFound`] when there is none of that name, and [`RegistryError::Invalid`] for the
    /// organisation of the catalog.
    pub async fn delete_project(&self, scope: &Scope) -> Result<(), RegistryError> {
        not_public(scope.org())?;
        let (actor, scope) = (Actor::operator(scope.org()), scope.clone());
        in_tenant(self.pool.clone(), &Tenant::of(Scope::public()), move |connection| {
            Box::pin(async move { delete(connection, &actor, &scope).await })
        })
        .await
    }

    /// Deletes an organisation with all its projects permanently, and the data keys of its secrets.
    ///
    /// # Errors
    /// As [`Operator::delete_project`].
    pub async fn delete_org(&self, org: &str) -> Result<(), RegistryError> {
        not_public(org)?;
        let (actor, org) = (Actor::operator(org), org.to_owned());
        in_tenant(self.pool.clone(), &Tenant::of(Scope::public()), move |connection| {
            Box::pin(async move {
                // `delete` takes the same lock again for each project, which succeeds within a
                // transaction.
                lock_org(connection, &org).await?;
                let event = AuditEvent::new("org.delete", org.as_str(), AuditOutcome::Allowed);
                actor.record(connection, event).await?;
                act_for(connection, &org, "").await?;
                let open = sqlx::query_scalar!(
                    "select name from orgs where name = $1 and deleted_at is null for update",
                    org,
                );
                if open.fetch_optional(&mut *connection).await?.is_none() {
                    return Err(RegistryError::NotFound(org));
                }
                let projects = sqlx::query_scalar!(
                    "select name from projects where org = $1 and deleted_at is null",
                    org,
                );
                for name in projects.fetch_all(&mut *connection).await? {
                    delete(connection, &actor, &Scope::new(&org, &name)?).await?;
                }
                // `delete` has left the transaction in the scope of the last project.
                act_for(connection, &org, "").await?;
                // After all projects, because their secrets refer to the data keys.
                let statements = [
                    sqlx::query!(
                        "update memberships set role = null, updated_at = now()
                        where org = $1 and role is not null",
                        org,
                    ),
                    sqlx::query!("delete from data_keys where org = $1", org),
                    sqlx::query!("update orgs set deleted_at = now() where name = $1", org),
                ];
                for statement in statements {
                    statement.execute(&mut *connection).await?;
                }
                Ok(())
            })
        })
        .await
    }
}

fn not_public(org: &str) -> Result<(), RegistryError> {
    if org == Scope::public().org() {
        let reason = "organisation `pml` contains the catalog and cannot be deleted";
        return Err(RegistryError::Invalid(reason.to_owned()));
    }
    Ok(())
}

async fn delete(
    connection: &mut PgConnection,
    actor: &Actor,
    scope: &Scope,
) -> Result<(), RegistryError> {
    lock_org(connection, scope.org()).await?;
    act_for(connection, scope.org(), "").await?;
    // Waits for writes to the project in progress, and blocks new ones.
    let open = sqlx::query_scalar!(
        "select name from projects where org = $1 and name = $2 and deleted_at is null for update",
        scope.org(),
        scope.project(),
    );
    if open.fetch_optional(&mut *connection).await?.is_none() {
        return Err(RegistryError::NotFound(scope.to_string()));
    }
    let by = actor.log.principal().map_or("operator", |principal| principal.as_str());
    let event = AuditEvent::new("project.delete", scope.to_string(), AuditOutcome::Allowed)
        .with_detail(json!({ "by": by }));
    actor.record(connection, event).await?;
    // The event above was recorded in the scope of the actor's log.
    act_for(connection, scope.org(), scope.project()).await?;
    // With this setting, the policies include private rows of all owners, which must be deleted as well.
    sqlx::query!("select set_config('app.deleting', 'on', true)")
        .fetch_one(&mut *connection)
        .await?;
    write_tombstones(connection, scope, by).await?;
    let (org, project) = (scope.org(), scope.project());
    let statements = [
        sqlx::query!("delete from mcp_servers where org = $1 and project = $2", org, project),
        sqlx::query!(
            "update capabilities set visibility = 'deleted'
            where org = $1 and project = $2 and visibility <> 'deleted'",
            org,
            project,
        ),
        sqlx::query!(
            "update published_servers set visibility = 'deleted'
            where org = $1 and project = $2 and visibility <> 'deleted'",
            org,
            project,
        ),
        sqlx::query!("delete from secrets where org = $1 and project = $2", org, project),
        sqlx::query!("delete from idempotency_keys where org = $1 and project = $2", org, project),
        sqlx::query!(
            "update api_keys set revoked_at = coalesce(revoked_at, now())
            where org = $1 and project = $2",
            org,
            project,
        ),
        sqlx::query!(
            "update registry_links set revoked_at = coalesce(revoked_at, now())
            where org = $1 and project = $2",
            org,
            project,
        ),
        sqlx::query!(
            "update memberships set role = null, updated_at = now()
            where org = $1 and project = $2 and role is not null",
            org,
            project,
        ),
        sqlx::query!(
            "update projects set deleted_at = now() where org = $1 and name = $2",
            org,
            project,
        ),
    ];
    for statement in statements {
        statement.execute(&mut *connection).await?;
    }
    // The deletion of an organisation continues in this transaction, and must not reach private
    // rows by accident.
    sqlx::query!("select set_config('app.deleting', '', true)").fetch_one(connection).await?;
    Ok(())
}

/// Leaves a tombstone of each entry of a project. It copies the visibility, so it is written before the deletion.
async fn write_tombstones(
    connection: &mut PgConnection,
    scope: &Scope,
    by: &str,
) -> Result<(), RegistryError> {
    let versions = current_versions(connection, scope, None).await?;
    let (namespaces, versions): (Vec<String>, Vec<String>) = versions.into_iter().unzip();
    // A published server whose versions are all yanked has no row in `mcp_servers`.
    sqlx::query!(
        "insert into tombstones (org, project, namespace, name, visibility, owner, deleted_by, version)
        select $1, $2, s.namespace, '', s.visibility, s.owner, $3, v.version
        from (
            select namespace, visibility, owner from mcp_servers where org = $1 and project = $2
            union
            select namespace, visibility, owner from published_servers
            where org = $1 and project = $2 and visibility <> 'deleted'
        ) s
        left join unnest($4::text[], $5::text[]) as v (namespace, version) on v.namespace = s.namespace
        union all
        select org, project, namespace, name, visibility, owner, $3, null from capabilities
        where org = $1 and project = $2 and visibility <> 'deleted'
        on conflict do nothing",
        scope.org(),
        scope.project(),
        by,
        &namespaces,
        &versions,
    )
    .execute(connection)
    .await?;
    Ok(())
}

async fn page(
    connection: &mut PgConnection,
    org: &str,
    after: Option<String>,
    limit: u32,
) -> Result<ProjectPage, RegistryError> {
    let limit = limit.clamp(1, PAGE_LIMIT) as usize;
    // In the scope of one project, the policies would hide the others.
    act_for(connection, org, "").await?;
    let rows = sqlx::query!(
        r#"select name, created_at from projects
        where org = $1 and deleted_at is null
            and ($2::text is null or name collate "C" > $2 collate "C")
        order by name collate "C" limit $3"#,
        org,
        after,
        limit as i64 + 1,
    )
    .fetch_all(&mut *connection)
    .await?;
    let counted = sqlx::query_scalar!(
        r#"select count(*) as "count!" from (
            select from projects where org = $1 and deleted_at is null limit $2
        ) as counted"#,
        org,
        EXACT_TOTAL + 1,
    )
    .fetch_one(connection)
    .await?;
    let mut items = Vec::with_capacity(rows.len());
    for row in rows {
        let scope = Scope::new(org, &row.name)?;
        items.push(ProjectRecord { name: row.name, scope, created_at: row.created_at });
    }
    let next_cursor = cut(&mut items, limit, |last| hex(&last.name));
    Ok(ProjectPage { items, next_cursor, total: Total::of(counted) })
}

fn read_cursor(org: &str, cursor: &str) -> Result<String, RegistryError> {
    let invalid = || RegistryError::Invalid("the cursor does not belong to this list".to_owned());
    let text = unhex(cursor).ok_or_else(invalid)?;
    // Parsed as a name, because other text, such as a NUL, would make the query fail.
    Scope::new(org, &text).map(|scope| scope.project().to_owned()).map_err(|_| invalid())
}
