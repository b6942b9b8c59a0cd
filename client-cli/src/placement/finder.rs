//! Looks up the location of each tool in all sources, in their order.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use analysis::Analysis;
use futures::future::{BoxFuture, FutureExt as _};
use protocol::discovery::SEARCH_TOOLS;
use protocol::{
    CAPABILITY_DEPTH, ErrorBody, Fqdn, Integrity, Routing, RoutingRules, Scope, Side, ToolId,
    ToolUse, ToolUseType,
};
use tokio_util::sync::CancellationToken;

use super::inquiry::{self, Names};
use super::learned::Learned;
use super::rules::CachedRules;
use super::{Asked, Placed, Placement, Reached, Source, is_of_pml};
use crate::app::{App, Elsewhere, hidden_by_configured};
use crate::capabilities::load_module;
use crate::consent::decision::{
    asks_by_full_name, has_ask_rule, refuse_denied_by_rule, why_refused,
};
use crate::tools;

/// The known facts about a program's tools.
pub(super) struct Finder<'a> {
    app: &'a App,
    answers: HashMap<ToolId, ToolUse>,
    /// The names that the gateway does not have.
    missing: BTreeSet<ToolId>,
    warnings: Vec<String>,
    /// The caller's own scope.
    scope: Option<Scope>,
    learned: Option<Learned>,
    rules: Option<CachedRules>,
    ran_before: HashMap<ToolId, Reached>,
    /// The tools of servers that started here before, and that start without the gateway.
    started_before: BTreeSet<ToolId>,
    /// What other registries than the gateway have.
    pub(super) elsewhere: Elsewhere,
}

impl<'a> Finder<'a> {
    pub(super) async fn new(app: &'a App) -> Result<Self, ErrorBody> {
        app.read_permissions()?;
        Ok(Self {
            app,
            answers: HashMap::new(),
            missing: BTreeSet::new(),
            warnings: Vec::new(),
            scope: None,
            learned: Learned::load(app).await,
            rules: CachedRules::load(app).await,
            ran_before: HashMap::new(),
            started_before: BTreeSet::new(),
            elsewhere: Elsewhere::default(),
        })
    }

    /// Adds the gateway's answer, and queries the gateway about the tools that capabilities in it reach.
    pub(super) async fn add(
        &mut self,
        names: Names,
        cancel: &CancellationToken,
    ) -> Result<(), ErrorBody> {
        // First, because `is_of_own_scope` compares with it.
        self.scope = names.scope.clone();
        let mut reached_ids = BTreeSet::new();
        for tool in names.tools.iter().filter(|tool| self.is_of_own_scope(tool)) {
            reached_ids.extend(inquiry::listed(tool)?);
        }
        let known: BTreeSet<&str> = names.tools.iter().map(|tool| tool.id.as_str()).collect();
        reached_ids.retain(|id| !known.contains(id.as_str()) && !self.app.is_local(id));
        let reached_ids: Vec<ToolId> = reached_ids.into_iter().collect();
        let inner = match reached_ids.as_slice() {
            [] => Names::default(),
            reached_ids => inquiry::ask_names(self.app, reached_ids, cancel).await?,
        };
        for names in [names, inner] {
            if let Some(learned) = &mut self.learned {
                learned.learn(&names.tools, &names.missing);
            }
            for tool in names.tools {
                if let Ok(id) = tool.id.parse() {
                    self.answers.insert(id, tool);
                }
            }
            self.missing.extend(names.missing);
            self.warnings.extend(names.warnings);
        }
        if let Some(learned) = &self.learned {
            learned.save();
        }
        Ok(())
    }

    /// Looks for what the gateway does not have in the registries after it.
    pub(super) async fn look_for_missing(&mut self, cancel: &CancellationToken) {
        let missing: Vec<ToolId> = self.missing.iter().cloned().collect();
        let looked = self.app.look_after_gateway(&missing, &mut self.elsewhere, cancel).await;
        // What the gateway has is known all the same.
        if let Err(error) = looked {
            self.warnings.push(format!("the program is refused: {}", error.message));
        }
    }

