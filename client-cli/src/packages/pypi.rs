//! Packages of PyPI.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::folder::Package;
use super::{Installer, Request};

/// The folder of the virtual environment, in that of the package.
const ENVIRONMENT: &str = "venv";

/// The report of pip, in the same place.
const REPORT: &str = "report.json";

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

/// Installs a package into a folder, and returns everything that was installed.
pub(super) async fn install(
    installer: &Installer<'_>,
    request: &Request,
    folder: &Path,
) -> Result<Vec<Package>, String> {
    let python = installer.program(request).map_err(|error| error.to_string())?.file;
    // Links: a copied interpreter would not find its library.
    installer.run(&python, &["-m", "venv", "--symlinks", ENVIRONMENT], folder).await.map_err(
        |reason| {
            format!(
                "{reason}; on Debian and Ubuntu, `python3 -m venv` needs the package python3-venv"
            )
        },
    )?;
    let requirement = request.shown();
    let arguments = [
        "-m",
        "pip",
        "install",
        // A source package would run its own code to be built.
        "--only-binary",
        ":all:",
        "--no-input",
        "--disable-pip-version-check",
        "--quiet",
        "--retries",
        "2",
        "--report",
        REPORT,
        "--",
        &requirement,
    ];
    let python = folder.join(ENVIRONMENT).join("bin/python");
    installer.run(&python, &arguments, folder).await?;
    let report = std::fs::read(folder.join(REPORT))
        .map_err(|error| format!("cannot read the report of pip: {error}"))?;
    packages(&report)
}

/// Reads what was installed from the report of pip.
fn packages(report: &[u8]) -> Result<Vec<Package>, String> {
    let report: Report = serde_json::from_slice(report)
        .map_err(|error| format!("pip wrote a report that cannot be read: {error}"))?;
    let items = report.install.into_iter().map(|Item { metadata, download_info }| {
        let hash =
            download_info.archive_info.and_then(|archive| archive.hashes.get("sha256").cloned());
        let integrity = hash.ok_or_else(|| {
            let name = protocol::escape_text(&metadata.name);
            format!("it needs `{name}`, which comes without a SHA-256 hash")
        })?;
        let Metadata { name, version } = metadata;
        Ok(Package { name, version, integrity: format!("sha256:{integrity}") })
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
                json!({ "metadata": { "name": "a", "version": "1" }, "download_info": info });
            packages(json!({ "install": [item] }).to_string().as_bytes())
        };
        let good = report(json!({ "archive_info": { "hashes": { "sha256": "ab" } } })).unwrap();
        let expected =
            Package { name: "a".into(), version: "1".into(), integrity: "sha256:ab".into() };
        assert_eq!(good, [expected]);
        for bad in [
            json!({}),
            json!({ "dir_info": {} }),
            json!({ "vcs_info": { "vcs": "git" } }),
            json!({ "archive_info": { "hashes": { "md5": "ab" } } }),
        ] {
            let reason = report(bad).unwrap_err();
            assert!(reason.contains("without a SHA-256 hash"), "{reason}");
        }
    }
}
