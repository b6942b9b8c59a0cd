//! The user's folders for PML, and small files that are read and written as a whole.

pub(crate) mod dated;
pub(crate) mod hashes;
pub(crate) mod records;
pub(crate) mod strict_json;
pub(crate) mod strict_yaml;

use std::path::PathBuf;

/// Returns the user's folder for PML's settings, `$XDG_CONFIG_HOME/pml` or `~/.config/pml`.
pub(crate) fn settings_folder() -> Option<PathBuf> {
    of_user("XDG_CONFIG_HOME", ".config")
}

/// Returns the user's folder for PML's records, `$XDG_STATE_HOME/pml` or `~/.local/state/pml`.
pub(crate) fn records_folder() -> Option<PathBuf> {
    of_user("XDG_STATE_HOME", ".local/state")
}

/// Returns the user's home folder.
pub(crate) fn home() -> Option<PathBuf> {
    std::env::home_dir().filter(|home| home.is_absolute())
}

fn of_user(variable: &str, otherwise: &str) -> Option<PathBuf> {
    let named = std::env::var_os(variable).map(PathBuf::from);
    beneath(named, std::env::home_dir(), otherwise)
}

/// Returns PML's folder beneath the named folder, else beneath `otherwise` in the home folder.
fn beneath(named: Option<PathBuf>, home: Option<PathBuf>, otherwise: &str) -> Option<PathBuf> {
    // The XDG Base Directory Specification requires relative paths in its variables to be ignored. A relative home
    // folder would depend on the current folder as well.
    let is_absolute = |path: &PathBuf| path.is_absolute();
    let home = home.filter(is_absolute).map(|home| home.join(otherwise));
    named.filter(is_absolute).or(home).map(|path| path.join("pml"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_folders_are_ignored() {
        for (named, home, expected) in [
            (Some("/x"), Some("/home/a"), Some("/x/pml")),
            (Some("x"), Some("/home/a"), Some("/home/a/.config/pml")),
            (None, Some("/home/a"), Some("/home/a/.config/pml")),
            (None, Some("home"), None),
            (Some(""), Some(""), None),
            (None, None, None),
        ] {
            let found = beneath(named.map(PathBuf::from), home.map(PathBuf::from), ".config");
            assert_eq!(found, expected.map(PathBuf::from), "{named:?} {home:?}");
        }
    }
}