    /// Returns whether a capability is of the caller's scope, so that the names in it resolve as in the caller's
    /// programs.
    fn is_of_own_scope(&self, tool: &ToolUse) -> bool {
        let fqdn = tool.fqdn.as_deref().and_then(|fqdn| fqdn.parse::<Fqdn>().ok());
        fqdn.is_some_and(|fqdn| Some(fqdn.scope()) == self.scope.as_ref())
    }

    pub(super) async fn place(
        mut self,
        analysis: &Analysis,
        asked: Asked,
    ) -> Result<Placement, ErrorBody> {
        for id in &analysis.tools {
            let is_found = self.answers.contains_key(id) || self.elsewhere.has(id);
            if !self.app.is_local(id) && !is_found {
                let mut reaches = BTreeMap::new();
                if let Some((name, integrity)) =
                    self.reach_of_pinned(id, CAPABILITY_DEPTH, &mut reaches).await?
                {
                    let reached =
                        Reached { name, integrity: Some(integrity), reaches, sends: false };
                    self.started_before.extend(self.startable(reached.reaches.keys())?);
                    self.ran_before.insert(id.clone(), reached);
                } else {
                    self.started_before.extend(self.startable([id].into_iter())?);
                }
            }
        }
        let offline = matches!(asked, Asked::No(_));
        let tools: BTreeMap<ToolId, Placed> = analysis
            .tools
            .iter()
            .map(|id| (id.clone(), self.placed(id, offline, CAPABILITY_DEPTH)))
            .collect();
        let refusals = self.refusals(&tools);
        let mut notes = self.notes(&tools);
        let mut runs_on = Side::decide(analysis.dynamic, tools.values().map(|placed| placed.side));
        let permissions = self.app.permissions();
        let asks = analysis.tools.iter().find(|id| {
            let full = self.full_name(id);
            has_ask_rule(&permissions, [*id].into_iter())
                || full.is_some_and(|full| asks_by_full_name(&permissions, id, &full))
        });
        // Nobody is asked about a program that is refused.
        if let Some(id) = asks.filter(|_| runs_on != Side::Client && refusals.is_empty()) {
            // Only this machine can ask the user.
            runs_on = Side::Client;
            notes.push(format!(
                "a permission rule of yours asks about `{id}`, so the program runs here"
            ));
        }
        if permissions.policy().counts_calls() && runs_on != Side::Client {
            runs_on = Side::Client;
            notes.push("your policy counts calls, so the program runs here".to_owned());
        }
        if self.app.permissions().keeps_text() && runs_on != Side::Client {
            runs_on = Side::Client;
            notes.push("`analysis` is `local`, so the program runs here".to_owned());
        }
        // The gateway runs programs without tools, but without a key nothing is submitted to it.
        if analysis.tools.is_empty() && asked != Asked::Now && !self.app.cloud()?.has_key().await {
            runs_on = Side::Client;
        }
        notes.append(&mut self.warnings);
        notes.extend_from_slice(self.elsewhere.warnings());
        let gateway = self.app.cloud()?.gateway().to_string();
        // A program with a denied tool is refused before the gateway is asked.
        let is_denied = analysis.tools.iter().any(|id| why_refused(&permissions, id).is_some());
        let text_goes_to = (!is_denied
            && inquiry::sends_text(self.app, analysis, &self.elsewhere).await?)
            .then(|| gateway.clone());
        Ok(Placement { tools, runs_on, asked, gateway, text_goes_to, refusals, notes })
    }

