//! The state that all requests share.

use std::sync::Arc;

use registry::Registry;
use sandbox::{Pool, PoolConfig};

use crate::analyser::Analyser;
use crate::capabilities::MOST_NESTED;
use crate::limits::Limits;
use crate::memory::Memory;
use crate::proxy::Exchanges;
use crate::sessions::Sessions;
use crate::tokens::Tokens;
use crate::turns::{Places, Turns};
use crate::upstreams::Upstreams;

/// The gateway's long-lived parts.
pub struct Gateway {
    /// Entries, tenants, keys and rules, in Postgres.
    pub registry: Registry,
    /// The analysis in killable children.
    pub analyser: Analyser,
    /// Warm sealed sandboxes.
    pub sandboxes: Pool,
    /// Sealed sandboxes for the programs of capabilities. A run that waits for one of them keeps its own slot, so
    /// they need a pool of their own.
    pub nested: Pool,
    /// Whose program may run in them now.
    pub turns: Turns,
    /// MCP servers behind HTTP.
    pub upstreams: Upstreams,
    /// The proxied messages in progress.
    pub exchanges: Exchanges,
    /// The memory budget of messages.
    pub memory: Memory,
    /// Whether public entries can be read without an API key.
    pub anonymous_read: bool,
    /// Checks access tokens, where an issuer is configured.
    pub tokens: Option<Tokens>,
    /// Creates and verifies sessions, if there is a master key.
    pub sessions: Option<Sessions>,
    /// The rate limits.
    pub limits: Limits,
}

/// The components that a gateway is started with.
pub struct Parts {
    /// The configuration of sandboxes.
    pub pool: PoolConfig,
    /// The limit of concurrent programs.
    pub places: Places,
    /// Whether public entries can be read without an API key.
    pub anonymous_read: bool,
    /// Checks access tokens, where an issuer is configured.
    pub tokens: Option<Tokens>,
    /// Creates and verifies sessions, if there is a master key.
    pub sessions: Option<Sessions>,
    /// The rate limits.
    pub limits: Limits,
    /// MCP servers behind HTTP.
    pub upstreams: Upstreams,
    /// The memory budget of messages and of those servers' answers.
    pub memory: Memory,
}

/// A shared [`Gateway`].
pub type SharedGateway = Arc<Gateway>;

impl Gateway {
    /// Starts the parts around an opened registry.
    ///
    /// # Errors
    /// Returns an error when sealed children cannot be started here.
    pub fn start(registry: Registry, parts: Parts) -> Result<SharedGateway, sandbox::SandboxError> {
        let Parts { pool, places, anonymous_read, tokens, sessions, limits, upstreams, memory } =
            parts;
        upstreams.follow(&registry);
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        Ok(Arc::new(Self {
            registry,
            analyser: Analyser::start(cores)?,
            sandboxes: Pool::new(pool)?,
            nested: Pool::new(PoolConfig {
                warm: pool.warm.min(2),
                max_running: pool.max_running * MOST_NESTED,
                ..pool
            })?,
            turns: Turns::new(places),
            upstreams,
            exchanges: Exchanges::default(),
            memory,
            anonymous_read,
            tokens,
            sessions,
            limits,
        }))
    }
}
