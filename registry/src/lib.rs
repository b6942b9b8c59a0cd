//! The registry of PML on Postgres.
//!
//! [`Registry`] is the gateway's handle: it connects as the role `pml_app`, looks up a program's tools, entries and
//! keys for one [`Tenant`] at a time, records executions and audit events, and keeps the routing rules in memory.
//! [`Operator`] connects as `pml_owner` for what tenants may not do: migrate, seed the catalog, create scopes, edit
//! routing rules.
//!
//! Every folder adds its methods to these two types. [`Registry`] holds the caches of several folders, and they name it
//! to add to it; that is the only circle of imports, and it goes through the root alone.
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

mod accounts;
mod database;
mod entries;
mod error;
mod identity;
mod limits;
mod operator;
mod paging;
mod publishing;
mod records;
mod routes;
mod secrets;
mod stats;

use std::sync::Arc;
use std::time::Duration;

use sqlx::migrate::Migrator;
use tokio::sync::watch;
use uuid::Uuid;

pub use accounts::keys::manage::NewKey;
pub use accounts::keys::record::{KeyPage, KeyRecord};
pub use accounts::keys::secret::ApiKey;
pub use accounts::links::{LinkRecord, Slug};
pub use accounts::members::{MemberPage, Membership};
pub use accounts::projects::{OrgRecord, ProjectPage, ProjectRecord};
pub use database::inspection::{
    DatabaseState, DatabaseUrl, Inspection, MasterKeyFit, SchemaState, newest_migration,
};
pub use database::operator::Operator;
pub use database::replacement::ClusterOwner;
pub use entries::content::contains_nul;
pub use entries::discover::{DiscoverQuery, Discovered};
pub use entries::entry::Entry;
pub use entries::entry_cache::ServedEntry;
pub use entries::list::{CatalogFilter, CatalogItem, CatalogPage};
pub use entries::name::EntryName;
pub use entries::official::{OfficialFilter, OfficialPage, OfficialReader};
pub use entries::resolve::{Absence, MissingTool, Resolved, ResolvedCapability, ResolvedTool};
pub use entries::server::McpServer;
pub use entries::server_entry::{CatalogServer, CatalogTool};
pub use entries::version::Version;
pub use error::RegistryError;
pub use identity::caller::{Caller, Session};
pub use identity::principal::{Principal, PrincipalKind};
pub use identity::right::{Right, Rights};
pub use identity::role::Role;
pub use identity::tenant::Tenant;
pub use limits::quotas::{Quota, QuotaScope, Window};
pub use limits::rates::{Rate, TokenGrant};
pub use operator::classes::{Effects, ToolClass};
pub use operator::quarantine::{
    ApprovedServer, IngestReport, QuarantineSelector, QuarantinedServer, ReadPage, ReadServer,
    read_page,
};
pub use operator::rules::{Rule, RuleChange, RuleOrigin};
pub use operator::seed::SeedReport;
pub use operator::shipped::shipped_catalog;
pub use operator::stdio::StdioServer;
pub use paging::Total;
pub use publishing::capability::{NewCapability, Published};
pub use publishing::server::{NewServer, PublishedServer};
pub use publishing::version_update::VersionUpdate;
pub use records::audit::{AuditEvent, AuditOutcome, AuditPage, AuditRecord};
pub use records::executions::{
    Decision, ExecutionEnd, ExecutionFilter, ExecutionPage, ExecutionRecord, ExecutionStatus,
    FinishedExecution, NewExecution, Reader,
};
pub use records::expiry::Retention;
pub use records::idempotency::{Claim, IdempotencyKey, StoredAnswer};
pub use records::synced_tools::{NewSyncedServer, SyncedServer};
pub use records::traces::{
    NewTrace, NewTraceEvent, OwnTrace, StoredTrace, TraceOrigin, TraceRecord,
};
pub use routes::{Changes, Routes};
pub use secrets::{
    DerivedKey, KeyHost, MasterKey, MasterKeyError, MasterKeyStatus, MasterKeys, Rewrapped,
    SecretName, SecretOwner, SecretRecord, SecretStamp, SecretUse, SecretValue, UsedSecret,
};
pub use stats::{CacheStats, DatabaseStats, RegistryStats};

use accounts::keys::KeyCache;
use database::connect;
use database::pool::{ServedPool, check_schema};
use database::together::Together;
use entries::discover::known::KnownTools;
use entries::entry_cache::EntryCache;
use records::executions::{BEGUN_REST, Begun, ENDED_REST, Ended};
use routes::{Followed, Follower, RouteSource};

/// The migrations of `migrations/`, compiled in.
pub static MIGRATOR: Migrator = sqlx::migrate!("../migrations");

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
    begun: Arc<Together<Begun>>,
    ended: Arc<Together<Ended>>,
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
        let options = connect::options(url)?;
        let pool = ServedPool::connect(&options, connections).await?;
        // Loaded before the follower starts, so that no gateway serves without routes. The follower
        // reads them again once it listens, for changes in between.
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
        Ok(Self {
            pool,
            routes,
            keys,
            entries,
            known: Arc::default(),
            begun: Together::new(BEGUN_REST),
            ended: Together::new(ENDED_REST),
            changes,
            follower,
            master_keys: Arc::default(),
        })
    }

    /// Sets how long a cached key and a cached membership stay valid without a notification: by default one second.
    ///
    /// Changes are notified at once, so this matters only while the connection for notifications is lost. A test that
    /// sets hours proves that changes are received, not just expired.
    #[must_use]
    pub fn with_key_cache_ttl(self, time: Duration) -> Self {
        self.keys.set_ttl(time);
        self
    }

    /// Returns whether the database answers, accepts writes and has this program's schema.
    ///
    /// # Errors
    /// Returns the same errors as [`Registry::connect`].
    pub async fn check_ready(&self) -> Result<(), RegistryError> {
        check_schema(&self.pool).await
    }

    /// Returns the registry's figures. It does not query the database.
    pub fn stats(&self) -> RegistryStats {
        let caches = self.keys.stats().into_iter().chain(self.entries.stats());
        RegistryStats { database: self.pool.stats(), caches: caches.collect() }
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

    /// Writes what is to be written, and closes all connections; later calls fail with [`RegistryError::Unavailable`].
    pub async fn close(&self) {
        self.ended.catch_up_all().await;
        // The follower first: its tasks query through the pool, and would log the closed pool as a
        // failure.
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
