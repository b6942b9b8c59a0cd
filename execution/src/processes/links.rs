//! Follows the symbolic links of a path, one by one.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

/// The maximum number of followed links, the same as the kernel's.
const LINKS_LIMIT: usize = 40;

/// Returns whether a path is in one of these folders or passes through a link in one. In both cases, anybody who can
/// write to the folder determines where the path leads.
///
/// A missing file does not; a cycle of links counts as leading into a folder.
pub fn leads_through(path: &Path, roots: &[PathBuf]) -> bool {
    if roots.is_empty() {
        return false;
    }
    let mut rest: VecDeque<OsString> = parts(path).collect();
    // All callers pass absolute paths.
    let mut at = PathBuf::from("/");
    let mut links = 0;
    while let Some(part) = rest.pop_front() {
        if part == ".." {
            at.pop();
            continue;
        }
        // `at` contains no links, so this is the real path of the next part.
        let next = at.join(&part);
        if roots.iter().any(|root| next.starts_with(root)) {
            return true;
        }
        match std::fs::read_link(&next) {
            Ok(target) => {
                links += 1;
                if links > LINKS_LIMIT {
                    return true;
                }
                if target.is_absolute() {
                    at = PathBuf::from("/");
                }
                let mut followed: VecDeque<OsString> = parts(&target).collect();
                followed.append(&mut rest);
                rest = followed;
            }
            Err(_) => at = next,
        }
    }
    false
}

fn parts(path: &Path) -> impl Iterator<Item = OsString> + '_ {
    path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsStr::from_bytes(b"..").to_owned()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}
