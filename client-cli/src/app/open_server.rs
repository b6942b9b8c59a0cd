//! Local servers that are open for a call, and what their tools are compared with.

use std::sync::Arc;

use protocol::{ErrorBody, Integrity, ToolDescriptor, ToolId};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::App;
use crate::capabilities::{RegisteredServer, Target};
use crate::consent::changed_tool::ChangedTool;
use crate::consent::lockfile::ToolsOf;
use crate::consent::question::Start;
use crate::local_mcp::{Files, LocalMcpError, Opened};

/// A server that runs.
pub(crate) struct OpenServer {
    opened: Opened,
    /// What it lists, if its tools are pinned.
    pinned: Option<(ToolsOf, Arc<Vec<ToolDescriptor>>)>,
}

impl OpenServer {
    /// Returns whether its tools are pinned, so that it has listed them.
    pub(crate) fn is_pinned(&self) -> bool {
        self.pinned.is_some()
    }

    /// Calls a tool and returns its raw MCP result; `refused` gets the connections that the server was refused meanwhile.
    ///
    /// # Errors
    /// Returns why the server did not answer.
    pub(crate) async fn call(
        &self,
        id: &ToolId,
        arguments: Value,
        refused: &mut Option<String>,
        cancel: &CancellationToken,
    ) -> Result<Value, ErrorBody> {
        self.opened.call(id.action(), arguments, refused, cancel).await.map_err(body)
    }
}

impl App {
    /// Opens the server of `.pml.json` or of the registry that provides a tool, starting it if it does not run. It lists
    /// its tools once for each start, and when it says that they changed.
    ///
    /// # Errors
    /// Returns why it cannot be started or does not answer.
    pub(crate) async fn open_server(
        self: &Arc<Self>,
        target: &Target,
        id: &ToolId,
        arguments: &Value,
        cancel: &CancellationToken,
    ) -> Result<OpenServer, ErrorBody> {
        let (server, of) = match target {
            Target::Registered(entry) => {
                (self.add_registered(entry, id)?, Some(ToolsOf::registered(entry)))
            }
            _ => (id.namespace().to_owned(), self.tools_of_configured(id.namespace())),
        };
        // A process that runs is what was allowed when it started.
        let check = || match target {
            Target::Registered(entry) => self.check_registered(entry, id),
            _ => self.check_program(id.namespace()),
        };
        let opened = self.local.open(&server, id.action(), arguments, &check, cancel).await;
        let opened = opened.map_err(body)?;
        let Some(of) = of else { return Ok(OpenServer { opened, pinned: None }) };
        let tools = match opened.tools(cancel).await {
            Ok(tools) => tools,
            // It lists nothing, so nobody was told of its tools, and nothing can be pinned.
            Err(LocalMcpError::Refused { .. }) if !self.lockfile.has_tools(&of)? => {
                return Ok(OpenServer { opened, pinned: None });
            }
            Err(error) => return Err(body(error)),
        };
        if matches!(target, Target::Configured) && self.known_tools(&server).is_none() {
            self.learn(&server, &tools);
        }
        Ok(OpenServer { opened, pinned: Some((of, tools)) })
    }

    /// Compares a tool with what the user allowed; `None` if it can be called.
    ///
    /// # Errors
    /// Returns `TOOL_NOT_FOUND` if the server no longer lists it, and `CONFIG_INVALID` if the lock is invalid.
    pub(crate) fn changed_tool(
        &self,
        server: &OpenServer,
        id: &ToolId,
    ) -> Result<Option<ChangedTool>, ErrorBody> {
        match &server.pinned {
            Some((of, tools)) => self.lockfile.changed_tool(of, tools, id.action()),
            None => Ok(None),
        }
    }

    /// Pins a tool as the user was shown it.
    ///
    /// # Errors
    /// Returns `CONFIG_INVALID` if that cannot be stored.
    pub(crate) fn approve_tool(
        &self,
        server: &OpenServer,
        tool: &ToolDescriptor,
        by: &str,
    ) -> Result<(), ErrorBody> {
        match &server.pinned {
            Some((of, _)) => self.lockfile.approve_tool(of, tool, by),
            None => Ok(()),
        }
    }

