//! Resolves the tools of a program, and those of the capabilities that it reaches, to targets.
//!
//! All of them are resolved before the run starts, so that a program that cannot run, or is denied, is refused before
//! it has any effect. The gateway determines where a tool is; the analysis on this machine determines which tools a
//! capability calls.

mod elsewhere;
mod public;
mod stored;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt as _};
use protocol::{
    CAPABILITY_DEPTH, CAPABILITY_REACH, EntryType, ErrorBody, ErrorCode, Fqdn, RegistryEntry,
    Routing, Scope, ToolId, ToolUse, ToolUseType, escape_text,
};
use tokio_util::sync::CancellationToken;

use self::public::public_servers;
use self::stored::{Stored, stored_names};
use crate::app::{App, Elsewhere, log_override};
use crate::capabilities::{self, Capability, Module, RegisteredServer, Target};
use crate::consent::decision::{has_ask_rule, refuse_denied, refuse_denied_by_rule};
use crate::placement::inquiry::{self, Resolution};
use crate::tools;

/// Finds the targets of one program.
pub(crate) struct Resolver<'a> {
    app: &'a App,
    /// Whether there is no gateway to query.
    offline: bool,
    /// Whether capabilities are to run here, although the gateway could run them.
    keeps_here: bool,
    /// The tools of the run's program that are in other registries.
    elsewhere: Elsewhere,
    /// Whether calls on the gateway name the version that it answered with.
    exact: bool,
    cancel: &'a CancellationToken,
    /// The capabilities that are being resolved, the outermost first.
    stack: Vec<OpenCapability>,
    found: HashMap<ScopedName, Arc<Capability>>,
    reached: HashSet<ScopedName>,
}

/// A name, and the scope of the program that uses it; `None` for the program of the run.
type ScopedName = (Option<Scope>, ToolId);

/// A capability whose tools are being resolved.
struct OpenCapability {
    id: ToolId,
    /// Its full name with its version.
    name: String,
    scope: Scope,
}

impl<'a> Resolver<'a> {
    /// Creates a resolver that queries the gateway, or with `offline` uses stored capabilities only.
    pub(crate) fn new(app: &'a App, offline: bool, cancel: &'a CancellationToken) -> Self {
        Self {
            app,
            offline,
            keeps_here: false,
            elsewhere: Elsewhere::default(),
            exact: false,
            cancel,
            stack: Vec::new(),
            found: HashMap::new(),
            reached: HashSet::new(),
        }
    }

    /// Creates a resolver that fetches every capability, so that it can run here later without the gateway.
    pub(crate) fn keeping(app: &'a App, cancel: &'a CancellationToken) -> Self {
        Self { keeps_here: true, ..Self::new(app, false, cancel) }
    }

    /// Makes calls on the gateway name the version that it answered with. It resolves a name again with each call, and
    /// without a version to the newest one of that time.
    pub(crate) fn with_exact_versions(mut self) -> Self {
        self.exact = true;
        self
    }

    /// Sets what other registries than the gateway have of the run's program. The names in a capability are looked up on the
    /// gateway only, in its own scope.
    pub(crate) fn with_elsewhere(mut self, elsewhere: Elsewhere) -> Self {
        self.elsewhere = elsewhere;
        self
    }

    /// Returns what the user should know about the search for tools.
    pub(crate) fn warnings(&self) -> &[String] {
        self.elsewhere.warnings()
    }

    /// Resolves the tools of a program; `answers` is the gateway's answer about them.
    ///
    /// # Errors
    /// Returns `PERMISSION_DENIED` for a tool that a rule denies, even within a capability; `INTEGRITY_MISMATCH`,
    /// `GATEWAY_BAD_ANSWER` or `TOO_COMPLEX` for a capability that does not match its description, and otherwise why
    /// a tool is unavailable.
    pub(crate) async fn resolve(
        &mut self,
        ids: &[ToolId],
        answers: &[ToolUse],
    ) -> Result<HashMap<ToolId, Target>, ErrorBody> {
        let mut targets = HashMap::new();
        for id in ids {
            let known = answers.iter().find(|tool| tool.id == id.as_str());
            targets.insert(id.clone(), self.find(id, known).await?);
        }
        Ok(targets)
    }

