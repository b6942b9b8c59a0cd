//! The registry of PML on Postgres.
//!
//! [`Registry`] is the gateway's handle: it connects as the role `pml_app`, looks up a program's tools, entries and
//! keys for one [`Tenant`] at a time, records executions and audit events, and keeps the routing rules in memory.
//! [`Operator`] connects as `pml_owner` for what tenants may not do: migrate, seed the catalog, create scopes, edit
//! routing rules.
//!
//! Nothing crosses a tenant: the tenant is the first argument of every method and of every query, and row-level
//! security protects queries that forget it. The crate never uses HTTP and never parses programs, and no other crate
//! has SQL.
//!
//! ```no_run
//! # async fn example() -> Result<(), registry::RegistryError> {
//! use registry::{Operator, Registry, Tenant, shipped_catalog};
//!
//! let mut operator = Operator::connect("postgres://pml_owner@localhost/pml").await?;
//! operator.migrate().await?;
//! operator.seed(&shipped_catalog()).await?;
//! operator.create_scope(&"local.default".parse()?).await?;
//!
//! let registry = Registry::connect("postgres://pml_app@localhost/pml").await?;
//! let tenant = Tenant::of("local.default".parse()?);
//! let resolved = registry.resolve(&tenant, &["json:parse".parse()?]).await?;
//! for missing in &resolved.missing {
//!     println!("{} is unknown; near: {:?}", missing.id, missing.suggestions);
//! }
//! # Ok(())
//! # }
//! ```

mod audit;
mod catalog;
mod classes;
mod connect;
mod content;
mod discover;
mod entry;
mod error;
mod executions;
mod idempotency;
mod keys;
mod links;
mod liveness;
mod members;
mod official;
mod operator;
mod principal;
mod projects;
mod publish;
mod quarantine;
mod quotas;
mod rates;
mod remembered;
mod removal;
mod resolve;
mod roles;
mod routes;
mod rules;
mod secrets;
mod seed;
mod server;
mod servers;
mod shipped;
mod tenant;
mod version;

use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use sqlx::migrate::Migrator;
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use tokio::sync::watch;
use uuid::Uuid;

pub use audit::{AuditEvent, AuditOutcome, AuditPage, AuditRecord};
pub use catalog::{CatalogFilter, CatalogItem, CatalogPage, Total};
pub use classes::{Effects, ToolClass};
pub use discover::{DiscoverQuery, Discovered};
pub use entry::{Entry, EntryName};
pub use error::RegistryError;
pub use executions::{
    Decision, ExecutionEnd, ExecutionRecord, ExecutionStatus, FinishedExecution, NewExecution,
};
pub use idempotency::{Claim, IdempotencyKey, StoredAnswer};
pub use keys::{ApiKey, Caller, KeyPage, KeyRecord, NewKey, Right, Rights, Session};
pub use links::{LinkRecord, Slug};
pub use members::{MemberPage, Membership};
pub use official::{OfficialFilter, OfficialPage, OfficialReader};
pub use operator::Operator;
pub use principal::{Principal, PrincipalKind};
pub use projects::{OrgRecord, ProjectPage, ProjectRecord};
pub use publish::{NewCapability, Published, Remark};
pub use quarantine::{
    ApprovedServer, IngestReport, Judged, QuarantinedServer, ReadPage, ReadServer, read_page,
};
pub use quotas::{Quota, QuotaScope, Window};
pub use rates::{Rate, TokenGrant};
pub use remembered::ServedEntry;
pub use resolve::{Absence, MissingTool, Resolved, ResolvedCapability, ResolvedTool};
pub use roles::Role;
pub use routes::{Changes, Routes};
pub use rules::{Rule, RuleChange, RuleOrigin};
pub use secrets::{
    DerivedKey, KeyHost, MasterKey, MasterKeyError, MasterKeyStatus, MasterKeys, Rewrapped,
    SecretName, SecretOwner, SecretRecord, SecretStamp, SecretUse, SecretValue, UsedSecret,
};
pub use seed::{CatalogServer, CatalogTool, SeedReport};
pub use server::McpServer;
pub use servers::{NewServer, PublishedServer};
pub use shipped::shipped_catalog;
pub use tenant::Tenant;
pub use version::Version;

use discover::KnownTools;
use keys::KeyCache;
use liveness::{Liveness, Probe, ServedPool};
use remembered::EntryCache;
use routes::{Followed, Follower, RouteSource};

/// The migrations of `migrations/`, compiled in.
pub static MIGRATOR: Migrator = sqlx::migrate!("../migrations");

/// How long a request waits for a connection: a dead database must be reported within two seconds.
const ACQUIRE_TIMEOUT: Duration = Duration::from_millis(1_500);

/// Serves entries, routes, keys and records from Postgres.
///
/// Cloning is cheap; all clones share one pool.
#[derive(Clone)]
pub struct Registry {
    pool: ServedPool,
    routes: Arc<RouteSource>,
    keys: Arc<KeyCache>,
    entries: Arc<EntryCache>,
    known: Arc<KnownTools>,
    changes: watch::Sender<Changes>,
    follower: Arc<Follower>,
    master_keys: Arc<MasterKeys>,
}

