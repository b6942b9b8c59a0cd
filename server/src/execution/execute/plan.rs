//! What a program is before it runs: analysed, its tools resolved, its place decided.

use std::collections::BTreeSet;
use std::sync::Arc;

use analysis::Analysis;
use execution::spans::{self, Span};
use protocol::{
    ErrorBody, ErrorCode, ExecuteRequest, Routing, RoutingRules, Scope, ToolId, ToolUse,
};
use registry::{MissingTool, ResolvedTool};
use serde_json::{Value, json};

use super::named::{local_tool_use, local_tools, shadowing, tool_use, unknown_tools};
use crate::error::registry_error;
use crate::execution::capabilities::{self, Reach};
use crate::identity::requester::{ClientKind, Requester};
use crate::state::SharedGateway;
use crate::synced_tools;
use crate::upstreams::secrets::{self, Need};

/// An analysed program with its resolved tools and its routing.
pub(super) struct Plan {
    pub(super) code: String,
    pub(super) args: Value,
    pub(super) analysis: Arc<Analysis>,
    pub(super) tools: Vec<Arc<ResolvedTool>>,
    pub(super) reach: Reach,
    pub(super) tools_used: Vec<ToolUse>,
    pub(super) routing: Routing,
    /// The caller's scope.
    pub(super) scope: Scope,
    /// The scope in which the program's names are resolved; other than the caller's only in a dry run.
    pub(super) base: Scope,
    pub(super) warnings: Vec<String>,
}

impl Plan {
    /// Returns the tools that run on the caller's machine.
    pub(super) fn client_tools(&self) -> Vec<String> {
        self.tools_used
            .iter()
            .filter(|tool| tool.routing == Routing::Client)
            .map(|tool| tool.id.clone())
            .collect()
    }

    /// Returns the graph of its calls, for the caller.
    pub(super) fn dag(&self) -> Value {
        serde_json::to_value(&self.analysis.dag).unwrap_or_default()
    }

    /// Returns the tools that the program names and those that it reaches through capabilities, sorted.
    pub(super) fn recorded_tools(&self) -> Vec<ToolId> {
        let reached = self.reach.keys().map(|named| &named.id);
        let named = self.analysis.tools.iter().chain(reached);
        named.collect::<BTreeSet<_>>().into_iter().cloned().collect()
    }
}

/// Analyses a program, resolves its tools, and decides where it runs.
pub(super) async fn plan(
    gateway: &SharedGateway,
    requester: &Requester,
    request: ExecuteRequest,
) -> Result<Plan, ErrorBody> {
    let code = request.code.ok_or_else(|| {
        ErrorBody::new(ErrorCode::InvalidRequest, "`code` is missing: the program to run")
    })?;
    let args = match request.args {
        None | Some(Value::Null) => json!({}),
        Some(args @ Value::Object(_)) => args,
        Some(_) => {
            return Err(ErrorBody::new(ErrorCode::InvalidRequest, "`args` is not an object"));
        }
    };
    // Checked before the analysis, which is the expensive part.
    let local_tools = local_tools(requester.client, &request.local_tools)?;
    let span = Span::of_step("pml.analyze");
    let analysis = span.within(gateway.analyser.analyse(&code)).await;
    spans::end_step(span, analysis.as_ref().err().map(|error| error.error_code));
    let analysis = analysis?;
    if let Some(error) = analysis.error_body() {
        return Err(error);
    }
    let tenant = requester.tenant();
    let scope = capabilities::scope_of(&tenant);
    let base = request.within.unwrap_or_else(|| scope.clone());
    let (resolved, reach) = capabilities::reach(gateway, &tenant, &base, &analysis.tools).await?;
    let local_tools = match requester.client {
        ClientKind::Package => local_tools,
        // Such a caller names none, so these are only names that the registry does not have.
        ClientKind::Plain => {
            let known = synced_tools::among_missing(&gateway.registry, &tenant, &resolved).await;
            known.map_err(|error| registry_error(&error))?
        }
    };
    // Tools of the caller's machine need not be registered.
    let unknown: Vec<&MissingTool> =
        resolved.missing.iter().filter(|missing| !local_tools.contains(&missing.id)).collect();
    if !unknown.is_empty() {
        return Err(unknown_tools(&unknown, &resolved.tools));
    }
    // A name that the caller's machine has runs there, even if the registry has the same name.
    let tools_used = analysis
        .tools
        .iter()
        .map(|id| match resolved.get(id) {
            Some(tool) if tool.routing == Routing::Client || !local_tools.contains(id) => {
                tool_use(tool, &base, &reach)
            }
            _ => Ok(local_tool_use(id)),
        })
        .collect::<Result<Vec<_>, ErrorBody>>()?;
    let routing =
        RoutingRules::decide(analysis.dynamic, tools_used.iter().map(|tool| tool.routing));
    // Without the names that the caller's machine has: their entries in the registry are not
    // called, so it does not matter what these hide.
    let registered = resolved
        .tools
        .iter()
        .filter(|tool| tool.routing == Routing::Client || !local_tools.contains(&tool.id));
    let warnings = shadowing(registered);
    Ok(Plan {
        code,
        args,
        analysis,
        tools: resolved.tools,
        reach,
        tools_used,
        routing,
        scope,
        base,
        warnings,
    })
}

/// Returns the error of a tool that lacks a secret and without which the program cannot succeed, so that nothing runs
/// before it.
pub(super) async fn lacking_secret(
    gateway: &SharedGateway,
    requester: &Requester,
    plan: &Plan,
) -> Option<ErrorBody> {
    for id in plan.analysis.needed_tools() {
        let tool = plan.tools.iter().find(|tool| &tool.id == id);
        for need in tool.iter().flat_map(|tool| Need::all_of_tool(tool)) {
            if !secrets::is_available(&gateway.registry, requester, need).await
                && let Err(error) = secrets::find(&gateway.registry, requester, need).await
            {
                return Some(error);
            }
        }
    }
    None
}

/// Marks the tools whose calls would fail because a secret is missing, so that the CLI does not ask the user to approve
/// them.
pub(super) async fn mark_missing_secrets(
    gateway: &SharedGateway,
    requester: &Requester,
    plan: &mut Plan,
) {
    for used in plan.tools_used.iter_mut().filter(|used| used.routing == Routing::Server) {
        let tool = plan.tools.iter().find(|tool| tool.id.as_str() == used.id);
        for need in tool.iter().flat_map(|tool| Need::all_of_tool(tool)) {
            if !secrets::is_available(&gateway.registry, requester, need).await {
                used.lacks_key = Some(need.variable.to_owned());
                break;
            }
        }
    }
}
