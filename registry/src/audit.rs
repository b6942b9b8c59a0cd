//! The audit log: what was decided, recorded before its effect.

use serde_json::Value;
use sqlx::PgConnection;

use crate::{Registry, RegistryError, Tenant};

/// How something was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditOutcome {
    /// It may happen.
    Allowed,
    /// It may not.
    Refused,
    /// It was tried and did not work.
    Failed,
}

impl AuditOutcome {
    fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }
}

/// One event; never with a secret, code, arguments or results in it.
#[derive(Debug, Clone, PartialEq)]
pub struct AuditEvent {
    action: String,
    target: String,
    outcome: AuditOutcome,
    detail: Value,
}

impl AuditEvent {
    /// Makes an event, for example `key.revoke` of a key.
    pub fn new(
        action: impl Into<String>,
        target: impl Into<String>,
        outcome: AuditOutcome,
    ) -> Self {
        let detail = Value::Object(serde_json::Map::new());
        Self { action: action.into(), target: target.into(), outcome, detail }
    }

    /// Adds further facts.
    #[must_use]
    pub fn with_detail(mut self, detail: Value) -> Self {
        self.detail = detail;
        self
    }
}

impl Registry {
    /// Records an event of the tenant; call it before what it speaks of.
    ///
    /// # Errors
    /// Returns [`RegistryError::Unavailable`] when it could not be recorded: then
    /// what it speaks of must not happen.
    pub async fn audit(&self, tenant: &Tenant, event: AuditEvent) -> Result<(), RegistryError> {
        let actor = tenant.clone();
        self.in_tenant(tenant, move |connection| {
            Box::pin(async move { record(connection, &actor, event).await })
        })
        .await
    }
}

/// Records an event in the transaction of what it speaks of.
pub(crate) async fn record(
    connection: &mut PgConnection,
    tenant: &Tenant,
    event: AuditEvent,
) -> Result<(), RegistryError> {
    let scope = tenant.require_scope()?;
    let principal = tenant.principal().map_or("operator", |principal| principal.as_str());
    sqlx::query!(
        "insert into audit_log (org, project, principal, action, target, outcome, detail)
        values ($1, $2, $3, $4, $5, $6, $7)",
        scope.org(),
        scope.project(),
        principal,
        event.action,
        event.target,
        event.outcome.as_str(),
        event.detail,
    )
    .execute(connection)
    .await?;
    Ok(())
}
