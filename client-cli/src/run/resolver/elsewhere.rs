//! Tools of registries other than the gateway.

use std::sync::Arc;

use protocol::{ErrorBody, ErrorCode, Fqdn, ToolId, ToolUse};

use super::{Resolver, check_tool, other_name};
use crate::capabilities::{RegisteredServer, Target};
use crate::placement::inquiry;

impl Resolver<'_> {
    /// Looks for a tool in the registries before the gateway, on the gateway, and in the registries after it; returns the
    /// gateway's answer.
    pub(super) async fn look_up_called(&mut self, id: &ToolId) -> Result<Vec<ToolUse>, ErrorBody> {
        // Before it is asked about anywhere.
        self.refuse_denied(id)?;
        let ids = std::slice::from_ref(id);
        if !self.keeps_here {
            self.elsewhere = self.app.look_before_gateway(ids, self.cancel).await?;
        }
        if self.elsewhere.has(id) {
            return Ok(Vec::new());
        }
        match inquiry::look_up(self.app, ids, None, self.cancel).await {
            Ok(found) => Ok(found.tools),
            Err(error) if error.error_code == ErrorCode::ToolNotFound && !self.keeps_here => {
                let elsewhere = &mut self.elsewhere;
                match self.app.look_after_gateway(ids, elsewhere, self.cancel).await? {
                    true => Ok(Vec::new()),
                    false => Err(error),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the server that another registry than the gateway has. Its entry was compared with the name when it was read.
    pub(super) fn server_elsewhere(
        &self,
        id: &ToolId,
        server: Arc<RegisteredServer>,
    ) -> Result<Target, ErrorBody> {
        let scope = server.fqdn.parse::<Fqdn>().map(|fqdn| fqdn.scope().clone());
        let scope = scope.map_err(|_| other_name(id, &server.fqdn))?;
        // A rule may use the full name of a tool that the program calls by its short name.
        self.refuse_denied(&id.plain().within(&scope))?;
        check_tool(id, &server)?;
        Ok(Target::Registered(server))
    }
}
