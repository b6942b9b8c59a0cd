//! The capabilities that a program reaches.
//!
//! A capability gives a program no access that the program would not have itself: everything that the capability
//! reaches counts for the program's routing, and its calls are limited to what its own analysis declared.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use protocol::{
    CAPABILITY_DEPTH, CAPABILITY_REACH, ErrorBody, ErrorCode, Routing, RoutingRules, Scope, ToolId,
};
use registry::{Absence, MissingTool, Resolved, ResolvedTool, Tenant};

use crate::error::registry_error;
use crate::state::SharedGateway;

/// The maximum number of additional processes of one run: at each level, one capability executes and the others wait.
/// A tenant's memory is limited by its program slots, so the memory of a slot must not grow with the number of
/// capabilities that a program calls.
pub(crate) const MAX_NESTED: usize = CAPABILITY_DEPTH;

/// A tool id and the scope in which it is resolved: in two scopes, one short name can mean different tools.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Named {
    /// The scope of the program that contains the id: the caller's, or that of a capability.
    pub base: Scope,
    /// The tool's id, as the program writes it.
    pub id: ToolId,
}

/// Everything that a program reaches, by name.
pub(crate) type Reach = HashMap<Named, Arc<ResolvedTool>>;

/// Returns the scope that a caller's own programs belong to.
pub(crate) fn scope_of(tenant: &Tenant) -> Scope {
    tenant.scope().cloned().unwrap_or_else(Scope::public)
}

/// Resolves the ids in programs of the scope `base`, and everything that they reach. A capability runs where all of
/// that can run.
///
/// The names in a capability's program resolve in the scope of the capability, so that another organisation's program
/// never reaches the caller's tools of the same name. They resolve only to tools that the caller may see.
///
/// # Errors
/// Returns `TOOL_NOT_FOUND` when a capability calls a tool that the caller cannot see, and `TOO_COMPLEX` when
/// capabilities call one another recursively, are nested too deeply, or are too many.
pub(crate) async fn reach(
    gateway: &SharedGateway,
    tenant: &Tenant,
    base: &Scope,
    ids: &[ToolId],
) -> Result<(Resolved, Reach), ErrorBody> {
    let look_up = async |base: &Scope, ids: &[ToolId]| {
        gateway
            .registry
            .resolve_cached(tenant, base, ids)
            .await
            .map_err(|error| registry_error(&error))
    };
    let mut resolved = look_up(base, ids).await?;
    let mut reached = Reach::new();
    let mut found: Vec<(Scope, Arc<ResolvedTool>)> =
        resolved.tools.iter().map(|tool| (base.clone(), Arc::clone(tool))).collect();
    // Level by level, so that each level costs one query per scope. Ids that were reached before are not resolved
    // again, so recursion ends here, too.
    while !found.is_empty() {
        let mut next = BTreeSet::new();
        for (base, tool) in found {
            next.extend(callees(&tool));
            reached.insert(Named { base, id: tool.id.clone() }, tool);
        }
        next.retain(|named| !reached.contains_key(named));
        // Before the next look-ups, so that a program beyond the limit costs no more queries.
        if reached.len() + next.len() > CAPABILITY_REACH {
            let message =
                format!("the program reaches more than {CAPABILITY_REACH} tools and capabilities");
            return Err(ErrorBody::new(ErrorCode::TooComplex, message));
        }
        // The set is sorted by scope, so that the ids of one scope are adjacent.
        let next: Vec<Named> = next.into_iter().collect();
        found = Vec::new();
        for of_scope in next.chunk_by(|one, other| one.base == other.base) {
            let ids: Vec<ToolId> = of_scope.iter().map(|named| named.id.clone()).collect();
            let base = &of_scope[0].base;
            let step = look_up(base, &ids).await?;
            // What is missing at the first level is returned instead: it may be a tool of the
            // caller's machine, which a capability cannot call.
            if let Some(missing) = step.missing.first() {
                return Err(unknown(base, missing, &reached));
            }
            found.extend(step.tools.into_iter().map(|tool| (base.clone(), tool)));
        }
    }
    // A capability's recorded routing may be outdated, because rules change. It is computed from the current routing of
    // its tools.
    let capabilities = reached.iter().filter(|(_, tool)| tool.capability.is_some());
    let routings: Vec<(Named, Routing)> = capabilities
        .map(|(named, _)| Ok((named.clone(), routing_of(&below(named, &reached)?, &reached))))
        .collect::<Result<_, ErrorBody>>()?;
    for (named, routing) in routings {
        if let Some(tool) = reached.get_mut(&named) {
            // The cache of tools may hold the same allocation, so `make_mut` changes a copy.
            Arc::make_mut(tool).routing = routing;
        }
    }
    for tool in &mut resolved.tools {
        // The list still has the tools from before `make_mut`, with the recorded routing.
        if let Some(known) = reached.get(&Named { base: base.clone(), id: tool.id.clone() }) {
            *tool = Arc::clone(known);
        }
    }
    Ok((resolved, reached))
}

