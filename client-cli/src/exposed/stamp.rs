//! Whether what the exposed tools are selected from has changed, without reading it.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

use protocol::ToolDescriptor;

use crate::app::App;

/// The files whose change can change the selection.
const FILES: [&str; 3] = [".pml.json", ".pml/deps.json", ".pml/mcp.lock"];

/// The state of the files and of the servers' known tools at one moment.
pub(super) struct Stamp {
    files: Vec<Option<FileStamp>>,
    /// Kept, so that another list cannot get the address of an old one.
    lists: Vec<Option<Arc<Vec<ToolDescriptor>>>>,
}

#[derive(PartialEq, Eq)]
struct FileStamp {
    /// Every write of `pml` replaces the file by a new one.
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl Stamp {
    /// Looks at the files of a project.
    pub(super) fn of(app: &App) -> Self {
        let mut files: Vec<_> = FILES.iter().map(|name| file(app.workspace().join(name))).collect();
        // `pml trust` changes only this one.
        files.push(file(app.trust_record()));
        let lists = app.configured_namespaces().map(|namespace| app.known_tools(namespace));
        Self { files, lists: lists.collect() }
    }
}

impl PartialEq for Stamp {
    fn eq(&self, other: &Self) -> bool {
        let is_same = |(one, other): (&Option<Arc<_>>, &Option<Arc<_>>)| match (one, other) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            _ => false,
        };
        self.files == other.files
            && self.lists.len() == other.lists.len()
            && self.lists.iter().zip(&other.lists).all(is_same)
    }
}

fn file(path: impl AsRef<Path>) -> Option<FileStamp> {
    let found = std::fs::symlink_metadata(path).ok()?;
    Some(FileStamp {
        inode: found.ino(),
        size: found.size(),
        modified: (found.mtime(), found.mtime_nsec()),
    })
}
