//! The note of what a gateway may have.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::Path;

use protocol::Integrity;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::files::records::RecordFile;

/// The folder of the notes among the user's records.
const FOLDER: &str = "tool-sync";
/// The maximum size of a note, in bytes.
const LIMIT: usize = 256 * 1024;

/// What a gateway may have of a workspace's servers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Noted {
    /// The random id of the workspace. It is not in the workspace, where it would be copied with it: two machines would
    /// replace each other's tools.
    client: String,
    /// By namespace.
    pub(super) servers: BTreeMap<String, Server>,
}

/// What a gateway may have of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Server {
    /// The hash of the tools that were sent last.
    pub(crate) hash: Integrity,
    /// Their number.
    pub(crate) tools: usize,
    /// When they were sent, in seconds since 1970.
    pub(crate) at: u64,
    /// What became of it.
    pub(crate) state: State,
}

/// What became of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    /// It is being sent, or whether it arrived is not known.
    Sending,
    /// The gateway has acknowledged it.
    Sent,
    /// The gateway has refused it, and may have what was sent before.
    Refused {
        /// Why.
        reason: String,
    },
}

/// A note that no other process changes.
pub(super) struct Locked {
    file: RecordFile,
    noted: Noted,
    _lock: File,
}

impl Noted {
    /// Reads the note of a workspace for a gateway's origin; `records` is the folder of the user's own records.
    pub(super) fn read(records: &Path, root: &Path, origin: &str) -> Self {
        Self::of(&file(records, root, origin))
    }

    fn of(file: &RecordFile) -> Self {
        let read = file.read().and_then(|text| serde_json::from_slice(&text).ok());
        read.unwrap_or_else(|| Self {
            client: Uuid::new_v4().to_string(),
            servers: BTreeMap::new(),
        })
    }
}

impl Locked {
    /// Opens the note, unless another process has it; then `None`.
    pub(super) fn open(records: &Path, root: &Path, origin: &str) -> io::Result<Option<Self>> {
        let file = file(records, root, origin);
        let Some(lock) = file.try_lock()? else { return Ok(None) };
        Ok(Some(Self { noted: Noted::of(&file), file, _lock: lock }))
    }

    /// Returns the id of the workspace.
    pub(super) fn client(&self) -> &str {
        &self.noted.client
    }

    /// Returns what is noted, by namespace.
    pub(super) fn servers(&self) -> &BTreeMap<String, Server> {
        &self.noted.servers
    }

    /// Notes something about a server, or that the gateway has nothing of it.
    ///
    /// # Errors
    /// Returns why it was not stored.
    pub(super) fn set(&mut self, namespace: &str, server: Option<Server>) -> io::Result<()> {
        match server {
            Some(server) => self.noted.servers.insert(namespace.to_owned(), server),
            None => self.noted.servers.remove(namespace),
        };
        self.file.write(&serde_json::to_vec(&self.noted)?)
    }
}

fn file(records: &Path, root: &Path, origin: &str) -> RecordFile {
    // Neither a path nor an origin contains NUL.
    RecordFile::new(records, FOLDER, &format!("{}\0{origin}", root.display()), LIMIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_of_one_workspace_and_one_gateway() {
        let records = tempfile::tempdir().unwrap();
        let open =
            |root: &str, origin| Locked::open(records.path(), Path::new(root), origin).unwrap();
        let server = Server { hash: Integrity::of(b""), tools: 1, at: 5, state: State::Sending };
        let mut first = open("/a", "https://g").unwrap();
        first.set("mine", Some(server.clone())).unwrap();
        assert!(open("/a", "https://g").is_none(), "it is locked");
        let client = first.client().to_owned();
        drop(first);
        let mut again = open("/a", "https://g").unwrap();
        assert_eq!((again.client(), again.servers()["mine"].clone()), (&*client, server));
        for (root, origin) in [("/b", "https://g"), ("/a", "https://h")] {
            let other = open(root, origin).unwrap();
            assert!(other.servers().is_empty() && other.client() != client);
        }
        again.set("mine", None).unwrap();
        drop(again);
        assert!(open("/a", "https://g").unwrap().servers().is_empty());
    }
}
