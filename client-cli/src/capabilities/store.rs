//! The programs of capabilities that the user approved, stored with the user's own records.
//!
//! A program is looked up by its hash and verified each time, so the files need not be trusted.

use std::io;
use std::path::Path;

use protocol::Integrity;

use super::{MODULE_LIMIT, Module};
use crate::files::records::{RecordFile, name_of_hash};

/// The folder next to the user's records.
const FOLDER: &str = "capabilities";

/// Returns the stored program with this hash, if there is one and it still matches the hash.
pub(crate) fn load_module(records: &Path, integrity: Integrity) -> Option<Module> {
    let text = String::from_utf8(file(records, integrity).read()?).ok()?;
    // A module may match its own hashes and still be another one: anybody can compute them.
    Module::read(text).ok().filter(|module| module.integrity == integrity)
}

/// Stores a program.
///
/// # Errors
/// Returns the system's error. The previous file, if any, is unchanged then.
pub(crate) fn save_module(records: &Path, module: &Module) -> Result<(), io::Error> {
    file(records, module.integrity).write(module.text.as_bytes())
}

fn file(records: &Path, integrity: Integrity) -> RecordFile {
    RecordFile::named(records, FOLDER, name_of_hash(integrity), MODULE_LIMIT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capabilities::tests::module;

    #[test]
    fn a_stored_program_is_verified_by_its_hash() {
        let folder = tempfile::tempdir().unwrap();
        let good = Module::read(module("a.b.c.d", "0.1.0", "return 1")).unwrap();
        assert_eq!(load_module(folder.path(), good.integrity), None);
        save_module(folder.path(), &good).unwrap();
        assert_eq!(load_module(folder.path(), good.integrity), Some(good.clone()));
        let file = folder.path().join(FOLDER).join(name_of_hash(good.integrity));
        let other = Module::read(module("a.b.c.d", "0.1.0", "return 2")).unwrap();
        for text in [&other.text, "", &good.text.replace("return 1", "return 3")] {
            std::fs::write(&file, text).unwrap();
            assert_eq!(load_module(folder.path(), good.integrity), None, "{text}");
        }
        std::fs::remove_file(&file).unwrap();
        // Following this link would never end.
        std::os::unix::fs::symlink("/dev/zero", &file).unwrap();
        assert_eq!(load_module(folder.path(), good.integrity), None);
        save_module(folder.path(), &good).unwrap();
        assert_eq!(load_module(folder.path(), good.integrity), Some(good));
    }
}
