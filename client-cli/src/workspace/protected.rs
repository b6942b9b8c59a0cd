//! Protected places in a workspace: files that other programs run or trust, or that contain secrets.
//!
//! A program that can change such a file can run code with the user's rights, outside the permission rules. The list is
//! in `protected.tsv`; places that depend on the machine are determined when the workspace is opened.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use rustix::fs::OFlags;

use super::Workspace;
use super::path_error::{PathError, shown};
use crate::files;
use crate::policy::{Judged, Operation, Policy};

/// The protection of a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// Refused; the user cannot approve it.
    Refused,
    /// Needs the user's approval, whatever a rule allows.
    Asked,
}

/// A protected place that a call touches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Protected {
    /// Its place in the workspace with all links resolved.
    pub real: PathBuf,
    /// Its protection.
    pub guard: Guard,
    /// The reason, as the rest of a sentence.
    pub reason: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    Own,
    Never,
    Ask,
    Secret,
    Plain,
}

impl Access {
    fn guard(self, operation: Operation) -> Option<Guard> {
        match (self, operation) {
            (Self::Own, _) | (Self::Never, Operation::Change | Operation::Move) => {
                Some(Guard::Refused)
            }
            // Names and metadata are not secret.
            (_, Operation::List) => None,
            (Self::Secret, _) | (Self::Ask, Operation::Change | Operation::Move) => {
                Some(Guard::Asked)
            }
            (Self::Never | Self::Ask, Operation::Read) | (Self::Plain, _) => None,
        }
    }
}

/// A name of the list, with its path components normalized by [`fold`].
struct Name {
    access: Access,
    reason: &'static str,
    parts: Vec<String>,
}

static NAMES: LazyLock<Vec<Name>> = LazyLock::new(|| names(include_str!("protected.tsv")));

/// Parses the list; a test checks that every line is valid.
fn names(list: &'static str) -> Vec<Name> {
    let mut found = Vec::new();
    for line in list.lines().filter(|line| !line.starts_with('#')) {
        let mut columns = line.split('\t');
        let access = match columns.next() {
            Some("own") => Access::Own,
            Some("never") => Access::Never,
            Some("ask") => Access::Ask,
            Some("secret") => Access::Secret,
            Some("plain") => Access::Plain,
            _ => continue,
        };
        let (Some(reason), Some(names)) = (columns.next(), columns.next()) else { continue };
        for name in names.split(' ') {
            let parts = name.split('/').map(|part| fold(OsStr::new(part))).collect();
            found.push(Name { access, reason, parts });
        }
    }
    found
}

/// Returns whether a name in a folder is that of PML's own records, which nobody can read.
pub(crate) fn is_own(name: &str) -> bool {
    let name = fold(OsStr::new(name));
    let mut own = NAMES.iter().filter(|known| known.access == Access::Own);
    own.any(|known| known.parts == [name.as_str()])
}

/// Normalizes a name as the most lenient file systems do. Drops the case, characters that HFS+ ignores, an NTFS stream
/// name after `:`, and trailing dots and spaces.
fn fold(name: &OsStr) -> String {
    let text: String = name.to_string_lossy().chars().filter(|c| !is_ignored(*c)).collect();
    let stem = match text.split_once(':') {
        Some((stem, _)) if !stem.is_empty() => stem,
        _ => &text,
    };
    let stem = match stem.trim_end_matches(['.', ' ']) {
        // A name of dots and spaces only stays as it is: the empty name would match nothing.
        "" => stem,
        trimmed => trimmed,
    };
    // To upper case first: `ſ` and `ﬁ` are lower case already, and change only in upper case.
    stem.to_uppercase().to_lowercase()
}