    /// Resolves a tool of a dynamic program, whose name is known only when it is called.
    ///
    /// # Errors
    /// As [`Resolver::resolve`].
    pub(crate) async fn find_called(&mut self, id: &ToolId) -> Result<Target, ErrorBody> {
        let is_here = self.app.is_local(id) || is_this_machine(self.app, id);
        let answers = if self.offline || is_here {
            Vec::new()
        } else if self.reads_public().await? {
            vec![self.public_capability(id).await?]
        } else {
            self.look_up_called(id).await?
        };
        let known = answers.iter().find(|tool| tool.id == id.as_str());
        self.find(id, known).await
    }

    /// Looks for the tool in `.pml.json` first, then among the native tools, then in the registries.
    async fn find(&mut self, id: &ToolId, known: Option<&ToolUse>) -> Result<Target, ErrorBody> {
        self.refuse_denied(id)?;
        let named = (self.base().cloned(), id.clone());
        self.reached.insert(named.clone());
        // Counted across all levels, because the limit of the depth alone allows very many.
        if self.reached.len() > CAPABILITY_REACH {
            let message =
                format!("the program reaches more than {CAPABILITY_REACH} tools and capabilities");
            return Err(ErrorBody::new(ErrorCode::TooComplex, message));
        }
        if self.app.is_configured(id) {
            self.app.check_listed(id)?;
            log_override(id, known.and_then(|tool| tool.fqdn.as_deref()));
            return Ok(Target::Configured);
        }
        if self.app.is_local(id) {
            return Ok(Target::Native);
        }
        if is_this_machine(self.app, id) {
            // A native namespace is never looked up in the registry: only the user's `override` can replace it.
            let (namespace, action) = (id.namespace(), id.action());
            let message = match id.is_plain() {
                true => format!("`{namespace}` is built into `pml` and has no tool `{action}`"),
                false => format!(
                    "`{namespace}` is on this machine, where tools have no versions: write `{}`",
                    id.plain()
                ),
            };
            return Err(ErrorBody::new(ErrorCode::ToolNotFound, message));
        }
        if let Some(found) = self.found.get(&named) {
            // It was resolved at another depth, perhaps closer to the top.
            self.check_depth(id, found.height)?;
            return Ok(Target::Capability(Arc::clone(found)));
        }
        if self.base().is_none()
            && let Some(server) = self.elsewhere.server(id)
        {
            return self.server_elsewhere(id, Arc::clone(server));
        }
        if self.offline {
            return match self.stored(id)? {
                Stored::Capability(module) => {
                    self.refuse_full_name(&id.plain().within(module.name.scope()))?;
                    self.open(id, *module).await
                }
                Stored::Server(server) => {
                    let scope = server.fqdn.parse::<Fqdn>().map(|fqdn| fqdn.scope().clone());
                    let scope = scope.map_err(|_| other_name(id, &server.fqdn))?;
                    self.refuse_full_name(&id.plain().within(&scope))?;
                    check_tool(id, &server)?;
                    Ok(Target::Registered(server))
                }
            };
        }
        let tool = known.ok_or_else(|| not_described(id.as_str()))?;
        check_answer(id, tool)?;
        if let Some(full) = inquiry::full_name(tool) {
            // A rule may use the full name of a tool that the program calls by its short name.
            self.refuse_full_name(&full)?;
        }
        match (tool.kind, tool.routing) {
            (ToolUseType::Tool, Routing::Server) => Ok(self.gateway_target(id, tool)),
            (ToolUseType::Tool, Routing::Client) => self.registered_server(id, tool).await,
            (ToolUseType::Capability, routing) => {
                let listed = inquiry::listed(tool)?;
                for reached in &listed {
                    self.refuse_denied_below(id, reached)?;
                }
                // A capability that reaches a tool with an `ask` rule runs here: only this machine can ask the user.
                if routing == Routing::Server
                    && !self.keeps_here
                    && !has_ask_rule(&self.app.permissions(), listed.iter())
                {
                    return Ok(self.gateway_target(id, tool));
                }
                let module = self.module(id, tool).await?;
                self.open(id, module).await
            }
        }
    }

