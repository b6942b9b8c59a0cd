//! What the gateway is told in the background: traces of runs, and tools of own servers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::{App, HOMES, PACKAGES, folder_of};
use crate::config::McpServer;
use crate::consent::trust::TrustStore;
use crate::gateway::cloud::Cloud;
use crate::local_mcp::known::KnownTools;
use crate::tool_sync::{self, SyncedTools};
use crate::workspace::Workspace;

/// How long the end of `pml` is delayed by what the gateway is told.
const TELLING: Duration = Duration::from_secs(1);

impl App {
    /// Tells the gateway in the background what it may know: traces of runs that have ended, and tools of own servers.
    pub(crate) fn tell_gateway(&self) {
        if let Some(traces) = &self.traces {
            traces.send();
        }
        if let Some(synced) = &self.synced {
            synced.send();
        }
    }

    /// Waits for a moment until the gateway is told; the next `pml` tells the rest.
    pub(crate) async fn finish_telling(&self) {
        let traces = async {
            if let Some(traces) = &self.traces {
                traces.finish(TELLING).await;
            }
        };
        let synced = async {
            if let Some(synced) = &self.synced {
                // Not every run ends here: the gateway may have executed the program.
                synced.send();
                synced.finish(TELLING).await;
            }
        };
        tokio::join!(traces, synced);
    }

    /// Returns whether the gateway has the tools of own servers, by namespace.
    pub(crate) fn tool_syncs(&self) -> BTreeMap<String, tool_sync::Status> {
        let Ok(cloud) = &self.cloud else { return BTreeMap::new() };
        tool_sync::statuses(&self.told, &self.workspace, self.records(), &cloud.gateway().origin())
    }
}

/// Prepares the sending of tools of the servers of `.pml.json`.
pub(super) fn synced_tools(
    workspace: &Arc<Workspace>,
    store: &TrustStore,
    known: &Arc<KnownTools>,
    cloud: &Cloud,
) -> SyncedTools {
    let (records, of) = (store.folder().to_owned(), Arc::clone(workspace));
    let spec_of = Box::new(move |namespace: &str, server: &McpServer| {
        server.spec(folder_of(&records, &of, HOMES, namespace), records.join(PACKAGES))
    });
    let (workspace, known) = (Arc::clone(workspace), Arc::clone(known));
    SyncedTools::new(workspace, store.clone(), known, spec_of, cloud.clone())
}
