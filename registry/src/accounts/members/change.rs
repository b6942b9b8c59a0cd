//! One change of one role: checked, recorded, applied.

use protocol::Scope;
use serde_json::json;
use sqlx::PgConnection;

use super::{Actor, Membership};
use crate::RegistryError;
use crate::accounts::keys::manage::reserved;
use crate::database::transaction::{Work, act_for, lock};
use crate::identity::principal::{Principal, PrincipalKind};
use crate::identity::role::Role;
use crate::records::audit::{AuditEvent, AuditOutcome};

/// Serializes changes of an organisation's members and projects until the transaction ends: two owners who remove
/// each other's role, or delete each other's project, do so one after the other.
pub(crate) async fn lock_org(
    connection: &mut PgConnection,
    org: &str,
) -> Result<(), RegistryError> {
    lock(connection, &format!("pml members {org}")).await
}

/// The result of a change.
pub(super) struct Changed {
    membership: Option<Membership>,
    is_new: bool,
}

impl Changed {
    /// Returns the assigned role, and whether it is new.
    pub(super) fn given(self) -> Result<(Membership, bool), RegistryError> {
        let membership =
            self.membership.ok_or_else(|| RegistryError::NotFound("the member".to_owned()))?;
        Ok((membership, self.is_new))
    }
}

/// Assigns or removes a role. A refusal is returned as a value, so that its audit event is committed.
pub(super) fn change(
    actor: Actor,
    project: Option<Scope>,
    principal: Principal,
    role: Option<Role>,
) -> impl for<'c> FnOnce(&'c mut PgConnection) -> Work<'c, Result<Changed, RegistryError>> + Send + 'static
{
    move |connection| {
        Box::pin(async move {
            let refused = match decide(connection, &actor, project.as_ref(), &principal, role).await
            {
                Ok(before) => {
                    let place = project.as_ref().map_or("", Scope::project);
                    return Ok(Ok(
                        write(connection, &actor, place, &principal, role, before).await?
                    ));
                }
                // Only a refusal is recorded. Other errors, such as an unknown project, roll the
                // transaction back.
                Err(refused @ (RegistryError::NotAllowed(_) | RegistryError::Conflict(_))) => {
                    refused
                }
                Err(other) => return Err(other),
            };
            let event = event(&principal, project.as_ref(), role, AuditOutcome::Refused, None);
            actor.record(connection, event).await?;
            Ok(Err(refused))
        })
    }
}

fn event(
    principal: &Principal,
    project: Option<&Scope>,
    role: Option<Role>,
    outcome: AuditOutcome,
    before: Option<Role>,
) -> AuditEvent {
    let action = if role.is_some() { "member.set" } else { "member.remove" };
    let project = project.map(Scope::project);
    let detail = json!({ "role": role, "was": before, "project": project });
    AuditEvent::new(action, principal.as_str(), outcome).with_detail(detail)
}