    /// Returns the scope in which names are resolved; `None` for the program of the run.
    fn base(&self) -> Option<&Scope> {
        self.stack.last().map(|open| &open.scope)
    }

    /// Returns the target of a call that the gateway executes. A forwarded call carries no scope, so a short name in a
    /// capability is replaced by the full name.
    fn gateway_target(&self, id: &ToolId, tool: &ToolUse) -> Target {
        let full = name_of(tool).filter(|_| self.base().is_some());
        let mut name = full.map_or_else(|| id.clone(), |full| id.within(full.scope()));
        if self.exact
            && let (Some(full), Some(version)) = (name_of(tool), &tool.version)
            && let Ok(exact) = id.within(full.scope()).at(version)
        {
            name = exact;
        }
        let missing_secret = tool.lacks_key.clone();
        Target::Gateway { name, missing_secret, described: Arc::new(tool.clone()) }
    }

    fn refuse_denied(&self, id: &ToolId) -> Result<(), ErrorBody> {
        match self.stack.last() {
            Some(caller) => self.refuse_denied_below(&caller.id, id),
            None => refuse_denied(&self.app.permissions(), id, ""),
        }
    }

    /// Refuses a tool by its full name. Of the program's own names, the policy judges those that the program uses. Within a
    /// capability, a short name can mean a tool of another organisation, which its full name tells.
    fn refuse_full_name(&self, full: &ToolId) -> Result<(), ErrorBody> {
        match self.stack.last() {
            Some(caller) => self.refuse_denied_below(&caller.id, full),
            None => refuse_denied_by_rule(&self.app.permissions(), full, ""),
        }
    }

    fn refuse_denied_below(&self, caller: &ToolId, id: &ToolId) -> Result<(), ErrorBody> {
        refuse_denied(&self.app.permissions(), id, &format!(", and capability `{caller}` calls it"))
    }

    /// Reads the registry's entry of the MCP server that provides a tool, and verifies it.
    async fn registered_server(&self, id: &ToolId, tool: &ToolUse) -> Result<Target, ErrorBody> {
        // The server is looked up by its full name: a short name could start a different one.
        let fqdn = name_of(tool).ok_or_else(|| not_described(&tool.id))?;
        // Only an id with a scope gets here; `find` has refused one without.
        if tools::is_native(fqdn.namespace()) {
            let message = format!(
                "`{}` is built into `pml`; the registry's server of that name cannot start here",
                fqdn.namespace()
            );
            return Err(ErrorBody::new(ErrorCode::ToolUnavailable, message));
        }
        let mut server = format!("{}.{}", fqdn.scope(), fqdn.namespace());
        if let Some(version) = id.version() {
            server = format!("{server}@{version}");
        }
        let entry = self.app.cloud()?.entry(&server).await?;
        let matches_name = entry.fqdn.parse::<Fqdn>().is_ok_and(|found| {
            (found.scope(), found.namespace()) == (fqdn.scope(), fqdn.namespace())
        });
        if !matches_name
            || id.version().is_some_and(|wanted| entry.server_version.as_deref() != Some(wanted))
        {
            return Err(other_name(id, &entry.fqdn));
        }
        // The approval of the user is bound to this hash, so it must be the hash of what would
        // start.
        if entry.integrity != entry.content_integrity() {
            return Err(ErrorBody::new(
                ErrorCode::IntegrityMismatch,
                format!("the registry's entry `{server}` does not match its hash"),
            ));
        }
        check_tool(id, &entry)?;
        match (entry.routing, entry.kind) {
            (Routing::Server, _) => Ok(self.gateway_target(id, tool)),
            (Routing::Client, EntryType::Stdio) => {
                Ok(Target::Registered(Arc::new(RegisteredServer::of_gateway(entry))))
            }
            (Routing::Client, kind) => Err(ErrorBody::new(
                ErrorCode::ToolUnavailable,
                format!(
                    "`{id}` runs on the client, and this `pml` has no way to run `{}`",
                    kind.as_str()
                ),
            )),
        }
    }

