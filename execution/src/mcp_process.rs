//! MCP servers that run as sealed processes of this machine: what they may reach, their start, and their supervision.
//!
//! A server gets a [`Seal`]: it reads the system's programs and its own package, changes its own folders, and connects
//! only to hosts that are listed, through a proxy of ours. Its output is checked before the MCP library reads it.

mod ask;
mod fetch;
mod lifecycle;
mod reach;
mod relay;
mod seal;
mod session;

use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::OnceCell;

pub use self::ask::NoAnswer;
pub use self::lifecycle::{InUse, NotStarted, Running, Slot, end, start as start_in};
pub use self::reach::{HostList, ListOf, Reachable, Seal};
pub use self::relay::Refusals;
pub use self::seal::Executed;
pub use self::session::{
    Diagnosis, LINE_LIMIT, Notices, Session, StartFailure, client_config, start,
};
use crate::processes::supervise::Supervisor;

/// What all servers of a program are started with.
#[derive(Debug)]
pub struct Starter {
    /// Starts their processes.
    pub supervisor: Supervisor,
    /// The time limit of a server's first answer.
    pub limit: Duration,
    /// What to say when this machine cannot seal a server: how to start it without, if that is possible.
    pub unconfined: &'static str,
    /// The folder for the temporary folders of servers; `None` for that of the system.
    pub temporary: Option<PathBuf>,
    /// Whether a server can have a network of its own on this system; found out when it matters.
    allows_network: OnceCell<bool>,
}

impl Starter {
    /// Creates one.
    pub fn new(supervisor: Supervisor, limit: Duration, unconfined: &'static str) -> Self {
        Self { supervisor, limit, unconfined, temporary: None, allows_network: OnceCell::new() }
    }

    /// Returns whether this system lets a process have a network of its own, as one with a proxy needs.
    pub async fn allows_network(&self) -> bool {
        let found = || async { seal::try_network(&self.supervisor).await.is_some() };
        *self.allows_network.get_or_init(found).await
    }
}
