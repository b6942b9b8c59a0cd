//! Tells the gateway the tools of the user's own MCP servers, as far as `.pml.json` says so for each server.
//!
//! What may have been sent is noted before it is sent. So the word can be taken back later: what is noted and has no word
//! any more is removed from the gateway.

mod noted;
mod status;
mod told;

use std::sync::Arc;
use std::time::Duration;

use protocol::{
    ErrorBody, ErrorCode, Integrity, SyncedTool, ToolSync, canonical_json, escape_text,
};

use self::noted::{Locked, Noted, Server, State};
use self::told::told;
use crate::background::{Background, Left, Work, blocking};
use crate::config::{Config, McpServer};
use crate::consent::shortened::shortened;
use crate::consent::trust::TrustStore;
use crate::files::records::now;
use crate::gateway::cloud::Cloud;
use crate::local_mcp::ServerSpec;
use crate::local_mcp::known::KnownTools;
use crate::processes::environment::Environment;
use crate::workspace::Workspace;

pub(crate) use self::status::{Status, statuses};

/// After how many seconds the same tools are sent again, so that the gateway keeps them.
const RENEWED: u64 = 24 * 60 * 60;
/// After how many seconds the same tools are sent again to a gateway that has refused them.
const REFUSED: u64 = 60 * 60;
/// The longest stored reason of a refusal, in characters.
const REASON: usize = 300;

/// Returns how a server is started, by its namespace and its entry.
pub(crate) type SpecOf = Box<dyn Fn(&str, &McpServer) -> ServerSpec + Send + Sync>;

/// Sends the tools of a project's servers to its gateway, in the background.
pub(crate) struct SyncedTools(Background<Sender>);

struct Sender {
    workspace: Arc<Workspace>,
    store: TrustStore,
    known: Arc<KnownTools>,
    spec_of: SpecOf,
    cloud: Cloud,
}

/// What is to be sent, with the note that says so. No other process sends until it is dropped.
struct Plan {
    noted: Locked,
    /// The servers with their tools; none for a server that is to be removed.
    servers: Vec<(String, Vec<SyncedTool>)>,
}

impl SyncedTools {
    /// Prepares the sending of the tools that are `known`.
    pub(crate) fn new(
        workspace: Arc<Workspace>,
        store: TrustStore,
        known: Arc<KnownTools>,
        spec_of: SpecOf,
        cloud: Cloud,
    ) -> Self {
        Self(Background::new(Sender { workspace, store, known, spec_of, cloud }))
    }

    /// Sends what has changed, in the background.
    pub(crate) fn send(&self) {
        self.0.ask();
    }

    /// Waits until it is sent, for at most `patience`. Then the next `pml` sends it.
    pub(crate) async fn finish(&self, patience: Duration) {
        self.0.finish(patience).await;
    }
}

impl Work for Sender {
    async fn attempt(self: &Arc<Self>) -> Left {
        let sender = Arc::clone(self);
        let plan = match blocking(move || sender.plan()).await {
            Ok(Some(plan)) => plan,
            Ok(None) => return Left::Nothing,
            Err(error) => {
                tracing::debug!(error = %error.message, "The tools of own servers are not sent");
                // An invalid `.pml.json` says neither what to send nor what to remove; somebody will mend it.
                return match error.error_code {
                    ErrorCode::ConfigInvalid => Left::Refused,
                    _ => Left::Some,
                };
            }
        };
        // Asked only now: finding the key may start a program.
        if !self.cloud.has_key().await {
            return Left::Refused;
        }
        self.send(plan).await
    }
}

