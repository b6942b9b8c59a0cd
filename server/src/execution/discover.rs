//! `pml_discover`: finds tools by name, pattern or words.

use protocol::discovery::{self, DiscoverFilter, DiscoverRequest, FoundTool, Lookup};
use protocol::ranking::{self, Intent, SCORE_FLOOR};
use protocol::{EntryType, ErrorBody, ErrorCode, ToolId, ToolUseType};
use registry::{DiscoverQuery, Discovered, RegistryError};
use serde_json::{Value, json};

use crate::error::registry_error;
use crate::identity::requester::{ClientKind, Requester};
use crate::state::SharedGateway;
use crate::synced_tools::{self, may_be_synced};

/// The number of candidates to read when a filter may remove some of them.
const FILTERED: usize = 100;

/// Finds tools that the caller can use, best first.
///
/// # Errors
/// Returns `INVALID_REQUEST` for invalid or conflicting arguments.
pub(crate) async fn discover(
    gateway: &SharedGateway,
    requester: &Requester,
    request: DiscoverRequest,
) -> Result<Value, ErrorBody> {
    let limit = request.limit()?;
    let of = |query: DiscoverQuery| {
        let (filter, include) = (request.filter, request.include.clone());
        async move {
            let found = find(gateway, requester, query, limit, filter.as_ref()).await?;
            Ok::<_, ErrorBody>(found.iter().map(|tool| tool.render(&include)).collect::<Vec<_>>())
        }
    };
    match request.lookup()? {
        Lookup::Intent(intent) => Ok(json!({ "tools": of(DiscoverQuery::Text(intent)).await? })),
        Lookup::Pattern(pattern) => {
            Ok(json!({ "tools": of(DiscoverQuery::Pattern(pattern)).await? }))
        }
        Lookup::Intents(intents) => {
            let mut results = Vec::new();
            for intent in intents {
                let tools = of(DiscoverQuery::Text(intent.clone())).await?;
                results.push((intent, tools));
            }
            Ok(discovery::render_by_intent(results))
        }
        Lookup::Name(name) => {
            let tools = of(DiscoverQuery::Name(name.clone())).await?;
            let mut answer = json!({ "tools": tools });
            if tools.is_empty() {
                let asked = name.clone();
                let near = DiscoverQuery::Text(name);
                // No tool has this name: suggest those with similar names among the results of a text search.
                let near = find(gateway, requester, near, discovery::NEAR, None).await?;
                let near = near.iter().map(|tool| tool.id.to_string()).collect();
                let near = ranking::nearest(&asked, near, discovery::SUGGESTIONS);
                answer["suggestions"] = json!(near);
            }
            Ok(answer)
        }
    }
}

async fn find(
    gateway: &SharedGateway,
    requester: &Requester,
    query: DiscoverQuery,
    limit: usize,
    filter: Option<&DiscoverFilter>,
) -> Result<Vec<FoundTool>, ErrorBody> {
    let candidates = if filter.is_some() { FILTERED } else { limit };
    let candidates = u32::try_from(candidates).unwrap_or(u32::MAX);
    let found = gateway.registry.discover(&requester.tenant(), &query, candidates).await;
    let found = found.map_err(|error| match error {
        // The caller's mistake; `registry_error` would log a failure of the registry.
        RegistryError::Invalid(reason) => ErrorBody::new(ErrorCode::InvalidRequest, reason),
        other => registry_error(&other),
    })?;
    let mut found: Vec<FoundTool> = found.into_iter().map(found_tool).collect();
    found.extend(synced(gateway, requester, &query).await?);
    if matches!(query, DiscoverQuery::Text(_)) {
        ranking::rank(&mut found, |tool| tool.score, |tool| tool.id.as_str());
    }
    Ok(found.into_iter().filter(|tool| tool.passes(filter)).take(limit).collect())
}

/// Finds tools of the caller's own machine, as far as the user had them sent.
async fn synced(
    gateway: &SharedGateway,
    requester: &Requester,
    query: &DiscoverQuery,
) -> Result<Vec<FoundTool>, ErrorBody> {
    // `pml` knows its own, and those of another machine cannot be called there.
    if requester.client == ClientKind::Package {
        return Ok(Vec::new());
    }
    let tenant = requester.tenant();
    let servers = gateway.registry.synced_servers(&tenant, None).await;
    let tools = synced_tools::found(servers.map_err(|error| registry_error(&error))?);
    let mut tools: Vec<FoundTool> = match query {
        DiscoverQuery::Text(text) => {
            let intent = Intent::new(text);
            let scored = tools.into_iter().map(|tool| tool.scored(&intent));
            scored.filter(|tool| tool.score >= SCORE_FLOOR).collect()
        }
        by_name => tools.into_iter().filter(|tool| by_name.names(&tool.id)).collect(),
    };
    ranking::rank(&mut tools, |tool| tool.score, |tool| tool.id.as_str());
    tools.truncate(FILTERED);
    if tools.is_empty() {
        return Ok(tools);
    }
    // A program that names such a tool gets the entry of the registry, so that is what is found.
    let ids: Vec<ToolId> = tools.iter().map(|tool| tool.id.clone()).collect();
    let resolved = gateway.registry.resolve(&tenant, &ids).await;
    let resolved = resolved.map_err(|error| registry_error(&error))?;
    tools.retain(|tool| may_be_synced(&resolved, &tool.id));
    Ok(tools)
}

fn found_tool(found: Discovered) -> FoundTool {
    let is_capability = found.kind == EntryType::Deno;
    FoundTool {
        id: found.id,
        fqdn: Some(found.fqdn.to_string()),
        kind: if is_capability { ToolUseType::Capability } else { ToolUseType::Tool },
        routing: found.routing,
        read_only: found.read_only,
        wraps_value: found.kind == EntryType::Native,
        score: found.score,
        version: found.version,
        hides: found.hides.iter().map(ToString::to_string).collect(),
        own_machine: false,
        descriptor: found.descriptor,
    }
}
