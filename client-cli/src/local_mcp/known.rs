//! The last known tools of the user's own MCP servers.
//!
//! A server is queried while it runs. Its tools are stored with the user's own records, under a hash of how it is
//! started, so that a search finds them before its first call. A repository cannot supply them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use protocol::ToolDescriptor;

use super::ServerSpec;
use crate::files::records::{RecordFile, name};

/// The folder among the user's records.
const FOLDER: &str = "tools";
/// The maximum size of a stored list in bytes.
const LIMIT: usize = 2 * 1024 * 1024;

/// The last known tools of servers.
#[derive(Debug)]
pub(crate) struct KnownTools {
    records: PathBuf,
    workspace: PathBuf,
    cache: Mutex<HashMap<String, Arc<Vec<ToolDescriptor>>>>,
}

impl KnownTools {
    /// Opens the lists of one workspace; each is read when it is first needed.
    pub(crate) fn new(records: &Path, workspace: &Path) -> Self {
        let (records, workspace) = (records.to_owned(), workspace.to_owned());
        Self { records, workspace, cache: Mutex::default() }
    }

    /// Returns the last known tools of a server.
    pub(crate) fn of(
        &self,
        namespace: &str,
        spec: &ServerSpec,
    ) -> Option<Arc<Vec<ToolDescriptor>>> {
        let name = self.file_name(namespace, spec);
        if let Some(tools) = self.lock().get(&name) {
            return Some(Arc::clone(tools));
        }
        // The file is only a cache: an unreadable one means that the tools are not known.
        let text = self.file(name.clone()).read()?;
        let tools: Arc<Vec<ToolDescriptor>> = Arc::new(serde_json::from_slice(&text).ok()?);
        self.lock().insert(name, Arc::clone(&tools));
        Some(tools)
    }

    /// Stores the tools of a server. If the file cannot be written, they are known until this process exits.
    pub(crate) fn store(&self, namespace: &str, spec: &ServerSpec, tools: Vec<ToolDescriptor>) {
        let name = self.file_name(namespace, spec);
        if let Ok(text) = serde_json::to_vec(&tools)
            && text.len() <= LIMIT
            && let Err(error) = self.file(name.clone()).write(&text)
        {
            tracing::debug!(server = namespace, %error, "Could not store a server's tools");
        }
        self.lock().insert(name, Arc::new(tools));
    }

    fn file(&self, name: String) -> RecordFile {
        RecordFile::named(&self.records, FOLDER, name, LIMIT)
    }

    /// Returns the file name of a list: a hash of what determines the tools of a server, its start command and
    /// workspace.
    fn file_name(&self, namespace: &str, spec: &ServerSpec) -> String {
        name(&format!("{:?}\0{namespace}\0{spec:?}", self.workspace))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<Vec<ToolDescriptor>>>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(command: &str) -> ServerSpec {
        ServerSpec { command: command.to_owned(), ..ServerSpec::default() }
    }

    #[test]
    fn tools_are_stored_by_start_command() {
        let folder = tempfile::tempdir().unwrap();
        let tools: Vec<ToolDescriptor> =
            serde_json::from_value(json!([{ "name": "add", "inputSchema": {} }])).unwrap();
        let known = || KnownTools::new(folder.path(), Path::new("/w"));
        let first = known();
        assert_eq!(first.of("mine", &spec("a")), None);
        first.store("mine", &spec("a"), tools.clone());
        for known in [first, known()] {
            assert_eq!(known.of("mine", &spec("a")).as_deref(), Some(&tools));
            assert_eq!(known.of("mine", &spec("b")), None);
            assert_eq!(known.of("other", &spec("a")), None);
        }
        assert_eq!(KnownTools::new(folder.path(), Path::new("/v")).of("mine", &spec("a")), None);
        for file in std::fs::read_dir(folder.path().join(FOLDER)).unwrap() {
            std::fs::write(file.unwrap().path(), "{").unwrap();
        }
        assert_eq!(known().of("mine", &spec("a")), None);
    }
}