/// Returns whether HFS+ ignores a character in names.
fn is_ignored(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Returns whether a path component matches a name of the list.
fn is_part(pattern: &str, part: &str) -> bool {
    let matches = match pattern.split_once('*') {
        Some((before, after)) => {
            // The `*` stands for at least one character, and the two ends must not overlap.
            part.len() > before.len() + after.len()
                && part.starts_with(before)
                && part.ends_with(after)
        }
        None => part == pattern,
    };
    matches || is_short_name(pattern, part)
}

/// Returns whether a path component is the short name that FAT and NTFS generate for a long one: `GIT~1` for `.git`.
fn is_short_name(pattern: &str, part: &str) -> bool {
    let Some((stem, number)) = part.split_once('~') else { return false };
    let number = number.split('.').next().unwrap_or_default();
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    // Before the `~`, FAT and NTFS keep at most six characters, without dots.
    let long: String = pattern.chars().filter(|c| c.is_alphanumeric()).take(6).collect();
    is_number && pattern.starts_with('.') && !pattern.contains('*') && stem == long
}

/// Returns the strictest protection that a path's names imply.
fn by_name(real: &Path, operation: Operation) -> Option<(Guard, &'static str)> {
    let parts: Vec<String> = real.components().map(|part| fold(part.as_os_str())).collect();
    let is_plain =
        |part: &str| NAMES.iter().any(|name| name.access == Access::Plain && name.parts[0] == part);
    let covers = |name: &Name| {
        (0..parts.len()).any(|start| {
            let rest = &parts[start..];
            let count = name.parts.len().min(rest.len());
            let same = name.parts.iter().zip(rest).all(|(pattern, part)| is_part(pattern, part));
            // Moving `.github` also moves `.github/workflows`.
            let reaches = count == name.parts.len() || operation == Operation::Move;
            let excepted = name.parts[0].contains('*') && is_plain(&rest[0]);
            same && reaches && !excepted
        })
    };
    let found = NAMES.iter().filter(|name| name.access != Access::Plain && covers(name));
    let found = found.filter_map(|name| Some((name.access.guard(operation)?, name.reason)));
    // `Refused` overrides `Asked`.
    found.min_by_key(|(guard, _)| *guard == Guard::Asked)
}

/// A protected place that depends on this machine.
#[derive(Debug, Clone)]
pub(super) struct MachinePlace {
    /// Its canonical path.
    path: PathBuf,
    access: Access,
    reason: &'static str,
}

/// Finds the protected places of this machine: PML's folders and those on the `PATH`.
pub(super) fn of_machine() -> Vec<MachinePlace> {
    // The program itself is included: whoever replaces it decides every later call.
    let own = [files::records_folder(), files::settings_folder(), std::env::current_exe().ok()];
    let reason = "it contains PML's records and permissions";
    let own = own.into_iter().flatten().map(|place| (place, Access::Own, reason));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let reason = "it is on your `PATH`: commands run its programs";
    // Relative entries depend on the current folder. `Programs` ignores them as well.
    let folders = std::env::split_paths(&path).filter(|folder| folder.is_absolute());
    let folders: Vec<_> = folders.map(|folder| (folder, Access::Ask, reason)).collect();
    let places = own.chain(folders);
    places
        .map(|(place, access, reason)| MachinePlace { path: resolved(&place), access, reason })
        .collect()
}

/// Resolves the links in the existing part of a path.
fn resolved(path: &Path) -> PathBuf {
    // The folders of the records and settings are created when they are first needed.
    for ancestor in path.ancestors() {
        if let Ok(real) = ancestor.canonicalize() {
            return real.join(path.strip_prefix(ancestor).unwrap_or(Path::new("")));
        }
    }
    path.to_owned()
}

impl Workspace {
    /// Returns the protection of a place from an operation; `real` is the place with all links resolved.
    pub(crate) fn protection(&self, real: &Path, operation: Operation) -> Option<Protected> {
        let named = by_name(real, operation);
        let path = self.root().join(real);
        let special = self.special.iter().filter_map(|special| {
            let beneath = path.starts_with(&special.path);
            let moves_it = operation == Operation::Move && special.path.starts_with(&path);
            let guard = special.access.guard(operation)?;
            (beneath || moves_it).then_some((guard, special.reason))
        });
        let found = named.into_iter().chain(special);
        let found = found.min_by_key(|(guard, _)| *guard == Guard::Asked);
        // Last, because only this rule has to look at the disk.
        let found = found.or_else(|| self.of_repository(real, operation));
        let (guard, reason) = found?;
        Some(Protected { real: real.to_owned(), guard, reason })
    }

    /// Returns the protection of a place in a Git repository's own folder, whatever its name. Git treats a folder with
    /// `HEAD`, `objects` and `refs` as a repository; `--separate-git-dir` and `init --bare` create such folders.
    fn of_repository(&self, real: &Path, operation: Operation) -> Option<(Guard, &'static str)> {
        // Reading a file of a repository makes Git run nothing.
        if matches!(operation, Operation::List | Operation::Read) {
            return None;
        }
        let has = |folder: &Path, name: &str| {
            // A link counts as present, wherever it leads: Git follows it.
            let flags = OFlags::PATH | OFlags::NOFOLLOW;
            match self.open_beneath("", &folder.join(name), flags) {
                Ok(_) => true,
                // Unknown counts as present, so that the user is asked.
                Err(error) => error.is_exhausted(),
            }
        };
        let is_one = |folder: &&Path| {
            has(folder, "HEAD")
                // One of these is enough here, although Git needs more: the rest could be added
                // later.
                && ["objects", "refs", "config", "commondir"].iter().any(|name| has(folder, name))
        };
        // Only the parents count: moving a folder does not turn it into a repository.
        real.ancestors().skip(1).find(is_one)?;
        Some((Guard::Asked, "its folder is a Git repository, whose settings and hooks Git runs"))
    }

    /// Returns why an access needs approval, under a policy.
    ///
    /// # Errors
    /// Returns [`PathError`] if it is refused, whatever the user says.
    pub(crate) fn guarded(
        &self,
        policy: &Policy,
        given: &str,
        real: &Path,
        operation: Operation,
    ) -> Result<Option<Protected>, PathError> {
        let protected = match self.protection(real, operation) {
            Some(place) if place.guard == Guard::Refused => return Err(place.refused(given)),
            protected => protected,
        };
        match policy.place(real, operation) {
            Judged::Denied(reason) => Err(PathError::Denied { path: shown(given), reason }),
            Judged::Beyond(reason) => Ok(protected.or_else(|| {
                Some(Protected { real: real.to_owned(), guard: Guard::Asked, reason })
            })),
            Judged::Within => Ok(protected),
        }
    }
}

impl Protected {
    /// Returns the error for a refused access; `given` is the path as the program wrote it.
    pub(crate) fn refused(&self, given: &str) -> PathError {
        let path = shown(given);
        PathError::Protected { path, reason: self.reason }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn guard(path: &str, operation: Operation) -> Option<Guard> {
        by_name(Path::new(path), operation).map(|(guard, _)| guard)
    }

    #[test]
    fn every_line_of_the_list_is_read() {
        let list = include_str!("protected.tsv");
        let mut seen = BTreeSet::new();
        for line in list.lines().filter(|line| !line.starts_with('#')) {
            let columns: Vec<&str> = line.split('\t').collect();
            assert_eq!(columns.len(), 3, "{line}");
            assert!(["own", "never", "ask", "secret", "plain"].contains(&columns[0]), "{line}");
            assert!(columns[1].contains(' ') && !columns[1].ends_with('.'), "{line}");
            for name in columns[2].split(' ') {
                assert!(!name.is_empty() && name.matches('*').count() < 2, "{line}");
                assert!(seen.insert(name), "`{name}` is listed twice");
            }
        }
        assert_eq!(names(list).len(), seen.len());
    }

    /// NX-03: other spellings that some file system treats as the same name.
    #[test]
    fn other_spellings_are_the_same_place() {
        for path in [
            ".vscode/settings.json",
            ".VSCode/settings.json",
            // The letter `ſ`, whose upper case is `S`.
            ".v\u{17f}code/x",
            ".vscode./x",
            ".vscode /x",
            // On NTFS, the stream that is the folder itself.
            ".vscode::$INDEX_ALLOCATION/x",
            ".vs\u{200c}code/x",
            "VSCODE~1/x",
            "deep/er/.vscode",
            "agents.MD",
            ".Github/Workflows/x.yml",
        ] {
            assert_eq!(guard(path, Operation::Change), Some(Guard::Asked), "{path}");
            assert_eq!(guard(path, Operation::Read), None, "{path}");
        }
        for path in
            [".GIT/config", "git~1/config", ".git./x", ".g\u{200c}it/hooks/x", "a/.Mcp.Json"]
        {
            assert_eq!(guard(path, Operation::Change), Some(Guard::Refused), "{path}");
        }
        for path in [
            "src/main.rs",
            ".gitignore",
            ".github/x.md",
            ".github",
            "vscode",
            "a~1",
            "Makefile",
            ".env.example",
        ] {
            assert_eq!(guard(path, Operation::Change), None, "{path}");
        }
    }

    #[test]
    fn reading_a_secret_needs_approval() {
        for path in [".env", ".env.local", "a/.ssh/id_ed25519", ".npmrc", ".docker/config.json"] {
            assert_eq!(guard(path, Operation::Read), Some(Guard::Asked), "{path}");
            assert_eq!(guard(path, Operation::Move), Some(Guard::Asked), "{path}");
        }
        assert_eq!(guard(".env.example", Operation::Read), None);
        assert_eq!(guard(".env.example/.ssh/x", Operation::Read), Some(Guard::Asked));
    }

    #[test]
    fn moving_a_parent_of_a_protected_place_needs_approval() {
        for path in [".github", ".config", "x/.config", "Library"] {
            assert_eq!(guard(path, Operation::Move), Some(Guard::Asked), "{path}");
        }
        assert_eq!(guard("src", Operation::Move), None);
    }
}
