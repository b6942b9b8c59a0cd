//! Packages of PyPI.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::locked::{LockedPackages, Wheel, normal_name};
use super::reason::NOT_IN_RANGE;
use super::{Installer, Request};

/// The folder of the virtual environment, in that of the package.
const ENVIRONMENT: &str = "venv";

/// The report of pip, in the same place.
const REPORT: &str = "report.json";

/// The versions that are allowed, in the same place.
const CONSTRAINTS: &str = "constraints.txt";

/// What is installed, in the same place.
const REQUIREMENTS: &str = "requirements.txt";

/// The part of the report of pip that is read.
/// See <https://pip.pypa.io/en/stable/reference/installation-report/>.
#[derive(Debug, Deserialize)]
struct Report {
    install: Vec<Item>,
}

#[derive(Debug, Deserialize)]
struct Item {
    metadata: Metadata,
    download_info: Download,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    name: String,
    version: String,
}

#[derive(Debug, Deserialize)]
struct Download {
    #[serde(default)]
    archive_info: Option<Archive>,
}

#[derive(Debug, Deserialize)]
struct Archive {
    #[serde(default)]
    hashes: BTreeMap<String, String>,
}

/// What every installation with pip gets.
const OPTIONS: [&str; 9] = [
    "-m",
    "pip",
    "install",
    // A source package would run its own code to be built.
    "--only-binary",
    ":all:",
    "--no-input",
    "--disable-pip-version-check",
    "--quiet",
    "--retries=2",
];

/// Prints what a file of PyPI can depend on: the interpreter, the system and its C library.
const PLATFORM: &str = "import platform, sys, sysconfig; print(sys.implementation.cache_tag, \
sysconfig.get_platform(), platform.libc_ver()[0] or 'libc', sep='-')";

/// Creates a virtual environment in a folder; returns its interpreter.
async fn environment(
    installer: &Installer<'_>,
    request: &Request,
    folder: &Path,
) -> Result<PathBuf, String> {
    let python = installer.program(request).map_err(|error| error.to_string())?.file;
    // Links: a copied interpreter would not find its library.
    installer.run(&python, &["-m", "venv", "--symlinks", ENVIRONMENT], folder).await.map_err(
        |reason| {
            format!(
                "{reason}; on Debian and Ubuntu, `python3 -m venv` needs the package python3-venv"
            )
        },
    )?;
    Ok(folder.join(ENVIRONMENT).join("bin/python"))
}

/// Returns the name of this platform.
pub(super) async fn platform(
    installer: &Installer<'_>,
    request: &Request,
    folder: &Path,
) -> Result<String, String> {
    let python = installer.program(request).map_err(|error| error.to_string())?.file;
    let printed = installer.run(&python, &["-I", "-c", PLATFORM], folder).await?;
    Ok(String::from_utf8_lossy(&printed).trim().to_owned())
}

/// Finds out, in an empty folder, what would be installed for a request on this platform now. With the packages of other
/// platforms, it is the same versions as there.
pub(super) async fn resolve(
    installer: &Installer<'_>,
    request: &Request,
    others: Option<&LockedPackages>,
    folder: &Path,
) -> Result<LockedPackages, String> {
    let python = environment(installer, request, folder).await?;
    let versions = others.into_iter().flat_map(|others| others.pypi.values().flatten());
    let versions: BTreeSet<String> =
        versions.map(|(name, wheel)| format!("{name}=={}\n", wheel.version)).collect();
    std::fs::write(folder.join(CONSTRAINTS), versions.into_iter().collect::<String>())
        .map_err(|error| format!("cannot write `{CONSTRAINTS}`: {error}"))?;
    let requirement = request.shown();
    let own = ["--dry-run", "--report", REPORT, "-c", CONSTRAINTS, "--", &requirement];
    installer.run(&python, &[&OPTIONS[..], &own].concat(), folder).await?;
    let report = std::fs::read(folder.join(REPORT))
        .map_err(|error| format!("cannot read the report of pip: {error}"))?;
    let platform = platform(installer, request, folder).await?;
    LockedPackages::of_pypi(request, &platform, wheels(&report)?, others)
}

