//! The accounts of this machine: Postgres refuses to run as root, so root needs another account for it.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The account that runs Postgres if this process is root.
#[derive(Debug, Clone)]
pub(super) struct Account {
    pub(super) name: String,
    pub(super) uid: u32,
    pub(super) gid: u32,
}

/// Returns the accounts of this machine.
///
/// Read from `/etc/passwd`, not from the name service. Postgres looks up its own user, and refuses to run as one that
/// has no entry.
pub(super) fn accounts() -> Vec<Account> {
    let text = fs::read_to_string("/etc/passwd").unwrap_or_default();
    text.lines()
        .filter_map(|line| {
            let fields: Vec<&str> = line.split(':').collect();
            let (name, uid, gid) = (fields.first()?, fields.get(2)?, fields.get(3)?);
            Some(Account {
                name: (*name).to_owned(),
                uid: uid.parse().ok().filter(|uid| *uid != 0)?,
                gid: gid.parse().ok()?,
            })
        })
        .collect()
}

/// Returns the first folder on the path to `dir`, including `dir`, that the account cannot enter.
pub(super) fn closed_ancestor(dir: &Path, account: &Account) -> Option<PathBuf> {
    let mut ancestors: Vec<&Path> = dir.ancestors().collect();
    ancestors.reverse();
    ancestors
        .into_iter()
        .find(|folder| {
            fs::metadata(folder).is_ok_and(|metadata| {
                // As in the kernel, the owner's bits alone decide for the owner, even if others may
                // do more. Supplementary groups do not count: Postgres runs without them.
                let bit = match metadata.uid() == account.uid {
                    true => 0o100,
                    false if metadata.gid() == account.gid => 0o010,
                    false => 0o001,
                };
                metadata.mode() & bit == 0
            })
        })
        .map(Path::to_owned)
}
