//! The gateway's last answers, stored with the user's own records.
//!
//! They are stored per workspace, gateway and key, outside of every workspace, so that a repository cannot supply
//! them. They are used while the gateway is unreachable, for plans only, which show their age.

use std::collections::BTreeMap;
use std::io;

use protocol::{ToolId, ToolUse};
use serde::{Deserialize, Serialize};

use crate::app::App;
use crate::records::{RecordFile, now};

/// The folder next to the user's records.
const FOLDER: &str = "routing";
/// The largest record, in bytes.
const RECORD_LIMIT: usize = 4 * 1024 * 1024;
/// The most tools that are remembered; the oldest are forgotten first.
const TOOLS: usize = 2_000;
/// An unchanged answer is written again after this many seconds.
const FRESH: u64 = 60;

#[derive(Debug, Default, Serialize, Deserialize)]
struct Record {
    version: u32,
    tools: BTreeMap<ToolId, Entry>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Entry {
    /// The time of the gateway's answer, in seconds since 1970.
    at: u64,
    tool: ToolUse,
}

/// The stored answers of one gateway, for one API key, in one workspace.
#[derive(Debug)]
pub(super) struct Learned {
    file: RecordFile,
    record: Record,
    changed: bool,
}

impl Learned {
    /// Reads the stored answers; unreadable ones are treated as absent. Without an API key there are none.
    pub(super) async fn load(app: &App) -> Option<Self> {
        Some(Self::read(super::place(app, FOLDER, RECORD_LIMIT).await?))
    }

    /// Stores an answer in the background: nobody waits for the disk.
    pub(super) async fn learn_later(app: &App, told: &[ToolUse]) {
        let Some(file) = super::place(app, FOLDER, RECORD_LIMIT).await else { return };
        let told = told.to_vec();
        tokio::task::spawn_blocking(move || {
            let mut learned = Self::read(file);
            learned.learn(&told, &[]);
            learned.save();
        });
    }

    fn read(file: RecordFile) -> Self {
        let record = file.read().and_then(|text| serde_json::from_slice(&text).ok());
        let record = record.filter(|record: &Record| record.version == 1).unwrap_or_default();
        Self { file, record, changed: false }
    }

    /// Returns the stored answer about a tool, and its age in seconds.
    pub(super) fn of(&self, id: &ToolId) -> Option<(&ToolUse, u64)> {
        let entry = self.record.tools.get(id)?;
        Some((&entry.tool, now().saturating_sub(entry.at)))
    }

    /// Stores an answer: its content, and the names that it does not have.
    pub(super) fn learn(&mut self, told: &[ToolUse], missing: &[ToolId]) {
        let at = now();
        for tool in told {
            // The gateway has no names for tools that only this machine has.
            let Some(id) = tool.fqdn.as_ref().and_then(|_| tool.id.parse::<ToolId>().ok()) else {
                continue;
            };
            let is_news = self
                .record
                .tools
                .get(&id)
                .is_none_or(|known| known.tool != *tool || at.abs_diff(known.at) >= FRESH);
            if is_news {
                self.record.tools.insert(id, Entry { at, tool: tool.clone() });
                self.changed = true;
            }
        }
        for id in missing {
            self.changed |= self.record.tools.remove(id).is_some();
        }
    }

    /// Writes it down, if there is anything new.
    pub(super) fn save(&self) {
        if !self.changed {
            return;
        }
        if let Err(error) = self.write() {
            tracing::debug!(%error, "Could not store the gateway's answer");
        }
    }

    fn write(&self) -> Result<(), io::Error> {
        let mut tools: Vec<(&ToolId, &Entry)> = self.record.tools.iter().collect();
        tools.sort_by_key(|(_, entry)| std::cmp::Reverse(entry.at));
        tools.truncate(TOOLS);
        let tools = tools.into_iter().map(|(id, entry)| (id.clone(), entry.clone())).collect();
        self.file.write(&serde_json::to_vec(&Record { version: 1, tools })?)
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
    fn what_was_learned_is_there_until_the_gateway_says_otherwise() {
        let folder = tempfile::tempdir().unwrap();
        let file = RecordFile::new(folder.path(), FOLDER, "one", RECORD_LIMIT);
        let open = || Learned::read(file.clone());
        let id: ToolId = "x:y".parse().unwrap();
        let mut learned = open();
        assert!(learned.of(&id).is_none());
        learned.learn(&[tool("x:y", "server"), tool("x:z", "client")], &[]);
        learned.save();
        let mut again = open();
        let (told, age) = again.of(&id).unwrap();
        assert_eq!((told, age < 60), (&tool("x:y", "server"), true));
        again.learn(&[tool("x:z", "server")], std::slice::from_ref(&id));
        again.save();
        assert!(open().of(&id).is_none());
        assert_eq!(open().of(&"x:z".parse().unwrap()).unwrap().0, &tool("x:z", "server"));
    }

    #[test]
    fn what_cannot_be_read_was_never_learned() {
        let folder = tempfile::tempdir().unwrap();
        for text in ["", "{}", "{\"version\":2,\"tools\":{}}", "[]", "\u{0}"] {
            let file = RecordFile::new(folder.path(), FOLDER, "one", RECORD_LIMIT);
            file.write(text.as_bytes()).unwrap();
            let mut learned = Learned::read(file.clone());
            assert!(learned.record.tools.is_empty(), "{text}");
            learned.learn(&[tool("x:y", "server")], &[]);
            learned.save();
            assert_eq!(Learned::read(file).record.tools.len(), 1, "{text}");
        }
    }
}
