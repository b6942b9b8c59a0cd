//! The tools of a program that are in registries other than the gateway.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt as _};
use protocol::look_alike::RESERVED_NAMESPACES;
use protocol::{ErrorBody, ErrorCode, ToolId};
use tokio_util::sync::CancellationToken;

use super::App;
use crate::capabilities::{self, RegisteredServer};
use crate::origin::Origin;
use crate::registries::{Found, Registries, Registry, ServerName};
use crate::tools;

/// The time limit of a whole search: a program may have many names, and each can take a request to every registry.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The maximum number of names that are looked for at the same time.
const AT_ONCE: usize = 8;

/// What registries other than the gateway have of a program.
#[derive(Debug, Clone, Default)]
pub(crate) struct Elsewhere {
    servers: HashMap<ToolId, Arc<RegisteredServer>>,
    warnings: Vec<String>,
    /// The tools that the gateway does not have, and that the registries after it were asked about.
    asked_after: HashSet<ToolId>,
}

impl Elsewhere {
    /// Returns the server that has a tool.
    pub(crate) fn server(&self, id: &ToolId) -> Option<&Arc<RegisteredServer>> {
        self.servers.get(id)
    }

    /// Returns whether one of them has a tool.
    pub(crate) fn has(&self, id: &ToolId) -> bool {
        self.servers.contains_key(id)
    }

    /// Returns whether a program names one of them by more than namespace and action. The gateway takes such a name for
    /// one of its own.
    pub(crate) fn has_full_names(&self) -> bool {
        self.servers.keys().any(|id| !id.is_plain())
    }

    /// Returns which registries were skipped, for the user; escaped.
    pub(crate) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    fn warn(&mut self, warning: String) {
        // Each name that was looked for has the same one.
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }
}

/// What was found under one name.
#[derive(Default)]
struct Search {
    server: Option<Arc<RegisteredServer>>,
    warnings: Vec<String>,
}

impl App {
    /// Returns the registries that `.pml.json` lists.
    ///
    /// # Errors
    /// Returns `CONFIG_INVALID` if the keys for them cannot be read.
    pub(crate) fn registries(&self) -> Result<&Registries, ErrorBody> {
        self.registries.as_ref().map_err(Clone::clone)
    }

    /// Returns whether servers of a registry may start here: `.pml.json` lists it, or it is the gateway.
    pub(super) fn lists_registry(&self, origin: &Origin) -> bool {
        self.registries.as_ref().is_ok_and(|registries| registries.has(origin))
    }

    /// Looks for tools in the registries before the gateway, which gets no name that one of them has.
    ///
    /// # Errors
    /// Returns that a registry did not answer, or has something of a name that cannot be used.
    pub(crate) async fn look_before_gateway(
        &self,
        ids: &[ToolId],
        cancel: &CancellationToken,
    ) -> Result<Elsewhere, ErrorBody> {
        let registries = self.registries()?;
        let mut elsewhere = Elsewhere::default();
        if registries.all().next().is_none() {
            return Ok(elsewhere);
        }
        // All of them, if there is no gateway that could be asked in between.
        let list: Vec<&Registry> = match self.asks_gateway().await? {
            true => registries.before.iter().collect(),
            false => registries.all().collect(),
        };
        self.look(&list, ids, &mut elsewhere, cancel).await?;
        Ok(elsewhere)
    }

