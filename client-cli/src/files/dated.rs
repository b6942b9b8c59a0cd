//! A record file of answers by tool, each with its time.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io;

use protocol::ToolId;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::records::{RecordFile, now};

/// The age in seconds after which an unchanged answer is written again, to update its time.
const REFRESH_AFTER: u64 = 60;

#[derive(Serialize, Deserialize)]
struct Record<T> {
    version: u32,
    tools: BTreeMap<ToolId, Dated<T>>,
}

/// An answer and its time.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Dated<T> {
    /// In seconds since 1970.
    pub(crate) at: u64,
    pub(crate) tool: T,
}

/// The answers of one record file.
#[derive(Debug)]
pub(crate) struct Answers<T> {
    file: RecordFile,
    tools: BTreeMap<ToolId, Dated<T>>,
}

impl<T: Clone + PartialEq + Serialize + DeserializeOwned> Answers<T> {
    /// Reads the answers; an unreadable file is treated as absent.
    pub(crate) fn read(file: RecordFile) -> Self {
        let record = file.read().and_then(|text| serde_json::from_slice(&text).ok());
        // A different version of `pml` may write another format. The record is only a cache, so it
        // is dropped.
        let record = record.filter(|record: &Record<T>| record.version == 1);
        Self { file, tools: record.map_or_else(BTreeMap::new, |record| record.tools) }
    }

    /// Returns the answers by their tools.
    pub(crate) fn tools(&self) -> &BTreeMap<ToolId, Dated<T>> {
        &self.tools
    }

    /// Stores an answer with the current time; returns whether the record should be written.
    pub(crate) fn store(&mut self, id: ToolId, tool: T) -> bool {
        let at = now();
        let known = self.tools.get(&id);
        // The absolute difference: after the clock was set back, a time in the future must be
        // replaced.
        let is_new =
            known.is_none_or(|known| known.tool != tool || at.abs_diff(known.at) >= REFRESH_AFTER);
        if is_new {
            self.tools.insert(id, Dated { at, tool });
        }
        is_new
    }

    /// Removes the answers that `is_gone` selects; returns whether there were any.
    pub(crate) fn remove(&mut self, is_gone: impl Fn(&ToolId, &T) -> bool) -> bool {
        let before = self.tools.len();
        self.tools.retain(|id, known| !is_gone(id, &known.tool));
        self.tools.len() != before
    }

    /// Writes the answers that `has_room` accepts; it is called with the newest first.
    ///
    /// # Errors
    /// Returns the system's error. The previous file remains then.
    pub(crate) fn write(&self, has_room: impl FnMut(&T) -> bool) -> Result<(), io::Error> {
        let mut newest: Vec<_> = self.tools.iter().collect();
        newest.sort_by_key(|(_, known)| Reverse(known.at));
        let mut has_room = has_room;
        newest.retain(|(_, known)| has_room(&known.tool));
        let tools = newest.into_iter().map(|(id, known)| (id.clone(), known.clone())).collect();
        self.file.write(&serde_json::to_vec(&Record { version: 1, tools })?)
    }

    /// Stores an answer with another time.
    #[cfg(test)]
    pub(crate) fn store_at(&mut self, id: ToolId, at: u64, tool: T) {
        self.tools.insert(id, Dated { at, tool });
    }
}