impl Registry {
    /// Connects as the role that serves, loads the routes and starts to follow
    /// their changes.
    ///
    /// # Errors
    /// Returns [`RegistryError::Unavailable`] when the database does not answer,
    /// [`RegistryError::NotMigrated`] when its schema is not this program's, and
    /// [`RegistryError::UnsafeRole`] when row-level security would not bind the role.
    pub async fn connect(url: &str) -> Result<Self, RegistryError> {
        Self::connect_with(url, 16).await
    }

    /// Like [`Registry::connect`], with a pool of the given size.
    ///
    /// # Errors
    /// As [`Registry::connect`].
    pub async fn connect_with(url: &str, connections: u32) -> Result<Self, RegistryError> {
        let options = PgConnectOptions::from_str(url)
            .map_err(|error| RegistryError::Invalid(format!("the database URL: {error}")))?;
        let probe = Arc::new(Probe::start(options.clone()));
        let liveness = probe.liveness();
        let settings = pool_options(connections, liveness.clone());
        let pool = match settings.connect_with(options.clone()).await {
            Ok(pool) => pool,
            Err(error) => return Err(connect::explain(&options, error).await),
        };
        check_role(&pool).await?;
        let pool = ServedPool { pool, liveness, probe };
        check_schema(&pool).await?;
        let routes = Arc::new(RouteSource::load(pool.clone()).await?);
        let keys = Arc::new(KeyCache::default());
        let entries = Arc::new(EntryCache::default());
        let changes = watch::Sender::default();
        let followed = Followed {
            routes: Arc::clone(&routes),
            keys: Arc::clone(&keys),
            entries: Arc::clone(&entries),
            changes: changes.clone(),
        };
        let follower = Arc::new(routes::follow(options, followed));
        let (known, master_keys) = (Arc::default(), Arc::default());
        Ok(Self { pool, routes, keys, entries, known, changes, follower, master_keys })
    }

    /// Sets how long a cached key and a cached membership stay valid without a notification: by default one second.
    ///
    /// Changes are notified at once, so this matters only while the connection for notifications is lost. A test that
    /// sets hours proves that changes are received, not just expired.
    #[must_use]
    pub fn believing_keys_for(self, time: Duration) -> Self {
        self.keys.believe_for(time);
        self
    }

    /// Returns whether the database answers and has this program's schema.
    ///
    /// # Errors
    /// Returns the same errors as [`Registry::connect`].
    pub async fn check_ready(&self) -> Result<(), RegistryError> {
        check_schema(&self.pool).await
    }

    /// Returns what names this database among all others.
    ///
    /// # Errors
    /// Returns [`RegistryError::Unavailable`] when the database does not answer.
    pub async fn installation_id(&self) -> Result<Uuid, RegistryError> {
        self.pool
            .outside(|connection| {
                let id = sqlx::query_scalar!(r#"select installation_id() as "id!""#);
                Box::pin(id.fetch_one(connection))
            })
            .await
    }

    /// Closes all connections; later calls fail with [`RegistryError::Unavailable`].
    pub async fn close(&self) {
        self.follower.end().await;
        self.pool.probe.end().await;
        self.pool.pool.close().await;
    }
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry")
            .field("connections", &self.pool.pool.size())
            .finish_non_exhaustive()
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
const SETTINGS: &str = "set statement_timeout = '5s'; \
    set lock_timeout = '1500ms'; \
    set idle_in_transaction_session_timeout = '5s'; \
    set tcp_user_timeout = '5s'; \
    set client_connection_check_interval = '1s'; \
    set plan_cache_mode = force_generic_plan";

/// Returns how the pools that serve behave.
fn pool_options(connections: u32, liveness: Liveness) -> PgPoolOptions {
    PgPoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        .idle_timeout(Duration::from_secs(300))
        .max_lifetime(Duration::from_secs(1_800))
        // A round trip for each acquire; a dead connection shows at its first use anyway.
        .test_before_acquire(false)
        .before_acquire(move |_, connection| {
            // One that died without a word would cost its user the time that the first answer has.
            let may_be_dead = liveness.doubts(connection.age);
            Box::pin(async move { Ok(!may_be_dead) })
        })
        .after_connect(|connection, _| {
            Box::pin(async move {
                sqlx::raw_sql(SETTINGS).execute(connection).await?;
                Ok(())
            })
        })
}

/// Refuses a role that row-level security does not bind.
async fn check_role(pool: &PgPool) -> Result<(), RegistryError> {
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

/// Refuses a schema that lacks a migration of this program.
async fn check_schema(pool: &ServedPool) -> Result<(), RegistryError> {
    // Not a checked query: the migrator makes this table, the migrations do not.
    let versions = "select version from _sqlx_migrations where success";
    let done: Vec<i64> = pool
        .outside(move |connection| Box::pin(sqlx::query_scalar(versions).fetch_all(connection)))
        .await?;
    let complete = MIGRATOR.iter().all(|migration| done.contains(&migration.version));
    if complete { Ok(()) } else { Err(RegistryError::NotMigrated) }
}