    fn placed(&self, id: &ToolId, offline: bool, depth: usize) -> Placed {
        let plain = |side, source| Placed {
            side,
            source,
            age_s: None,
            capability: None,
            asks_gateway: side == Side::Client && id.as_str() == SEARCH_TOOLS,
            sends_to: None,
            registry: None,
            // Whether the effect table may classify the tool by its name: not if a server of the user or an entry of
            // the gateway has that name.
            well_known: matches!(
                source,
                Source::Native | Source::Rules | Source::Shipped | Source::None
            ),
        };
        if self.app.is_configured(id) {
            let sends_to = self.app.remote_of(id).map(|remote| remote.origin());
            return Placed { sends_to, ..plain(Side::Client, Source::Config) };
        }
        if is_of_pml(self.app, id) {
            let sends_to = tools::sends_to(id).map(str::to_owned);
            return Placed { sends_to, ..plain(Side::Client, Source::Native) };
        }
        // A name in a capability is looked up on the gateway only.
        if depth == CAPABILITY_DEPTH
            && let Some(server) = self.elsewhere.server(id)
        {
            return match &server.registry {
                Some(registry) => Placed {
                    registry: Some(registry.clone()),
                    ..plain(Side::Client, Source::Registry)
                },
                None => Placed { well_known: false, ..plain(Side::Client, Source::Kept) },
            };
        }
        if let Some(tool) = self.answers.get(id) {
            return self.placed_by_answer(tool, Source::Gateway, 0, offline, depth);
        }
        if self.missing.contains(id) {
            return plain(Side::Unknown, Source::Gateway);
        }
        let ran_before = self.ran_before.get(id).map(|reached| {
            let mut reached = reached.clone();
            for (id, side) in &mut reached.reaches {
                *side = Side::Unknown;
                if depth > 0 {
                    let placed = self.placed(id, offline, depth - 1);
                    *side = placed.side;
                    reached.sends |= placed.sends_within();
                }
            }
            Placed {
                capability: Some(reached),
                well_known: false,
                ..plain(Side::Client, Source::Kept)
            }
        });
        // Without the gateway, a run uses the version that the user approved, whatever the gateway
        // answered last.
        if offline && let Some(ran_before) = ran_before {
            return ran_before;
        }
        if offline && self.started_before.contains(id) {
            return Placed { well_known: false, ..plain(Side::Client, Source::Kept) };
        }
        if let Some((tool, age_s)) = self.learned.as_ref().and_then(|learned| learned.of(id)) {
            return self.placed_by_answer(tool, Source::Cache, age_s, offline, depth);
        }
        if let Some((routing, age_s)) = self.rules.as_ref().and_then(|rules| rules.of(id)) {
            return Placed { age_s: Some(age_s), ..plain(routing.into(), Source::Rules) };
        }
        match RoutingRules::shipped().covering(id) {
            Some(routing) => plain(routing.into(), Source::Shipped),
            None => plain(Side::Unknown, Source::None),
        }
    }

    fn placed_by_answer(
        &self,
        tool: &ToolUse,
        source: Source,
        age_s: u64,
        offline: bool,
        depth: usize,
    ) -> Placed {
        let name = tool.fqdn.as_deref().and_then(|fqdn| fqdn.parse::<Fqdn>().ok());
        let is_shipped = name.as_ref().is_some_and(|name| *name.scope() == Scope::public());
        let placed = |side, capability| Placed {
            side,
            source,
            age_s: Some(age_s),
            capability,
            asks_gateway: false,
            sends_to: None,
            registry: None,
            well_known: is_shipped,
        };
        // The answers may form a cycle, which only the depth ends.
        if tool.kind == ToolUseType::Tool || depth == 0 {
            return placed(tool.routing.into(), None);
        }
        let reached_ids = inquiry::listed(tool).unwrap_or_default();
        // A rule may use the full name of a tool that the program calls by its short name.
        let names = tool.id.parse::<ToolId>().ok().zip(inquiry::full_name(tool));
        let permissions = self.app.permissions();
        let asks = has_ask_rule(&permissions, reached_ids.iter())
            || names.is_some_and(|(name, full)| asks_by_full_name(&permissions, &name, &full));
        let side = if asks { Side::Client } else { tool.routing.into() };
        let is_own = self.is_of_own_scope(tool);
        let mut sends = false;
        let sides = reached_ids.into_iter().map(|id| {
            let side = match side {
                // A capability that runs on the gateway makes all of its calls there.
                Side::Server => Side::Server,
                // In another scope the name may resolve to a different tool.
                _ if !is_own && !self.app.is_local(&id) => Side::Unknown,
                _ => {
                    let placed = self.placed(&id, offline, depth - 1);
                    sends |= placed.sends_within();
                    placed.side
                }
            };
            (id, side)
        });
        let reaches = sides.collect();
        let reached = Reached {
            name: tool.fqdn.clone().unwrap_or_default(),
            integrity: tool.integrity,
            reaches,
            sends,
        };
        placed(side, Some(reached))
    }

