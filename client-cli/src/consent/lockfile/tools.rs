//! The tools of local servers, pinned as they were when the user allowed them.
//!
//! The first list of a server is pinned as a whole. The lock has the hashes, and the user's own record has what they are
//! of, to show what changed. A server can write the lock, which is in the workspace, but not the record. So the record
//! decides, and the lock can only make it stricter: a tool is as pinned if the record has it, and the lock of somebody
//! else does not contradict.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use protocol::{ErrorBody, ErrorCode, Integrity, ToolDescriptor, ToolId};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::file::{Approved, FILE, LockedTools, invalid, read};
use super::{Lockfile, server_name};
use crate::capabilities::RegisteredServer;
use crate::consent::changed_tool::{Before, ChangedTool, tool_hash};
use crate::files::records::RecordFile;

/// The folder of the records.
const FOLDER: &str = "pinned-tools";

/// The maximum size of a record in bytes.
const LIMIT: usize = 16 * 1024 * 1024;

/// A server whose tools are pinned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ToolsOf {
    /// Its name in the lock: the full name of one of the registry, or the namespace of one of `.pml.json`.
    pub(super) server: String,
    /// The hash of how it is started. The user has approved each start, so another one is pinned anew.
    pub(super) start: Integrity,
}

impl ToolsOf {
    /// Names a server of the registry.
    pub(crate) fn registered(server: &RegisteredServer) -> Self {
        // From another registry, it is another start, which the user has approved by itself.
        let start = match &server.registry {
            None => server.integrity,
            Some(registry) => {
                Integrity::of_json(&json!({ "entry": server.integrity, "registry": registry }))
            }
        };
        Self { server: server_name(server), start }
    }

    /// Names a server of `.pml.json`.
    pub(crate) fn configured(namespace: &str, start: Integrity) -> Self {
        // A namespace has no dot and a full name has some, so they are never the same.
        Self { server: namespace.to_owned(), start }
    }
}

/// The last list of a server that was compared with its pins.
#[derive(Debug)]
pub(super) struct Compared {
    tools: Arc<Vec<ToolDescriptor>>,
    /// The names of the tools that are as pinned.
    as_pinned: Vec<String>,
}

/// The user's own record of the tools of a server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    start: Integrity,
    tools: BTreeMap<String, ToolDescriptor>,
}

impl Record {
    fn hashes(&self) -> LockedTools {
        let pinned = self.tools.iter().map(|(name, tool)| (name.clone(), tool_hash(tool)));
        LockedTools { start: self.start, pinned: pinned.collect() }
    }
}

impl Lockfile {
    /// Compares a tool with its pin; `None` if it is as pinned, or if the server does not list it and never did. `tools`
    /// is what the server listed, which is pinned if it is the first list.
    ///
    /// # Errors
    /// Returns `TOOL_NOT_FOUND` if the server no longer lists the tool, and `CONFIG_INVALID` if the lock is invalid or the
    /// tools cannot be pinned.
    pub(crate) fn changed_tool(
        &self,
        of: &ToolsOf,
        tools: &Arc<Vec<ToolDescriptor>>,
        action: &str,
    ) -> Result<Option<ChangedTool>, ErrorBody> {
        // Every call gets here. A list that was compared stays the same until the server makes another one.
        if self.is_compared(of, tools, action) {
            return Ok(None);
        }
        let compared = self.store.locked(|_| self.compare(of, tools, action));
        let changed = compared.map_err(invalid)??;
        if changed.is_none() {
            let mut compared = self.compared.lock().unwrap_or_else(PoisonError::into_inner);
            let new = || Compared { tools: Arc::clone(tools), as_pinned: Vec::new() };
            let known = compared.entry(of.server.clone()).or_insert_with(new);
            if !Arc::ptr_eq(&known.tools, tools) {
                *known = new();
            }
            known.as_pinned.push(action.to_owned());
        }
        Ok(changed)
    }

