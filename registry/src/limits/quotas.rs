//! The operator's quotas on tool calls on the gateway.

use std::fmt;
use std::str::FromStr;

use protocol::{Scope, ToolId, ToolPattern};
use serde::{Serialize, Serializer};
use sqlx::PgConnection;

use crate::RegistryError;
use crate::accounts::scopes::ensure_scope;
use crate::database::operator::Operator;
use crate::database::transaction::in_tenant;
use crate::identity::tenant::Tenant;
use crate::limits::rates::Rate;
use crate::records::audit::{self, AuditEvent, AuditOutcome};

/// The callers that share a quota.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QuotaScope {
    /// Each scope has its own count.
    Each,
    /// All projects of an organisation share one count.
    Organisation(String),
    /// The callers of one scope.
    Scope(Scope),
}

impl QuotaScope {
    fn covers(&self, scope: &Scope) -> bool {
        match self {
            Self::Each => true,
            Self::Organisation(org) => org == scope.org(),
            Self::Scope(own) => own == scope,
        }
    }
}

impl fmt::Display for QuotaScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Each => f.write_str("*"),
            Self::Organisation(org) => f.write_str(org),
            Self::Scope(scope) => scope.fmt(f),
        }
    }
}

impl FromStr for QuotaScope {
    type Err = RegistryError;

    fn from_str(text: &str) -> Result<Self, RegistryError> {
        if text == "*" {
            return Ok(Self::Each);
        }
        if text.contains('.') {
            return Ok(Self::Scope(text.parse()?));
        }
        // Parsed as the first half of a scope, because an organisation has the same grammar.
        Ok(Self::Organisation(Scope::new(text, "any")?.org().to_owned()))
    }
}

impl Serialize for QuotaScope {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The time in which a used-up quota refills completely.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Window {
    /// 60 seconds.
    Minute,
    /// 3,600 seconds.
    Hour,
    /// 86,400 seconds.
    Day,
}

impl Window {
    const ALL: [Self; 3] = [Self::Minute, Self::Hour, Self::Day];

    /// Returns its length in seconds.
    pub fn seconds(self) -> u32 {
        match self {
            Self::Minute => 60,
            Self::Hour => 3_600,
            Self::Day => 86_400,
        }
    }
}

/// A quota on calls of tools.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Quota {
    /// The callers that share it.
    pub scope: QuotaScope,
    /// The tools whose calls are counted.
    pub pattern: ToolPattern,
    /// The number of calls per window.
    pub calls: u32,
    /// The window.
    pub window: Window,
}

impl Quota {
    /// Returns whether a call is counted.
    pub fn counts(&self, scope: &Scope, tool: &ToolId) -> bool {
        self.scope.covers(scope) && self.pattern.matches(tool)
    }

    /// Returns the rate at which the quota refills; `None` for a quota of zero calls.
    pub fn rate(&self) -> Option<Rate> {
        let capacity = f64::from(self.calls);
        // An empty bucket that never refills has no time until its next token, so the caller
        // refuses such a call itself.
        (self.calls > 0)
            .then(|| Rate { per_second: capacity / f64::from(self.window.seconds()), capacity })
    }
}

/// Reads all quotas, sorted.
pub(crate) async fn read(connection: &mut PgConnection) -> Result<Vec<Quota>, RegistryError> {
    let rows = sqlx::query!(
        r#"select scope, pattern, calls, window_seconds from quotas
        order by scope collate "C", pattern collate "C""#
    )
    .fetch_all(connection)
    .await?;
    rows.into_iter()
        .map(|row| {
            // A constraint of the table allows only these three lengths.
            let window = Window::ALL
                .into_iter()
                .find(|window| i64::from(window.seconds()) == i64::from(row.window_seconds))
                .ok_or_else(|| {
                    RegistryError::Invalid("a quota with an unknown window".to_owned())
                })?;
            Ok(Quota {
                scope: row.scope.parse()?,
                pattern: row.pattern.parse()?,
                calls: row.calls.unsigned_abs(),
                window,
            })
        })
        .collect()
}

impl Operator {
    /// Returns all quotas, sorted.
    ///
    /// # Errors
    /// Returns [`RegistryError::Unavailable`] when the database does not answer.
    pub async fn quotas(&self) -> Result<Vec<Quota>, RegistryError> {
        in_tenant(self.pool.clone(), &Tenant::anonymous(), |connection| Box::pin(read(connection)))
            .await
    }

