//! What the user approved, stored with the user's own records for runs without the gateway: the programs of
//! capabilities, and the registry's entries of servers.
//!
//! Each is looked up by its hash and verified, so the files need not be trusted.

use std::io;
use std::path::Path;

use protocol::{Integrity, RegistryEntry};

use super::{MODULE_LIMIT, Module};
use crate::files::records::{RecordFile, name_of_hash};

/// The folder of programs next to the user's records.
const FOLDER: &str = "capabilities";
/// The folder of entries.
const ENTRIES: &str = "servers";
/// The maximum size of an entry in bytes: it lists the tools of a server with their schemas.
const ENTRY_LIMIT: usize = 4 * 1024 * 1024;

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

/// Returns the stored entry of a server with this hash, if there is one and it still matches the hash.
pub(crate) fn load_entry(records: &Path, integrity: Integrity) -> Option<RegistryEntry> {
    let entry: RegistryEntry =
        serde_json::from_slice(&entry_file(records, integrity).read()?).ok()?;
    // The field of the entry is only what it says of itself.
    (entry.integrity == integrity && entry.content_integrity() == integrity).then_some(entry)
}

/// Stores the entry of a server.
///
/// # Errors
/// Returns the system's error. The previous file, if any, is unchanged then.
pub(crate) fn save_entry(records: &Path, entry: &RegistryEntry) -> Result<(), io::Error> {
    entry_file(records, entry.integrity).write(&serde_json::to_vec(entry)?)
}

fn entry_file(records: &Path, integrity: Integrity) -> RecordFile {
    RecordFile::named(records, ENTRIES, name_of_hash(integrity), ENTRY_LIMIT)
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

    #[test]
    fn a_stored_entry_is_verified_by_its_hash() {
        let folder = tempfile::tempdir().unwrap();
        let entry = |description: &str| {
            let mut entry: RegistryEntry = serde_json::from_value(serde_json::json!({
                "fqdn": "pml.mcp.memory", "type": "stdio", "description": description,
                "install": { "command": "memory", "args": [] }, "routing": "client",
                "integrity": Integrity::of(b""),
            }))
            .unwrap();
            entry.integrity = entry.content_integrity();
            entry
        };
        let good = entry("a");
        let loaded = || load_entry(folder.path(), good.integrity).map(|entry| entry.description);
        assert_eq!(loaded(), None);
        save_entry(folder.path(), &good).unwrap();
        assert_eq!(loaded().as_deref(), Some("a"));
        let file = folder.path().join(ENTRIES).join(name_of_hash(good.integrity));
        // Another entry, and one that says it has the hash of this one.
        let (other, mut forged) = (entry("b"), entry("b"));
        forged.integrity = good.integrity;
        for text in
            [serde_json::to_vec(&other).unwrap(), serde_json::to_vec(&forged).unwrap(), Vec::new()]
        {
            std::fs::write(&file, text).unwrap();
            assert_eq!(loaded(), None);
        }
    }
}