    /// Returns those tools whose server starts without the gateway.
    fn startable<'b>(
        &self,
        ids: impl Iterator<Item = &'b ToolId>,
    ) -> Result<Vec<ToolId>, ErrorBody> {
        let mut startable = Vec::new();
        for id in ids {
            if !self.app.is_local(id) && self.app.stored_servers(id, None)?.len() == 1 {
                startable.push(id.clone());
            }
        }
        Ok(startable)
    }

    /// Returns the full name of a tool of the gateway, as far as it is known.
    fn full_name(&self, id: &ToolId) -> Option<ToolId> {
        let learned = || self.learned.as_ref()?.of(id).map(|(tool, _)| tool);
        self.answers.get(id).or_else(learned).and_then(inquiry::full_name)
    }

    /// Returns why a program with these tools is refused.
    fn refusals(&self, tools: &BTreeMap<ToolId, Placed>) -> Vec<String> {
        let permissions = self.app.permissions();
        let mut refusals = Vec::new();
        for (id, placed) in tools {
            if let Some(reason) = why_refused(&permissions, id) {
                refusals.push(format!("`{id}` is denied: {reason}"));
            } else if matches!(placed.source, Source::Gateway | Source::Cache)
                && let Some(full) = self.full_name(id)
                && let Err(error) = refuse_denied_by_rule(&permissions, &full, "")
            {
                refusals.push(format!("`{id}` is refused: {}", error.message));
            }
            if placed.source == Source::Config {
                refusals.extend(self.app.check_listed(id).err().map(|error| error.message));
            } else if placed.source == Source::Native && !self.app.is_local(id) {
                refusals.push(format!(
                    "`{}` is built into `pml` and has no tool `{}`",
                    id.namespace(),
                    id.action()
                ));
            }
            if self.missing.contains(id) && placed.source == Source::Gateway {
                refusals.push(format!("`{id}` is not registered"));
            }
            for reached_id in placed.capability.iter().flat_map(|reached| reached.reaches.keys()) {
                if let Some(reason) = why_refused(&permissions, reached_id) {
                    refusals
                        .push(format!("`{id}` calls `{reached_id}`, which is denied: {reason}"));
                }
            }
        }
        refusals
    }

    /// Returns notes about hidden entries and rules that change a location.
    fn notes(&self, tools: &BTreeMap<ToolId, Placed>) -> Vec<String> {
        let mut notes = Vec::new();
        for (id, placed) in tools {
            if placed.source == Source::Config {
                let namespace = id.namespace();
                let known = self.answers.get(id).and_then(|tool| tool.fqdn.as_deref());
                let hidden = hidden_by_configured(id, known);
                if let Some(hidden) = hidden {
                    notes.push(format!(
                        "`{id}` belongs to your own server `{namespace}`, which hides {hidden}"
                    ));
                }
            }
            for reached_id in placed.capability.iter().flat_map(|reached| reached.reaches.keys()) {
                let known = self.answers.get(id);
                if known.is_some_and(|tool| tool.routing == Routing::Server)
                    && has_ask_rule(&self.app.permissions(), [reached_id].into_iter())
                {
                    notes.push(format!(
                        "a permission rule of yours asks about `{reached_id}`, so `{id}`, which calls it, runs here"
                    ));
                }
            }
        }
        notes.dedup();
        notes
    }

    /// Returns the name and hash of a capability that ran here before, and adds the tools that it reaches to `reaches`.
    fn reach_of_pinned<'b>(
        &'b self,
        id: &'b ToolId,
        depth: usize,
        reaches: &'b mut BTreeMap<ToolId, Side>,
    ) -> BoxFuture<'b, Result<Option<(String, Integrity)>, ErrorBody>> {
        async move {
            let pinned = self.app.lockfile.capabilities(id)?;
            let last =
                pinned.last().and_then(|last| load_module(self.app.records(), last.integrity));
            // The depth bounds the work, because stored capabilities may call each other in a
            // circle.
            let Some(module) = last.filter(|_| depth > 0) else { return Ok(None) };
            for tool in &self.app.analyser()?.analyse(&module.code).await?.tools {
                let inner = self.reach_of_pinned(tool, depth - 1, reaches).await?;
                let side = if inner.is_some() { Side::Client } else { Side::Unknown };
                reaches.insert(tool.clone(), side);
            }
            Ok(Some((module.versioned(), module.integrity)))
        }
        .boxed()
    }
}