    /// Returns the program of a capability: stored here, or else from the gateway.
    async fn module(&self, id: &ToolId, tool: &ToolUse) -> Result<Module, ErrorBody> {
        let (Some(name), Some(integrity)) = (name_of(tool), tool.integrity) else {
            return Err(not_described(&tool.id));
        };
        if let Some(module) = capabilities::load_module(self.app.records(), integrity)
            // The hash is a claim of the gateway, so the name and the version are checked too.
            && module.name == name.unpinned()
            && module.is_version(id)
        {
            return Ok(module);
        }
        let mut requested = name.to_string();
        if let Some(version) = id.version() {
            requested = format!("{requested}@{version}");
        }
        let module = Module::read(self.app.cloud()?.module(&requested).await?)?;
        if module.name != name.unpinned() || !module.is_version(id) {
            return Err(other_name(id, &module.versioned()));
        }
        // `Module::read` has checked the module against its own hashes only.
        if module.integrity != integrity {
            let message = format!(
                "capability `{id}` has the hash {}, but the gateway announced {integrity}",
                module.integrity
            );
            return Err(ErrorBody::new(ErrorCode::IntegrityMismatch, message));
        }
        Ok(module)
    }

    /// Analyses a capability and resolves the tools that it calls.
    ///
    /// Boxed, because it is recursive: a capability may call capabilities.
    fn open<'b>(
        &'b mut self,
        id: &'b ToolId,
        module: Module,
    ) -> BoxFuture<'b, Result<Target, ErrorBody>> {
        async move {
            let name = module.versioned();
            // By full name and version, because a cycle can use several ids of one capability.
            if self.stack.iter().any(|open| open.name == name) {
                let message = format!("capability `{id}` calls itself");
                return Err(ErrorBody::new(ErrorCode::TooComplex, message));
            }
            self.check_depth(id, 1)?;
            // Before the analysis: different bytes for a pinned version are not even parsed.
            self.app.lockfile.check(&module)?;
            let analysis = self.app.analyser()?.analyse(&module.code).await?;
            let declared = analysis.tools.iter().map(ToolId::as_str);
            // A difference means that the entry was manipulated or that another version of the analysis published
            // it.
            if !analysis.can_run() || analysis.dynamic || !declared.eq(module.calls.iter()) {
                let message = format!(
                    "capability `{id}`: the analysis of its program differs from that at publication; publish it again"
                );
                return Err(ErrorBody::new(ErrorCode::IntegrityMismatch, message));
            }
            let all_here = analysis.tools.iter().all(|id| self.app.is_local(id));
            let scope = module.name.scope().clone();
            // Without this request, a capability of local tools runs while the gateway is
            // unreachable.
            let answers = if all_here || self.offline {
                Resolution::default()
            } else if self.reads_public().await? {
                let tools = public_servers(self.app, &module, &analysis.tools)?;
                Resolution { tools, ..Resolution::default() }
            } else {
                // Not its text, which may have come from another gateway.
                inquiry::look_up(self.app, &analysis.tools, Some(&scope), self.cancel).await?
            };
            let named = (self.base().cloned(), id.clone());
            // In the caller's own scope, a short name means the same tool as in the caller's programs.
            let caller_scope = scope.clone();
            self.stack.push(OpenCapability { id: id.clone(), name, scope });
            let targets = self.resolve(&analysis.tools, &answers.tools).await;
            // Before the result is checked, so that the stack is right after an error too.
            self.stack.pop();
            let targets = targets?;
            let rules = if self.offline {
                // The caller's own scope is not known, so no rule for a short name is applied to it.
                stored_names(&targets)
            } else if answers.scope.as_ref() == Some(&caller_scope) {
                HashMap::new()
            } else {
                foreign_names(self.app, &answers.tools)
            };
            let capability = Capability::new(module, analysis, targets).with_rule_names(rules);
            let capability = Arc::new(capability);
            self.found.insert(named, Arc::clone(&capability));
            Ok(Target::Capability(capability))
        }
        .boxed()
    }

    fn check_depth(&self, id: &ToolId, height: usize) -> Result<(), ErrorBody> {
        if self.stack.len() + height <= CAPABILITY_DEPTH {
            return Ok(());
        }
        let message =
            format!("capability `{id}` is nested too deeply; the limit is {CAPABILITY_DEPTH}");
        Err(ErrorBody::new(ErrorCode::TooComplex, message))
    }
}

