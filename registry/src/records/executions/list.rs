//! The list of executions, the newest first.

use chrono::{DateTime, Utc};
use protocol::{Scope, ToolId};
use serde::Serialize;
use sqlx::PgConnection;
use utoipa::ToSchema;
use uuid::Uuid;

use super::{ExecutionRecord, ExecutionRow, ExecutionStatus, Reader};
use crate::identity::tenant::Tenant;
use crate::paging::cut;
use crate::{Registry, RegistryError};

/// The most executions that one page looks at. A filter that few match costs no more than this, however many there are.
const LOOKED_AT: i64 = 2_000;

/// Which executions a list has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExecutionFilter {
    /// Only those in this state.
    pub status: Option<ExecutionStatus>,
    /// Only those that declared this tool.
    pub tool: Option<ToolId>,
    /// Only those of this principal.
    pub principal: Option<String>,
    /// Only those since this time.
    pub since: Option<DateTime<Utc>>,
    /// Only those before this time.
    pub until: Option<DateTime<Utc>>,
}

/// A page of executions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ExecutionPage {
    /// The executions, the newest first. There may be fewer than requested, or none, although more follow.
    pub items: Vec<ExecutionRecord>,
    /// The cursor of the next page; absent on the last.
    #[serde(rename = "nextCursor", skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

impl Registry {
    /// Lists executions of the tenant, the newest first; for [`Reader::Own`], only those of its principal.
    ///
    /// A page ends early when it has looked at many executions that the filter excludes. New executions do not change
    /// later pages.
    ///
    /// # Errors
    /// Returns [`RegistryError::Invalid`] for a cursor of another list.
    pub async fn executions(
        &self,
        tenant: &Tenant,
        reader: Reader,
        filter: ExecutionFilter,
        cursor: Option<&str>,
        limit: u32,
    ) -> Result<ExecutionPage, RegistryError> {
        let scope = tenant.require_scope()?.clone();
        self.ended.catch_up(&scope).await;
        let principal = match reader {
            Reader::Own => {
                let own = tenant.principal_name();
                if filter.principal.as_deref().is_some_and(|wanted| wanted != own) {
                    return Ok(ExecutionPage { items: Vec::new(), next_cursor: None });
                }
                Some(own.to_owned())
            }
            Reader::Project => filter.principal,
        };
        // The id of no execution, so `until` itself is not included.
        let until = (filter.until.unwrap_or_else(latest).min(latest()), Uuid::nil());
        let (before, before_id) = match cursor {
            // A cursor and another `until` than before: both hold.
            Some(cursor) => read_cursor(cursor)?.min(until),
            None => until,
        };
        let look = Look {
            scope,
            principal,
            before: (before, before_id),
            since: filter
                .since
                .unwrap_or(DateTime::UNIX_EPOCH)
                .clamp(DateTime::UNIX_EPOCH, latest()),
        };
        let status = filter.status.map(ExecutionStatus::as_str);
        let tool = filter.tool.map(|tool| tool.as_str().to_owned());
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        self.in_tenant(tenant, move |connection| {
            Box::pin(async move {
                // One more than requested: it shows whether another page follows.
                let most = i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1);
                let rows = look.rows(connection, status, tool.as_deref(), most).await?;
                let is_filtered = status.is_some() || tool.is_some();
                let mut items: Vec<_> = rows.into_iter().map(|row| row.into_record(None)).collect();
                let mut next_cursor =
                    cut(&mut items, limit, |last| write_cursor(last.started_at, last.id));
                if next_cursor.is_none() && is_filtered {
                    next_cursor = look.end(connection).await?;
                }
                Ok(ExecutionPage { items, next_cursor })
            })
        })
        .await
    }
}

/// The executions that one page looks at: at most [`LOOKED_AT`], from a place in the list on.
struct Look {
    scope: Scope,
    principal: Option<String>,
    before: (DateTime<Utc>, Uuid),
    since: DateTime<Utc>,
}

