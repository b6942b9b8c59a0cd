//! On whose behalf a query runs, and the transaction that tells the database.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;

use protocol::Scope;
use sqlx::{AssertSqlSafe, PgConnection, PgPool};

use crate::{Registry, RegistryError};

/// Names who acts: a person, a service or a key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Principal(String);

impl Principal {
    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Principal {
    type Err = RegistryError;

    fn from_str(text: &str) -> Result<Self, RegistryError> {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b"._:@+-".contains(&b);
        if (1..=128).contains(&text.len()) && text.bytes().all(allowed) {
            Ok(Self(text.to_owned()))
        } else {
            Err(RegistryError::Invalid(
                "a principal is 1 to 128 ASCII letters, digits or `. _ : @ + -`".to_owned(),
            ))
        }
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// On whose behalf something is read or written: a scope and a principal in it,
/// or nobody, who sees public entries only.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Tenant {
    scope: Option<Scope>,
    principal: Option<Principal>,
}

impl Tenant {
    /// Returns nobody.
    pub fn anonymous() -> Self {
        Self::default()
    }

    /// Returns a scope without a principal; entries that are private to one stay hidden.
    pub fn of(scope: Scope) -> Self {
        Self { scope: Some(scope), principal: None }
    }

    /// Returns a principal in a scope.
    pub fn member(scope: Scope, principal: Principal) -> Self {
        Self { scope: Some(scope), principal: Some(principal) }
    }

    /// Returns the scope, unless this is nobody.
    pub fn scope(&self) -> Option<&Scope> {
        self.scope.as_ref()
    }

    /// Returns the principal.
    pub fn principal(&self) -> Option<&Principal> {
        self.principal.as_ref()
    }

    pub(crate) fn org(&self) -> &str {
        self.scope.as_ref().map_or("", Scope::org)
    }

    pub(crate) fn project(&self) -> &str {
        self.scope.as_ref().map_or("", Scope::project)
    }

    pub(crate) fn principal_name(&self) -> &str {
        self.principal.as_ref().map_or("", Principal::as_str)
    }

    /// Returns the statement that opens a transaction of this tenant, in one round trip.
    pub(crate) fn begin(&self) -> Arc<str> {
        // The grammars of scopes and principals have no quote and no backslash.
        format!(
            "begin; select set_config('app.org', '{}', true), \
             set_config('app.project', '{}', true), set_config('app.principal', '{}', true)",
            self.org(),
            self.project(),
            self.principal_name(),
        )
        .into()
    }

    /// Returns the scope of somebody who writes.
    pub(crate) fn require_scope(&self) -> Result<&Scope, RegistryError> {
        self.scope
            .as_ref()
            .ok_or_else(|| RegistryError::Invalid("this needs a scope, not nobody".to_owned()))
    }
}

/// What a transaction does, borrowed from its connection.
pub(crate) type Work<'c, T> = Pin<Box<dyn Future<Output = Result<T, RegistryError>> + Send + 'c>>;

impl Registry {
    /// Runs `work` in a transaction of the tenant and commits it.
    ///
    /// The transaction is a task of its own: a caller that goes away in the
    /// middle leaves it to finish. Dropping a half-begun transaction instead
    /// could hand its connection, with this tenant's settings, to the next caller.
    pub(crate) async fn in_tenant<T, F>(&self, tenant: &Tenant, work: F) -> Result<T, RegistryError>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut PgConnection) -> Work<'c, T> + Send + 'static,
    {
        in_tenant(self.pool.clone(), tenant, work).await
    }
}

pub(crate) async fn in_tenant<T, F>(
    pool: PgPool,
    tenant: &Tenant,
    work: F,
) -> Result<T, RegistryError>
where
    T: Send + 'static,
    F: for<'c> FnOnce(&'c mut PgConnection) -> Work<'c, T> + Send + 'static,
{
    let begin = tenant.begin();
    let task = tokio::spawn(async move {
        let begin = || pool.begin_with(AssertSqlSafe(Arc::clone(&begin)));
        let mut transaction = on_live(&pool, begin).await?;
        let out = work(&mut transaction).await?;
        transaction.commit().await?;
        Ok(out)
    });
    match task.await {
        Ok(out) => out,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // The runtime is shutting down.
        Err(_) => Err(RegistryError::Unavailable(sqlx::Error::WorkerCrashed)),
    }
}

/// Runs what begins some work, again for each pooled connection that turns out
/// to have died while it was idle, as all of them do when the database restarts.
///
/// A connection is not tested before its use, so the first message on it is the
/// test. Nothing has happened yet that a second try could repeat.
pub(crate) async fn on_live<T, F>(
    pool: &PgPool,
    mut first: impl FnMut() -> F,
) -> Result<T, sqlx::Error>
where
    F: Future<Output = Result<T, sqlx::Error>>,
{
    for _ in 0..pool.size() {
        match first().await {
            Err(error) if is_disconnect(&error) => {}
            done => return done,
        }
    }
    first().await
}

fn is_disconnect(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) => true,
        // The reason that an ended connection was given: shutdown, crash.
        sqlx::Error::Database(told) => {
            matches!(told.code().as_deref(), Some("57P01" | "57P02"))
        }
        _ => false,
    }
}
