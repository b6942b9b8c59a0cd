//! Public entries of the registry, which can be read without an API key.

use protocol::{ErrorBody, ErrorCode, Fqdn, Routing, Scope, ToolId, ToolUse, ToolUseType};

use super::Resolver;
use crate::app::App;
use crate::capabilities::Module;

impl Resolver<'_> {
    /// Returns whether only public entries can be read: there is no API key, with which the gateway resolves names.
    pub(super) async fn reads_public(&self) -> Result<bool, ErrorBody> {
        Ok(self.keeps_here && !self.app.cloud()?.has_key().await)
    }

    /// Reads a public capability by its full name, or by that of the catalog, and describes it as the gateway does.
    pub(super) async fn public_capability(&self, id: &ToolId) -> Result<ToolUse, ErrorBody> {
        let scope = id.scope().unwrap_or_else(Scope::public);
        let mut requested = Fqdn::of_tool(scope, &id.plain()).to_string();
        if let Some(version) = id.version() {
            requested = format!("{requested}@{version}");
        }
        let module = self.app.cloud()?.module(&requested).await.map_err(|mut error| {
            error.hint = "Without an API key, only public capabilities can be added, by their full names. `pml login` stores a key.".to_owned();
            error
        })?;
        let module = Module::read(module)?;
        // `find` fetches the module again by this description, and compares both.
        Ok(module.tool_use(id))
    }
}

/// Describes the servers that a capability was published against, as the gateway does. Without an API key, the gateway does
/// not say what the other names in its program mean.
pub(super) fn public_servers(
    app: &App,
    module: &Module,
    tools: &[ToolId],
) -> Result<Vec<ToolUse>, ErrorBody> {
    let elsewhere = tools.iter().filter(|id| !app.is_local(id));
    let described = elsewhere.map(|id| {
        let dependency = module.mcp_deps.iter().find(|dependency| dependency.name == id.namespace());
        let fqdn = dependency.and_then(|dependency| dependency.fqdn.parse::<Fqdn>().ok());
        let fqdn = fqdn.filter(|fqdn| id.scope().is_none_or(|scope| scope == *fqdn.scope()));
        let Some(fqdn) = fqdn else {
            let message = format!(
                "capability `{}` calls `{id}`, which only the gateway can find, for the holder of an API key",
                module.id
            );
            return Err(ErrorBody::new(ErrorCode::Unauthorized, message));
        };
        let name = Fqdn::of_tool(fqdn.scope().clone(), &id.plain());
        Ok(ToolUse {
            id: id.to_string(),
            fqdn: Some(name.to_string()),
            version: id.version().map(str::to_owned),
            kind: ToolUseType::Tool,
            routing: Routing::Client,
            integrity: None,
            tools: None,
            lacks_key: None,
        })
    });
    described.collect()
}
