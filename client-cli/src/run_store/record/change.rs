//! The changes of files and folders, with what is needed to undo them.

use protocol::Integrity;
use serde::{Deserialize, Serialize};

/// A change of a file or folder that a call is about to make.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FileChanging {
    /// The time.
    pub(crate) at: String,
    /// The run's id.
    pub(crate) run: String,
    /// The call.
    pub(crate) call: String,
    /// The change.
    pub(crate) change: Change,
}

/// A change. Paths are relative to the workspace, with links resolved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Change {
    /// A file is created, or its content is replaced.
    Write {
        /// The file.
        path: String,
        /// What was there; `None` if nothing was.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        before: Option<KeptFile>,
        /// The hash of the new content.
        after: Integrity,
        /// The permissions that it gets; `None` for those of a new file.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mode: Option<u32>,
    },
    /// A file is removed.
    Remove {
        /// The file.
        path: String,
        /// What was there.
        before: KeptFile,
    },
    /// A folder is created.
    CreateFolder {
        /// The folder.
        path: String,
    },
    /// An empty folder is removed.
    RemoveFolder {
        /// The folder.
        path: String,
        /// Its permissions.
        mode: u32,
    },
    /// A file, folder or link is moved.
    Move {
        /// Its old path.
        from: String,
        /// Its new path.
        to: String,
        /// What it is.
        moved: MovedItem,
    },
    /// A change whose paths were erased.
    Erased {
        /// The hash of the content that was replaced or removed, if it was kept.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        before: Option<Integrity>,
    },
}

/// What was moved, so that something else at its place is noticed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum MovedItem {
    /// A file.
    File {
        /// Its size in bytes.
        bytes: u64,
        /// Its permissions.
        mode: u32,
        /// The hash of its content; `None` if it is too large, or cannot be read.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hash: Option<Integrity>,
    },
    /// A folder.
    Folder,
    /// A link.
    Link {
        /// The hash of its target.
        target: Integrity,
    },
}

/// The content of a file that was replaced or removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeptFile {
    /// Its size in bytes.
    pub(crate) bytes: u64,
    /// Its permissions.
    pub(crate) mode: u32,
    /// The hash of its content, after which a file with it is named; `None` if it was not kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) hash: Option<Integrity>,
    /// Why it was not kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) not_kept: Option<String>,
}

impl Change {
    /// Returns the file that it replaces or removes.
    pub(crate) fn before(&self) -> Option<&KeptFile> {
        match self {
            Self::Write { before, .. } => before.as_ref(),
            Self::Remove { before, .. } => Some(before),
            Self::CreateFolder { .. }
            | Self::RemoveFolder { .. }
            | Self::Move { .. }
            | Self::Erased { .. } => None,
        }
    }
}
