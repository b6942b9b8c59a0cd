//! The tools that are known here without asking the gateway, and which of them `.pml.json` exposes.

use std::collections::{BTreeMap, BTreeSet};

use protocol::{ErrorBody, Fqdn, ToolDescriptor, ToolId, ToolPattern, escape_text};

use super::{ExposedTool, ExposedTools, names};
use crate::added::Added;
use crate::app::App;
use crate::capabilities::{Module, load_module};
use crate::config::ExposeTools;
use crate::consent::decision::why_refused;
use crate::consent::permissions::Permissions;
use crate::run_store::RunStore;
use crate::tools;

/// How many of the last records of runs are searched for calls. It bounds the time of a selection.
const RECORDS: u32 = 10_000;

/// A capability that may run here, and whose program is stored here.
struct Known {
    id: ToolId,
    module: Module,
    is_added: bool,
}

/// Selects what `.pml.json` exposes at the moment. What keeps a tool from being exposed is a warning.
pub(super) fn select(app: &App, warnings: &mut BTreeSet<String>) -> ExposedTools {
    let selected = app.read_exposed().and_then(|setting| match setting {
        ExposeTools::Listed(patterns) => listed(app, &patterns, warnings),
        ExposeTools::Curated(curated) => most_used(app, curated.limit(), warnings),
    });
    let selected = selected.unwrap_or_else(|error| {
        // As for every command, a file that cannot be read is never one that allows something.
        warnings.insert(format!("agents are offered no tools of this project: {}", error.message));
        Vec::new()
    });
    let tools = selected.into_iter().map(|tool| (tool.id.clone(), tool)).collect();
    let named = names::assign(tools, warnings);
    named.into_iter().map(|(name, (_, tool))| (name, tool)).collect()
}

/// Returns the known tools that match a pattern.
fn listed(
    app: &App,
    patterns: &[ToolPattern],
    warnings: &mut BTreeSet<String>,
) -> Result<Vec<ExposedTool>, ErrorBody> {
    if patterns.is_empty() {
        return Ok(Vec::new());
    }
    let mut tools: Vec<_> =
        capabilities(app, warnings)?.into_iter().filter_map(exposed_capability).collect();
    tools.extend(tools_of_machine(app));
    for pattern in patterns {
        if !tools.iter().any(|tool| pattern.matches(&tool.id)) {
            warnings.insert(format!(
                "`{pattern}` in `expose_tools` of `.pml.json` is no tool that is known here; `pml add` adds a capability, and a server is known after its first call"
            ));
        }
    }
    let permissions = app.permissions();
    tools.retain(|tool| {
        patterns.iter().any(|pattern| pattern.matches(&tool.id))
            && may_be_offered(&permissions, &tool.id)
    });
    Ok(tools)
}

/// Returns the added capabilities, then those that were called most in this project; at most `limit`.
fn most_used(
    app: &App,
    limit: usize,
    warnings: &mut BTreeSet<String>,
) -> Result<Vec<ExposedTool>, ErrorBody> {
    if limit == 0 {
        return Ok(Vec::new());
    }
    let (calls, permissions) = (calls_by_tool(app), app.permissions());
    let mut ranked: Vec<_> = capabilities(app, warnings)?
        .into_iter()
        .filter(|known| may_be_offered(&permissions, &known.id))
        .map(|known| {
            let name = known.module.name.clone().pinned(known.module.integrity.short());
            // A program may call it by any of its names.
            let called = calls.iter().filter(|(id, _)| id.can_be(&name));
            (called.map(|(_, count)| count).sum::<i64>(), known)
        })
        .filter(|(calls, known)| known.is_added || *calls > 0)
        .collect();
    ranked.sort_by(|(one_calls, one), (other_calls, other)| {
        let by_calls = other_calls.cmp(one_calls);
        other.is_added.cmp(&one.is_added).then(by_calls).then_with(|| one.id.cmp(&other.id))
    });
    ranked.truncate(limit);
    Ok(ranked.into_iter().filter_map(|(_, known)| exposed_capability(known)).collect())
}

/// Returns whether a tool is not denied. A denied one would only cost the model tokens; a search does not find it either.
fn may_be_offered(permissions: &Permissions, id: &ToolId) -> bool {
    why_refused(permissions, id).is_none()
}

/// Returns how often tools were called in this project lately. The order of a list needs no more than that, so a store
/// that cannot be read is not an error here: the next run reports it.
fn calls_by_tool(app: &App) -> Vec<(ToolId, i64)> {
    let counted = RunStore::reader(app.project()).and_then(|reader| {
        reader.map_or_else(|| Ok(Vec::new()), |reader| reader.calls_by_tool(RECORDS))
    });
    let counted = counted.unwrap_or_else(|error| {
        tracing::debug!(%error, "Could not count the calls of capabilities");
        Vec::new()
    });
    counted.into_iter().filter_map(|(name, count)| Some((name.parse().ok()?, count))).collect()
}

/// Returns the capabilities that may run here, each in one version: the one that was added, else the highest.
fn capabilities(app: &App, warnings: &mut BTreeSet<String>) -> Result<Vec<Known>, ErrorBody> {
    let added = Added::read(app.project())?.0;
    let mut found: BTreeMap<Fqdn, Known> = BTreeMap::new();
    // The highest version comes last.
    for pinned in app.lockfile.all_capabilities()? {
        let is_added = added.values().any(|known| known.integrity == pinned.integrity);
        if !is_added && found.get(&pinned.name).is_some_and(|known| known.is_added) {
            continue;
        }
        let Some(module) = load_module(app.records(), pinned.integrity) else { continue };
        let name = module.versioned();
        let version = name.rsplit_once('@').map(|(_, version)| version);
        let id = module.name.full_tool().zip(version);
        let Some(id) = id.and_then(|(id, version)| id.at(version).ok()) else { continue };
        found.insert(pinned.name, Known { id, module, is_added });
    }
    for known in added.values() {
        if !found.values().any(|found| found.module.integrity == known.integrity) {
            let name = escape_text(&format!("{}@{}", known.name, known.version));
            warnings.insert(format!(
                "`{name}` is in `.pml/deps.json`, but you have not allowed it here, or its program is gone; run `pml add {name}`"
            ));
        }
    }
    Ok(found.into_values().collect())
}

fn exposed_capability(known: Known) -> Option<ExposedTool> {
    let descriptor = known.module.descriptor()?;
    Some(ExposedTool { id: known.id, is_capability: true, descriptor })
}

/// Returns the tools of `pml` itself and those of the servers of `.pml.json`, as far as these have been asked.
fn tools_of_machine(app: &App) -> Vec<ExposedTool> {
    let exposed = |namespace: &str, descriptor: &ToolDescriptor| {
        let id = ToolId::new(namespace, &descriptor.name).ok()?;
        Some(ExposedTool { id, is_capability: false, descriptor: descriptor.clone() })
    };
    let mut found = Vec::new();
    // A server of the user replaces the whole namespace.
    for namespace in tools::namespaces().filter(|name| !app.is_configured_namespace(name)) {
        let tools = tools::descriptors(namespace).iter();
        found.extend(tools.filter_map(|tool| exposed(namespace, tool)));
    }
    for namespace in app.configured_namespaces() {
        let tools = app.known_tools(namespace).unwrap_or_default();
        found.extend(tools.iter().filter_map(|tool| exposed(namespace, tool)));
    }
    found
}