impl Sender {
    /// Finds out what has changed; `None` if nothing has.
    fn plan(&self) -> Result<Option<Plan>, ErrorBody> {
        // Read again: the word is what the file says now.
        let invalid = |error: &dyn std::fmt::Display| {
            ErrorBody::new(ErrorCode::ConfigInvalid, error.to_string())
        };
        let config = Config::load(&self.workspace, &self.store).map_err(|error| invalid(&error))?;
        let (records, root) = (self.store.folder(), self.workspace.root());
        let origin = self.cloud.gateway().origin();
        if config.synced.is_empty() && Noted::read(records, root, &origin).servers.is_empty() {
            return Ok(None);
        }
        let busy =
            |error: &dyn std::fmt::Display| ErrorBody::new(ErrorCode::Busy, error.to_string());
        let noted = Locked::open(records, root, &origin).map_err(|error| busy(&error))?;
        let noted = noted.ok_or_else(|| busy(&"another `pml` sends them"))?;
        let environment = Environment::load(&self.workspace);
        let mut servers = Vec::new();
        for (namespace, server) in config.private_mcps.iter().chain(&config.mcp_servers) {
            if !config.synced.contains(namespace) {
                continue;
            }
            let spec = (self.spec_of)(namespace, server);
            // Of a server that has not run yet, nothing is known, or only what it was before its entry changed.
            let Some(tools) = self.known.of(namespace, &spec) else { continue };
            let known = told::Known::of(&spec, &environment, &self.workspace);
            let tools = told(namespace, &tools, &spec, &known, &config.permissions);
            let is_due = match noted.servers().get(namespace) {
                Some(noted) => noted.is_due(&hash_of(&tools), now()),
                None => !tools.is_empty(),
            };
            if is_due {
                servers.push((namespace.clone(), tools));
            }
        }
        let taken_back = noted.servers().keys().filter(|name| !config.synced.contains(*name));
        servers.extend(taken_back.map(|name| (name.clone(), Vec::new())));
        Ok((!servers.is_empty()).then_some(Plan { noted, servers }))
    }

    async fn send(&self, plan: Plan) -> Left {
        let Plan { mut noted, servers } = plan;
        for (namespace, tools) in servers {
            let (hash, count) = (hash_of(&tools), tools.len());
            let note = |state| Server { hash, tools: count, at: now(), state };
            let sent =
                ToolSync { client: noted.client().to_owned(), namespace: namespace.clone(), tools };
            // First, so that it can be taken back whatever happens to this process.
            if let Err(error) = noted.set(&namespace, Some(note(State::Sending))) {
                tracing::debug!(%error, "It cannot be stored which tools are sent, so none are");
                return Left::Some;
            }
            let outcome = match self.cloud.sync_tools(&sent).await {
                Ok(receipt) if receipt.namespace == namespace && receipt.tools == count => {
                    (count > 0).then(|| note(State::Sent))
                }
                Ok(_) => return Left::Refused,
                Err(error) if error.error_code == ErrorCode::InvalidRequest => {
                    let reason = shortened(&error.message, REASON);
                    tracing::warn!(
                        server = namespace,
                        reason = %escape_text(&reason),
                        "The gateway does not take the tools of a server"
                    );
                    Some(note(State::Refused { reason }))
                }
                Err(error) => {
                    let left = Left::after(&error);
                    tracing::debug!(error = %error.message, ?left, "The tools were not sent");
                    return left;
                }
            };
            if let Err(error) = noted.set(&namespace, outcome) {
                tracing::debug!(%error, "It is not stored which tools were sent");
                return Left::Some;
            }
        }
        Left::Nothing
    }
}

impl Server {
    /// Returns whether tools with this hash are to be sent.
    fn is_due(&self, hash: &Integrity, now: u64) -> bool {
        // A clock that was set back does not stop it.
        let age = now.abs_diff(self.at);
        match &self.state {
            State::Sending => true,
            State::Sent => self.hash != *hash || age >= RENEWED,
            State::Refused { .. } => self.hash != *hash || age >= REFUSED,
        }
    }
}

fn hash_of(tools: &[SyncedTool]) -> Integrity {
    // They were made of JSON, so they can be written as JSON.
    let tools = serde_json::to_value(tools).unwrap_or_default();
    Integrity::of(canonical_json(tools).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due() {
        let (same, other) = (hash_of(&[]), Integrity::of(b"other"));
        let at = 1_000_000;
        let noted = |state| Server { hash: same, tools: 1, at, state };
        let refused = || noted(State::Refused { reason: "no".to_owned() });
        for (noted, hash, now, due) in [
            (noted(State::Sent), &same, at + 60, false),
            (noted(State::Sent), &other, at + 60, true),
            (noted(State::Sent), &same, at + RENEWED, true),
            (noted(State::Sent), &same, at - RENEWED, true),
            (noted(State::Sending), &same, at, true),
            (refused(), &same, at + 60, false),
            (refused(), &same, at + REFUSED, true),
            (refused(), &other, at, true),
        ] {
            assert_eq!(noted.is_due(hash, now), due, "{noted:?} {now}");
        }
    }
}
