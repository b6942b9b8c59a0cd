//! Reads the tools of an answer by key and verifies them.

use std::collections::HashSet;

use protocol::{Fqdn, Scope, ToolId};

use super::{Candidate, Discovered, FOREIGN};
use crate::entries::content;
use crate::identity::tenant::Tenant;
use crate::{Registry, RegistryError};

/// The keys of the chosen tools, as columns for `unnest`, in the order of the answer.
pub(super) struct Chosen {
    ids: Vec<String>,
    orgs: Vec<String>,
    projects: Vec<String>,
    scores: Vec<f32>,
}

impl Chosen {
    pub(super) fn of(found: &[Candidate<'_>]) -> Self {
        // A server's tool and a capability of one project can have the same id; one look-up returns both.
        let mut seen = HashSet::new();
        let found: Vec<_> =
            found.iter().filter(|tool| seen.insert((tool.id, tool.scope.as_str()))).collect();
        let text =
            |part: fn(&Candidate<'_>) -> String| found.iter().map(|tool| part(tool)).collect();
        Self {
            ids: text(|tool| tool.id.as_str().to_owned()),
            orgs: text(|tool| tool.scope.org().to_owned()),
            projects: text(|tool| tool.scope.project().to_owned()),
            scores: found.iter().map(|tool| tool.score).collect(),
        }
    }
}

impl Registry {
    /// Reads the chosen tools, and what their short names resolve to. Omits tools that no longer exist, that the
    /// tenant may not see, and, unless `with_hidden`, tools that a nearer one hides.
    pub(super) async fn read_chosen(
        &self,
        tenant: &Tenant,
        chosen: Chosen,
        with_hidden: bool,
    ) -> Result<Vec<Discovered>, RegistryError> {
        if chosen.ids.is_empty() {
            return Ok(Vec::new());
        }
        let Chosen { ids, orgs, projects, scores } = chosen;
        let (org, project) = (tenant.org().to_owned(), tenant.project().to_owned());
        let principal = tenant.principal_name().to_owned();
        let rows = self
            .in_tenant(tenant, move |connection| {
                Box::pin(async move {
                    let public = Scope::public();
                    // `offset 0` keeps the look-ups separate, one index look-up per name: a join would read every
                    // tool of the registry.
                    let rows = sqlx::query!(
                        r#"select k.nth as "nth!", r.tool_id as "tool_id!", r.org as "org!", r.project as "project!",
                            r.content as "content!", r.integrity as "integrity!", r.routing as "routing!",
                            coalesce(c.class = 'read', r.read_only) as "read_only!", p.latest as "latest?",
                            case when r.org = $4 and r.project = $5 then 0 when r.org = $4 then 1
                                when r.org = $7 and r.project = $8 then 2 else 3 end as "distance!",
                            n.owners as "owners!", n.distances as "distances!"
                        from unnest($1::text[], $2::text[], $3::text[]) with ordinality as k (tool_id, org, project, nth)
                        cross join lateral (
                            select * from pml_registry r
                            where r.tool_id = k.tool_id and r.org = k.org and r.project = k.project offset 0) r
                        cross join lateral (
                            select coalesce(array_agg(m.org || '.' || m.project
                                    order by m.distance, m.org collate "C", m.project collate "C"), '{}') as owners,
                                coalesce(array_agg(m.distance order by m.distance), '{}') as distances
                            from (
                                select o.org, o.project, case
                                    when o.org = $4 and o.project = $5 then 0
                                    when o.org = $4 then 1
                                    when o.org = $7 and o.project = $8 then 2 end as distance
                                from pml_registry o
                                where o.tool_id = k.tool_id and o.org = any (array[$4, $7])
                                    and visible_to($4, $5, $6, o.org, o.project, o.visibility, o.owner)
                                offset 0) m
                            where m.distance is not null) n
                        left join tool_classes c on (c.org, c.project, c.namespace, c.name, c.integrity)
                            = (r.org, r.project, r.namespace, r.name, r.integrity)
                        left join published_servers p on (p.org, p.project, p.namespace)
                            = (r.org, r.project, r.namespace)
                        where visible_to($4, $5, $6, r.org, r.project, r.visibility, r.owner)
                        order by k.nth"#,
                        &ids,
                        &orgs,
                        &projects,
                        org,
                        project,
                        principal,
                        public.org(),
                        public.project(),
                    )
                    .fetch_all(connection)
                    .await?;
                    Ok(rows)
                })
            })
            .await?;
        let mut tools = Vec::with_capacity(rows.len());
        for row in rows {
            let is_foreign = row.distance >= i32::from(FOREIGN);
            // `distances` is sorted.
            let is_nearest = !is_foreign && row.distances.first() == Some(&row.distance);
            if !(is_nearest || is_foreign || with_hidden) {
                continue;
            }
            // Two entries at the same distance make the short name ambiguous, so the full one is
            // shown.
            let alike = row.distances.iter().filter(|distance| **distance == row.distance).count();
            let is_meant = is_nearest && alike == 1;
            let plain: ToolId = row.tool_id.parse()?;
            let scope = Scope::new(&row.org, &row.project)?;
            let name = Fqdn::of_tool(scope.clone(), &plain);
            let routing = content::routing(&row.routing);
            let (entry, fqdn) = content::from_stored(name, &row.content, &row.integrity, routing)?;
            let version = entry.capability.map(|program| program.version).or(row.latest);
            let Some(descriptor) = entry.tools.into_iter().next() else {
                return Err(RegistryError::IntegrityMismatch(fqdn));
            };
            let mut hides = Vec::new();
            for owner in row.owners.iter().filter(|_| is_meant) {
                let owner: Scope = owner.parse()?;
                if owner != scope {
                    hides.push(Fqdn::of_tool(owner, &plain));
                }
            }
            // `with ordinality` counts from 1.
            let score = usize::try_from(row.nth - 1).ok().and_then(|nth| scores.get(nth));
            tools.push(Discovered {
                id: if is_meant { plain } else { plain.within(&scope) },
                fqdn,
                version,
                hides,
                kind: entry.kind,
                routing,
                score: score.copied().unwrap_or_default(),
                read_only: row.read_only,
                descriptor,
            });
        }
        Ok(tools)
    }
}
