//! What will be at a path after steps that are only planned.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::{Planned, Step};
use crate::run_store::record::KeptFile;
use crate::tools::NativeError;
use crate::tools::filesystem::restore::{self, Found};
use crate::workspace::Workspace;

/// Finds what will be at a path after these steps.
pub(super) fn find(
    workspace: &Workspace,
    steps: &[Planned],
    path: &Path,
) -> Result<Found, NativeError> {
    match origin(steps, path) {
        Origin::Found(found) => Ok(found),
        Origin::At(path) => restore::find(workspace, &path),
    }
}

/// Where what will be at a path comes from.
enum Origin {
    /// A step puts it there.
    Found(Found),
    /// It is at this path now.
    At(PathBuf),
}

/// Goes back from the last step to the present state.
fn origin(steps: &[Planned], path: &Path) -> Origin {
    let mut path = path.to_owned();
    for Planned { step, .. } in steps.iter().rev() {
        match step {
            Step::Restore { path: file, kept } if path == *file => {
                let KeptFile { hash, bytes, mode, .. } = *kept;
                return Origin::Found(Found::File { hash, bytes, mode });
            }
            Step::CreateFolder { path: folder, .. } if path == *folder => {
                return Origin::Found(Found::Folder);
            }
            // Where the step puts something, there was nothing beneath it.
            Step::Restore { path: gone, .. }
            | Step::CreateFolder { path: gone, .. }
            | Step::Remove { path: gone }
            | Step::RemoveFolder { path: gone }
                if path.starts_with(gone) =>
            {
                return Origin::Found(Found::Nothing);
            }
            Step::Move { from, to } => {
                if let Ok(rest) = path.strip_prefix(to) {
                    // `join` would add a slash to a path whose rest is empty.
                    path = from.components().chain(rest.components()).collect();
                } else if path.starts_with(from) {
                    return Origin::Found(Found::Nothing);
                }
            }
            _ => {}
        }
    }
    Origin::At(path)
}

/// Returns whether a folder will be empty after these steps.
pub(super) fn is_empty(
    workspace: &Workspace,
    steps: &[Planned],
    folder: &Path,
) -> Result<bool, NativeError> {
    let mut names: BTreeSet<OsString> = match origin(steps, folder) {
        Origin::At(path) => restore::names(workspace, &path)?.into_iter().collect(),
        Origin::Found(_) => BTreeSet::new(),
    };
    // The names of everything that steps put somewhere include those that they put here.
    names.extend(steps.iter().filter_map(|Planned { step, .. }| match step {
        Step::Restore { path, .. }
        | Step::CreateFolder { path, .. }
        | Step::Move { to: path, .. } => path.file_name().map(OsStr::to_owned),
        Step::Remove { .. } | Step::RemoveFolder { .. } => None,
    }));
    for name in names {
        if find(workspace, steps, &folder.join(name))? != Found::Nothing {
            return Ok(false);
        }
    }
    Ok(true)
}