/// Installs exactly the packages of this platform into an empty folder.
pub(super) async fn install(
    installer: &Installer<'_>,
    request: &Request,
    packages: &LockedPackages,
    folder: &Path,
) -> Result<(), String> {
    let platform = platform(installer, request, folder).await?;
    let wheels = packages.pypi.get(&platform).into_iter().flatten();
    let lines: String = wheels
        .map(|(name, wheel)| format!("{name}=={} --hash={}\n", wheel.version, wheel.hash))
        .collect();
    std::fs::write(folder.join(REQUIREMENTS), lines)
        .map_err(|error| format!("cannot write `{REQUIREMENTS}`: {error}"))?;
    // pip refuses a pin that the request does not allow. A constraint has no extras.
    let range = request.version.as_deref().unwrap_or_default();
    let line =
        if range.is_empty() { String::new() } else { format!("{}{range}\n", request.bare_name()) };
    std::fs::write(folder.join(CONSTRAINTS), line)
        .map_err(|error| format!("cannot write `{CONSTRAINTS}`: {error}"))?;
    let python = environment(installer, request, folder).await?;
    let own = ["--require-hashes", "--no-deps", "-c", CONSTRAINTS, "-r", REQUIREMENTS];
    let installed = installer.run(&python, &[&OPTIONS[..], &own].concat(), folder).await;
    installed.map(drop).map_err(|reason| match reason.contains("ResolutionImpossible") {
        true => NOT_IN_RANGE.to_owned(),
        false => reason,
    })
}

/// Reads what would be installed from the report of pip.
fn wheels(report: &[u8]) -> Result<BTreeMap<String, Wheel>, String> {
    let report: Report = serde_json::from_slice(report)
        .map_err(|error| format!("pip wrote a report that cannot be read: {error}"))?;
    let items = report.install.into_iter().map(|Item { metadata, download_info }| {
        let hash =
            download_info.archive_info.and_then(|archive| archive.hashes.get("sha256").cloned());
        let shown = || protocol::escape_text(&metadata.name);
        let hash = hash
            .ok_or_else(|| format!("it needs `{}`, which comes without a SHA-256 hash", shown()))?;
        let wheel = Wheel { version: metadata.version.clone(), hash: format!("sha256:{hash}") };
        wheel.check().map_err(|reason| format!("it needs `{}`, which {reason}", shown()))?;
        Ok((normal_name(&metadata.name), wheel))
    });
    items.collect()
}

/// Returns the file of the requested program.
pub(super) fn program(request: &Request, folder: &Path) -> Result<PathBuf, String> {
    let programs = folder.join(ENVIRONMENT).join("bin");
    let own = request.package.split('[').next().unwrap_or_default();
    let name = request.program.as_deref().unwrap_or(own);
    let file = programs.join(name);
    if file.is_file() {
        return Ok(file);
    }
    let entries = std::fs::read_dir(programs).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let is_of_environment = |name: &String| {
        ["python", "pip", "activate", "Activate"].iter().any(|own| name.starts_with(own))
    };
    let mut names: Vec<String> = names.filter(|name| !is_of_environment(name)).collect();
    names.sort();
    Err(super::no_program(request, names.iter()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_package_has_a_hash() {
        let report = |info: serde_json::Value| {
            let item =
                json!({ "metadata": { "name": "A_b", "version": "1" }, "download_info": info });
            wheels(json!({ "install": [item] }).to_string().as_bytes())
        };
        let hash = "a".repeat(64);
        let good = report(json!({ "archive_info": { "hashes": { "sha256": hash } } })).unwrap();
        assert_eq!(good["a-b"].to_string(), format!("1 sha256:{hash}"));
        for bad in [
            json!({}),
            json!({ "dir_info": {} }),
            json!({ "vcs_info": { "vcs": "git" } }),
            json!({ "archive_info": { "hashes": { "md5": "ab" } } }),
            json!({ "archive_info": { "hashes": { "sha256": "ab" } } }),
        ] {
            let reason = report(bad).unwrap_err();
            assert!(reason.contains("a SHA-256 hash"), "{reason}");
        }
    }
}
