//! The files of an installed package: what they were when it was installed, and whether they still are.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use protocol::Integrity;
use serde::{Deserialize, Serialize};

use crate::files::hash_of;

/// The files of a package, as they were when it was installed. Kept beside its folder: a server can read only that.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Contents {
    /// What the system said of all files when their content was last as installed. While it says the same, no content
    /// has changed.
    seen: Integrity,
    /// Each file by its path, with its kind, permissions, and the hash of its content.
    files: BTreeMap<String, String>,
}

impl Contents {
    /// Reads what is in a folder.
    ///
    /// # Errors
    /// Returns the system's error.
    pub(super) fn of(folder: &Path) -> io::Result<Self> {
        let found = walk(folder)?;
        // In this order: a change in between makes the content be read again.
        Ok(Self { seen: seen(&found), files: read(folder, &found)? })
    }

    /// Compares a folder with what it was. Returns whether `self` was changed: the files are others with the same content.
    ///
    /// # Errors
    /// Returns what differs, as the rest of a sentence about the package.
    pub(super) fn check(&mut self, folder: &Path) -> Result<bool, String> {
        let failed = |error: io::Error| format!("cannot be read: {error}");
        let found = walk(folder).map_err(failed)?;
        let seen = seen(&found);
        if seen == self.seen {
            return Ok(false);
        }
        let files = read(folder, &found).map_err(failed)?;
        if let Some(what) = difference(&self.files, &files) {
            return Err(format!("is not as it was installed: {what}"));
        }
        self.seen = seen;
        Ok(true)
    }
}

/// Returns the first difference and how many there are; `None` if there is none.
fn difference(before: &BTreeMap<String, String>, now: &BTreeMap<String, String>) -> Option<String> {
    let is_other = |(path, file): &(&String, &String)| before.get(*path) != Some(*file);
    let mut other: Vec<(&String, &str)> = now
        .iter()
        .filter(is_other)
        .map(|(path, _)| match before.contains_key(path) {
            true => (path, "was changed"),
            false => (path, "was added"),
        })
        .collect();
    let gone = before.keys().filter(|path| !now.contains_key(*path));
    other.extend(gone.map(|path| (path, "was removed")));
    let (path, what) = other.first()?;
    let first = format!("`{}` {what}", protocol::escape_text(path));
    Some(match other.len() - 1 {
        0 => first,
        more => format!("{first}, and {more} more"),
    })
}

/// A file that was found, with what the system says of it.
struct Found {
    path: PathBuf,
    metadata: std::fs::Metadata,
}

/// Returns everything beneath a folder, sorted by path, without following links.
fn walk(folder: &Path) -> io::Result<Vec<Found>> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(at) = folders.pop() {
        for entry in std::fs::read_dir(folder.join(&at))? {
            let entry = entry?;
            let (path, metadata) = (at.join(entry.file_name()), entry.metadata()?);
            if metadata.is_dir() {
                folders.push(path.clone());
            }
            found.push(Found { path, metadata });
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

/// Returns a hash of what the system says of files. The time of a change (`st_ctime`) is set by the system alone.
fn seen(found: &[Found]) -> Integrity {
    let mut text = Vec::new();
    for Found { path, metadata } in found {
        text.extend_from_slice(path.as_os_str().as_bytes());
        text.push(0);
        text.extend_from_slice(&metadata.mode().to_le_bytes());
        // The times of a folder change with each file that comes and goes, which is found anyway.
        if !metadata.is_dir() {
            for number in [metadata.dev(), metadata.ino(), metadata.size()] {
                text.extend_from_slice(&number.to_le_bytes());
            }
            for time in
                [metadata.mtime(), metadata.mtime_nsec(), metadata.ctime(), metadata.ctime_nsec()]
            {
                text.extend_from_slice(&time.to_le_bytes());
            }
        }
    }
    Integrity::of(&text)
}

/// Returns each file with its kind, permissions and content.
fn read(folder: &Path, found: &[Found]) -> io::Result<BTreeMap<String, String>> {
    let described = found.iter().map(|Found { path, metadata }| {
        let mode = metadata.mode() & 0o7777;
        let whole = folder.join(path);
        let content = if metadata.is_dir() {
            format!("folder {mode:o}")
        } else if metadata.is_symlink() {
            format!("link {}", name(&std::fs::read_link(whole)?))
        } else if metadata.is_file() {
            format!("file {mode:o} {}", hash_of(&mut File::open(whole)?)?)
        } else {
            "other".to_owned()
        };
        Ok((name(path), content))
    });
    described.collect()
}

/// Returns a path as text, so that two paths never have the same one.
fn name(path: &Path) -> String {
    match path.to_str() {
        Some(text) => text.to_owned(),
        None => format!("\0{}", path.as_os_str().as_bytes().escape_ascii()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn package() -> (tempfile::TempDir, Contents) {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(at("lib/empty")).unwrap();
        std::fs::write(at("lib/a.js"), "one").unwrap();
        std::fs::write(at("run"), "#!").unwrap();
        symlink("lib/a.js", at("link")).unwrap();
        let contents = Contents::of(folder.path()).unwrap();
        (folder, contents)
    }

    /// LM-05: whatever is done to a package is found and named.
    #[test]
    fn every_change_of_a_package_is_named() {
        let touch = |path: &Path| {
            let modified = path.metadata().unwrap().modified().unwrap();
            std::fs::write(path, "two").unwrap();
            File::options().write(true).open(path).unwrap().set_modified(modified).unwrap();
        };
        type Change<'a> = &'a dyn Fn(&Path);
        let changes: &[(Change<'_>, &str)] = &[
            (&|at| touch(&at.join("lib/a.js")), "`lib/a.js` was changed"),
            (&|at| std::fs::write(at.join("lib/b.js"), "").unwrap(), "`lib/b.js` was added"),
            (&|at| std::fs::remove_file(at.join("run")).unwrap(), "`run` was removed"),
            (&|at| std::fs::remove_dir(at.join("lib/empty")).unwrap(), "`lib/empty` was removed"),
            (
                &|at| {
                    std::fs::set_permissions(at.join("run"), PermissionsExt::from_mode(0o755))
                        .unwrap();
                },
                "`run` was changed",
            ),
            (
                &|at| {
                    std::fs::remove_file(at.join("link")).unwrap();
                    symlink("/etc/passwd", at.join("link")).unwrap();
                },
                "`link` was changed",
            ),
            (
                &|at| {
                    std::fs::rename(at.join("lib"), at.join("other")).unwrap();
                    symlink("other", at.join("lib")).unwrap();
                },
                "`lib` was changed, and 5 more",
            ),
        ];
        for (change, expected) in changes {
            let (folder, mut contents) = package();
            assert_eq!(contents.check(folder.path()), Ok(false));
            change(folder.path());
            let reason = contents.check(folder.path()).unwrap_err();
            assert_eq!(reason, format!("is not as it was installed: {expected}"));
        }
    }

    /// The same content in other files, as after a restored backup, is as it was.
    #[test]
    fn the_same_content_is_the_same_package() {
        let (folder, mut contents) = package();
        let file = folder.path().join("lib/a.js");
        std::fs::remove_file(&file).unwrap();
        std::fs::write(&file, "one").unwrap();
        assert_eq!(contents.check(folder.path()), Ok(true));
        assert_eq!(contents.check(folder.path()), Ok(false));
    }
}
