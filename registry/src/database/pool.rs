//! The connections that serve requests.

use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};

use crate::database::connect::{self, ACQUIRE_TIMEOUT};
use crate::database::liveness::{Liveness, Probe};
use crate::stats::{Acquisitions, DatabaseStats};
use crate::{MIGRATOR, RegistryError};

/// The pool of connections that serve requests, and the state of the database behind it.
#[derive(Clone)]
pub(crate) struct ServedPool {
    pub(crate) pool: PgPool,
    pub(crate) liveness: Liveness,
    /// Keeps the probe running as long as a clone of the pool exists.
    pub(crate) probe: Arc<Probe>,
    /// Counts the waits for a connection.
    pub(crate) acquisitions: Arc<Acquisitions>,
}

impl ServedPool {
    /// Connects, and refuses an unsafe role and an incomplete schema.
    pub(crate) async fn connect(
        options: &PgConnectOptions,
        connections: u32,
    ) -> Result<Self, RegistryError> {
        let probe = Arc::new(Probe::start(options.clone()));
        let liveness = probe.liveness();
        let settings = pool_options(connections, liveness.clone());
        let pool = match settings.connect_with(options.clone()).await {
            Ok(pool) => pool,
            Err(error) => return Err(connect::explain(options, error).await),
        };
        check_role(&pool).await?;
        let pool = Self { pool, liveness, probe, acquisitions: Arc::default() };
        check_schema(&pool).await?;
        Ok(pool)
    }

    /// Returns the figures of the connections.
    pub(crate) fn stats(&self) -> DatabaseStats {
        let (open, idle) = (u64::from(self.pool.size()), self.pool.num_idle() as u64);
        self.acquisitions.add_to(DatabaseStats {
            is_up: self.liveness.answers(),
            busy: open.saturating_sub(idle),
            idle,
            max: self.pool.options().get_max_connections(),
            ..DatabaseStats::default()
        })
    }
}

/// The session settings with which the database itself releases the resources of lost connections.
///
/// Statements and locks have a limit. A gateway that is stopped in the middle of a transaction loses the transaction
/// with its locks, and so does one whose machine is lost. A statement whose caller has closed the connection is
/// cancelled.
///
/// Our queries look up rows by key, so one plan suits all arguments; planning a look-up with the policies takes five
/// times as long as executing it.
///
/// A standby is refused like a server that is down, so that after a failover no connection remains that only reads.
const SETTINGS: &str = "do $$ begin if pg_is_in_recovery() then \
        raise exception 'this server is a standby' using errcode = 'read_only_sql_transaction'; \
    end if; end $$; \
    set statement_timeout = '5s'; \
    set lock_timeout = '1500ms'; \
    set idle_in_transaction_session_timeout = '5s'; \
    set tcp_user_timeout = '5s'; \
    set client_connection_check_interval = '1s'; \
    set plan_cache_mode = force_generic_plan";

/// Returns the options of the pools that serve requests.
pub(crate) fn pool_options(connections: u32, liveness: Liveness) -> PgPoolOptions {
    PgPoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        .idle_timeout(Duration::from_secs(300))
        .max_lifetime(Duration::from_secs(1_800))
        // A test would cost a round trip per acquire; a dead connection shows at its first use anyway.
        .test_before_acquire(false)
        .before_acquire(move |_, connection| {
            // A silently dead connection would cost its user the whole time limit of the first answer.
            let may_be_dead = liveness.may_be_dead(connection.age);
            Box::pin(async move { Ok(!may_be_dead) })
        })
        .after_connect(|connection, _| {
            // One simple query with all settings, so that a new connection costs one round trip
            // more.
            Box::pin(async move {
                sqlx::raw_sql(SETTINGS).execute(connection).await?;
                Ok(())
            })
        })
}

/// Refuses a role that row-level security does not bind.
async fn check_role(pool: &PgPool) -> Result<(), RegistryError> {
    // Ownership through membership in a role counts as well: whoever owns a table can disable its
    // policies.
    let role = sqlx::query!(
        r#"select r.rolname::text as "name!",
            (r.rolsuper or r.rolbypassrls) as "bypasses!",
            exists (
                select from pg_class c join pg_namespace n on n.oid = c.relnamespace
                where n.nspname = 'public' and c.relkind in ('r', 'p')
                    and pg_has_role(r.oid, c.relowner, 'usage')
            ) as "owns!"
        from pg_roles r where r.rolname = current_user"#
    )
    .fetch_one(pool)
    .await?;
    if role.bypasses || role.owns {
        return Err(RegistryError::UnsafeRole { role: role.name });
    }
    Ok(())
}

/// Refuses a schema that lacks a migration of this program, and a server that accepts no writes, as a standby does.
pub(crate) async fn check_schema(pool: &ServedPool) -> Result<(), RegistryError> {
    // Not a checked query: the migrator creates this table, not a migration. One statement, so that it takes one round
    // trip.
    let versions = "select version, current_setting('transaction_read_only') = 'on'
        from _sqlx_migrations where success";
    let rows: Vec<(i64, bool)> = pool
        .outside(move |connection| Box::pin(sqlx::query_as(versions).fetch_all(connection)))
        .await?;
    if rows.iter().any(|(_, is_read_only)| *is_read_only) {
        let what = "the database accepts no writes: it is a standby, or set to read-only";
        return Err(RegistryError::Unavailable(sqlx::Error::Protocol(what.to_owned())));
    }
    let done: Vec<i64> = rows.into_iter().map(|(version, _)| version).collect();
    // A newer schema is accepted: during an upgrade, gateways of the previous release still run on
    // it.
    let complete = MIGRATOR.iter().all(|migration| done.contains(&migration.version));
    if complete { Ok(()) } else { Err(RegistryError::NotMigrated) }
}
