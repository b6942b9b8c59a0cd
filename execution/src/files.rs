//! Small files that are written as a whole, and the names and hashes of files.

pub mod atomic;

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::AsFd;

use protocol::Integrity;
use rustix::fs::{AtFlags, Stat};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

/// Returns a file or folder name for the identifier `of`: the hex digits of its hash.
pub fn name(of: &str) -> String {
    name_of_hash(Integrity::of(of.as_bytes()))
}

/// Returns a file or folder name for a hash: its hex digits.
pub fn name_of_hash(hash: Integrity) -> String {
    // Not the usual form of an integrity: its Base64 may contain `/`.
    hash.into_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the hash of everything that is read from a file.
///
/// # Errors
/// Returns the system's error.
pub fn hash_of(file: &mut File) -> io::Result<Integrity> {
    let mut hash = Sha256::new();
    let mut part = vec![0; 128 * 1024];
    loop {
        match file.read(&mut part)? {
            0 => return Ok(Integrity::from_bytes(hash.finalize().into())),
            read => hash.update(&part[..read]),
        }
    }
}

/// Returns the metadata of a name in a folder without following a link.
pub fn stat_name(folder: impl AsFd, name: &str) -> Result<Stat, Errno> {
    rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)
}
