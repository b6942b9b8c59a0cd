//! Tools next to the meta-tools, under names of their own: `expose_tools` in `.pml.json`.

use std::sync::Arc;
use std::time::Duration;

use execution::mcp_server::envelope_result;
use protocol::{Envelope, ToolId, escape_text, meta_tools};
use rmcp::model::{CallToolRequestParams, CallToolResponse, Tool};
use rmcp::service::{Peer, RequestContext, RoleServer, SubscriptionContext};
use serde_json::Value;

use super::{AgentHandler, described, mark_complete};
use crate::exposed::{Exposed, ExposedTool};
use crate::run::Runs;

/// How often a connection is looked at that has not been told of a change.
const CLOSED_CHECK: Duration = Duration::from_secs(60);

impl AgentHandler {
    /// Creates a handler for the runs of this process, with the tools that the project exposes next to the meta-tools.
    /// Must be called in the async runtime.
    pub(crate) fn exposing(runs: Arc<Runs>) -> Self {
        let exposed = Exposed::follow(&runs.app);
        Self { exposed, ..Self::new(runs) }
    }

    /// Returns the tools that are listed after the meta-tools.
    pub(super) async fn offered_tools(&self) -> Vec<Tool> {
        let Some(exposed) = &self.exposed else { return Vec::new() };
        exposed.current().await.iter().map(listed).collect()
    }

    /// Returns an offered tool, as it was listed last.
    pub(super) fn offered_tool(&self, name: &str) -> Option<Tool> {
        let tools = self.exposed.as_ref()?.last();
        tools.get_key_value(name).map(listed)
    }

    /// Finds an offered tool; `None` if the name is that of a meta-tool, or an id.
    ///
    /// # Errors
    /// Returns that there is no such tool.
    pub(super) async fn find_offered(
        &self,
        name: &str,
    ) -> Result<Option<ExposedTool>, rmcp::ErrorData> {
        let Some(exposed) = &self.exposed else { return Ok(None) };
        if meta_tools::META_TOOLS.iter().any(|tool| tool.is(name)) {
            return Ok(None);
        }
        // Looked up again: it may have been removed since it was listed.
        match exposed.current().await.get(name) {
            Some(tool) => Ok(Some(tool.clone())),
            // Every tool can also be called by its id.
            None if ToolId::from_wire(name).is_ok() => Ok(None),
            None => Err(unknown(name)),
        }
    }

    /// Makes a call of the tool `id`, which is listed by another name; `schema` is what its arguments must match.
    pub(super) async fn call_described(
        &self,
        mut request: CallToolRequestParams,
        id: &ToolId,
        schema: Option<&Value>,
        context: RequestContext<RoleServer>,
    ) -> CallToolResponse {
        let arguments = Value::Object(request.arguments.clone().unwrap_or_default());
        let checked =
            schema.map(|schema| described::check_arguments(&request.name, schema, &arguments));
        if let Some(Err(error)) = checked {
            let mut refused = envelope_result(&Envelope::error(error));
            mark_complete(&mut refused);
            return refused.into();
        }
        request.name = id.as_str().to_owned().into();
        self.call_named(request, context).await
    }

    /// Has a client of the 2025 versions told of changes, until it is gone.
    pub(super) fn announce_changes(&self, peer: Peer<RoleServer>) {
        let Some(exposed) = &self.exposed else { return };
        let mut changes = exposed.changes();
        tokio::spawn(async move {
            loop {
                match tokio::time::timeout(CLOSED_CHECK, changes.changed()).await {
                    Ok(Ok(())) if peer.notify_tool_list_changed().await.is_ok() => {}
                    Err(_) if !peer.is_transport_closed() => {}
                    _ => return,
                }
            }
        });
    }
}

/// Tells a client of 2026-07-28 of changes, until it cancels its request.
pub(super) async fn announce_to(exposed: &Arc<Exposed>, subscription: &SubscriptionContext) {
    let mut changes = exposed.changes();
    loop {
        let changed = tokio::select! {
            changed = changes.changed() => changed,
            () = subscription.cancelled() => return,
        };
        if changed.is_err() || subscription.sink().notify_tool_list_changed().await.is_err() {
            return;
        }
    }
}

fn listed((name, tool): (&String, &ExposedTool)) -> Tool {
    described::tool(name, &tool.id, &tool.descriptor)
}

fn unknown(name: &str) -> rmcp::ErrorData {
    let message = format!("there is no tool `{}`; `tools/list` has the names", escape_text(name));
    rmcp::ErrorData::invalid_params(message, None)
}
