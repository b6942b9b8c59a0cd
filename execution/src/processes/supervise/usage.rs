//! What a bounded program uses altogether: the limits of the system hold for each of its processes alone.

use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

/// The most files and folders in what a program writes. More take too long to look at.
pub const ENTRIES: usize = 20_000;

/// The longest list of a process's mappings, in bytes. Interpreters have a tenth of it.
const MAPS_LIMIT: u64 = 1024 * 1024;

/// Returns the memory that processes hold which is not a part of a file, in bytes.
pub(super) fn memory(processes: &[i32]) -> u64 {
    let texts = processes.iter().filter_map(|pid| fs::read_to_string(proc(*pid, "status")).ok());
    texts.map(|text| field(&text, "RssAnon:") + field(&text, "RssShmem:")).sum()
}

/// Returns a field of `/proc/PID/status` that is in KiB.
fn field(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    number.unwrap_or_default() * 1024
}

/// Returns the bytes that folders and processes hold of a disk: also those of files that were deleted, as long as a
/// process has them open or mapped.
pub(super) fn stored(folders: &[PathBuf], processes: &[i32]) -> u64 {
    let deleted: u64 = processes.iter().map(|pid| deleted(*pid)).fold(0, u64::saturating_add);
    of_folders(folders).saturating_add(deleted)
}

/// Returns the bytes on disk of all files in folders; `u64::MAX` if there are too many to look at, or if some cannot be.
pub fn of_folders(folders: &[PathBuf]) -> u64 {
    let mut left: Vec<PathBuf> = folders.iter().filter(|folder| folder.is_dir()).cloned().collect();
    let (mut entries, mut bytes) = (0, 0_u64);
    while let Some(folder) = left.pop() {
        let found = match fs::read_dir(&folder) {
            Ok(found) => found,
            // The program hides what is in there. To change the rights of the folder could change those of what it
            // has put in its place.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return u64::MAX,
            // It was removed meanwhile.
            Err(_) => continue,
        };
        for entry in found.flatten() {
            entries += 1;
            if entries > ENTRIES {
                return u64::MAX;
            }
            let Ok(metadata) = entry.metadata() else { continue };
            bytes = bytes.saturating_add(metadata.blocks() * 512);
            if metadata.is_dir() {
                left.push(entry.path());
            }
        }
    }
    bytes
}

/// Returns the bytes of deleted files that a process has open or mapped; `u64::MAX` if it hides them.
fn deleted(pid: i32) -> u64 {
    match (open_files(pid), mapped_files(pid)) {
        (Ok(open), Ok(mapped)) => open.saturating_add(mapped),
        (open, mapped) => {
            let is_denied = |found: &io::Result<u64>| {
                found.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
            };
            // One that has ended shows nothing, either.
            if (is_denied(&open) || is_denied(&mapped)) && is_running(pid) { u64::MAX } else { 0 }
        }
    }
}

fn open_files(pid: i32) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(proc(pid, "fd"))? {
        // Through the link, so that it is the file itself.
        let Ok(metadata) = fs::metadata(entry?.path()) else { continue };
        if metadata.is_file() && metadata.nlink() == 0 {
            bytes += metadata.blocks() * 512;
        }
    }
    Ok(bytes)
}

fn mapped_files(pid: i32) -> io::Result<u64> {
    let mut text = Vec::new();
    fs::File::open(proc(pid, "maps"))?.take(MAPS_LIMIT + 1).read_to_end(&mut text)?;
    if text.len() as u64 > MAPS_LIMIT {
        return Ok(u64::MAX);
    }
    let text = String::from_utf8_lossy(&text);
    let deleted = text.lines().filter(|line| line.ends_with(" (deleted)"));
    Ok(deleted.map(length).fold(0, u64::saturating_add))
}

/// Returns the length of a line of `/proc/PID/maps`.
fn length(line: &str) -> u64 {
    let range = line.split(' ').next().unwrap_or_default().split_once('-');
    let ends = range.map(|(from, to)| (u64::from_str_radix(from, 16), u64::from_str_radix(to, 16)));
    match ends {
        Some((Ok(from), Ok(to))) => to.saturating_sub(from),
        _ => 0,
    }
}

fn is_running(pid: i32) -> bool {
    let stat = fs::read_to_string(proc(pid, "stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| !"ZX".contains(state))
}

fn proc(pid: i32, file: &str) -> String {
    format!("/proc/{pid}/{file}")
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn deleted_files_count_as_long_as_they_are_open() {
        let own = std::process::id() as i32;
        let folder = tempfile::tempdir().unwrap();
        let folders = [folder.path().to_owned()];
        let path = folder.path().join("inner/file");
        fs::create_dir(folder.path().join("inner")).unwrap();
        let mut file = fs::File::create(&path).unwrap();
        file.write_all(&[1; 3 << 20]).unwrap();
        file.sync_all().unwrap();
        let (visible, others) = (of_folders(&folders), deleted(own));
        assert!((3 << 20..4 << 20).contains(&visible), "{visible}");
        fs::remove_file(&path).unwrap();
        assert!(of_folders(&folders) < 1 << 20);
        assert!(deleted(own) >= others + (3 << 20));
        assert!(stored(&folders, &[own]) >= 3 << 20);
    }

    #[test]
    fn too_many_files_are_not_looked_at() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..=ENTRIES {
            fs::File::create(folder.path().join(number.to_string())).unwrap();
        }
        assert_eq!(of_folders(&[folder.path().to_owned()]), u64::MAX);
    }

    #[test]
    fn memory_is_what_is_no_file() {
        let own = [std::process::id() as i32];
        let before = memory(&own);
        let held = std::hint::black_box(vec![1_u8; 64 << 20]);
        let after = memory(&own);
        assert!(after >= before + (60 << 20), "{before} {after}");
        drop(held);
        assert_eq!(field("Name:\ta\nRssAnon:\t      12 kB\n", "RssAnon:"), 12 << 10);
        assert_eq!(length("7f00-8f00 rw-s 0 00:01 5 /a b (deleted)"), 0x1000);
        assert_eq!(length("x"), 0);
    }
}
