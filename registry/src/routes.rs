//! The routing snapshot: in memory, refreshed on change notifications.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use protocol::{Integrity, Routing, RoutingRules, Scope, ToolPattern};
use sqlx::postgres::{PgConnectOptions, PgListener, PgPool};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::accounts::keys::KeyCache;
use crate::database::pool::{ServedPool, pool_options};
use crate::entries::content;
use crate::entries::entry_cache::EntryCache;
use crate::identity::tenant::Tenant;
use crate::limits::quotas::{self, Quota};
use crate::{Registry, RegistryError};

/// The channel of changed routes; the triggers of the migrations send on it.
const ROUTES: &str = "pml_routes";
/// The channel of changed keys.
const KEYS: &str = "pml_keys";
/// The channel of changed entries.
const ENTRIES: &str = "pml_entries";
/// The channel of changed stored secrets.
const SECRETS: &str = "pml_secrets";
/// The interval of full reads, in case a notification was lost.
const PERIOD: Duration = Duration::from_secs(60);
/// The delay before a lost listener is replaced.
const RETRY: Duration = Duration::from_millis(250);

/// The routing rules at one instant; a request keeps the snapshot that it started with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Routes {
    /// The operator's rules, and a rule for each public server whose row fixes its routing.
    pub rules: RoutingRules,
    /// The quotas on calls of tools.
    pub quotas: Vec<Quota>,
    /// Increases by one with each change that this process sees.
    pub version: u64,
    /// A hash of the rules, equal on all replicas: an `ETag` without the quotes.
    pub etag: String,
}

/// Counters that increase when something has changed or may have changed, for caches that depend on it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Changes {
    /// API keys.
    pub keys: u64,
    /// Stored secrets.
    pub secrets: u64,
}

impl Registry {
    /// Returns the subscription to changes on all gateways.
    pub fn changes(&self) -> watch::Receiver<Changes> {
        self.changes.subscribe()
    }

    /// Returns the current routes, without querying the database.
    pub fn routes(&self) -> Arc<Routes> {
        self.routes.current.load_full()
    }

    /// Reads the routes again at once, without waiting for a change notification.
    ///
    /// # Errors
    /// Returns [`RegistryError::Unavailable`] when the database does not answer;
    /// the routes stay as they were.
    pub async fn reload_routes(&self) -> Result<Arc<Routes>, RegistryError> {
        self.routes.reload().await?;
        Ok(self.routes())
    }
}

/// The current routing snapshot, and how it is replaced.
pub(crate) struct RouteSource {
    pool: ServedPool,
    current: ArcSwap<Routes>,
    /// One reader at a time, so that an older result never replaces a newer one.
    reading: tokio::sync::Mutex<()>,
    version: AtomicU64,
}

impl RouteSource {
    pub(crate) async fn load(pool: ServedPool) -> Result<Self, RegistryError> {
        let (rules, quotas) = read(pool.clone()).await?;
        let routes = Routes { etag: etag(&rules), rules, quotas, version: 1 };
        Ok(Self {
            pool,
            current: ArcSwap::from_pointee(routes),
            reading: tokio::sync::Mutex::new(()),
            version: AtomicU64::new(1),
        })
    }

    async fn reload(&self) -> Result<(), RegistryError> {
        let _one = self.reading.lock().await;
        let (rules, quotas) = read(self.pool.clone()).await?;
        let current = self.current.load();
        // Every write to servers and tools notifies this channel. Most of them change no rule, and
        // then the version and the `ETag` stay.
        if current.rules == rules && current.quotas == quotas {
            return Ok(());
        }
        // `Relaxed` suffices, because the lock above admits one writer at a time.
        let version = self.version.fetch_add(1, Ordering::Relaxed) + 1;
        let routes = Routes { etag: etag(&rules), rules, quotas, version };
        tracing::info!(routes.version = version, routes.etag = %routes.etag, "Routes changed");
        self.current.store(Arc::new(routes));
        Ok(())
    }

    async fn reload_or_warn(&self) {
        // An outage or a malformed rule must not leave the gateway without rules.
        if let Err(error) = self.reload().await {
            tracing::warn!(error = %error, "Could not read the routes; keeping the previous ones");
        }
    }
}

async fn read(pool: ServedPool) -> Result<(RoutingRules, Vec<Quota>), RegistryError> {
    let (rules, rows, quotas) = pool
        .in_tenant(&Tenant::anonymous(), |connection| {
            Box::pin(async move {
                let rules = sqlx::query!("select pattern, routing from routing_rules")
                    .fetch_all(&mut *connection)
                    .await?;
                // Only rows of the catalog: patterns have no scope, so the row of a tenant's server
                // would route the tools of that namespace for every tenant.
                let public = Scope::public();
                let rows = sqlx::query!(
                    r#"select namespace, routing as "routing!" from mcp_servers
                where org = $1 and project = $2 and routing is not null"#,
                    public.org(),
                    public.project(),
                )
                .fetch_all(&mut *connection)
                .await?;
                Ok((rules, rows, quotas::read(connection).await?))
            })
        })
        .await?;
    let fixed: Vec<(String, Routing)> =
        rows.into_iter().map(|row| (row.namespace, content::routing(&row.routing))).collect();
    let mut all = Vec::with_capacity(rules.len() + fixed.len());
    for rule in rules {
        // A malformed rule fails the whole read. Without that rule, the tools that it names could
        // be routed to the other side.
        let pattern: ToolPattern = rule.pattern.parse()?;
        // A row that fixes its routing overrides every rule, even a rule for one of its tools.
        let overruled = match &pattern {
            ToolPattern::Tool(id) => fixed.iter().any(|(name, _)| name == id.namespace()),
            _ => false,
        };
        if !overruled {
            all.push((pattern, content::routing(&rule.routing)));
        }
    }
    all.extend(fixed.into_iter().map(|(name, routing)| (ToolPattern::Namespace(name), routing)));
    Ok((all.into_iter().collect(), quotas))
}

