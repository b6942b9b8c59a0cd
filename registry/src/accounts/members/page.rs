//! The list of members, page by page.

use protocol::Scope;
use sqlx::PgConnection;

use super::{Actor, MemberPage, Membership};
use crate::RegistryError;
use crate::database::transaction::act_for;
use crate::identity::principal::Principal;
use crate::paging::{EXACT_TOTAL, Total, cut, hex, unhex};

/// The most members on one page.
pub(super) const PAGE_LIMIT: u32 = 100;
/// Separates the parts of a cursor; no name contains it.
const CURSOR_MARK: char = '/';

/// Reads the page that begins after `after`, a principal and its project.
pub(super) async fn page(
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
    let next_cursor = cut(&mut items, limit, write_cursor);
    Ok(MemberPage { items, next_cursor, total: Total::of(counted) })
}

fn write_cursor(last: &Membership) -> String {
    let project = last.project.as_deref().unwrap_or("");
    hex(&format!("{}{CURSOR_MARK}{project}", last.principal))
}

/// Parses the output of [`write_cursor`].
pub(super) fn read_cursor(cursor: &str) -> Result<(String, String), RegistryError> {
    let invalid = || RegistryError::Invalid("the cursor does not belong to this list".to_owned());
    let text = unhex(cursor).ok_or_else(invalid)?;
    let (principal, project) = text.split_once(CURSOR_MARK).ok_or_else(invalid)?;
    let principal: Principal = principal.parse().map_err(|_| invalid())?;
    // The project is empty for a role in the organisation, so it cannot be parsed as a name.
    let is_name = project.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if !is_name || project.len() > 128 {
        return Err(invalid());
    }
    Ok((principal.as_str().to_owned(), project.to_owned()))
}