    /// Looks for tools that the gateway does not have in the registries after it; returns whether one was found.
    ///
    /// # Errors
    /// As [`look_before_gateway`](Self::look_before_gateway).
    pub(crate) async fn look_after_gateway(
        &self,
        unknown: &[ToolId],
        elsewhere: &mut Elsewhere,
        cancel: &CancellationToken,
    ) -> Result<bool, ErrorBody> {
        let list: Vec<&Registry> = self.registries()?.after.iter().collect();
        if list.is_empty() || !self.asks_gateway().await? {
            return Ok(false);
        }
        let mut ids = Vec::new();
        for (name, same) in by_server(unknown) {
            let new: Vec<ToolId> = same
                .into_iter()
                .filter(|id| !elsewhere.has(id) && elsewhere.asked_after.insert(id.clone()))
                .collect();
            // A server belongs to the first registry that has it, also if it lacks a tool there.
            if !new.is_empty() && !self.gateway_has(&name).await? {
                ids.extend(new);
            }
        }
        let before = elsewhere.servers.len();
        self.look(&list, &ids, elsewhere, cancel).await?;
        Ok(elsewhere.servers.len() > before)
    }

    /// Looks for a server by its name, of which `ids` are searched, in the registries before the gateway or after it. The
    /// second part of the answer has the registries that were skipped.
    ///
    /// # Errors
    /// As [`look_before_gateway`](Self::look_before_gateway).
    pub(crate) async fn look_for_server(
        &self,
        name: &ServerName,
        ids: &[ToolId],
        after_gateway: bool,
    ) -> Result<(Option<Arc<RegisteredServer>>, Vec<String>), ErrorBody> {
        let registries = self.registries()?;
        let is_empty = registries.all().next().is_none();
        if is_empty || is_reserved(&name.namespace) || self.is_configured_namespace(&name.namespace)
        {
            return Ok((None, Vec::new()));
        }
        let list: Vec<&Registry> = match (after_gateway, self.asks_gateway().await?) {
            (false, true) => registries.before.iter().collect(),
            (false, false) => registries.all().collect(),
            (true, true) => registries.after.iter().collect(),
            (true, false) => Vec::new(),
        };
        // A server belongs to the first registry that has it, also if it lacks a tool there.
        if list.is_empty() || after_gateway && self.gateway_has(name).await? {
            return Ok((None, Vec::new()));
        }
        let found = self.look_for(&list, name, ids).await?;
        Ok((found.server, found.warnings))
    }

    /// Returns the servers of registries other than the gateway that the user has allowed here.
    ///
    /// # Errors
    /// Returns `CONFIG_INVALID` if the lock is invalid.
    pub(crate) fn allowed_elsewhere(&self) -> Result<Vec<RegisteredServer>, ErrorBody> {
        let allowed = self.lockfile.servers()?.into_iter().filter(|server| server.counts);
        let servers = allowed.filter_map(|server| {
            let registry = server.registry.filter(|origin| self.lists_registry(origin))?;
            let entry = capabilities::load_entry(self.records(), server.integrity)?;
            Some(RegisteredServer { entry, registry: Some(registry) })
        });
        Ok(servers.collect())
    }

    /// Returns whether the gateway takes part: the user has named one, or there is a key for the default one.
    async fn asks_gateway(&self) -> Result<bool, ErrorBody> {
        let cloud = self.cloud()?;
        Ok(!cloud.gateway().is_default() || cloud.has_key().await)
    }

