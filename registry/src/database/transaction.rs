//! The transactions that set their tenant in the database.

use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::{AssertSqlSafe, PgConnection, PgPool, Postgres};

use crate::database::pool::ServedPool;
use crate::identity::tenant::Tenant;
use crate::stats::Acquisitions;
use crate::{Registry, RegistryError};

/// The time limit of the database's first answer: a caller gets an error within two seconds if it does not answer.
const FIRST_ANSWER_LIMIT: Duration = Duration::from_millis(1_900);
/// The time limit of a request's whole transaction on a responsive database. The
/// [probe](crate::database::liveness) detects an unresponsive one, and the database itself ends long statements.
const TRANSACTION_LIMIT: Duration = Duration::from_secs(10);

/// Makes the rest of a transaction act for an organisation: for one of its projects, or for the whole if the project
/// is empty.
pub(crate) async fn act_for(
    connection: &mut PgConnection,
    org: &str,
    project: &str,
) -> Result<(), RegistryError> {
    // Local to the transaction (`true`), like the settings that `Tenant::begin` makes.
    sqlx::query!(
        "select set_config('app.org', $1, true) as org, set_config('app.project', $2, true) as project",
        org,
        project,
    )
    .fetch_one(connection)
    .await?;
    Ok(())
}

/// Acquires the advisory lock of this name, and holds it until the transaction ends.
pub(crate) async fn lock(connection: &mut PgConnection, name: &str) -> Result<(), RegistryError> {
    // Two names with the same 64-bit hash would only wait for each other unnecessarily.
    sqlx::query!("select pg_advisory_xact_lock(hashtextextended($1, 0))", name)
        .execute(connection)
        .await?;
    Ok(())
}

/// A transaction, borrowed from its connection.
pub(crate) type Work<'c, T> = Pin<Box<dyn Future<Output = Result<T, RegistryError>> + Send + 'c>>;

impl Registry {
    /// Runs `work` in a transaction of the tenant and commits it.
    ///
    /// The transaction runs in a separate task, which finishes even if the caller disconnects. Dropping a half-begun
    /// transaction could hand its connection, with this tenant's settings, to the next caller.
    ///
    /// # Errors
    /// Returns [`RegistryError::Unavailable`] as soon as the database is considered unavailable.
    pub(crate) async fn in_tenant<T, F>(&self, tenant: &Tenant, work: F) -> Result<T, RegistryError>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut PgConnection) -> Work<'c, T> + Send + 'static,
    {
        self.pool.in_tenant(tenant, work).await
    }
}

impl ServedPool {
    /// Implements [`Registry::in_tenant`].
    pub(crate) async fn in_tenant<T, F>(&self, tenant: &Tenant, work: F) -> Result<T, RegistryError>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut PgConnection) -> Work<'c, T> + Send + 'static,
    {
        let source = (self.pool.clone(), Arc::clone(&self.acquisitions));
        self.with_limit(Box::pin(transaction(source, tenant, work))).await
    }

    /// Runs one statement that belongs to no tenant. It may be executed twice, if the connection is lost before its
    /// answer arrives.
    pub(crate) async fn outside<T, F>(&self, statement: F) -> Result<T, RegistryError>
    where
        T: Send + 'static,
        F: for<'c> Fn(&'c mut PgConnection) -> Statement<'c, T> + Send + Sync + 'static,
    {
        let source = (self.pool.clone(), Arc::clone(&self.acquisitions));
        let statement = async move {
            let (held, out) = first_answer(&source, statement).await?;
            held.release();
            Ok(out)
        };
        self.with_limit(Box::pin(statement)).await
    }

    /// Cancels work when the database becomes unresponsive, and does not start it while it is.
    ///
    /// The work is boxed, because it is large and would be part of the future of every caller up the stack.
    async fn with_limit<T: Send + 'static>(
        &self,
        work: Pin<Box<dyn Future<Output = Result<T, RegistryError>> + Send>>,
    ) -> Result<T, RegistryError> {
        if self.liveness.is_silent() {
            return Err(unavailable());
        }
        let liveness = self.liveness.clone();
        in_task(async move {
            // If one of the limits wins, `work` is dropped, and `Held` closes its connection.
            tokio::select! {
                biased;
                // First: a completed transaction counts, whatever has happened to the database since.
                done = work => done,
                () = liveness.lost() => Err(unavailable()),
                () = tokio::time::sleep(TRANSACTION_LIMIT) => Err(unavailable()),
            }
        })
        .await
    }
}

/// Like [`Registry::in_tenant`], for the operator: without a time limit, because its work may take long.
pub(crate) async fn in_tenant<T, F>(
    pool: PgPool,
    tenant: &Tenant,
    work: F,
) -> Result<T, RegistryError>
where
    T: Send + 'static,
    F: for<'c> FnOnce(&'c mut PgConnection) -> Work<'c, T> + Send + 'static,
{
    in_task(transaction((pool, Arc::default()), tenant, work)).await
}

