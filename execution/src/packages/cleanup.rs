//! Removes installed packages that no server has used for a time.

use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::folder::Folder;

/// A package that is not used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unused {
    /// The package as it was requested; `None` if its installation did not end.
    pub package: Option<String>,
    /// When a server last started from it.
    pub last_use: SystemTime,
    /// The size of its files in bytes.
    pub bytes: u64,
}

/// Removes the packages in `packages` that were last used more than `age` before `now`, and what interrupted
/// installations left; the others, and those that run, are kept. Returns what was removed, the largest first. With
/// `is_trial`, nothing is removed.
///
/// # Errors
/// Returns the system's error. What was removed before stays removed.
pub fn clean(
    packages: &Path,
    age: Duration,
    now: SystemTime,
    is_trial: bool,
) -> io::Result<Vec<Unused>> {
    let entries = match std::fs::read_dir(packages) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut removed = Vec::new();
    for entry in entries {
        let entry = entry?;
        if !entry.file_type()?.is_dir() {
            continue;
        }
        let path = entry.path();
        let Some(folder) = Folder::try_lock(&path)? else { continue };
        let (package, last_use) = (folder.content(), folder.last_use()?);
        // A clock that was set back must not make a package look old.
        let unused = now.duration_since(last_use).unwrap_or_default();
        if package.is_some() && unused < age {
            continue;
        }
        let bytes = size(&path)?;
        if !is_trial {
            folder.remove()?;
        }
        removed.push(Unused { package, last_use, bytes });
    }
    removed.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.package.cmp(&b.package)));
    Ok(removed)
}

/// Returns the size of the files beneath a folder, without following links.
fn size(folder: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += match metadata.is_dir() {
            true => size(&entry.path())?,
            false => metadata.len(),
        };
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::super::Request;
    use super::super::folder::{Access, InUse};
    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    /// Installs a package of 3 bytes.
    async fn installed(packages: &Path, name: &str, is_complete: bool) -> InUse {
        let arguments = ["-y".to_owned(), name.to_owned()];
        let request = Request::of("npx", &arguments).unwrap().unwrap();
        let folder = Folder::lock(packages, &request.locked_name(), Access::Change).await.unwrap();
        std::fs::create_dir(folder.path().join("lib")).unwrap();
        std::fs::write(folder.path().join("lib/a.js"), "abc").unwrap();
        if is_complete {
            folder.complete(&request).unwrap();
        }
        folder.into_use().unwrap()
    }

    fn names(unused: &[Unused]) -> Vec<Option<&str>> {
        unused.iter().map(|one| one.package.as_deref()).collect()
    }

    #[tokio::test]
    async fn only_unused_packages_are_removed() {
        let root = tempfile::tempdir().unwrap();
        let packages = root.path().join("packages");
        assert_eq!(clean(&packages, DAY, SystemTime::now(), false).unwrap(), []);
        let running = installed(&packages, "running@1.0.0", true).await;
        drop(installed(&packages, "ended@1.0.0", true).await);
        drop(installed(&packages, "interrupted@1.0.0", false).await);
        let (now, later) = (SystemTime::now(), SystemTime::now() + 2 * DAY);

        let found = clean(&packages, DAY, now, true).unwrap();
        assert_eq!((names(&found), found[0].bytes), (vec![None], 3));
        assert_eq!(names(&clean(&packages, DAY, now - 9 * DAY, true).unwrap()), [None]);
        let trial = clean(&packages, DAY, later, true).unwrap();
        assert_eq!(names(&trial), [Some("ended@1.0.0"), None]);
        assert_eq!(clean(&packages, DAY, later, false).unwrap(), trial);
        assert_eq!(clean(&packages, DAY, later, false).unwrap(), []);

        drop(running);
        assert_eq!(names(&clean(&packages, DAY, later, false).unwrap()), [Some("running@1.0.0")]);
        // It can be installed again in the same place.
        drop(installed(&packages, "running@1.0.0", true).await);
        assert_eq!(clean(&packages, DAY, now, false).unwrap(), []);
    }
}