    async fn gateway_has(&self, name: &ServerName) -> Result<bool, ErrorBody> {
        match self.cloud()?.entry(&name.unversioned()).await {
            Ok(_) => Ok(true),
            Err(error) if error.error_code == ErrorCode::ToolNotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Looks for tools in registries, in their order.
    async fn look(
        &self,
        list: &[&Registry],
        ids: &[ToolId],
        elsewhere: &mut Elsewhere,
        cancel: &CancellationToken,
    ) -> Result<(), ErrorBody> {
        if list.is_empty() {
            return Ok(());
        }
        let askable: Vec<ToolId> = ids
            .iter()
            .filter(|id| !self.is_local(id) && !is_reserved(id.namespace()))
            .cloned()
            .collect();
        let searches = by_server(&askable).into_iter().map(|(name, ids)| async move {
            let found = self.look_for(list, &name, &ids).await;
            (ids, found)
        });
        let searches = stream::iter(searches).buffered(AT_ONCE).collect::<Vec<_>>();
        let found = tokio::select! {
            found = tokio::time::timeout(TIMEOUT, searches) => found.map_err(|_| too_slow())?,
            () = cancel.cancelled() => {
                return Err(ErrorBody::new(ErrorCode::Cancelled, "the run was cancelled"));
            }
        };
        for (ids, found) in found {
            let Search { server, warnings } = found?;
            for warning in warnings {
                elsewhere.warn(warning);
            }
            if let Some(server) = server {
                elsewhere.servers.extend(ids.into_iter().map(|id| (id, Arc::clone(&server))));
            }
        }
        Ok(())
    }

    /// Looks for one server, of which a program calls these tools.
    async fn look_for(
        &self,
        list: &[&Registry],
        name: &ServerName,
        ids: &[ToolId],
    ) -> Result<Search, ErrorBody> {
        let actions: Vec<&str> = ids.iter().map(ToolId::action).collect();
        let what = format!("`{}`", name.unversioned());
        let mut search = Search::default();
        for registry in list {
            let origin = registry.origin();
            match registry.find(name, &actions).await {
                Ok(Found::Nothing) => {}
                Ok(Found::Server(server)) => {
                    search.server = Some(Arc::new(*server));
                    return Ok(search);
                }
                // Not the next registry: it could have something else of this name.
                Ok(Found::Unusable(reason)) => {
                    let message =
                        format!("the registry {origin} has {what}, which cannot be used: {reason}");
                    return Err(ErrorBody::new(ErrorCode::ToolUnavailable, message));
                }
                Err(failure) => {
                    // The user has allowed exactly this, wherever the name leads now.
                    if let Some(stored) = self.stored_server(ids)? {
                        search.warnings.push(format!(
                            "the registry {origin} {}; {what} is the server that you allowed here before",
                            failure.reason
                        ));
                        search.server = Some(stored);
                        return Ok(search);
                    }
                    // As little does it take an allowed capability's name from the gateway.
                    if self.is_allowed_capability(ids)? {
                        search.warnings.push(format!(
                            "the registry {origin} {}; {what} has a capability that you allowed here before",
                            failure.reason
                        ));
                        return Ok(search);
                    }
                    if !registry.is_optional() {
                        return Err(registry.error(&failure, &what));
                    }
                    search
                        .warnings
                        .push(format!("the registry {origin} was skipped: it {}", failure.reason));
                }
            }
        }
        Ok(search)
    }

    /// Returns the one server that the user has allowed here for these tools, which are of one server.
    fn stored_server(&self, ids: &[ToolId]) -> Result<Option<Arc<RegisteredServer>>, ErrorBody> {
        let Some(id) = ids.first() else { return Ok(None) };
        let mut stored = self.stored_servers(id, None)?;
        Ok(if stored.len() == 1 { stored.pop() } else { None })
    }

    /// Returns whether the user has allowed a capability for each of these tools.
    fn is_allowed_capability(&self, ids: &[ToolId]) -> Result<bool, ErrorBody> {
        for id in ids {
            if self.lockfile.capabilities(id)?.is_empty() {
                return Ok(false);
            }
        }
        Ok(!ids.is_empty())
    }
}

fn too_slow() -> ErrorBody {
    let message = format!(
        "the registries of `.pml.json` did not answer about all names of the program within {} s",
        TIMEOUT.as_secs()
    );
    ErrorBody::new(ErrorCode::GatewayUnreachable, message)
}

/// Returns whether no registry can have a namespace: `pml` has it itself.
fn is_reserved(namespace: &str) -> bool {
    tools::is_native(namespace) || RESERVED_NAMESPACES.contains(&namespace)
}

fn by_server(ids: &[ToolId]) -> BTreeMap<ServerName, Vec<ToolId>> {
    let mut by_server: BTreeMap<ServerName, Vec<ToolId>> = BTreeMap::new();
    for id in ids {
        by_server.entry(ServerName::of(id)).or_default().push(id.clone());
    }
    by_server
}
