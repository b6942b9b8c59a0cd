//! `pml-server serve`: database → gateway → listener → requests → stop.

pub(super) mod gateway;
mod screen;
pub(super) mod spans;

use std::fs;
use std::io::{IsTerminal as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use protocol::Scope;
use registry::{NewKey, Registry, RegistryError, Right, Role, Tenant};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use zeroize::Zeroizing;

use self::screen::StartScreen;
use crate::config::{Serve, Settings};
use crate::connections;
use crate::connections::tls::{self, Tls};
use crate::database::{Database, master_key};
use crate::identity::metrics_token::MetricsToken;
use crate::metrics::Snapshot;
use crate::state::{SharedGateway, Stopping};
use crate::traces::maintenance;

/// The tenant that a gateway with a new private Postgres creates.
const FIRST_SCOPE: &str = "local.default";

/// The file of a private gateway's first key.
pub(super) const KEY_FILE: &str = "local.key";

/// The time limit for each of the last steps: storing traces, sending spans, closing the database connections.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);

/// How long requests in progress may continue after the gateway has stopped accepting them.
const GRACE: Duration = Duration::from_secs(20);

/// How long requests that are cancelled then may take to say so to their clients and to the database.
const CANCEL_LIMIT: Duration = Duration::from_secs(2);

/// The interval of checks whether a cancelled program has ended.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// The maximum number of connections to the listener for metrics.
const METRICS_CONNECTIONS: usize = 32;

/// Runs the gateway until it is signalled to stop.
pub(super) fn serve(settings: &Settings, serve: &Serve, runtime: &Runtime) -> anyhow::Result<()> {
    Snapshot::note_start();
    let open_files = connections::raise_descriptors();
    // The port is bound first, so that a second gateway fails before it touches the database.
    let listener = runtime.block_on(TcpListener::bind(serve.listen)).with_context(|| {
        format!("could not listen on {}; set PML_LISTEN to a free address", serve.listen)
    })?;
    let metrics_listener = serve.metrics.metrics_listen.map(|address| {
        runtime.block_on(TcpListener::bind(address)).with_context(|| {
            format!("could not listen on {address}; set PML_METRICS_LISTEN to a free address")
        })
    });
    let metrics_listener = metrics_listener.transpose()?;
    // An invalid setting must be reported before a private Postgres is started.
    let tokens = gateway::tokens(&serve.oauth)?;
    let metrics_token = MetricsToken::read(serve.metrics.metrics_token_file.as_deref())?;
    let span_settings = spans::settings()?;
    let tls = tls_of(serve)?;
    let database = Database::open(settings)?;
    let served = runtime.block_on(async {
        if let Some(settings) = span_settings {
            spans::start(settings)?;
        }
        let (registry, first_key) = prepare(&database, settings).await?;
        // Shares the connections, which are closed below: `start` takes the registry.
        let database_connections = registry.clone();
        let gateway =
            gateway::start(registry, (settings, serve), tokens, metrics_token, tls.clone()).await?;
        let _maintenance =
            maintenance::start(database_connections.clone(), serve.records.retention());
        let recording = gateway.clone();
        let stopping = gateway.stopping.clone();
        // Before the address is printed: whoever reads it may stop the gateway at once.
        let reload = Arc::new(Notify::new());
        let drain = Duration::from_secs(serve.connections.drain_seconds.into());
        handle_signals(stopping.clone(), drain, tls.as_ref().map(|_| Arc::clone(&reload)))?;
        let _following = tls.clone().map(|tls| {
            AbortOnDropHandle::new(tokio::spawn(async move { tls.follow(&reload).await }))
        });
        let address = listener.local_addr()?;
        let (all, per_address) =
            (serve.connections.connections, serve.connections.connections_per_address);
        let limits = connections::Limits::new(open_files, all, per_address);
        let scraped = metrics_listener.as_ref().map(TcpListener::local_addr).transpose()?;
        let screen = StartScreen { address, metrics: scraped, tls: tls.as_deref(), serve, settings };
        super::print(&screen.text(&database, first_key.as_ref()))?;
        tracing::info!(%address, version = env!("CARGO_PKG_VERSION"), "Gateway is up");
        // Until the end, so that the figures also show how the gateway stops.
        let _scraping = metrics_listener.map(|it| serve_metrics(it, gateway.clone(), open_files));
        let mut serving =
            std::pin::pin!(answer(gateway, serve, listener, limits));
        let ended = tokio::select! {
            () = &mut serving => Ok(()),
            () = database.ended() => {
                // Postgres is not restarted here: the supervisor restarts the gateway, and that start recovers the
                // database.
                tracing::error!("The private Postgres has exited; stopping");
                stopping.announced.cancel();
                stopping.closing.cancel();
                serving.await;
                Err(anyhow::anyhow!("the private Postgres has exited; restart the gateway to recover it"))
            }
        };
        let _ = tokio::time::timeout(CLOSE_LIMIT, recording.stdio.stop()).await;
        // What has run has a trace, unless the database does not answer.
        let _ = tokio::time::timeout(CLOSE_LIMIT, recording.traces.flush()).await;
        execution::spans::flush(CLOSE_LIMIT).await;
        // Closed before the database stops, so that no connection breaks and logs an error.
        let _ = tokio::time::timeout(CLOSE_LIMIT, database_connections.close()).await;
        ended
    });
    // Stops a private Postgres, so it must come before the last log line.
    drop(database);
    tracing::info!("Gateway is down");
    served
}

/// Serves the gateway's figures on a listener of their own, until the returned handle is dropped.
fn serve_metrics(
    listener: TcpListener,
    gateway: SharedGateway,
    open_files: u64,
) -> AbortOnDropHandle<()> {
    let router = crate::http::metrics::router(gateway);
    let limits = connections::Limits::new(open_files, Some(METRICS_CONNECTIONS), None);
    let never = CancellationToken::new();
    AbortOnDropHandle::new(tokio::spawn(async move {
        connections::serve(listener, router, limits, |_| false, None, never).await;
    }))
}

/// Serves until the gateway is closing, then waits for requests in progress. Those that take too long are cancelled.
async fn answer(
    gateway: SharedGateway,
    serve: &Serve,
    listener: TcpListener,
    connections: connections::Limits,
) {
    let Stopping { closing, abandoned, .. } = gateway.stopping.clone();
    let tls = gateway.tls.clone();
    let router = crate::http::router(gateway.clone(), serve);
    let proxies = serve.rates.trusted_proxies.clone();
    let is_proxy = move |peer| proxies.iter().any(|proxy| proxy.contains(&peer));
    let served = connections::serve(listener, router, connections, is_proxy, tls, closing.clone());
    let mut served = std::pin::pin!(served);
    let deadline = async {
        closing.cancelled().await;
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        () = &mut served => {}
        () = deadline => {
            abandoned.cancel();
            tracing::warn!("Requests were still running after {} s; cancelling them", GRACE.as_secs());
            // Otherwise, their clients would get no answer.
            let _ = tokio::time::timeout(CANCEL_LIMIT, served).await;
        }
    }
    // A program outlives its connection until its end is recorded.
    let ended = async {
        while gateway.queue.stats().admitted() > 0 {
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
    };
    let _ = tokio::time::timeout(CANCEL_LIMIT, ended).await;
}

/// The key that a first start created, and its file.
struct FirstKey {
    path: PathBuf,
    /// Set only at the start that created the key.
    shown: Option<String>,
}

/// Connects to the database. A private one is first migrated and seeded, and gets the first tenant and its key.
async fn prepare(
    database: &Database,
    settings: &Settings,
) -> anyhow::Result<(Registry, Option<FirstKey>)> {
    if !database.is_embedded() {
        // `pml-server migrate` migrates such a database: the serving role owns no table.
        let registry = database.connect(settings.database_connections).await?;
        return Ok((master_key::prepare(registry, database, settings).await?, None));
    }
    let scope: Scope = FIRST_SCOPE.parse().context("the first scope has a valid name")?;
    let operator = database.operator().await?;
    operator.migrate().await.context("could not run the migrations")?;
    operator.seed(&crate::tools::catalog::all()).await.context("could not write the catalog")?;
    let exists = match operator.create_scope(&scope).await {
        // The scope was deleted, and its name is never reused. The gateway still serves the other scopes.
        Err(RegistryError::Conflict(_)) => false,
        created => created.map(|_| true).context("could not create the first scope")?,
    };
    // From here on, only the serving role is connected, which owns nothing.
    operator.close().await;
    let registry = database.connect(settings.database_connections).await?;
    let registry = master_key::prepare(registry, database, settings).await?;
    if !exists {
        return Ok((registry, None));
    }
    let path = settings.data_dir().join(KEY_FILE);
    let shown = match has_valid_key(&registry, &path).await? {
        true => None,
        false => Some(create_first_key(&registry, scope, &path).await?),
    };
    Ok((registry, Some(FirstKey { path, shown })))
}

/// Returns whether a file contains a valid key. A missing file and an invalid key, for example after the restore of a
/// dump from another machine, are replaced; after any other failure, the key may still be valid.
async fn has_valid_key(registry: &Registry, path: &Path) -> anyhow::Result<bool> {
    let key = match fs::read(path) {
        Ok(key) => Zeroizing::new(key),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(error) => {
            return Err(error).with_context(|| format!("could not read `{}`", path.display()));
        }
    };
    // A text that is not UTF-8 is not a key.
    let key = std::str::from_utf8(&key).unwrap_or_default();
    match registry.authenticate(key.trim()).await {
        Ok(_) => Ok(true),
        Err(RegistryError::InvalidCredential) => Ok(false),
        Err(error) => {
            Err(error).with_context(|| format!("could not check the key in `{}`", path.display()))
        }
    }
}

/// Creates a key with all rights, and writes it to a file.
async fn create_first_key(
    registry: &Registry,
    scope: Scope,
    path: &Path,
) -> anyhow::Result<String> {
    let new = NewKey {
        principal: None,
        name: "first key".to_owned(),
        rights: Right::ALL.into_iter().collect(),
        expires_at: None,
        org_role: Some(Role::Owner),
    };
    let (key, _) = registry
        .create_key(&Tenant::of(scope), new)
        .await
        .context("could not create the first key")?;
    write_private(path, key.expose())
        .with_context(|| format!("could not write the key to `{}`", path.display()))?;
    Ok(key.expose().to_owned())
}

/// Writes a file atomically, readable only by its owner.
fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    let temporary = path.with_extension("new");
    // A crash may have left it; `create_new` below never writes into an existing file.
    let _ = fs::remove_file(&temporary);
    // The mode is set at creation: there is no moment in which others could read the file.
    let mut file =
        fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    writeln!(file, "{text}")?;
    // Otherwise, a crash after the rename could leave an empty file under the final name.
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    master_key::sync_folder_of(path)
}

/// Reads the certificate, if the gateway is to serve HTTPS.
fn tls_of(serve: &Serve) -> anyhow::Result<Option<Arc<Tls>>> {
    Ok(tls_files(serve)?.map(Tls::open).transpose()?.map(Arc::new))
}

/// Returns the files of the certificate, if the gateway is to serve HTTPS.
pub(super) fn tls_files(serve: &Serve) -> Result<Option<tls::Files>, tls::PairError> {
    let settings = &serve.tls;
    tls::Files::new(settings.tls_cert_file.as_deref(), settings.tls_key_file.as_deref())
}

/// Lets a signal to stop take effect: at once it is announced, and after `drain`, or at a second signal, the gateway is
/// closing. With `reload`, `SIGHUP` notifies it instead, unless the gateway was started from a terminal, which sends the
/// signal when it is closed.
fn handle_signals(
    stopping: Stopping,
    drain: Duration,
    reload: Option<Arc<Notify>>,
) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    // By default, it would end the gateway at once.
    let mut hangup = signal(SignalKind::hangup())?;
    // Asked now: a closed terminal is no longer one.
    let reload = reload.filter(|_| !std::io::stdin().is_terminal());
    tokio::spawn(async move {
        let mut signalled = async || {
            loop {
                tokio::select! {
                    _ = terminate.recv() => return,
                    _ = interrupt.recv() => return,
                    _ = hangup.recv() => match &reload {
                        Some(reload) => reload.notify_one(),
                        None => return,
                    },
                }
            }
        };
        signalled().await;
        stopping.announced.cancel();
        if !drain.is_zero() {
            tracing::info!("Stopping: serving for {} s more, not ready", drain.as_secs());
            let _ = tokio::time::timeout(drain, signalled()).await;
        }
        // Further signals have no effect, because the handlers stay installed.
        stopping.closing.cancel();
    });
    Ok(())
}