/// Returns what the program of a capability calls; nothing for a plain tool.
pub(super) fn callees(tool: &ResolvedTool) -> impl Iterator<Item = Named> {
    let calls = tool.capability.iter().flat_map(|capability| &capability.calls);
    calls.map(|id| Named { base: tool.fqdn.scope().clone(), id: id.clone() })
}

/// Returns everything that a capability reaches, sorted; nothing for a plain tool.
///
/// # Errors
/// As [`reach`].
pub(crate) fn below(named: &Named, reached: &Reach) -> Result<BTreeSet<Named>, ErrorBody> {
    let mut all = BTreeSet::new();
    let mut level = BTreeSet::from([named.clone()]);
    // One round more than there are levels: in the last one, plain tools have no callees. Recursion
    // never gets to an empty level, so the limit detects it, too.
    for _ in 0..=CAPABILITY_DEPTH {
        level =
            level.iter().filter_map(|named| reached.get(named)).flat_map(|t| callees(t)).collect();
        if level.is_empty() {
            return Ok(all);
        }
        all.extend(level.iter().cloned());
    }
    // Compared by FQDN, because a capability can occur under its short name and under its full name.
    let fqdn = |named: &Named| reached.get(named).map(|tool| &tool.fqdn);
    let calls_itself = all.iter().any(|inner| fqdn(inner) == fqdn(named));
    let how = if calls_itself { "calls itself" } else { "is nested too deeply" };
    let message =
        format!("capability `{}` {how}; the limit is {CAPABILITY_DEPTH} levels", named.id);
    Err(ErrorBody::new(ErrorCode::TooComplex, message))
}

/// Returns the ids of everything that a capability reaches, sorted, each as a program of the scope `base` would have to
/// write it.
///
/// # Errors
/// As [`reach`].
pub(crate) fn listed(named: &Named, reached: &Reach) -> Result<BTreeSet<ToolId>, ErrorBody> {
    let below = below(named, reached)?;
    Ok(below
        .into_iter()
        .map(|inner| match reached.get(&inner) {
            // A short name can reach the catalog from every scope; other scopes need the full name.
            Some(tool) if inner.base != named.base && *tool.fqdn.scope() != Scope::public() => {
                inner.id.within(tool.fqdn.scope())
            }
            _ => inner.id,
        })
        .collect())
}

fn routing_of(below: &BTreeSet<Named>, reached: &Reach) -> Routing {
    let tools = below.iter().filter_map(|named| reached.get(named));
    // Only plain tools decide; the capabilities in between run where their tools allow.
    let tools = tools.filter(|tool| tool.capability.is_none());
    RoutingRules::decide(false, tools.map(|tool| tool.routing))
}

fn unknown(base: &Scope, missing: &MissingTool, reached: &Reach) -> ErrorBody {
    let caller = reached.values().find(|tool| {
        tool.fqdn.scope() == base
            && tool
                .capability
                .as_ref()
                .is_some_and(|capability| capability.calls.contains(&missing.id))
    });
    let id = &missing.id;
    let by = caller.map_or_else(String::new, |tool| format!(", which `{}` calls,", tool.id));
    let why = match missing.why {
        Absence::Ambiguous => "resolves to several entries there",
        Absence::Changed => "has different content now",
        Absence::Unknown | Absence::Elsewhere => "is not registered",
    };
    ErrorBody::new(ErrorCode::ToolNotFound, format!("tool `{id}`{by} {why}"))
}
