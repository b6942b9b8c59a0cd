//! The file of a backup: a line that names the format, a line of JSON about the backup, the dump of `pg_dump`, and a
//! checksum of everything before it.
//!
//! Ordinary programs can read it: `head -n 2` shows the first two lines, and `tail -n +3` passes the dump to
//! `pg_restore`, which ignores what follows it.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::{Context as _, bail};
use chrono::{DateTime, Utc};
use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The first line; the number is the version of the format.
const FIRST_LINE: &str = "PML-BACKUP 1\n";
/// How the first line of every version begins.
const FIRST_WORD: &str = "PML-BACKUP ";
/// How a dump in the custom format of `pg_dump` begins.
const DUMP: &[u8] = b"PGDMP";
/// The longest line about a backup.
const LINE_LIMIT: u64 = 64 * 1024;
/// The length of the checksum with its word and its line ends.
const CHECKSUM_LENGTH: u64 = 1 + 7 + 64 + 1;

/// What a backup is of. It has no secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::commands) struct Manifest {
    /// The version of `pml-server` that wrote it.
    pub(in crate::commands) pml: String,
    /// The newest migration of the database.
    pub(in crate::commands) migration: i64,
    /// When the backup began.
    pub(in crate::commands) created_at: DateTime<Utc>,
    /// The major version of the server.
    pub(in crate::commands) postgres: u32,
    /// The major version of `pg_dump`, the oldest `pg_restore` that reads it.
    pub(in crate::commands) pg_dump: u32,
    /// The role that owns the tables.
    pub(in crate::commands) owner: String,
    /// The names of the master keys that the stored secrets need: hashes, from which no key can be derived.
    pub(in crate::commands) master_keys: Vec<String>,
}

/// Hashes what is written, and returns what is written around the dump.
pub(in crate::commands) struct Writer(Sha256);

impl Writer {
    /// Returns the lines before the dump.
    pub(in crate::commands) fn begin(manifest: &Manifest) -> anyhow::Result<(Self, Vec<u8>)> {
        let mut lines = FIRST_LINE.as_bytes().to_vec();
        serde_json::to_writer(&mut lines, manifest)?;
        lines.push(b'\n');
        let mut writer = Self(Sha256::new());
        writer.add(&lines);
        Ok((writer, lines))
    }

    /// Adds a part of the dump.
    pub(in crate::commands) fn add(&mut self, part: &[u8]) {
        self.0.update(part);
    }

    /// Returns the checksum, the end of the file.
    pub(in crate::commands) fn end(self) -> String {
        format!("\nsha256 {}\n", HEXLOWER.encode(&self.0.finalize()))
    }
}

/// A backup whose checksum is correct.
#[derive(Debug)]
pub(in crate::commands) struct Opened {
    /// What it is of.
    pub(in crate::commands) manifest: Manifest,
    file: File,
    /// Where the dump begins, and its length.
    dump: (u64, u64),
}

