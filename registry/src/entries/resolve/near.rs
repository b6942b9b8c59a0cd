//! Suggestions for an id that does not resolve.

use std::collections::HashMap;

use protocol::{Scope, ToolId};
use sqlx::PgConnection;

use super::Absence;
use crate::RegistryError;
use crate::identity::tenant::Tenant;

/// The maximum number of unknown ids with suggestions: a program can have thousands.
pub(super) const MAX_IDS: usize = 8;
/// The maximum number of suggestions for an unknown id.
const MAX_SUGGESTIONS: i64 = 3;
/// The maximum number of names per scope that an unknown one is compared with: each comparison costs time, and
/// requests are free.
const MAX_COMPARED: i64 = 5_000;

type Near = HashMap<ToolId, (Absence, Vec<ToolId>)>;

/// Returns suggestions for each id: the same name in another version, the same name in another organisation's public
/// entries, or a similar name. All of them are visible to the tenant and the scope `base`.
pub(super) async fn near(
    connection: &mut PgConnection,
    tenant: &Tenant,
    base: &Scope,
    missing: Vec<ToolId>,
) -> Result<Near, RegistryError> {
    let mut near = Near::new();
    if missing.is_empty() {
        return Ok(near);
    }
    let public = Scope::public();
    let plain: Vec<String> = missing.iter().map(|id| id.plain().as_str().to_owned()).collect();
    let namespaces: Vec<String> = missing.iter().map(|id| id.namespace().to_owned()).collect();
    // `similarity` compares each unknown id with every known one, so the known ones are limited and read only once
    // (`materialized`).
    let rows = sqlx::query!(
        r#"with asked as (
            select distinct * from unnest($6::text[], $7::text[]) as w (id, namespace)
        ),
        known as materialized (
            (select tool_id from pml_registry
                where org = $1 and project = $2
                    and visible_to($1, $2, $3, org, project, visibility, owner) limit $8)
            union
            (select tool_id from pml_registry
                where org = $1 and project <> $2
                    and visible_to($1, $2, $3, org, project, visibility, owner) limit $8)
            union
            (select tool_id from pml_registry
                where org = $4 and project = $5 and visibility = 'public' limit $8)
        ),
        versions as (
            select a.id, v.org, v.project, v.version, v.rank
            from asked a join capability_versions v on v.tool_id = a.id
            where v.yanked_at is null and visible_to($1, $2, $3, v.org, v.project, v.visibility, v.owner)
            union all
            select a.id, s.org, s.project, s.version, s.rank
            from asked a join server_versions s on s.namespace = a.namespace
            where s.yanked_at is null and visible_to($1, $2, $3, s.org, s.project, s.visibility, s.owner)
                and s.content::jsonb -> 'tools' @> jsonb_build_array(
                    jsonb_build_object('name', split_part(a.id, ':', 2)))
        )
        select a.id as "id!", n.kind as "kind!", n.text as "text!", n.org as "org!", n.project as "project!"
        from asked a cross join lateral (
            (select 'version' as kind, v.version as text, v.org, v.project,
                -row_number() over (order by v.rank) as place
                from versions v where v.id = a.id order by v.rank desc limit 20)
            union all
            (select 'elsewhere', r.tool_id, r.org, r.project, row_number() over (order by r.org, r.project)
                from pml_registry r
                where r.tool_id = a.id and r.visibility = 'public' and r.org <> $1
                    and not (r.org = $4 and r.project = $5)
                order by r.org, r.project limit $9)
            union all
            (select 'like', k.tool_id, '', '', row_number() over (order by similarity(k.tool_id, a.id) desc, k.tool_id)
                from known k where similarity(k.tool_id, a.id) > 0.25
                order by similarity(k.tool_id, a.id) desc, k.tool_id limit $9)
        ) as n
        order by n.place"#,
        base.org(),
        base.project(),
        tenant.principal_name(),
        public.org(),
        public.project(),
        &plain,
        &namespaces,
        MAX_COMPARED,
        MAX_SUGGESTIONS,
    )
    .fetch_all(connection)
    .await?;
    for id in missing {
        let about = || rows.iter().filter(|row| row.id == id.plain().as_str());
        let scope_of = |org: &str, project: &str| Scope::new(org, project).ok();
        let named = id.scope();
        let mut versions = Vec::new();
        let mut elsewhere = Vec::new();
        let mut similar = Vec::new();
        for row in about() {
            let scope = scope_of(&row.org, &row.project);
            match row.kind.as_str() {
                "version" => {
                    let is_meant = match &named {
                        Some(named) => scope.as_ref() == Some(named),
                        None => scope
                            .as_ref()
                            .is_some_and(|scope| scope.org() == base.org() || *scope == public),
                    };
                    if id.version().is_some() && is_meant {
                        versions.push(id.at(&row.text)?);
                    }
                }
                "elsewhere" => {
                    elsewhere.extend(scope.map(|scope| id.unversioned().within(&scope)));
                }
                _ => similar.push(row.text.parse()?),
            }
        }
        versions.truncate(MAX_SUGGESTIONS as usize);
        let found = if !versions.is_empty() {
            (Absence::Unknown, versions)
        } else if named.is_none() && !elsewhere.is_empty() && !similar.contains(&id.plain()) {
            (Absence::Elsewhere, elsewhere)
        } else {
            (Absence::Unknown, similar)
        };
        near.insert(id, found);
    }
    Ok(near)
}
