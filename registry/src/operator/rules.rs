//! The operator's edits of the routing rules.

use protocol::{Routing, RoutingRules, Scope, ToolPattern};
use serde::Serialize;

use crate::RegistryError;
use crate::accounts::scopes::ensure_scope;
use crate::database::operator::Operator;
use crate::database::transaction::in_tenant;
use crate::entries::content;
use crate::identity::tenant::Tenant;
use crate::records::audit::{self, AuditEvent, AuditOutcome};

/// The routing of the tools of a pattern.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Rule {
    /// `*`, `namespace:*` or `namespace:action`; the most specific one applies.
    pub pattern: ToolPattern,
    /// The side.
    pub routing: Routing,
    /// Its origin.
    pub origin: RuleOrigin,
}

/// The origin of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RuleOrigin {
    /// It shipped with PML; a later version may change it.
    Shipped,
    /// The operator set it; no version of PML changes it.
    Operator,
}

/// A change of the routing rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleChange {
    /// Routes the tools of the pattern to this side.
    Set(Routing),
    /// Removes the operator's rule; the shipped rule, if any, applies again.
    Unset,
}

impl Operator {
    /// Returns all rules, sorted by pattern.
    ///
    /// # Errors
    /// Returns [`RegistryError::Unavailable`] when the database does not answer.
    pub async fn rules(&self) -> Result<Vec<Rule>, RegistryError> {
        in_tenant(self.pool.clone(), &Tenant::anonymous(), |connection| {
            Box::pin(async move {
                let rows = sqlx::query!(
                    r#"select pattern, routing, origin from routing_rules order by pattern collate "C""#
                )
                .fetch_all(connection)
                .await?;
                rows.into_iter()
                    .map(|row| {
                        let origin = match row.origin.as_str() {
                            "shipped" => RuleOrigin::Shipped,
                            _ => RuleOrigin::Operator,
                        };
                        let routing = content::routing(&row.routing);
                        Ok(Rule { pattern: row.pattern.parse()?, routing, origin })
                    })
                    .collect()
            })
        })
        .await
    }

    /// Changes a routing rule; every gateway applies it within a second.
    ///
    /// # Errors
    /// Returns [`RegistryError::NotFound`] when the operator has no rule to unset.
    pub async fn change_rule(
        &self,
        pattern: &ToolPattern,
        change: RuleChange,
    ) -> Result<(), RegistryError> {
        refuse_scope(pattern)?;
        let shipped: Vec<(ToolPattern, Routing)> = RoutingRules::shipped().into();
        let shipped = shipped.into_iter().find(|(known, _)| known == pattern);
        let pattern = pattern.to_string();
        // Only the operator writes rules, acting in the public scope.
        let actor = Tenant::of(Scope::public());
        in_tenant(self.pool.clone(), &actor.clone(), move |connection| {
            Box::pin(async move {
                ensure_scope(connection, &Scope::public()).await?;
                let (action, routing, origin) = match (change, shipped) {
                    (RuleChange::Set(routing), _) => ("routing.set", Some(routing), "operator"),
                    (RuleChange::Unset, Some((_, routing))) => {
                        ("routing.unset", Some(routing), "shipped")
                    }
                    (RuleChange::Unset, None) => ("routing.unset", None, "operator"),
                };
                let event = AuditEvent::new(action, pattern.as_str(), AuditOutcome::Allowed)
                    .with_detail(serde_json::json!({ "routing": routing, "origin": origin }));
                audit::record(connection, &actor, event).await?;
                if change == RuleChange::Unset {
                    let gone = sqlx::query!(
                        "delete from routing_rules where pattern = $1 and origin = 'operator'",
                        pattern
                    )
                    .execute(&mut *connection)
                    .await?;
                    if gone.rows_affected() == 0 {
                        return Err(RegistryError::NotFound(pattern));
                    }
                }
                // A pattern has one row, so the operator's rule had replaced the shipped one. It is
                // restored here, because otherwise it would be missing until the next seed.
                if let Some(routing) = routing {
                    sqlx::query!(
                        "insert into routing_rules (pattern, routing, origin) values ($1, $2, $3)
                        on conflict (pattern) do update set
                        routing = excluded.routing, origin = excluded.origin, updated_at = now()",
                        pattern,
                        routing.as_str(),
                        origin,
                    )
                    .execute(connection)
                    .await?;
                }
                Ok(())
            })
        })
        .await
    }
}

/// Refuses a pattern with a scope: the operator's rules apply to namespaces in all scopes.
///
/// # Errors
/// Returns [`RegistryError::Invalid`].
pub(crate) fn refuse_scope(pattern: &ToolPattern) -> Result<(), RegistryError> {
    if pattern.has_scope() {
        let message =
            format!("`{pattern}` names a project; write `namespace:*` or `namespace:action`");
        return Err(RegistryError::Invalid(message));
    }
    Ok(())
}