impl Look {
    /// Returns those of a state and with a tool.
    async fn rows(
        &self,
        connection: &mut PgConnection,
        status: Option<&str>,
        tool: Option<&str>,
        most: i64,
    ) -> Result<Vec<ExecutionRow>, RegistryError> {
        let (time, id) = self.before;
        let is_filtered = status.is_some() || tool.is_some();
        let looked_at = if is_filtered { LOOKED_AT } else { most };
        // The state of an abandoned execution follows from its deadline. The two statements differ in the index that
        // the inner one walks along, backwards. The outer one stops it as soon as it has enough.
        let rows = match &self.principal {
            Some(principal) => {
                let rows = sqlx::query_as!(
                    ExecutionRow,
                    r#"select id, principal, decision, code_hash, code_bytes, args_bytes, dynamic, tools, started_at,
                        finished_at, error_code, result_bytes, calls, duration_ms, state as "status!"
                    from (
                        select *, case when finished_at is null and deadline_at < clock_timestamp()
                            then 'indeterminate' else status end as state
                        from executions
                        where org = $1 and project = $2 and (started_at, id) < ($3, $4) and started_at >= $5
                            and principal = $10
                        order by started_at desc, id desc limit $6
                    ) looked_at
                    where ($7::text is null or state = $7) and ($8::text is null or $8 = any(tools))
                    order by started_at desc, id desc limit $9"#,
                    self.scope.org(),
                    self.scope.project(),
                    time,
                    id,
                    self.since,
                    looked_at,
                    status,
                    tool,
                    most,
                    principal,
                );
                rows.fetch_all(connection).await?
            }
            None => {
                let rows = sqlx::query_as!(
                    ExecutionRow,
                    r#"select id, principal, decision, code_hash, code_bytes, args_bytes, dynamic, tools, started_at,
                        finished_at, error_code, result_bytes, calls, duration_ms, state as "status!"
                    from (
                        select *, case when finished_at is null and deadline_at < clock_timestamp()
                            then 'indeterminate' else status end as state
                        from executions
                        where org = $1 and project = $2 and (started_at, id) < ($3, $4) and started_at >= $5
                        order by started_at desc, id desc limit $6
                    ) looked_at
                    where ($7::text is null or state = $7) and ($8::text is null or $8 = any(tools))
                    order by started_at desc, id desc limit $9"#,
                    self.scope.org(),
                    self.scope.project(),
                    time,
                    id,
                    self.since,
                    looked_at,
                    status,
                    tool,
                    most,
                );
                rows.fetch_all(connection).await?
            }
        };
        Ok(rows)
    }

    /// Returns the cursor of the last execution looked at, unless the list ends before.
    async fn end(&self, connection: &mut PgConnection) -> Result<Option<String>, RegistryError> {
        let (time, id) = self.before;
        let place = match &self.principal {
            Some(principal) => sqlx::query!(
                "select started_at, id from executions
                where org = $1 and project = $2 and (started_at, id) < ($3, $4) and started_at >= $5
                    and principal = $7
                order by started_at desc, id desc offset $6 limit 1",
                self.scope.org(),
                self.scope.project(),
                time,
                id,
                self.since,
                LOOKED_AT - 1,
                principal,
            )
            .fetch_optional(connection)
            .await?
            .map(|row| write_cursor(row.started_at, row.id)),
            None => sqlx::query!(
                "select started_at, id from executions
                where org = $1 and project = $2 and (started_at, id) < ($3, $4) and started_at >= $5
                order by started_at desc, id desc offset $6 limit 1",
                self.scope.org(),
                self.scope.project(),
                time,
                id,
                self.since,
                LOOKED_AT - 1,
            )
            .fetch_optional(connection)
            .await?
            .map(|row| write_cursor(row.started_at, row.id)),
        };
        Ok(place)
    }
}

/// Encodes a cursor opaquely, so that clients do not depend on its form.
fn write_cursor(started_at: DateTime<Utc>, id: Uuid) -> String {
    // Postgres stores microseconds, so nothing of the time is lost.
    format!("{:016x}{}", started_at.timestamp_micros(), id.simple())
}

/// Parses the output of [`write_cursor`].
fn read_cursor(cursor: &str) -> Result<(DateTime<Utc>, Uuid), RegistryError> {
    let invalid = || RegistryError::Invalid("the cursor does not belong to this list".to_owned());
    // Checked before the parsing, which would also accept a sign.
    let is_hex = cursor.len() == 48 && cursor.bytes().all(|byte| byte.is_ascii_hexdigit());
    let (time, id) = cursor.split_at_checked(16).filter(|_| is_hex).ok_or_else(invalid)?;
    let micros = i64::from_str_radix(time, 16).map_err(|_| invalid())?;
    let time = DateTime::from_timestamp_micros(micros).ok_or_else(invalid)?;
    // No execution is that old or new, and Postgres cannot store all of these times.
    let is_possible = (DateTime::UNIX_EPOCH..=latest()).contains(&time);
    Ok((
        Some(time).filter(|_| is_possible).ok_or_else(invalid)?,
        id.parse().map_err(|_| invalid())?,
    ))
}

/// Returns a time after every execution.
fn latest() -> DateTime<Utc> {
    // Within what Postgres can store, which is less than `DateTime::MAX_UTC`.
    DateTime::from_timestamp(253_402_300_799, 0).unwrap_or(DateTime::UNIX_EPOCH)
}