    /// Pins the tools of a server if this is its first list.
    ///
    /// # Errors
    /// As [`changed_tool`](Self::changed_tool).
    pub(crate) fn pin_first(
        &self,
        of: &ToolsOf,
        tools: &[ToolDescriptor],
    ) -> Result<(), ErrorBody> {
        self.store.locked(|_| self.pins(of, tools).map(drop)).map_err(invalid)?
    }

    /// Returns whether the tools of a server are pinned.
    ///
    /// # Errors
    /// Returns `CONFIG_INVALID` if the lock is invalid.
    pub(crate) fn has_tools(&self, of: &ToolsOf) -> Result<bool, ErrorBody> {
        let is_locked = read(&self.workspace)?.tools.contains_key(&of.server);
        Ok(is_locked || self.record_file(&of.server).read().is_some())
    }

    /// Pins a tool as it is now, after the user has approved it.
    ///
    /// # Errors
    /// Returns `CONFIG_INVALID` if the lock is invalid or cannot be written. The tool must not be called then.
    pub(crate) fn approve_tool(
        &self,
        of: &ToolsOf,
        tool: &ToolDescriptor,
        by: &str,
    ) -> Result<(), ErrorBody> {
        let done = self.store.locked(|_| {
            let mut content = read(&self.workspace)?;
            let empty = || Record { start: of.start, tools: BTreeMap::new() };
            let mut record = self.record(of)?.unwrap_or_else(empty);
            record.tools.insert(tool.name.clone(), tool.clone());
            let locked = content.tools.get(&of.server).filter(|locked| locked.start == of.start);
            let mut locked = locked.cloned().unwrap_or_else(|| record.hashes());
            locked.pinned.insert(tool.name.clone(), tool_hash(tool));
            content.tools.insert(of.server.clone(), locked);
            content.approvals.insert(of.server.clone(), Approved::now(by));
            // The lock is written first: after a crash in between, the record has the earlier tool, and the user is
            // asked again.
            self.write(&content, || tool_as_listed(of, &tool.name))?;
            self.save(of, &record)
        });
        done.map_err(invalid)?
    }

    /// Removes the user's record of the tools of a server.
    ///
    /// # Errors
    /// Returns `CONFIG_INVALID` if it cannot be deleted.
    pub(super) fn forget_tools(&self, server: &str) -> Result<(), ErrorBody> {
        self.compared.lock().unwrap_or_else(PoisonError::into_inner).remove(server);
        self.record_file(server).delete().map_err(|error| {
            let message = format!("cannot delete the record of the tools of `{server}`: {error}");
            ErrorBody::new(ErrorCode::ConfigInvalid, message)
        })
    }

    fn is_compared(&self, of: &ToolsOf, tools: &Arc<Vec<ToolDescriptor>>, action: &str) -> bool {
        let compared = self.compared.lock().unwrap_or_else(PoisonError::into_inner);
        compared.get(&of.server).is_some_and(|known| {
            Arc::ptr_eq(&known.tools, tools) && known.as_pinned.iter().any(|tool| tool == action)
        })
    }

    fn compare(
        &self,
        of: &ToolsOf,
        tools: &[ToolDescriptor],
        action: &str,
    ) -> Result<Option<ChangedTool>, ErrorBody> {
        let (record, locked) = self.pins(of, tools)?;
        let (known, pin) = (record.tools.get(action), locked.pinned.get(action).copied());
        let Some(now) = tools.iter().find(|tool| tool.name == action) else {
            return match known.is_some() || pin.is_some() {
                true => Err(no_longer_listed(of, action)),
                // It says nothing of the tool that could change, and answers the call itself.
                false => Ok(None),
            };
        };
        let hash = tool_hash(now);
        let before = match (known, pin) {
            (Some(known), pin) if tool_hash(known) == hash => match pin {
                Some(pin) if pin != hash => Before::OtherInLock(pin),
                _ => return Ok(None),
            },
            (Some(known), _) => Before::Known(Box::new(known.clone())),
            (None, Some(pin)) if pin != hash => Before::Hash(pin),
            (None, _) => Before::Absent,
        };
        self.refuse_if_frozen(pin == Some(hash), || tool_as_listed(of, action))?;
        Ok(Some(ChangedTool { now: now.clone(), before }))
    }