/// Checks that the change is permitted; returns the previous role of the principal in that place.
async fn decide(
    connection: &mut PgConnection,
    actor: &Actor,
    project: Option<&Scope>,
    principal: &Principal,
    role: Option<Role>,
) -> Result<Option<Role>, RegistryError> {
    actor.require(project)?;
    let place = project.map_or("", Scope::project);
    // Locked before anything is read: the decision must still hold when it is written.
    lock_org(connection, &actor.org).await?;
    act_for(connection, &actor.org, place).await?;
    let is_open = sqlx::query_scalar!(
        r#"select case when $2 = ''
            then exists (select from orgs where name = $1 and deleted_at is null)
            else exists (select from projects where org = $1 and name = $2 and deleted_at is null)
        end as "is_open!""#,
        actor.org,
        place,
    )
    .fetch_one(&mut *connection)
    .await?;
    if !is_open {
        return Err(RegistryError::NotFound(match project {
            Some(scope) => scope.to_string(),
            None => actor.org.clone(),
        }));
    }
    // If `place` is empty, this reads the roles in all projects, which a removal from the
    // organisation ends as well.
    let rows = sqlx::query!(
        "select project, role from memberships
        where org = $1 and principal = $3 and role is not null and ($2 = '' or project = $2)",
        actor.org,
        place,
        principal.as_str(),
    )
    .fetch_all(&mut *connection)
    .await?;
    let here = rows.iter().find(|row| row.project == place).and_then(|row| row.role.as_deref());
    let before: Option<Role> = here.map(str::parse).transpose()?;
    if role.is_none() && rows.is_empty() {
        return Err(RegistryError::NotFound(principal.to_string()));
    }
    if let Some(role) = role {
        // Administrators may hold a service's keys, so a service cannot be a member; reserved names are PML itself.
        if matches!(principal.kind(), PrincipalKind::Service | PrincipalKind::Reserved) {
            return Err(reserved(principal));
        }
        if place.is_empty() && actor.org_role < Some(role) {
            return Err(RegistryError::NotAllowed(format!(
                "only an `{role}` of the organisation can create another one"
            )));
        }
        if role == Role::Owner && !place.is_empty() {
            let reason = "the role `owner` is for the whole organisation, not for a project";
            return Err(RegistryError::Invalid(reason.to_owned()));
        }
        if let Some(missing) = role.rights().iter().find(|right| !actor.rights.contains(*right)) {
            let missing = missing.as_str();
            return Err(RegistryError::NotAllowed(format!(
                "the role `{role}` has the right `{missing}`, which a key that lacks it cannot grant"
            )));
        }
    }
    if place.is_empty() && actor.org_role < before {
        let reason = "only an `owner` can change the role of an `owner`";
        return Err(RegistryError::NotAllowed(reason.to_owned()));
    }
    if place.is_empty() && before == Some(Role::Owner) && role != Some(Role::Owner) {
        let owners = sqlx::query_scalar!(
            r#"select count(*) as "count!" from memberships
            where org = $1 and project = '' and role = 'owner'"#,
            actor.org,
        )
        .fetch_one(connection)
        .await?;
        if owners <= 1 {
            return Err(RegistryError::Conflict(format!(
                "`{principal}` is the last owner of `{}`; create another one first",
                actor.org
            )));
        }
    }
    Ok(before)
}

async fn write(
    connection: &mut PgConnection,
    actor: &Actor,
    place: &str,
    principal: &Principal,
    role: Option<Role>,
    before: Option<Role>,
) -> Result<Changed, RegistryError> {
    let project = match place {
        "" => None,
        project => Some(Scope::new(&actor.org, project)?),
    };
    let event = event(principal, project.as_ref(), role, AuditOutcome::Allowed, before);
    actor.record(connection, event).await?;
    // Recording the event has switched to the scope of the log.
    act_for(connection, &actor.org, place).await?;
    // A membership refers to its user, also the row without a role that a removal leaves.
    sqlx::query!(
        "insert into users (org, principal) values ($1, $2) on conflict do nothing",
        actor.org,
        principal.as_str(),
    )
    .execute(&mut *connection)
    .await?;
    if role.is_none() && place.is_empty() {
        sqlx::query!(
            "update memberships set role = null, updated_at = now()
            where org = $1 and principal = $2 and role is not null",
            actor.org,
            principal.as_str(),
        )
        .execute(&mut *connection)
        .await?;
    }
    // A removal writes a row even where there was none: a principal without a row would not be
    // limited by a membership at all.
    let row = sqlx::query!(
        "insert into memberships (org, project, principal, role) values ($1, $2, $3, $4)
        on conflict (org, project, principal) do update set role = excluded.role, updated_at = now()
        returning created_at, updated_at",
        actor.org,
        place,
        principal.as_str(),
        role.map(Role::as_str),
    )
    .fetch_one(connection)
    .await?;
    let membership = role.map(|role| Membership {
        principal: principal.to_string(),
        role,
        project: project.map(|scope| scope.project().to_owned()),
        created_at: row.created_at,
        updated_at: row.updated_at,
    });
    Ok(Changed { membership, is_new: before.is_none() })
}
