//! Idempotent requests: one that is repeated with the same `Idempotency-Key` is executed once.

use sha2::{Digest as _, Sha256};

use crate::identity::caller::Caller;
use crate::identity::right::{Right, Rights};
use crate::identity::role::Role;
use crate::identity::tenant::Tenant;
use crate::{Registry, RegistryError};

/// A request and the key that it carries, as hashes.
///
/// Requests are not stored, because a body may contain a secret. The hash covers the body together with the key,
/// which is not stored either, so that a reader of the table cannot test guesses of bodies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdempotencyKey {
    key: [u8; 32],
    request: [u8; 32],
}

impl IdempotencyKey {
    /// Hashes the header's value and the request.
    pub fn new(key: &[u8], method: &str, path: &str, body: &[u8]) -> Self {
        let mut request = Sha256::new();
        for part in [key, method.as_bytes(), path.as_bytes(), body] {
            // Each part is preceded by its length, so that different requests have different encodings.
            request.update((part.len() as u64).to_be_bytes());
            request.update(part);
        }
        Self { key: Sha256::digest(key).into(), request: request.finalize().into() }
    }
}

/// The stored answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredAnswer {
    /// The HTTP status.
    pub status: u16,
    /// The body, which is JSON or empty.
    pub body: String,
}

/// The state of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// The caller must execute it, and then [settle](Registry::settle_request) it.
    New,
    /// It was executed, with this answer.
    Done(StoredAnswer),
    /// It is in progress.
    Running {
        /// Its age in seconds. A request older than the time limit was lost with its gateway.
        seconds: u64,
    },
    /// The key was used for a different request.
    Other,
    /// The first sender had rights that this caller lacks, so the answer is withheld.
    Denied {
        /// The right that the caller lacks; `None` if it is the role in the organisation.
        lacks: Option<Right>,
    },
}

impl Registry {
    /// Claims a request of the caller's principal, unless it was sent within the last 24 hours.
    ///
    /// The answer is returned only to callers with all rights of the first sender: it must not reach a caller who has
    /// lost a right since, or another key of the same principal that never had it.
    ///
    /// # Errors
    /// Returns [`RegistryError::Unavailable`] when the database does not answer.
    pub async fn claim_request(
        &self,
        caller: &Caller,
        key: IdempotencyKey,
    ) -> Result<Claim, RegistryError> {
        let tenant = caller.tenant();
        let scope = tenant.require_scope()?.clone();
        let principal = tenant.principal_name().to_owned();
        let (rights, org_role) = (caller.rights.clone(), caller.org_role);
        self.in_tenant(&tenant, move |connection| {
            Box::pin(async move {
                // This statement decides: of concurrent claims, one changes the row, and the others
                // wait for its commit. A row that is older than a day counts as free.
                let claimed = sqlx::query!(
                    "insert into idempotency_keys (org, project, principal, key_hash, request_hash, rights, org_role)
                    values ($1, $2, $3, $4, $5, $6, $7)
                    on conflict (org, project, principal, key_hash) do update set
                        request_hash = excluded.request_hash, claimed_at = excluded.claimed_at,
                        rights = excluded.rights, org_role = excluded.org_role,
                        status = null, answer = null
                    where idempotency_keys.claimed_at < now() - interval '24 hours'",
                    scope.org(),
                    scope.project(),
                    principal,
                    key.key.as_slice(),
                    key.request.as_slice(),
                    &rights.words(),
                    org_role.map(Role::as_str),
                )
                .execute(&mut *connection)
                .await?;
                if claimed.rows_affected() == 1 {
                    // Also deletes other expired rows, except those that are being claimed again concurrently.
                    sqlx::query!(
                        "delete from idempotency_keys where (org, project, principal, key_hash) in (
                            select org, project, principal, key_hash from idempotency_keys
                            where org = $1 and project = $2
                                and claimed_at < now() - interval '24 hours'
                            limit 100 for update skip locked)",
                        scope.org(),
                        scope.project(),
                    )
                    .execute(connection)
                    .await?;
                    return Ok(Claim::New);
                }
                // The row exists: the statement above has locked it, even though it did not change it.
                let row = sqlx::query!(
                    r#"select request_hash, status, answer, rights, org_role,
                        extract(epoch from clock_timestamp() - claimed_at)::bigint as "seconds!"
                    from idempotency_keys
                    where org = $1 and project = $2 and principal = $3 and key_hash = $4"#,
                    scope.org(),
                    scope.project(),
                    principal,
                    key.key.as_slice(),
                )
                .fetch_one(connection)
                .await?;
                // Checked first: even whether it was a different request is revealed only to callers with the first
                // sender's rights.
                let first = Rights::of_words(&row.rights)?;
                if let Some(lacks) = first.iter().find(|right| !rights.contains(*right)) {
                    return Ok(Claim::Denied { lacks: Some(lacks) });
                }
                // `None`, which is no role, is less than every role.
                if org_role < row.org_role.map(|role| role.parse()).transpose()? {
                    return Ok(Claim::Denied { lacks: None });
                }
                if row.request_hash != key.request {
                    return Ok(Claim::Other);
                }
                Ok(match (row.status, row.answer) {
                    (Some(status), Some(body)) => {
                        Claim::Done(StoredAnswer { status: status.unsigned_abs(), body })
                    }
                    _ => Claim::Running { seconds: row.seconds.unsigned_abs() },
                })
            })
        })
        .await
    }

    /// Settles a claimed request: stores its answer, or releases the claim if there is none.
    ///
    /// # Errors
    /// Returns [`RegistryError::Unavailable`] when the database does not answer: then the request stays claimed and
    /// is not executed again.
    pub async fn settle_request(
        &self,
        tenant: &Tenant,
        key: IdempotencyKey,
        answer: Option<StoredAnswer>,
    ) -> Result<(), RegistryError> {
        let scope = tenant.require_scope()?.clone();
        let principal = tenant.principal_name().to_owned();
        self.in_tenant(tenant, move |connection| {
            Box::pin(async move {
                // Only the open claim of this request is settled: after a day, a different request
                // may have claimed the key.
                let settled = match answer {
                    Some(answer) => {
                        let status = i16::try_from(answer.status).map_err(|_| {
                            RegistryError::Invalid("the status is not an HTTP status".to_owned())
                        })?;
                        sqlx::query!(
                            "update idempotency_keys set status = $6, answer = $7
                            where org = $1 and project = $2 and principal = $3 and key_hash = $4
                                and request_hash = $5 and status is null",
                            scope.org(),
                            scope.project(),
                            principal,
                            key.key.as_slice(),
                            key.request.as_slice(),
                            status,
                            answer.body,
                        )
                    }
                    None => sqlx::query!(
                        "delete from idempotency_keys
                        where org = $1 and project = $2 and principal = $3 and key_hash = $4
                            and request_hash = $5 and status is null",
                        scope.org(),
                        scope.project(),
                        principal,
                        key.key.as_slice(),
                        key.request.as_slice(),
                    ),
                };
                settled.execute(connection).await?;
                Ok(())
            })
        })
        .await
    }
}
