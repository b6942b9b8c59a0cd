//! What this machine knows of the capabilities that a program calls: those that ran here before.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use analysis::Plan;
use futures::future::{BoxFuture, FutureExt as _};
use protocol::{CAPABILITY_DEPTH, Integrity, Routing, RoutingRules, ToolId};
use serde::Serialize;

use super::style::{Part, Style};
use crate::analyser::Analyser;
use crate::args::Settings;
use crate::capabilities::kept;
use crate::consent::trust::TrustStore;
use crate::error::CliError;
use crate::lockfile::Lockfile;
use crate::workspace::Workspace;

/// A capability that the program calls, in the version that ran here last.
#[derive(Debug, Serialize)]
pub(super) struct Known {
    /// The id under which the program calls it.
    pub(super) id: ToolId,
    /// Its full name with its version.
    pub(super) name: String,
    /// The hash that it is pinned to.
    pub(super) integrity: Integrity,
    /// Everything that it reaches, and the side that this is on.
    pub(super) reaches: BTreeMap<ToolId, Routing>,
}

/// Finds the capabilities of a plan that ran here before; of others nothing is known without the gateway.
///
/// # Errors
/// Returns `CONFIG_INVALID` for a lock that is none, and why the analysis cannot run.
pub(super) async fn known(
    settings: &Settings,
    analyser: &Analyser,
    plan: &Plan,
) -> Result<Vec<Known>, CliError> {
    let (Ok(workspace), Ok(store)) =
        (Workspace::find(settings.workspace.as_deref()), TrustStore::of_user())
    else {
        // A plan needs neither a project nor a home; then nothing ran here.
        return Ok(Vec::new());
    };
    let lockfile = Lockfile::load(Arc::new(workspace), store.clone())?;
    let machine = Machine { lockfile, store, analyser };
    let tools: BTreeMap<&ToolId, ()> = plan.tasks.iter().map(|task| (&task.tool, ())).collect();
    let mut known = Vec::new();
    for id in tools.into_keys() {
        let mut reaches = BTreeMap::new();
        if let Some((name, integrity)) = machine.look(id, CAPABILITY_DEPTH, &mut reaches).await? {
            known.push(Known { id: id.clone(), name, integrity, reaches });
        }
    }
    Ok(known)
}

struct Machine<'a> {
    lockfile: Lockfile,
    store: TrustStore,
    analyser: &'a Analyser,
}

impl Machine<'_> {
    /// Returns the name and hash of a capability that ran here, and adds what it reaches.
    fn look<'b>(
        &'b self,
        id: &'b ToolId,
        depth: usize,
        reaches: &'b mut BTreeMap<ToolId, Routing>,
    ) -> BoxFuture<'b, Result<Option<(String, Integrity)>, CliError>> {
        async move {
            let pinned = self.lockfile.capabilities(id)?;
            let last = pinned.last().and_then(|last| kept(self.store.folder(), last.integrity));
            let Some(module) = last.filter(|_| depth > 0) else { return Ok(None) };
            for tool in &self.analyser.analyse(&module.code).await?.tools {
                let inner = self.look(tool, depth - 1, reaches).await?;
                let side = match inner {
                    Some(_) => Routing::Client,
                    None => RoutingRules::shipped().route(tool),
                };
                reaches.insert(tool.clone(), side);
            }
            Ok(Some((module.versioned(), module.integrity)))
        }
        .boxed()
    }
}

/// Renders them for a human; nothing where there are none.
pub(super) fn text(known: &[Known], style: &Style) -> String {
    let mut out = String::new();
    if known.is_empty() {
        return out;
    }
    let heading = "Capabilities that ran here before";
    let _ = writeln!(out, "\n{}", style.paint(Part::Heading, heading));
    for Known { id, name, reaches, .. } in known {
        let shown = reaches.iter().map(|(id, side)| match side {
            Routing::Client => format!("{id} here"),
            Routing::Server => format!("{id} on the server"),
        });
        let shown: Vec<String> = shown.collect();
        let reaches_what = if shown.is_empty() { "no tool".to_owned() } else { shown.join(", ") };
        let _ = writeln!(out, "  {id}  is {name} and reaches {reaches_what}");
        if reaches.values().any(|side| *side == Routing::Server) {
            let note = "may send to the server what it is given and what it reads here";
            let _ = writeln!(out, "  {}", style.paint(Part::Warning, note));
        }
    }
    out
}
