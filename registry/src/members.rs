//! Members: who is what in an organisation, or in one project of it.
//!
//! A membership bounds what its principal's keys and tokens may do. One that was taken away stays as a row without a
//! role, so that the principal is left with nothing instead of being unknown.

use chrono::{DateTime, Utc};
use protocol::Scope;
use serde::Serialize;
use serde_json::json;
use sqlx::PgConnection;
use utoipa::ToSchema;

use crate::audit::{self, AuditEvent, AuditOutcome};
use crate::catalog::{EXACT_TOTAL, Total};
use crate::operator::make;
use crate::tenant::{Work, act_for, in_tenant};
use crate::{Caller, Operator, Principal, Registry, RegistryError, Right, Rights, Role, Tenant};

/// The most members on one page.
const PAGE_LIMIT: u32 = 100;
/// Divides the parts of a cursor; no name has it.
const CURSOR_MARK: char = '/';

/// What a principal is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Membership {
    /// Who.
    pub principal: String,
    /// Its role.
    pub role: Role,
    /// The one project that the role is for; without one, the whole organisation.
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
    /// Where the next page begins; `None` on the last.
    #[serde(rename = "nextCursor", skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// How many there are.
    #[serde(flatten)]
    pub total: Total,
}

/// Who manages an organisation: a caller of it, or the operator.
#[derive(Debug, Clone)]
pub(crate) struct Actor {
    /// In whose log its acts are recorded.
    pub(crate) log: Tenant,
    pub(crate) org: String,
    /// What it is in the organisation.
    pub(crate) org_role: Option<Role>,
    /// The project that it may manage without a role in the organisation.
    own: Option<Scope>,
    rights: Rights,
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

    /// Returns the operator, whose acts are in the log of the public scope, as those on routing rules are.
    pub(crate) fn operator(org: &str) -> Self {
        Self {
            log: Tenant::of(Scope::public()),
            org: org.to_owned(),
            org_role: Some(Role::Owner),
            own: None,
            rights: Right::ALL.into_iter().collect(),
        }
    }

    /// Refuses whoever does not manage the organisation.
    pub(crate) fn require_org(&self, role: Role) -> Result<(), RegistryError> {
        if self.org_role >= Some(role) && self.rights.contains(Right::Admin) {
            return Ok(());
        }
        Err(RegistryError::NotAllowed(format!(
            "this needs the role `{role}` in the organisation, by a key that was made with it"
        )))
    }