fn etag(rules: &RoutingRules) -> String {
    let rules: Vec<(ToolPattern, Routing)> = rules.clone().into();
    let text: String = rules
        .iter()
        .map(|(pattern, routing)| format!("{pattern} {}\n", routing.as_str()))
        .collect();
    Integrity::of(text.as_bytes()).to_string()
}

/// The two tasks that keep routes, keys and entries fresh.
pub(crate) struct Follower {
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Follower {
    /// Stops the tasks and waits until their connection is closed.
    pub(crate) async fn end(&self) {
        self.stop.cancel();
        self.tasks.wait().await;
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        // The tasks hold the pool and the caches, so without this signal they would outlive the
        // registry.
        self.stop.cancel();
    }
}

/// The in-memory copies of database content, and their invalidation.
#[derive(Clone)]
pub(crate) struct Followed {
    pub(crate) routes: Arc<RouteSource>,
    pub(crate) keys: Arc<KeyCache>,
    pub(crate) entries: Arc<EntryCache>,
    pub(crate) changes: watch::Sender<Changes>,
}

/// Starts the two tasks that follow changes in the database.
pub(crate) fn follow(options: PgConnectOptions, followed: Followed) -> Follower {
    let stop = CancellationToken::new();
    let tasks = TaskTracker::new();
    let periodic = Arc::clone(&followed.routes);
    let stop_periodic = stop.clone();
    tasks.spawn(async move {
        let mut ticks = tokio::time::interval(PERIOD);
        // The first tick completes at once, and the routes were just loaded.
        ticks.tick().await;
        while stop_periodic.run_until_cancelled(ticks.tick()).await.is_some() {
            periodic.reload_or_warn().await;
        }
    });
    let stop_listening = stop.clone();
    let liveness = followed.routes.pool.liveness.clone();
    tasks.spawn(async move {
        // A separate pool, because the listener holds its connection forever.
        let fresh = || pool_options(1, liveness.clone()).connect_lazy_with(options.clone());
        let mut pool = fresh();
        stop_listening
            .run_until_cancelled(async {
                loop {
                    let ended = tokio::select! {
                        ended = listen(&pool, &followed) => ended,
                        () = liveness.suspected() => {
                            // A silently dead connection reports no changes either. It is returned to its pool only
                            // after a successful round trip.
                            pool = fresh();
                            Ok(())
                        }
                    };
                    // Without notifications, nothing may be cached.
                    followed.entries.set_listening(false);
                    followed.invalidate(|_| true);
                    if let Err(error) = ended {
                        tracing::warn!(error = %error, "Lost the connection for change notifications");
                    }
                    tokio::time::sleep(RETRY).await;
                }
            })
            .await;
        // Nothing is notified from here on. Clones of the registry may remain, and must not answer
        // from the cache.
        followed.entries.set_listening(false);
        pool.close().await;
    });
    // `TaskTracker::wait` completes only after the tracker is closed.
    tasks.close();
    Follower { stop, tasks }
}

impl Followed {
    /// Clears the caches that depend on the channels for which `changed` returns true.
    fn invalidate(&self, changed: impl Fn(&str) -> bool) {
        // An entry contains the routing.
        if changed(ENTRIES) || changed(ROUTES) {
            self.entries.clear();
        }
        if changed(KEYS) {
            self.keys.clear();
        }
        if changed(KEYS) || changed(SECRETS) {
            self.changes.send_modify(|changes| {
                changes.keys += u64::from(changed(KEYS));
                changes.secrets += u64::from(changed(SECRETS));
            });
        }
    }
}

/// Listens until the connection is lost.
async fn listen(pool: &PgPool, followed: &Followed) -> Result<(), RegistryError> {
    let mut listener = PgListener::connect_with(pool).await?;
    // A lost connection is reported at once, not only when it is re-established.
    listener.eager_reconnect(false);
    listener.listen_all([ROUTES, KEYS, ENTRIES, SECRETS]).await?;
    // Changes between the last read and the `listen` were not notified.
    followed.invalidate(|_| true);
    followed.entries.set_listening(true);
    followed.routes.reload_or_warn().await;
    // `None` means that the connection was lost, and notifications with it, so all caches are cleared.
    while let Some(first) = listener.try_recv().await? {
        let mut notifications = vec![first];
        // One reload serves all notifications that have already arrived.
        while let Some(next) = listener.next_buffered() {
            notifications.push(next);
        }
        let changed = |channel: &str| notifications.iter().any(|one| one.channel() == channel);
        followed.invalidate(changed);
        if changed(ROUTES) {
            followed.routes.reload_or_warn().await;
        }
    }
    Ok(())
}
