//! The gateway's last answers, stored with the user's own records.
//!
//! They are stored per workspace, gateway and key, outside of every workspace, so that a repository cannot supply
//! them. They are used while the gateway is unreachable, for plans only, which show their age.

use protocol::{ToolId, ToolUse};

use crate::app::App;
use crate::files::dated::Answers;
use crate::files::records::{RecordFile, now};

/// The folder among the user's records.
const FOLDER: &str = "routing";
/// The maximum size of a record in bytes.
const RECORD_LIMIT: usize = 4 * 1024 * 1024;
/// The maximum number of stored tools; the oldest are dropped first.
const TOOLS_LIMIT: usize = 2_000;

/// The stored answers of one gateway, for one API key, in one workspace.
#[derive(Debug)]
pub(super) struct Learned {
    answers: Answers<ToolUse>,
    changed: bool,
}

impl Learned {
    /// Reads the stored answers; unreadable ones are treated as absent. Without an API key there are none.
    pub(super) async fn load(app: &App) -> Option<Self> {
        Some(Self::read(super::record_file(app, FOLDER, RECORD_LIMIT).await?))
    }

    /// Stores an answer in the background, so that no request waits for the disk.
    pub(super) async fn learn_later(app: &App, tools: &[ToolUse]) {
        let Some(file) = super::record_file(app, FOLDER, RECORD_LIMIT).await else { return };
        let tools = tools.to_vec();
        tokio::task::spawn_blocking(move || {
            let mut learned = Self::read(file);
            learned.learn(&tools, &[]);
            learned.save();
        });
    }

    fn read(file: RecordFile) -> Self {
        Self { answers: Answers::read(file), changed: false }
    }

    /// Returns the stored answer about a tool, and its age in seconds.
    pub(super) fn of(&self, id: &ToolId) -> Option<(&ToolUse, u64)> {
        let entry = self.answers.tools().get(id)?;
        Some((&entry.tool, now().saturating_sub(entry.at)))
    }

    /// Stores an answer: the tools in it, and the names that it lacks.
    pub(super) fn learn(&mut self, tools: &[ToolUse], missing: &[ToolId]) {
        for tool in tools {
            // A tool without a full name is one that only this machine has.
            let Some(id) = tool.fqdn.as_ref().and_then(|_| tool.id.parse::<ToolId>().ok()) else {
                continue;
            };
            self.changed |= self.answers.store(id, tool.clone());
        }
        self.changed |= self.answers.remove(|id, _| missing.contains(id));
    }

    /// Writes the record if anything changed.
    pub(super) fn save(&self) {
        if !self.changed {
            return;
        }
        // `write` offers the newest tools first.
        let mut room = TOOLS_LIMIT;
        let written = self.answers.write(|_| {
            let fits = room > 0;
            room = room.saturating_sub(1);
            fits
        });
        if let Err(error) = written {
            tracing::debug!(%error, "Could not store the gateway's answer");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tool(id: &str, routing: &str) -> ToolUse {
        let name = id.replace(':', ".");
        serde_json::from_value(json!({
            "id": id, "fqdn": format!("a.b.{name}"), "type": "tool", "routing": routing,
        }))
        .unwrap()
    }

    #[test]
    fn an_answer_is_stored_until_the_gateway_changes_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = RecordFile::new(folder.path(), FOLDER, "one", RECORD_LIMIT);
        let open = || Learned::read(file.clone());
        let id: ToolId = "x:y".parse().unwrap();
        let mut learned = open();
        assert!(learned.of(&id).is_none());
        learned.learn(&[tool("x:y", "server"), tool("x:z", "client")], &[]);
        learned.save();
        let mut again = open();
        let (tool_use, age) = again.of(&id).unwrap();
        assert_eq!((tool_use, age < 60), (&tool("x:y", "server"), true));
        again.learn(&[tool("x:z", "server")], std::slice::from_ref(&id));
        again.save();
        assert!(open().of(&id).is_none());
        assert_eq!(open().of(&"x:z".parse().unwrap()).unwrap().0, &tool("x:z", "server"));
    }

    #[test]
    fn an_unreadable_record_counts_as_absent() {
        let folder = tempfile::tempdir().unwrap();
        for text in ["", "{}", "{\"version\":2,\"tools\":{}}", "[]", "\u{0}"] {
            let file = RecordFile::new(folder.path(), FOLDER, "one", RECORD_LIMIT);
            file.write(text.as_bytes()).unwrap();
            let mut learned = Learned::read(file.clone());
            assert!(learned.answers.tools().is_empty(), "{text}");
            learned.learn(&[tool("x:y", "server")], &[]);
            learned.save();
            assert_eq!(Learned::read(file).answers.tools().len(), 1, "{text}");
        }
    }
}
