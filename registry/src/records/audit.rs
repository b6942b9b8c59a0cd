//! The audit log: decisions, recorded before they take effect.

use serde::Serialize;
use serde_json::Value;
use sqlx::PgConnection;
use utoipa::ToSchema;

use crate::identity::tenant::Tenant;
use crate::{Registry, RegistryError};

/// The outcome of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditOutcome {
    /// Allowed.
    Allowed,
    /// Refused.
    Refused,
    /// Attempted and failed.
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

/// An event. It never contains secrets, code, arguments or results.
#[derive(Debug, Clone, PartialEq)]
pub struct AuditEvent {
    action: String,
    target: String,
    outcome: AuditOutcome,
    detail: Value,
}

impl AuditEvent {
    /// Creates an event, for example `key.revoke` of a key.
    pub fn new(
        action: impl Into<String>,
        target: impl Into<String>,
        outcome: AuditOutcome,
    ) -> Self {
        let detail = Value::Object(serde_json::Map::new());
        Self { action: action.into(), target: target.into(), outcome, detail }
    }

    /// Adds further details.
    #[must_use]
    pub fn with_detail(mut self, detail: Value) -> Self {
        self.detail = detail;
        self
    }
}

/// A recorded event.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct AuditRecord {
    /// Its position in the tenant's chain, from 1 and without gaps.
    pub seq: i64,
    /// The time of the decision: RFC 3339, in UTC.
    pub at: String,
    /// The acting principal.
    pub principal: String,
    /// The action, for example `key.create`.
    pub action: String,
    /// The object of the action.
    pub target: String,
    /// `allowed`, `refused` or `failed`.
    pub outcome: String,
    /// Further details.
    pub detail: Value,
    /// SHA-256 of the previous hash and the event, in hex.
    pub hash: String,
}

/// A page of the log, the newest events first.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct AuditPage {
    /// The events.
    pub events: Vec<AuditRecord>,
    /// The `before` of the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_before: Option<i64>,
}

impl Registry {
    /// Returns events of the tenant, newest first; with `before`, only events before that position.
    ///
    /// # Errors
    /// Returns [`RegistryError::Unavailable`] when the database does not answer.
    pub async fn audit_log(
        &self,
        tenant: &Tenant,
        before: Option<i64>,
        limit: u32,
    ) -> Result<AuditPage, RegistryError> {
        let scope = tenant.require_scope()?.clone();
        self.in_tenant(tenant, move |connection| {
            Box::pin(async move {
                let mut events = sqlx::query_as!(
                    AuditRecord,
                    r#"select seq,
                        to_char(at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as "at!",
                        principal, action, target, outcome, detail, encode(hash, 'hex') as "hash!"
                    from audit_log
                    where org = $1 and project = $2 and ($3::bigint is null or seq < $3)
                    order by seq desc limit $4"#,
                    scope.org(),
                    scope.project(),
                    before,
                    i64::from(limit) + 1,
                )
                .fetch_all(connection)
                .await?;
                // One more row than requested was read: it shows whether another page follows.
                let most = usize::try_from(limit).unwrap_or(usize::MAX);
                let more = events.len() > most;
                events.truncate(most);
                let next_before = events.last().filter(|_| more).map(|event| event.seq);
                Ok(AuditPage { events, next_before })
            })
        })
        .await
    }

    /// Returns the position of the tenant's first event whose hash does not match its predecessors, `None` if all
    /// match. Reads the whole log of the tenant.
    ///
    /// # Errors
    /// Returns [`RegistryError::Unavailable`] when the database does not answer.
    pub async fn first_bad_event(&self, tenant: &Tenant) -> Result<Option<i64>, RegistryError> {
        self.in_tenant(tenant, |connection| {
            Box::pin(async move {
                let first = sqlx::query_scalar!("select audit_first_bad()").fetch_one(connection);
                Ok(first.await?)
            })
        })
        .await
    }

    /// Records an event of the tenant; call it before the action.
    ///
    /// # Errors
    /// Returns [`RegistryError::Unavailable`] when the event was not recorded: then the action must not happen.
    pub async fn audit(&self, tenant: &Tenant, event: AuditEvent) -> Result<(), RegistryError> {
        let actor = tenant.clone();
        self.in_tenant(tenant, move |connection| {
            Box::pin(async move { record(connection, &actor, event).await })
        })
        .await
    }
}

/// Records an event in the transaction of its action.
pub(crate) async fn record(
    connection: &mut PgConnection,
    tenant: &Tenant,
    event: AuditEvent,
) -> Result<(), RegistryError> {
    let scope = tenant.require_scope()?;
    let principal = tenant.principal().map_or("operator", |principal| principal.as_str());
    let mut detail = event.detail;
    // Whoever created the key has seen it and may be the one who acts, so the log names both.
    if let (Some(creator), Value::Object(members)) = (tenant.other_key_creator(), &mut detail) {
        members.insert("key_made_by".to_owned(), creator.into());
    }
    // A trigger sets the position, the time and the hash, so that no writer can choose them.
    sqlx::query!(
        "insert into audit_log (org, project, principal, action, target, outcome, detail)
        values ($1, $2, $3, $4, $5, $6, $7)",
        scope.org(),
        scope.project(),
        principal,
        event.action,
        event.target,
        event.outcome.as_str(),
        detail,
    )
    .execute(connection)
    .await?;
    Ok(())
}