/// A pool, and the count of the waits for its connections.
type Source = (PgPool, Arc<Acquisitions>);

/// Builds the future of a tenant's transaction: begin, `work`, then commit or roll back.
fn transaction<T, F>(
    source: Source,
    tenant: &Tenant,
    work: F,
) -> impl Future<Output = Result<T, RegistryError>> + Send + use<T, F>
where
    T: Send + 'static,
    F: for<'c> FnOnce(&'c mut PgConnection) -> Work<'c, T> + Send + 'static,
{
    let begin = tenant.begin();
    async move {
        let (mut held, ()) =
            first_answer(&source, |connection| execute(connection, Arc::clone(&begin))).await?;
        match work(&mut held).await {
            Ok(out) => {
                // An error drops `held` and so closes the connection: whether the commit took
                // effect is unknown.
                execute(&mut held, "commit".into()).await?;
                held.release();
                Ok(out)
            }
            Err(error) => {
                // Only a successful rollback makes the connection reusable. Otherwise it may still
                // be in the transaction, with the settings of this tenant. A session that only reads
                // stays so when the server accepts writes again, so it is closed.
                if execute(&mut held, "rollback".into()).await.is_ok() && !is_read_only(&error) {
                    held.release();
                }
                Err(error)
            }
        }
    }
}

/// Runs work in a separate task, so that it completes even if its caller is dropped.
async fn in_task<T: Send + 'static>(
    work: impl Future<Output = Result<T, RegistryError>> + Send + 'static,
) -> Result<T, RegistryError> {
    match tokio::spawn(work).await {
        Ok(out) => out,
        // A panic is a bug of this program, and must not look like an unavailable database.
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // The runtime is shutting down.
        Err(_) => Err(RegistryError::Unavailable(sqlx::Error::WorkerCrashed)),
    }
}

/// A statement in progress, borrowed from its connection.
pub(crate) type Statement<'c, T> =
    Pin<Box<dyn Future<Output = Result<T, sqlx::Error>> + Send + 'c>>;

/// A pooled connection with an operation in progress. It returns to the pool when the operation has ended. If it is
/// dropped before, it is closed, so that the next caller cannot inherit its transaction or tenant.
struct Held(Option<PoolConnection<Postgres>>);

impl Held {
    fn release(mut self) {
        drop(self.0.take());
    }
}

impl Deref for Held {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        self.0.as_ref().expect("it is taken out only by what consumes it")
    }
}

impl DerefMut for Held {
    fn deref_mut(&mut self) -> &mut PgConnection {
        self.0.as_mut().expect("it is taken out only by what consumes it")
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(mut connection) = self.0.take() {
            connection.close_on_drop();
        }
    }
}

/// Takes a connection and runs the first statement on it. If the connection died while it was idle, the next one is
/// tried: all pooled connections die when the database restarts.
///
/// A connection is not tested before its use, so the first message on it is the test. A retry may repeat a statement
/// whose answer was lost with its connection: to begin a transaction has no lasting effect, and a statement
/// [outside](ServedPool::outside) of one must allow it. If the database does not answer this message in time, it is
/// unavailable, even if the network has not reported it.
async fn first_answer<T>(
    (pool, acquisitions): &Source,
    first: impl for<'c> Fn(&'c mut PgConnection) -> Statement<'c, T>,
) -> Result<(Held, T), RegistryError> {
    let answer = async {
        // Every open connection may be dead, so one try more than there are: the last one gets a
        // new connection.
        let mut tries = pool.size();
        loop {
            let mut held = Held(Some(acquisitions.count(pool.acquire()).await?));
            match first(&mut held).await {
                Ok(out) => return Ok((held, out)),
                Err(error) if is_disconnect(&error) && tries > 0 => tries -= 1,
                // Dropping `held` closes the connection, also if the database itself refused the
                // statement: the first part of `Tenant::begin` may have begun a transaction.
                Err(error) => return Err(error.into()),
            }
        }
    };
    tokio::time::timeout(FIRST_ANSWER_LIMIT, answer).await.unwrap_or_else(|_| Err(unavailable()))
}

fn execute(connection: &mut PgConnection, statement: Arc<str>) -> Statement<'_, ()> {
    Box::pin(async move {
        // The simple query protocol, because `Tenant::begin` sends two statements at once, which a
        // prepared statement does not allow.
        sqlx::raw_sql(AssertSqlSafe(statement)).execute(connection).await?;
        Ok(())
    })
}

fn unavailable() -> RegistryError {
    RegistryError::Unavailable(sqlx::Error::PoolTimedOut)
}

fn is_read_only(error: &RegistryError) -> bool {
    let RegistryError::Unavailable(sqlx::Error::Database(refused)) = error else { return false };
    refused.code().as_deref() == Some("25006")
}

fn is_disconnect(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) => true,
        // The database's reason for ending a connection: shutdown, crash.
        sqlx::Error::Database(refused) => {
            matches!(refused.code().as_deref(), Some("57P01" | "57P02"))
        }
        _ => false,
    }
}
