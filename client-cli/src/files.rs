//! The user's own folders, and small files in them and elsewhere that are read and written whole.

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
    // A relative home would lead to another folder from each project.
    of_user("XDG_STATE_HOME", ".local/state").filter(|folder| folder.is_absolute())
}

fn of_user(variable: &str, otherwise: &str) -> Option<PathBuf> {
    let named = std::env::var_os(variable).map(PathBuf::from);
    let home = || std::env::home_dir().map(|home| home.join(otherwise));
    named.filter(|path| path.is_absolute()).or_else(home).map(|path| path.join("pml"))
}

/// Returns the facts of a name in a folder without following a link.
pub(crate) fn stat_name(folder: impl AsFd, name: &str) -> Result<Stat, Errno> {
    rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)
}
