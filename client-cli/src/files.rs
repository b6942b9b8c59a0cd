//! The user's folders for PML, and small files that are read and written as a whole.

pub(crate) mod atomic;
pub(crate) mod dated;
pub(crate) mod records;
pub(crate) mod strict_json;

use std::os::fd::AsFd;
use std::path::PathBuf;

use rustix::fs::{AtFlags, Stat};
use rustix::io::Errno;

/// Returns the user's folder for PML's settings, `$XDG_CONFIG_HOME/pml` or `~/.config/pml`.
pub(crate) fn settings_folder() -> Option<PathBuf> {
    of_user("XDG_CONFIG_HOME", ".config")
}

/// Returns the user's folder for PML's records, `$XDG_STATE_HOME/pml` or `~/.local/state/pml`.
pub(crate) fn records_folder() -> Option<PathBuf> {
    // A relative home folder would depend on the current folder.
    of_user("XDG_STATE_HOME", ".local/state").filter(|folder| folder.is_absolute())
}

fn of_user(variable: &str, otherwise: &str) -> Option<PathBuf> {
    let named = std::env::var_os(variable).map(PathBuf::from);
    let home = || std::env::home_dir().map(|home| home.join(otherwise));
    // The XDG Base Directory Specification requires relative paths in these variables to be
    // ignored.
    named.filter(|path| path.is_absolute()).or_else(home).map(|path| path.join("pml"))
}

/// Returns the metadata of a name in a folder without following a link.
pub(crate) fn stat_name(folder: impl AsFd, name: &str) -> Result<Stat, Errno> {
    rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)
}
