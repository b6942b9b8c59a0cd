//! The operator's classification of tools by their effects.

use protocol::{Fqdn, Integrity, Scope, ShortHash, ToolId};
use serde::Serialize;

use crate::RegistryError;
use crate::accounts::scopes::ensure_scope;
use crate::database::operator::Operator;
use crate::database::transaction::in_tenant;
use crate::identity::tenant::Tenant;
use crate::records::audit::{self, AuditEvent, AuditOutcome};

/// Whether a tool changes anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Effects {
    /// It changes nothing.
    Read,
    /// It may change something.
    Write,
}

impl Effects {
    /// Returns the word used in the database and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

/// The operator's classification of one tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ToolClass {
    /// The tool, pinned to the content that was classified.
    pub fqdn: Fqdn,
    /// Whether it changes anything.
    pub class: Effects,
    /// Whether a call may start before the program reaches it.
    pub eager: bool,
    /// Whether the tool still has that content; otherwise the classification does not apply.
    pub counts: bool,
}

impl Operator {
    /// Returns the classifications of a scope's tools, sorted by name.
    ///
    /// # Errors
    /// Returns [`RegistryError::Unavailable`] when the database does not answer.
    pub async fn tool_classes(&self, scope: &Scope) -> Result<Vec<ToolClass>, RegistryError> {
        let acts = scope.clone();
        in_tenant(self.pool.clone(), &Tenant::of(scope.clone()), move |connection| {
            Box::pin(async move {
                let rows = sqlx::query!(
                    r#"select c.namespace, c.name, c.integrity, c.class, c.eager,
                        c.integrity = t.integrity as "counts!"
                    from tool_classes c
                    join tools t on (t.org, t.project, t.namespace, t.name)
                        = (c.org, c.project, c.namespace, c.name)
                    where c.org = $1 and c.project = $2
                    order by c.namespace collate "C", c.name collate "C""#,
                    acts.org(),
                    acts.project(),
                )
                .fetch_all(connection)
                .await?;
                rows.into_iter()
                    .map(|row| {
                        let id = ToolId::new(&row.namespace, &row.name)?;
                        Ok(ToolClass {
                            fqdn: Fqdn::of_tool(acts.clone(), &id).pinned(short(&row.integrity)?),
                            class: if row.class == "read" { Effects::Read } else { Effects::Write },
                            eager: row.eager,
                            counts: row.counts,
                        })
                    })
                    .collect()
            })
        })
        .await
    }

    /// Classifies a tool with its current content; returns its name, pinned to that content.
    ///
    /// # Errors
    /// Returns [`RegistryError::NotFound`] for a name that is not a tool's,
    /// [`RegistryError::HashMismatch`] for a pinned name of a tool that has changed since, and
    /// [`RegistryError::Invalid`] for a tool that writes and is to run eagerly.
    pub async fn set_tool_class(
        &self,
        fqdn: &Fqdn,
        class: Effects,
        eager: bool,
    ) -> Result<Fqdn, RegistryError> {
        if eager && class == Effects::Write {
            return Err(RegistryError::Invalid(
                "only a read-only tool may run before the program reaches it".to_owned(),
            ));
        }
        self.change_tool_class(fqdn, Some((class, eager))).await
    }

    /// Removes the classification of a tool; the shipped one applies again.
    ///
    /// # Errors
    /// Returns [`RegistryError::NotFound`] when it has none.
    pub async fn unset_tool_class(&self, fqdn: &Fqdn) -> Result<Fqdn, RegistryError> {
        self.change_tool_class(fqdn, None).await
    }

    async fn change_tool_class(
        &self,
        fqdn: &Fqdn,
        change: Option<(Effects, bool)>,
    ) -> Result<Fqdn, RegistryError> {
        let scope = fqdn.scope().clone();
        let actor = Tenant::of(scope.clone());
        let fqdn = fqdn.clone();
        in_tenant(self.pool.clone(), &actor.clone(), move |connection| {
            Box::pin(async move {
                let missing = || RegistryError::NotFound(fqdn.to_string());
                let (namespace, name) = (fqdn.namespace(), fqdn.action().ok_or_else(missing)?);
                // `for share`, so that the tool keeps the content that is compared here until its
                // class is written.
                let found = sqlx::query_scalar!(
                    "select integrity from tools
                    where org = $1 and project = $2 and namespace = $3 and name = $4 for share",
                    scope.org(),
                    scope.project(),
                    namespace,
                    name,
                )
                .fetch_optional(&mut *connection)
                .await?
                .ok_or_else(missing)?;
                let current = fqdn.unpinned().pinned(short(&found)?);
                if fqdn.hash().is_some() && fqdn != current {
                    return Err(RegistryError::HashMismatch { current });
                }
                ensure_scope(connection, &scope).await?;
                let action = if change.is_some() { "tool.class_set" } else { "tool.class_unset" };
                let event = AuditEvent::new(action, current.to_string(), AuditOutcome::Allowed);
                let event = match change {
                    Some((class, eager)) => {
                        event.with_detail(serde_json::json!({ "class": class, "eager": eager }))
                    }
                    None => event,
                };
                // If there is nothing to remove, the error below rolls this event back as well.
                audit::record(connection, &actor, event).await?;
                let done = match change {
                    Some((class, eager)) => {
                        sqlx::query!(
                            "insert into tool_classes
                                (org, project, namespace, name, integrity, class, eager)
                            values ($1, $2, $3, $4, $5, $6, $7)
                            on conflict (org, project, namespace, name) do update
                            set integrity = excluded.integrity, class = excluded.class,
                                eager = excluded.eager, set_at = now()",
                            scope.org(),
                            scope.project(),
                            namespace,
                            name,
                            found,
                            class.as_str(),
                            eager,
                        )
                        .execute(connection)
                        .await?
                    }
                    None => {
                        sqlx::query!(
                            "delete from tool_classes
                            where org = $1 and project = $2 and namespace = $3 and name = $4",
                            scope.org(),
                            scope.project(),
                            namespace,
                            name,
                        )
                        .execute(connection)
                        .await?
                    }
                };
                if done.rows_affected() == 0 {
                    return Err(missing());
                }
                Ok(current)
            })
        })
        .await
    }
}

fn short(integrity: &str) -> Result<ShortHash, RegistryError> {
    let integrity: Integrity = integrity
        .parse()
        .map_err(|_| RegistryError::Invalid(format!("`{integrity}` is not a hash")))?;
    Ok(integrity.short())
}