    /// Sets a quota; every gateway applies it within a second.
    ///
    /// # Errors
    /// Returns [`RegistryError::Invalid`] for more than `i32::MAX` calls, and for a pattern with a scope.
    pub async fn set_quota(&self, quota: &Quota) -> Result<(), RegistryError> {
        crate::operator::rules::refuse_scope(&quota.pattern)?;
        let calls = i32::try_from(quota.calls)
            .map_err(|_| RegistryError::Invalid(format!("{} calls are too many", quota.calls)))?;
        let window = i32::try_from(quota.window.seconds()).unwrap_or(i32::MAX);
        let (scope, pattern) = (quota.scope.to_string(), quota.pattern.to_string());
        let detail = serde_json::json!({ "calls": calls, "window": quota.window });
        self.change_quota("quota.set", scope, pattern, detail, move |connection, scope, pattern| {
            Box::pin(async move {
                let done = sqlx::query!(
                    "insert into quotas (scope, pattern, calls, window_seconds) values ($1, $2, $3, $4)
                    on conflict (scope, pattern) do update set
                    calls = excluded.calls, window_seconds = excluded.window_seconds, updated_at = now()",
                    scope,
                    pattern,
                    calls,
                    window,
                )
                .execute(connection)
                .await?;
                Ok(done.rows_affected())
            })
        })
        .await
    }

    /// Removes a quota.
    ///
    /// # Errors
    /// Returns [`RegistryError::NotFound`] when there is none.
    pub async fn unset_quota(
        &self,
        scope: &QuotaScope,
        pattern: &ToolPattern,
    ) -> Result<(), RegistryError> {
        let (scope, pattern) = (scope.to_string(), pattern.to_string());
        let detail = serde_json::json!({});
        self.change_quota("quota.unset", scope, pattern, detail, |connection, scope, pattern| {
            Box::pin(async move {
                let done = sqlx::query!(
                    "delete from quotas where scope = $1 and pattern = $2",
                    scope,
                    pattern
                )
                .execute(connection)
                .await?;
                Ok(done.rows_affected())
            })
        })
        .await
    }

    async fn change_quota<F>(
        &self,
        action: &'static str,
        scope: String,
        pattern: String,
        detail: serde_json::Value,
        change: F,
    ) -> Result<(), RegistryError>
    where
        F: for<'c> FnOnce(
                &'c mut PgConnection,
                String,
                String,
            ) -> crate::database::transaction::Work<'c, u64>
            + Send
            + 'static,
    {
        // Quotas are the operator's, like routing rules, so their changes are recorded in the public scope's log.
        let actor = Tenant::of(Scope::public());
        in_tenant(self.pool.clone(), &actor.clone(), move |connection| {
            Box::pin(async move {
                // An event of the audit log refers to its project, and a database without a catalog
                // has no public scope yet.
                ensure_scope(connection, &Scope::public()).await?;
                let target = format!("{scope} {pattern}");
                let event = AuditEvent::new(action, target.clone(), AuditOutcome::Allowed)
                    .with_detail(detail);
                // If there is nothing to change, the error below rolls this event back as well.
                audit::record(connection, &actor, event).await?;
                if change(connection, scope, pattern).await? == 0 {
                    return Err(RegistryError::NotFound(target));
                }
                Ok(())
            })
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_counts_what_it_names() {
        let quota = |scope: &str, pattern: &str| Quota {
            scope: scope.parse().unwrap(),
            pattern: pattern.parse().unwrap(),
            calls: 60,
            window: Window::Minute,
        };
        let (web, shop, other) = ("acme.web", "acme.shop", "other.web");
        let counts = |quota: &Quota, scope: &str, tool: &str| {
            quota.counts(&scope.parse().unwrap(), &tool.parse().unwrap())
        };
        for (scope, covered) in [
            ("*", [true, true, true]),
            ("acme", [true, true, false]),
            ("acme.web", [true, false, false]),
        ] {
            let quota = quota(scope, "tavily:*");
            assert_eq!([web, shop, other].map(|s| counts(&quota, s, "tavily:search")), covered);
            assert!(!counts(&quota, web, "exa:search"));
            assert_eq!(quota.scope.to_string(), scope);
        }
        assert_eq!(quota("*", "*").rate(), Some(Rate { per_second: 1.0, capacity: 60.0 }));
        assert_eq!(Quota { calls: 0, ..quota("*", "*") }.rate(), None);
        for wrong in ["", "a b", "a.b.c", "**", "acme.", ".web"] {
            wrong.parse::<QuotaScope>().expect_err(wrong);
        }
    }
}