/// Returns whether an id without a scope is in a namespace of this machine, which the registry cannot override.
fn is_this_machine(app: &App, id: &ToolId) -> bool {
    id.scope().is_none() && (tools::is_native(id.namespace()) || app.is_configured(&id.plain()))
}

/// Checks the gateway's answer about a tool against the name in the program.
///
/// # Errors
/// Returns `GATEWAY_BAD_ANSWER` for a different tool, scope or version.
fn check_answer(id: &ToolId, tool: &ToolUse) -> Result<(), ErrorBody> {
    let Some(fqdn) = tool.fqdn.as_deref() else { return Ok(()) };
    let matches_name = name_of(tool).is_some_and(|fqdn| id.can_be(&fqdn));
    let is_version = id.version().is_none_or(|wanted| tool.version.as_deref() == Some(wanted));
    if matches_name && is_version {
        return Ok(());
    }
    let version = tool.version.as_deref().map_or_else(String::new, |text| format!("@{text}"));
    Err(other_name(id, &format!("{fqdn}{version}")))
}

/// Refuses a tool that a server's entry does not have. Otherwise the user would approve the start of a server for
/// nothing.
fn check_tool(id: &ToolId, entry: &RegistryEntry) -> Result<(), ErrorBody> {
    if entry.tools.iter().any(|tool| tool.name == id.action()) {
        return Ok(());
    }
    let message = format!("`{}` has no tool `{}`", escape_text(&entry.fqdn), id.action());
    Err(ErrorBody::new(ErrorCode::ToolNotFound, message))
}

/// Returns the full names that the short names in another scope's program resolve to.
fn foreign_names(app: &App, answers: &[ToolUse]) -> HashMap<ToolId, ToolId> {
    let named = answers.iter().filter_map(|tool| {
        let id: ToolId = tool.id.parse().ok()?;
        // This machine's own tool runs, whatever the gateway resolves its name to.
        if app.is_local(&id) {
            return None;
        }
        // An entry of the catalog is the same in every scope, so rules for its short name apply.
        let fqdn = name_of(tool).filter(|fqdn| *fqdn.scope() != Scope::public())?;
        let full = id.within(fqdn.scope());
        Some((id, full))
    });
    named.collect()
}

fn name_of(tool: &ToolUse) -> Option<Fqdn> {
    tool.fqdn.as_deref()?.parse().ok()
}

fn not_described(id: &str) -> ErrorBody {
    let message = format!("the gateway does not describe `{}`", escape_text(id));
    ErrorBody::new(ErrorCode::ToolUnavailable, message)
}

fn other_name(id: &ToolId, name: &str) -> ErrorBody {
    let message = format!("the registry answered for `{id}` with `{}`", escape_text(name));
    ErrorBody::new(ErrorCode::GatewayBadAnswer, message)
}