    /// Returns the question to ask before a server of `.pml.json` starts, because its program changed; `None` if it did
    /// not.
    ///
    /// # Errors
    /// Returns the error that the start would fail with, and `CONFIG_INVALID` if the lock is invalid.
    pub(crate) fn changed_program(&self, namespace: &str) -> Result<Option<Start>, ErrorBody> {
        let Some((of, files)) = self.program_of(namespace)? else { return Ok(None) };
        let request = self.local.package_request(namespace).map_err(body)?;
        let spec = || self.local.spec(namespace).unwrap_or_default();
        self.lockfile.files_question(&of, &files, request.as_deref(), spec)
    }

    /// Records that the program of a server of `.pml.json` may start as it is now; `shown` is the hash of what the user saw.
    ///
    /// # Errors
    /// Returns `INTEGRITY_MISMATCH` if it is another one now, and `CONFIG_INVALID` if that cannot be stored.
    pub(crate) fn approve_program(
        &self,
        namespace: &str,
        shown: Option<Integrity>,
        by: &str,
    ) -> Result<(), ErrorBody> {
        match self.program_of(namespace)? {
            Some((of, files)) => {
                let request = self.local.package_request(namespace).map_err(body)?;
                self.lockfile.approve_files(&of, &files, request.as_deref(), shown, by)
            }
            None => Ok(()),
        }
    }

    /// Checks, immediately before a server of `.pml.json` starts, that its program is what the user allowed.
    ///
    /// # Errors
    /// Returns `INTEGRITY_MISMATCH` if it is not, or the error that the start would fail with.
    pub(super) fn check_program(&self, namespace: &str) -> Result<(), ErrorBody> {
        match self.program_of(namespace)? {
            Some((of, files)) => self.lockfile.check_files(&of, &files),
            None => Ok(()),
        }
    }

    /// Checks, immediately before a server of the registry starts, that it is what the user allowed.
    ///
    /// # Errors
    /// As [`check_program`](Self::check_program).
    pub(super) fn check_registered(
        &self,
        entry: &RegisteredServer,
        id: &ToolId,
    ) -> Result<(), ErrorBody> {
        match self.grant(entry, id)? {
            Some(grant) => self.lockfile.check_start(entry, &grant),
            None => Ok(()),
        }
    }

    /// Returns a server of `.pml.json` with the files that run when it starts; `None` if it is not started here.
    fn program_of(&self, namespace: &str) -> Result<Option<(ToolsOf, Files)>, ErrorBody> {
        let Some(of) = self.tools_of_configured(namespace) else { return Ok(None) };
        Ok(self.local.files(namespace).map_err(body)?.map(|files| (of, files)))
    }

    /// Names a server of `.pml.json` in the lock; `None` if it is not started here.
    pub(super) fn tools_of_configured(&self, namespace: &str) -> Option<ToolsOf> {
        let spec = self.local.spec(namespace).filter(|spec| spec.remote.is_none())?;
        Some(ToolsOf::configured(namespace, spec.start_hash()))
    }

    /// Stores what a server of `.pml.json` lists, and pins it if it is its first list.
    pub(super) fn learn(&self, namespace: &str, tools: &[ToolDescriptor]) {
        if let Some(spec) = self.local.spec(namespace) {
            self.known.store(namespace, &spec, tools.to_vec());
            if let Some(synced) = &self.synced {
                synced.send();
            }
        }
        // What somebody may read in a search is what a call is compared with.
        if let Some(of) = self.tools_of_configured(namespace)
            && let Err(error) = self.lockfile.pin_first(&of, tools)
        {
            // The next call reports it.
            tracing::debug!(server = namespace, error = error.message, "Could not pin the tools");
        }
    }
}

pub(super) fn body(error: LocalMcpError) -> ErrorBody {
    match error {
        LocalMcpError::NotAllowed(error) => *error,
        error => ErrorBody::new(error.code(), error.to_string()),
    }
}
