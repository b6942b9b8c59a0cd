//! What a program reaches through the capabilities that it calls, and their programs run within its run.
//!
//! A capability cannot carry a tool where the program itself could not: all that it reaches counts for the routing of
//! the program, and a call within it is held to what its own analysis declared.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use futures::future::BoxFuture;
use protocol::{
    CAPABILITY_DEPTH, CAPABILITY_REACH, ErrorBody, ErrorCode, Routing, RoutingRules, ToolId,
};
use registry::{Resolved, ResolvedCapability, ResolvedTool, Tenant};
use sandbox::{Limits, Program};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::calls::{ProgramCalls, RunOf};
use crate::error::registry_error;
use crate::execute::failure;
use crate::state::SharedGateway;

/// The most processes that one run can have beside its own: each run has one of its capabilities at work, and the
/// others wait. A tenant's memory is bounded by its places for programs, so it must not grow with what those call.
pub const MOST_NESTED: usize = CAPABILITY_DEPTH;
/// Everything that a program reaches, by id.
pub type Reach = HashMap<ToolId, Arc<ResolvedTool>>;

/// Finds what the ids stand for, and all that they reach. A capability runs where all of that can run.
///
/// # Errors
/// Returns `TOOL_NOT_FOUND` when a capability calls what the caller does not know, and `TOO_COMPLEX` when
/// capabilities call one another in a circle, too deep, or too many.
pub async fn reach(
    gateway: &SharedGateway,
    tenant: &Tenant,
    ids: &[ToolId],
) -> Result<(Resolved, Reach), ErrorBody> {
    let look_up = async |ids: &[ToolId]| {
        gateway
            .registry
            .resolve_remembered(tenant, ids)
            .await
            .map_err(|error| registry_error(&error))
    };
    let mut resolved = look_up(ids).await?;
    let mut reached = Reach::new();
    let mut found = resolved.tools.clone();
    while !found.is_empty() {
        let mut next = BTreeSet::new();
        for tool in found {
            let calls = tool.capability.iter().flat_map(|capability| &capability.calls);
            next.extend(calls.cloned());
            reached.insert(tool.id.clone(), tool);
        }
        next.retain(|id| !reached.contains_key(id));
        if reached.len() + next.len() > CAPABILITY_REACH {
            let message =
                format!("the program reaches more than {CAPABILITY_REACH} tools and capabilities");
            return Err(ErrorBody::new(ErrorCode::TooComplex, message));
        }
        let next: Vec<ToolId> = next.into_iter().collect();
        let step = look_up(&next).await?;
        if let Some(missing) = step.missing.first() {
            return Err(unknown(&missing.id, &reached));
        }
        found = step.tools;
    }
    let routings: Vec<(ToolId, Routing)> = reached
        .values()
        .filter(|tool| tool.capability.is_some())
        .map(|tool| Ok((tool.id.clone(), routing_of(&below(&tool.id, &reached)?, &reached))))
        .collect::<Result<_, ErrorBody>>()?;
    for (id, routing) in routings {
        if let Some(tool) = reached.get_mut(&id) {
            Arc::make_mut(tool).routing = routing;
        }
    }
    for tool in &mut resolved.tools {
        if let Some(known) = reached.get(&tool.id) {
            *tool = Arc::clone(known);
        }
    }
    Ok((resolved, reached))
}

/// Returns what a capability reaches, sorted; nothing for a tool.
///
/// # Errors
/// As [`reach`].
pub fn below(id: &ToolId, reached: &Reach) -> Result<BTreeSet<ToolId>, ErrorBody> {
    let mut all = BTreeSet::new();
    let mut level: BTreeSet<&ToolId> = BTreeSet::from([id]);
    for _ in 0..=CAPABILITY_DEPTH {
        level = level
            .iter()
            .filter_map(|id| reached.get(*id)?.capability.as_ref())
            .flat_map(|capability| &capability.calls)
            .collect();
        if level.is_empty() {
            return Ok(all);
        }
        all.extend(level.iter().map(|id| (*id).clone()));
    }
    let how = if all.contains(id) { "calls itself" } else { "calls others too deep" };
    let message =
        format!("capability `{id}` {how}; at most {CAPABILITY_DEPTH} may be within one another");
    Err(ErrorBody::new(ErrorCode::TooComplex, message))
}

fn routing_of(below: &BTreeSet<ToolId>, reached: &Reach) -> Routing {
    let tools = below.iter().filter_map(|id| reached.get(id));
    let tools = tools.filter(|tool| tool.capability.is_none());
    RoutingRules::decide(false, tools.map(|tool| tool.routing))
}

fn unknown(id: &ToolId, reached: &Reach) -> ErrorBody {
    let caller = reached.values().find(|tool| {
        tool.capability.as_ref().is_some_and(|capability| capability.calls.contains(id))
    });
    let by = caller.map_or_else(String::new, |tool| format!(", which `{}` calls,", tool.id));
    ErrorBody::new(ErrorCode::ToolNotFound, format!("tool `{id}`{by} is not registered"))
}

/// How a run may call capabilities.
#[derive(Debug, Clone)]
pub struct Nesting {
    depth: usize,
    place: Arc<Semaphore>,
}

impl Nesting {
    /// Returns that of a program which is nobody's part.
    pub fn outermost() -> Self {
        Self { depth: 0, place: Arc::new(Semaphore::new(1)) }
    }

    fn inner(&self) -> Self {
        Self { depth: self.depth + 1, ..Self::outermost() }
    }
}

/// Runs the program of a capability as a part of the run that called it.
///
/// Boxed, because it may call itself: a capability may call others.
pub fn run<'a>(
    of: &'a RunOf,
    tool: &'a ResolvedTool,
    capability: &'a ResolvedCapability,
    args: Value,
    cancel: CancellationToken,
) -> BoxFuture<'a, Result<Value, ErrorBody>> {
    Box::pin(async move {
        let fail =
            |code, what: &str| ErrorBody::new(code, format!("capability `{}`: {what}", tool.id));
        if of.nesting.depth >= CAPABILITY_DEPTH {
            return Err(fail(ErrorCode::TooComplex, "too many are within one another"));
        }
        let _place = of
            .nesting
            .place
            .acquire()
            .await
            .map_err(|_| fail(ErrorCode::Cancelled, "the run has ended"))?;
        let analysis = of.gateway.analyser.analyse(&capability.code).await?;
        if !analysis.can_run() || analysis.dynamic || analysis.tools != capability.calls {
            let what =
                "its program is not understood as it was when it was published; publish it again";
            return Err(fail(ErrorCode::IntegrityMismatch, what));
        }
        let declared = capability.calls.iter().filter_map(|id| of.reach.get(id).cloned());
        let inner = RunOf { nesting: of.nesting.inner(), ..of.clone() };
        let calls = Arc::new(ProgramCalls::new(inner, declared));
        let program =
            Program { source: analysis.program.clone(), args, epoch_ms: None, seed: None };
        let limits = Limits::server();
        let outcome = of.gateway.nested.run(program, &limits, calls.clone(), cancel).await;
        outcome.result.map_err(|why| {
            let error = failure::error_body(&why, &capability.code, &calls.log());
            fail(error.error_code, &error.message)
        })
    })
}
