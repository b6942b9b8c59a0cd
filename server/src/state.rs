//! The state that all requests share.

use std::sync::Arc;

use registry::Registry;
use sandbox::Pool;

use crate::admission::exchanges::Exchanges;
use crate::admission::limits::Limits;
use crate::admission::memory::Memory;
use crate::admission::turns::Turns;
use crate::analyser::Analyser;
use crate::identity::credentials::Credentials;
use crate::upstreams::Upstreams;

/// The gateway's long-lived parts.
pub(crate) struct Gateway {
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
    /// Checks who calls.
    pub credentials: Credentials,
    /// The rate limits.
    pub limits: Limits,
}

/// A shared [`Gateway`].
pub(crate) type SharedGateway = Arc<Gateway>;
