//! The programs of capabilities that the user approved, stored with the user's own records.
//!
//! They are found by their hash and verified each time, so the files need not be trusted.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use protocol::Integrity;
use rustix::fs::{Mode, OFlags};

use super::{MODULE_LIMIT, Module};
use crate::files::atomic::{self, Existing};

/// The folder next to the user's records.
const FOLDER: &str = "capabilities";

/// Returns the program of this hash, if it is there and still has it.
pub(crate) fn kept(records: &Path, integrity: Integrity) -> Option<Module> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::openat(open(records).ok()?, name(integrity), flags, Mode::empty());
    let file = File::from(file.ok()?);
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    file.take(MODULE_LIMIT as u64 + 1).read_to_string(&mut text).ok()?;
    Module::read(text).ok().filter(|module| module.integrity == integrity)
}

/// Keeps a program.
///
/// # Errors
/// Returns the system's error; then the program is absent, or the previous one remains.
pub(crate) fn keep(records: &Path, module: &Module) -> Result<(), io::Error> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(records.join(FOLDER))?;
    let mode = Some(Mode::from_raw_mode(0o600));
    let text = module.text.as_bytes();
    atomic::write(open(records)?, &name(module.integrity), text, mode, Existing::Replaced)
}

fn open(records: &Path) -> Result<OwnedFd, io::Error> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(records.join(FOLDER), flags, Mode::empty())?)
}

fn name(integrity: Integrity) -> String {
    integrity.into_bytes().iter().fold(String::new(), |mut name, byte| {
        let _ = write!(name, "{byte:02x}");
        name
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capabilities::tests::module;

    #[test]
    fn what_is_kept_is_held_against_its_hash() {
        let folder = tempfile::tempdir().unwrap();
        let good = Module::read(module("a.b.c.d", "0.1.0", "return 1")).unwrap();
        assert_eq!(kept(folder.path(), good.integrity), None);
        keep(folder.path(), &good).unwrap();
        assert_eq!(kept(folder.path(), good.integrity), Some(good.clone()));
        let file = folder.path().join(FOLDER).join(name(good.integrity));
        let other = Module::read(module("a.b.c.d", "0.1.0", "return 2")).unwrap();
        for text in [&other.text, "", &good.text.replace("return 1", "return 3")] {
            std::fs::write(&file, text).unwrap();
            assert_eq!(kept(folder.path(), good.integrity), None, "{text}");
        }
        std::fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &file).unwrap();
        assert_eq!(kept(folder.path(), good.integrity), None);
        keep(folder.path(), &good).unwrap();
        assert_eq!(kept(folder.path(), good.integrity), Some(good));
    }
}
