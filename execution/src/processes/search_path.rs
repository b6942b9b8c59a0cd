//! A `PATH` on which some programs are not found, for a server that has to do without them.
//!
//! A program that looks for another one learns from `ENOENT` that it is not there, and does without. If it finds the
//! file and may not run it, or runs it in vain, it often gives up.

use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Returns the `PATH` without the programs of these names. A folder that has one of them is replaced by a folder in
/// `place` with links to everything else in it; the other folders stay as they are.
///
/// # Errors
/// As creating a folder or a link does.
pub(crate) fn without(path: &str, hidden: &[&str], place: &Path) -> io::Result<String> {
    let mut folders = Vec::new();
    for (number, folder) in path.split(':').enumerate() {
        let at = Path::new(folder);
        let has_one = hidden.iter().any(|name| at.join(name).symlink_metadata().is_ok());
        // What is in one that cannot be listed is not known.
        let Some(entries) = std::fs::read_dir(at).ok().filter(|_| has_one) else {
            folders.push(folder.to_owned());
            continue;
        };
        let own = place.join(number.to_string());
        std::fs::create_dir(&own)?;
        for entry in entries.flatten() {
            let name = entry.file_name();
            if !hidden.iter().any(|hidden| name == OsStr::new(hidden)) {
                symlink(entry.path(), own.join(&name))?;
            }
        }
        folders.push(own.to_string_lossy().into_owned());
    }
    Ok(folders.join(":"))
}

/// Returns the folders of a `PATH` that are in one of these, or are one.
pub(crate) fn within(path: &str, readable: &[PathBuf]) -> String {
    let is_within =
        |folder: &&str| readable.iter().any(|place| Path::new(folder).starts_with(place));
    let folders: Vec<&str> = path.split(':').filter(is_within).collect();
    folders.join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_programs_are_not_found_and_others_are() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["one", "two", "place"] {
            std::fs::create_dir(at(name)).unwrap();
        }
        for name in ["one/git", "two/npm", "two/node", "two/deep"] {
            std::fs::write(at(name), name).unwrap();
        }
        symlink("nowhere", at("two/npx")).unwrap();
        let path = format!("{}:{}:/nowhere", at("one").display(), at("two").display());
        let narrowed = without(&path, &["npm", "npx"], &at("place")).unwrap();
        let folders: Vec<PathBuf> = narrowed.split(':').map(PathBuf::from).collect();
        assert_eq!(folders[0], at("one"));
        assert!(folders[1].starts_with(at("place")));
        assert_eq!(folders[2], Path::new("/nowhere"));
        let find = |name: &str| folders.iter().map(|folder| folder.join(name)).find(|p| p.exists());
        assert_eq!(find("npm").or(find("npx")), None);
        assert_eq!(std::fs::read_to_string(find("node").unwrap()).unwrap(), "two/node");
        assert_eq!(find("git"), Some(at("one/git")));

        assert_eq!(without(&path, &["none"], &at("place")).unwrap(), path);
    }

    #[test]
    fn folders_that_cannot_be_read_are_left_out() {
        let readable = ["/usr".into(), "/opt/node".into()];
        let path = "/usr/local/bin:/usr/bin:/snap/bin:/opt/node/bin:/usrlocal:/opt";
        assert_eq!(within(path, &readable), "/usr/local/bin:/usr/bin:/opt/node/bin");
    }
}
