//! Tools for an intent, a pattern or a name, with their schemas.

use protocol::{EntryType, Fqdn, Routing, Scope, ToolDescriptor, ToolId};

use crate::{Registry, RegistryError, Tenant, content};

/// The most tools that one call returns.
const LIMIT: u32 = 100;
/// The longest intent that is searched for; the rest adds nothing.
const QUERY_LIMIT: usize = 1_000;

/// What to look for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiscoverQuery {
    /// One tool, or all tools of a namespace: `filesystem:read_file`, `filesystem`.
    Name(String),
    /// Ids with `*` for any text: `git:*`, `*:read_*`.
    Pattern(String),
    /// What the tool should do, in words.
    Text(String),
}

/// A tool that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Discovered {
    /// Its id.
    pub id: ToolId,
    /// Its full name, pinned to its content.
    pub fqdn: Fqdn,
    /// The kind of its server.
    pub kind: EntryType,
    /// Where it runs.
    pub routing: Routing,
    /// How well it fits; the greatest first, names and patterns all fit equally.
    pub score: f32,
    /// It changes nothing, says the operator.
    pub read_only: bool,
    /// Its schemas and description.
    pub descriptor: ToolDescriptor,
}

impl Registry {
    /// Finds tools that the tenant may call: those of its own scope, and the
    /// public ones that they do not hide.
    ///
    /// # Errors
    /// Returns [`RegistryError::IntegrityMismatch`] when a stored tool was
    /// tampered with, and [`RegistryError::Unavailable`] when the database does not answer.
    pub async fn discover(
        &self,
        tenant: &Tenant,
        query: &DiscoverQuery,
        limit: u32,
    ) -> Result<Vec<Discovered>, RegistryError> {
        let pattern = match query {
            DiscoverQuery::Name(name) if name.contains(':') => Some(like(name, false)),
            DiscoverQuery::Name(name) => Some(like(&format!("{name}:"), false) + "%"),
            DiscoverQuery::Pattern(pattern) => Some(like(pattern, true)),
            DiscoverQuery::Text(_) => None,
        };
        let text = match query {
            DiscoverQuery::Text(text) => text.chars().take(QUERY_LIMIT).collect(),
            _ => String::new(),
        };
        if text.contains('\0') || pattern.as_ref().is_some_and(|p| p.contains('\0')) {
            return Ok(Vec::new());
        }
        let (org, project) = (tenant.org().to_owned(), tenant.project().to_owned());
        let limit = i64::from(limit.min(LIMIT));
        let principal = tenant.principal_name().to_owned();
        let public = Scope::public();
        let rows = self
            .in_tenant(tenant, move |connection| {
                Box::pin(async move {
                    // Words are joined by `or`: an intent names more than one tool does.
                    let rows = sqlx::query!(
                        r#"with asked as (
                            select replace(plainto_tsquery('english', $4)::text, '&', '|')::tsquery as words
                        ),
                        visible as (
                            select distinct on (r.tool_id) r.*
                            from pml_registry r
                            where ((r.org = $1 and r.project = $2
                                    and (r.visibility <> 'private' or r.owner = $8))
                                or (r.org = $6 and r.project = $7 and r.visibility = 'public'))
                                and ($3::text is null or r.tool_id like $3)
                            order by r.tool_id, (r.org = $1 and r.project = $2) desc
                        ),
                        scored as (
                            select v.*, case
                                when $3::text is not null then 1::real
                                else ts_rank(v.search, a.words)
                                    + greatest(word_similarity(v.tool_id, $4) - 0.4, 0) / 2
                                    + greatest(similarity(v.tool_id, $4) - 0.4, 0)
                                end as score
                            from visible v cross join asked a
                        )
                        select tool_id as "tool_id!", org as "org!", project as "project!",
                            content as "content!", integrity as "integrity!", routing as "routing!",
                            coalesce(c.class = 'read', read_only) as "read_only!", score::real as "score!"
                        from scored left join tool_classes c
                            using (org, project, namespace, name, integrity)
                        where score > 0
                        order by score desc, tool_id collate "C"
                        limit $5"#,
                        org,
                        project,
                        pattern,
                        text,
                        limit,
                        public.org(),
                        public.project(),
                        principal,
                    )
                    .fetch_all(connection)
                    .await?;
                    Ok(rows)
                })
            })
            .await?;
        rows.into_iter()
            .map(|row| {
                let id: ToolId = row.tool_id.parse()?;
                let name = Fqdn::of_tool(Scope::new(&row.org, &row.project)?, &id);
                let routing = content::routing(&row.routing);
                let (entry, fqdn) =
                    content::from_stored(name, &row.content, &row.integrity, routing)?;
                let Some(descriptor) = entry.tools.into_iter().next() else {
                    return Err(RegistryError::IntegrityMismatch(fqdn));
                };
                Ok(Discovered {
                    id,
                    fqdn,
                    kind: entry.kind,
                    routing,
                    score: row.score,
                    read_only: row.read_only,
                    descriptor,
                })
            })
            .collect()
    }
}

/// Writes a text as a `like` pattern in which only our own `*` is a wildcard.
fn like(text: &str, wildcards: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '*' if wildcards => out.push('%'),
            '%' | '_' | '\\' => {
                out.push('\\');
                out.push(character);
            }
            _ => out.push(character),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_star_is_a_wildcard() {
        assert_eq!(like("git:*", true), "git:%");
        assert_eq!(like("a_b:*%\\", false), "a\\_b:*\\%\\\\");
    }
}