    /// Refuses whoever does not manage a project, or the organisation where none is named. To them, another project
    /// than their own does not exist.
    fn require(&self, project: Option<&Scope>) -> Result<(), RegistryError> {
        match project {
            None => self.require_org(Role::Admin),
            Some(scope) if scope.org() != self.org => {
                Err(RegistryError::NotFound(scope.to_string()))
            }
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

    /// Records an event in the actor's log, in the transaction of what it speaks of and before it.
    pub(crate) async fn record(
        &self,
        connection: &mut PgConnection,
        event: AuditEvent,
    ) -> Result<(), RegistryError> {
        act_for(connection, self.log.org(), self.log.project()).await?;
        if self.own.is_none() {
            // A database without a catalog has no public scope yet.
            make(connection, &Scope::public()).await?;
        }
        audit::record(connection, &self.log, event).await
    }
}

impl Registry {
    /// Lists the members of one project, or of the caller's organisation and all its projects.
    ///
    /// # Errors
    /// Returns [`RegistryError::NotAllowed`] to whoever does not manage them, [`RegistryError::NotFound`] for another
    /// project, and [`RegistryError::Invalid`] for a cursor that is not from here.
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

    /// Gives a principal a role, in one project or in the whole organisation; returns it, and whether it is new.
    ///
    /// # Errors
    /// Returns [`RegistryError::NotAllowed`] when the caller may not give or change the role, and
    /// [`RegistryError::Conflict`] when the last owner would be none any more.
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
        self.keys.forget();
        changed?.and_then(Changed::given)
    }

    /// Takes a principal's role away: in one project, or in the organisation and all its projects. Its keys and
    /// tokens may do nothing there from then on.
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
        // This process need not wait for its own notification.
        self.keys.forget();
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

    /// Gives a principal a role, in one project or in a whole organisation; returns it, and whether it is new.
    ///
    /// # Errors
    /// Returns [`RegistryError::NotFound`] when there is no such organisation or project, and else as
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

    /// Takes a principal's role away, as [`Registry::remove_member`] does.
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

/// Lets one at a time change who and what an organisation has, until the transaction ends: two owners who take each
/// other's role away, or delete each other's project, do so one after the other.
pub(crate) async fn lock_org(
    connection: &mut PgConnection,
    org: &str,
) -> Result<(), RegistryError> {
    let lock = format!("pml members {org}");
    sqlx::query!("select pg_advisory_xact_lock(hashtextextended($1, 0))", lock)
        .execute(connection)
        .await?;
    Ok(())
}

/// What a change has made.
struct Changed {
    membership: Option<Membership>,
    is_new: bool,
}

impl Changed {
    fn given(self) -> Result<(Membership, bool), RegistryError> {
        let membership =
            self.membership.ok_or_else(|| RegistryError::NotFound("the member".to_owned()))?;
        Ok((membership, self.is_new))
    }
}

/// Gives or takes a role. A refusal comes back beside the answer, so that its record is committed.
fn change(
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

/// Says whether the change may be made; returns the role that the principal has had in that place.
async fn decide(
    connection: &mut PgConnection,
    actor: &Actor,
    project: Option<&Scope>,
    principal: &Principal,
    role: Option<Role>,
) -> Result<Option<Role>, RegistryError> {
    actor.require(project)?;
    let place = project.map_or("", Scope::project);
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
        if place.is_empty() && actor.org_role < Some(role) {
            return Err(RegistryError::NotAllowed(format!(
                "only an `{role}` of the organisation makes another one"
            )));
        }
        if role == Role::Owner && !place.is_empty() {
            let reason = "an `owner` is one of the whole organisation, not of a project";
            return Err(RegistryError::Invalid(reason.to_owned()));
        }
        if let Some(missing) = role.rights().iter().find(|right| !actor.rights.contains(*right)) {
            let missing = missing.as_str();
            return Err(RegistryError::NotAllowed(format!(
                "the role `{role}` has the right `{missing}`, which cannot be given by a key that lacks it"
            )));
        }
    }
    if place.is_empty() && actor.org_role < before {
        let reason = "the role of an `owner` is changed by an `owner`";
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
                "`{principal}` is the last owner of `{}`; make another one first",
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
    act_for(connection, &actor.org, place).await?;
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

async fn page(
    connection: &mut PgConnection,
    actor: &Actor,
    project: Option<Scope>,
    after: Option<(String, String)>,
    limit: u32,
) -> Result<MemberPage, RegistryError> {
    actor.require(project.as_ref())?;
    let limit = limit.clamp(1, PAGE_LIMIT) as usize;
    let place = project.as_ref().map(Scope::project);
    act_for(connection, &actor.org, place.unwrap_or("")).await?;
    if let Some(scope) = &project {
        let is_open = sqlx::query_scalar!(
            r#"select exists (select from projects
                where org = $1 and name = $2 and deleted_at is null) as "is_open!""#,
            scope.org(),
            scope.project(),
        )
        .fetch_one(&mut *connection)
        .await?;
        if !is_open {
            return Err(RegistryError::NotFound(scope.to_string()));
        }
    }
    let (after_principal, after_project) = after.unzip();
    let rows = sqlx::query!(
        r#"select principal, project, role as "role!", created_at, updated_at from memberships
        where org = $1 and ($2::text is null or project = $2) and role is not null
            and ($3::text is null or (principal collate "C", project collate "C")
                > ($3 collate "C", $4 collate "C"))
        order by principal collate "C", project collate "C" limit $5"#,
        actor.org,
        place,
        after_principal,
        after_project,
        limit as i64 + 1,
    )
    .fetch_all(&mut *connection)
    .await?;
    let counted = sqlx::query_scalar!(
        r#"select count(*) as "count!" from (
            select from memberships
            where org = $1 and ($2::text is null or project = $2) and role is not null limit $3
        ) as counted"#,
        actor.org,
        place,
        EXACT_TOTAL + 1,
    )
    .fetch_one(connection)
    .await?;
    let mut items = Vec::with_capacity(rows.len());
    for row in rows {
        items.push(Membership {
            principal: row.principal,
            role: row.role.parse()?,
            project: Some(row.project).filter(|project| !project.is_empty()),
            created_at: row.created_at,
            updated_at: row.updated_at,
        });
    }
    let more = items.len() > limit;
    items.truncate(limit);
    let next_cursor = items.last().filter(|_| more).map(write_cursor);
    Ok(MemberPage { items, next_cursor, total: Total::of(counted) })
}

/// Hides the form of a cursor, so that nobody comes to depend on it.
fn write_cursor(last: &Membership) -> String {
    let project = last.project.as_deref().unwrap_or("");
    let text = format!("{}{CURSOR_MARK}{project}", last.principal);
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

fn read_cursor(cursor: &str) -> Result<(String, String), RegistryError> {
    let invalid = || RegistryError::Invalid("the cursor is not one of this list".to_owned());
    if !cursor.is_ascii() || !cursor.len().is_multiple_of(2) || cursor.len() > 1_024 {
        return Err(invalid());
    }
    let bytes: Result<Vec<u8>, _> = (0..cursor.len() / 2)
        .map(|index| u8::from_str_radix(&cursor[2 * index..2 * index + 2], 16))
        .collect();
    let text = String::from_utf8(bytes.map_err(|_| invalid())?).map_err(|_| invalid())?;
    let (principal, project) = text.split_once(CURSOR_MARK).ok_or_else(invalid)?;
    let principal: Principal = principal.parse().map_err(|_| invalid())?;
    let is_name = project.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if !is_name || project.len() > 128 {
        return Err(invalid());
    }
    Ok((principal.as_str().to_owned(), project.to_owned()))
}
