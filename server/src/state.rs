//! The state that all requests share.

use std::sync::Arc;

use registry::Registry;
use sandbox::Pool;
use tokio_util::sync::CancellationToken;

use crate::admission::exchanges::Exchanges;
use crate::admission::limits::Limits;
use crate::admission::memory::Memory;
use crate::admission::queue::ProgramQueue;
use crate::analyser::Analyser;
use crate::connections::tls::Tls;
use crate::identity::credentials::Credentials;
use crate::identity::metrics_token::MetricsToken;
use crate::metrics::Metrics;
use crate::traces::recorder::Recorder;
use crate::upstreams::Upstreams;
use crate::upstreams::stdio::StdioServers;

/// The steps of the gateway's end. Each token is cancelled when its step begins.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stopping {
    /// A signal to stop has arrived: `/ready` fails, and answers close their connections, so that balancers send further
    /// requests elsewhere. Requests that still arrive are served.
    pub announced: CancellationToken,
    /// No request is accepted any more, and streams that wait for messages of a server end.
    pub closing: CancellationToken,
    /// Requests have had their time to end: their work is cancelled.
    pub abandoned: CancellationToken,
}

/// The gateway's long-lived parts.
pub(crate) struct Gateway {
    /// Entries, tenants, keys and rules, in Postgres.
    pub registry: Registry,
    /// Analyses programs in killable children.
    pub analyser: Analyser,
    /// Sealed sandboxes for programs.
    pub sandboxes: Pool,
    /// Sealed sandboxes for the programs of capabilities. A run that waits for one keeps its own sandbox, so one shared
    /// pool could deadlock.
    pub nested: Pool,
    /// Decides when each tenant's programs may run.
    pub queue: ProgramQueue,
    /// Calls MCP servers over HTTP.
    pub upstreams: Upstreams,
    /// Runs `stdio` MCP servers.
    pub stdio: Arc<StdioServers>,
    /// Counts the proxied messages in progress.
    pub exchanges: Exchanges,
    /// The memory budgets of messages.
    pub memory: Memory,
    /// Whether public entries can be read without an API key.
    pub anonymous_read: bool,
    /// Authenticates callers.
    pub credentials: Credentials,
    /// The rate limits.
    pub limits: Limits,
    /// Stores the traces of the gateway's own executions.
    pub traces: Recorder,
    /// The certificate, if the gateway serves HTTPS.
    pub tls: Option<Arc<Tls>>,
    /// The gateway's figures.
    pub metrics: Arc<Metrics>,
    /// With which the operator reads the figures on the main address.
    pub metrics_token: Option<MetricsToken>,
    /// How far the gateway is in stopping.
    pub stopping: Stopping,
}

/// A shared [`Gateway`].
pub(crate) type SharedGateway = Arc<Gateway>;