impl Opened {
    /// Opens a backup and reads all of it once, to verify its checksum.
    ///
    /// # Errors
    /// Returns an error for everything but a complete, unchanged backup in a format that this program knows.
    pub(in crate::commands) fn open(path: &Path) -> anyhow::Result<Self> {
        // Without the flag, opening a named pipe would wait for its writer.
        let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        // It is read twice, so a pipe does not do.
        if !file.metadata()?.is_file() {
            bail!("it is not a regular file; write it to one first");
        }
        let length = file.metadata()?.len();
        let mut reader = BufReader::with_capacity(1024 * 1024, &file);
        let mut hash = Sha256::new();
        let first = line(&mut reader, &mut hash)?;
        if first != FIRST_LINE.as_bytes() {
            let is_other = first.starts_with(FIRST_WORD.as_bytes());
            bail!(if is_other {
                "it is a backup in a newer format; restore it with the version of `pml-server` that wrote it, or a newer one"
            } else {
                "it is not a file of `pml-server backup`"
            });
        }
        let manifest = line(&mut reader, &mut hash)?;
        let start = (first.len() + manifest.len()) as u64;
        let Some(dump) = length.checked_sub(start + CHECKSUM_LENGTH) else {
            bail!("it is incomplete: it ends before its checksum");
        };
        let mut begins: Vec<u8> = Vec::new();
        let mut rest = (&mut reader).take(dump);
        let mut buffer = vec![0; 1024 * 1024];
        loop {
            let read = rest.read(&mut buffer)?;
            if read == 0 {
                break;
            }
            let part = buffer.get(..read).unwrap_or_default();
            begins.extend(part.iter().take(DUMP.len().saturating_sub(begins.len())));
            hash.update(part);
        }
        let mut checksum = String::new();
        // What is not UTF-8 is not a checksum either.
        let _ = reader.read_to_string(&mut checksum);
        if checksum != Writer(hash).end() {
            bail!("it is damaged or incomplete: its checksum is wrong");
        }
        if begins != DUMP {
            bail!("it is damaged: it contains no dump of `pg_dump`");
        }
        // Only now: before, it could be anything.
        let manifest = serde_json::from_slice(&manifest).context("its second line is invalid")?;
        drop(reader);
        Ok(Self { manifest, file, dump: (start, dump) })
    }

    /// Returns the dump.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub(in crate::commands) fn dump(&self) -> std::io::Result<impl Read + '_> {
        let (start, length) = self.dump;
        (&self.file).seek(SeekFrom::Start(start))?;
        Ok((&self.file).take(length))
    }
}

/// Reads a line with its end.
fn line(reader: &mut BufReader<&File>, hash: &mut Sha256) -> std::io::Result<Vec<u8>> {
    let mut line = Vec::new();
    reader.by_ref().take(LINE_LIMIT).read_until(b'\n', &mut line)?;
    hash.update(&line);
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        Manifest {
            pml: "0.1.0".into(),
            migration: 34,
            created_at: DateTime::UNIX_EPOCH,
            postgres: 15,
            pg_dump: 15,
            owner: "pml_owner".into(),
            master_keys: vec!["0123456789abcdef".into()],
        }
    }

    fn written(dump: &[u8]) -> Vec<u8> {
        let (mut writer, mut bytes) = Writer::begin(&manifest()).unwrap();
        bytes.extend_from_slice(dump);
        writer.add(dump);
        bytes.extend_from_slice(writer.end().as_bytes());
        bytes
    }

    fn open(bytes: &[u8]) -> anyhow::Result<Opened> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("backup");
        std::fs::write(&path, bytes).unwrap();
        Opened::open(&path)
    }

    #[test]
    fn a_backup_is_read_as_it_was_written() {
        let opened = open(&written(b"PGDMP\0\x01\n\n dump")).unwrap();
        assert_eq!(opened.manifest, manifest());
        for _ in 0..2 {
            let mut dump = Vec::new();
            opened.dump().unwrap().read_to_end(&mut dump).unwrap();
            assert_eq!(dump, b"PGDMP\0\x01\n\n dump");
        }
    }

    /// Every changed byte, every missing end and everything appended is noticed.
    #[test]
    fn a_damaged_file_is_refused() {
        let whole = written(b"PGDMP dump");
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            open(&changed).expect_err("a changed byte");
            open(&whole[..at]).expect_err("a missing end");
        }
        let appended = [whole.as_slice(), b"\n"].concat();
        assert!(open(&appended).unwrap_err().to_string().contains("checksum"));
        assert!(open(&written(b"no dump")).unwrap_err().to_string().contains("no dump"));
        let newer = [b"PML-BACKUP 2\n".as_slice(), &whole[FIRST_LINE.len()..]].concat();
        assert!(open(&newer).unwrap_err().to_string().contains("newer format"));
        let folder = tempfile::tempdir().unwrap();
        assert!(Opened::open(folder.path()).is_err());
        open(&whole).unwrap();
    }
}