    /// Returns what is pinned of a server: the user's record, and what the lock has. Makes what is missing of both.
    fn pins(
        &self,
        of: &ToolsOf,
        tools: &[ToolDescriptor],
    ) -> Result<(Record, LockedTools), ErrorBody> {
        let mut content = read(&self.workspace)?;
        let locked = content.tools.get(&of.server).filter(|locked| locked.start == of.start);
        let locked = locked.cloned();
        let record = match self.record(of)? {
            Some(record) => record,
            None => {
                let is_pinned = |tool: &&ToolDescriptor| match &locked {
                    // Somebody else's lock: only what it has counts.
                    Some(locked) => locked.pinned.get(&tool.name) == Some(&tool_hash(tool)),
                    // No program can call the others.
                    None => ToolId::new("server", &tool.name).is_ok(),
                };
                let tools = tools.iter().filter(is_pinned);
                let tools = tools.map(|tool| (tool.name.clone(), tool.clone())).collect();
                let record = Record { start: of.start, tools };
                if locked.is_none() {
                    content.tools.insert(of.server.clone(), record.hashes());
                    self.write(&content, || tools_of(of))?;
                }
                self.save(of, &record)?;
                let locked = locked.unwrap_or_else(|| record.hashes());
                return Ok((record, locked));
            }
        };
        if let Some(locked) = locked {
            return Ok((record, locked));
        }
        // The lock was deleted, or is that of another start.
        let locked = record.hashes();
        content.tools.insert(of.server.clone(), locked.clone());
        self.write(&content, || tools_of(of))?;
        Ok((record, locked))
    }

    /// Returns the user's record of the tools of a server, if it is of this start.
    fn record(&self, of: &ToolsOf) -> Result<Option<Record>, ErrorBody> {
        let Some(text) = self.record_file(&of.server).read() else { return Ok(None) };
        // It never counts as absent, because the tools would be pinned as they are now.
        let record: Record = serde_json::from_slice(&text).map_err(|error| {
            let message = format!(
                "the record of the tools of `{0}` is invalid: {error}; `pml remove {0}` deletes it, and everything about the server is asked about again",
                of.server
            );
            ErrorBody::new(ErrorCode::ConfigInvalid, message)
        })?;
        Ok((record.start == of.start).then_some(record))
    }

    fn save(&self, of: &ToolsOf, record: &Record) -> Result<(), ErrorBody> {
        let saved = serde_json::to_vec(record).map_err(std::io::Error::other);
        let saved = saved.and_then(|text| self.record_file(&of.server).write(&text));
        saved.map_err(|error| {
            let message = format!("cannot store the tools of `{}`: {error}", of.server);
            ErrorBody::new(ErrorCode::ConfigInvalid, message)
        })
    }

    fn record_file(&self, server: &str) -> RecordFile {
        self.record_of(FOLDER, server, LIMIT)
    }
}

fn tools_of(of: &ToolsOf) -> String {
    format!("the tools of the MCP server `{}`", of.server)
}

fn tool_as_listed(of: &ToolsOf, action: &str) -> String {
    let action = protocol::escape_text(action);
    format!("the tool `{action}` of the MCP server `{}` as the server lists it now", of.server)
}

fn no_longer_listed(of: &ToolsOf, action: &str) -> ErrorBody {
    let message = format!(
        "the MCP server `{}` no longer lists its tool `{action}`, so it was not called",
        of.server
    );
    let mut error = ErrorBody::new(ErrorCode::ToolNotFound, message);
    error.hint = format!(
        "Look at what the server lists now. `pml remove {}` forgets which tools it had, as `{FILE}` has them.",
        of.server
    );
    error
}

#[cfg(test)]
mod tests;
