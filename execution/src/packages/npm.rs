//! Packages of npm.

mod confirm;
mod exact;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Value, json};

use super::locked::{LockedPackages, NpmPackage, parent_and_name};
use super::{Installer, Request};

/// What every command of npm gets.
const OPTIONS: [&str; 12] = [
    "--ignore-scripts",
    "--omit=dev",
    "--no-audit",
    "--no-fund",
    "--no-update-notifier",
    "--no-progress",
    "--loglevel=error",
    // Whatever the user's settings are: the lock has the form that is read and written below.
    "--install-strategy=hoisted",
    "--package-lock",
    "--lockfile-version=3",
    // It gives up long before the time limit.
    "--fetch-retry-mintimeout=1000",
    "--fetch-retry-maxtimeout=4000",
];

/// What `npm ci` and `npm install` write of what they installed. It has what the lock says, not what the packages say.
const HIDDEN: &str = "node_modules/.package-lock.json";

/// The part of `package-lock.json` that is read.
#[derive(Debug, Deserialize)]
struct Lock {
    /// By the folder; the package that depends on all has an empty one.
    packages: BTreeMap<String, Locked>,
}

#[derive(Debug, Deserialize)]
struct Locked {
    /// Only if it is not that of the folder.
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    version: String,
    #[serde(default)]
    resolved: String,
    #[serde(default)]
    integrity: String,
    #[serde(default)]
    link: bool,
    #[serde(default, rename = "inBundle")]
    is_bundled: bool,
    #[serde(default, rename = "optional")]
    is_optional: bool,
    #[serde(default)]
    os: Vec<String>,
    #[serde(default)]
    cpu: Vec<String>,
    #[serde(default)]
    libc: Vec<String>,
    #[serde(default)]
    dependencies: BTreeMap<String, String>,
    #[serde(default, rename = "optionalDependencies")]
    optional_dependencies: BTreeMap<String, String>,
}

/// The part of `package.json` that is read.
#[derive(Debug, Deserialize)]
struct Manifest {
    #[serde(default)]
    name: String,
    #[serde(default)]
    version: String,
    #[serde(default)]
    dependencies: BTreeMap<String, Value>,
    #[serde(default, rename = "optionalDependencies")]
    optional_dependencies: BTreeMap<String, Value>,
    #[serde(default, rename = "peerDependencies")]
    peer_dependencies: BTreeMap<String, Value>,
    #[serde(default)]
    bin: Option<Programs>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Programs {
    One(String),
    Named(BTreeMap<String, String>),
}

/// Finds out, in an empty folder, what would be installed for a request now. With `is_update`, the registry is asked about
/// everything.
pub(super) async fn resolve(
    installer: &Installer<'_>,
    request: &Request,
    is_update: bool,
    folder: &Path,
) -> Result<LockedPackages, String> {
    let npm = installer.program(request).map_err(|error| error.to_string())?.file;
    let version = request.version.as_deref().unwrap_or("latest");
    let manifest = json!({
        "name": "pml-server", "private": true, "dependencies": { &request.package: version },
    });
    write(folder, "package.json", &manifest)?;
    let arguments = ["install", "--package-lock-only", "--omit-lockfile-registry-resolved=false"];
    // An empty cache: for minutes, and for as long as the registry cannot be reached, npm takes what it was told before.
    let cache: &[&str] = if is_update { &["--cache=cache"] } else { &[] };
    installer.run(&npm, &[&arguments[..], &OPTIONS, cache].concat(), folder).await?;
    let lock = std::fs::read(folder.join("package-lock.json"))
        .map_err(|error| format!("cannot read `package-lock.json`: {error}"))?;
    LockedPackages::of_npm(request, packages(&lock)?)
}

/// Installs exactly these packages into an empty folder.
pub(super) async fn install(
    installer: &Installer<'_>,
    request: &Request,
    packages: &LockedPackages,
    folder: &Path,
) -> Result<(), String> {
    let npm = installer.program(request).map_err(|error| error.to_string())?.file;
    let (manifest, lock) = exact::files(request, &packages.npm);
    write(folder, "package.json", &manifest)?;
    write(folder, "package-lock.json", &lock)?;
    installer.run(&npm, &[&["ci"][..], &OPTIONS].concat(), folder).await?;
    confirm::confirm(request, &packages.npm, folder)?;
    // The lock does not have the programs of packages, so they are linked as the packages themselves name them.
    match std::fs::remove_file(folder.join(HIDDEN)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(format!("cannot remove `{HIDDEN}`: {error}"));
        }
        _ => {}
    }
    installer.run(&npm, &[&["rebuild", "--bin-links"][..], &OPTIONS].concat(), folder).await?;
    Ok(())
}

fn write(folder: &Path, name: &str, content: &Value) -> Result<(), String> {
    std::fs::write(folder.join(name), content.to_string())
        .map_err(|error| format!("cannot write `{name}`: {error}"))
}

/// Reads what would be installed from the lock that npm wrote.
fn packages(lock: &[u8]) -> Result<BTreeMap<String, NpmPackage>, String> {
    let lock: Lock = serde_json::from_slice(lock)
        .map_err(|error| format!("npm wrote a `package-lock.json` that cannot be read: {error}"))?;
    let mut packages = BTreeMap::new();
    for (path, locked) in lock.packages {
        // A bundled one is part of another one, whose hash covers it.
        if locked.is_bundled {
            continue;
        }
        let refused = |name: &str| {
            let name = protocol::escape_text(name);
            Err(format!(
                "it needs `{name}`, which comes from no registry, or without a SHA-512 hash"
            ))
        };
        // The hash of what comes from an address is that of whatever was there.
        let needed = locked.dependencies.iter().chain(&locked.optional_dependencies);
        let is_address =
            |version: &str| !version.starts_with("npm:") && version.contains([':', '/']);
        if let Some((name, _)) = needed.into_iter().find(|(_, version)| is_address(version)) {
            return refused(name);
        }
        if path.is_empty() {
            continue;
        }
        let Some((_, name)) = parent_and_name(&path) else { return refused(&path) };
        let is_of_registry =
            locked.resolved.starts_with("https://") || locked.resolved.starts_with("http://");
        // npm can list several hashes.
        let hash = locked.integrity.split(' ').find(|hash| hash.starts_with("sha512-"));
        let alias_of = locked.name.filter(|other| other != name);
        let package = NpmPackage {
            alias_of,
            version: locked.version,
            integrity: hash.unwrap_or_default().to_owned(),
            is_optional: locked.is_optional,
            only: [locked.os, locked.cpu, locked.libc],
        };
        if locked.link || !is_of_registry || package.check().is_err() {
            return refused(name);
        }
        packages.insert(path, package);
    }
    Ok(packages)
}

/// Returns the file of the requested program.
pub(super) fn program(request: &Request, folder: &Path) -> Result<PathBuf, String> {
    let package = folder.join("node_modules").join(&request.package);
    let manifest = std::fs::read(package.join("package.json"))
        .map_err(|error| format!("has no `package.json`: {error}"))?;
    let manifest: Manifest = serde_json::from_slice(&manifest)
        .map_err(|error| format!("has a `package.json` that cannot be read: {error}"))?;
    let own = request.package.rsplit('/').next().unwrap_or_default();
    let programs = match manifest.bin {
        Some(Programs::One(file)) => BTreeMap::from([(own.to_owned(), file)]),
        Some(Programs::Named(programs)) => programs,
        None => BTreeMap::new(),
    };
    // As `npx` chooses: the only one, or the one with the name of the package.
    let found = match &request.program {
        Some(name) => programs.get(name),
        None if programs.values().all(|file| Some(file) == programs.values().next()) => {
            programs.values().next()
        }
        None => programs.get(own),
    };
    let Some(file) = found else { return Err(super::no_program(request, programs.keys())) };
    // The package may name a file outside of itself.
    let (root, file) = (package.canonicalize(), package.join(file).canonicalize());
    match (root, file) {
        (Ok(root), Ok(file)) if file.starts_with(&root) && file.is_file() => Ok(file),
        _ => Err("names a program that it does not contain".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_package_has_a_hash_and_a_registry() {
        let entry = |entry: serde_json::Value| {
            let lock = json!({ "packages": { "": {}, "node_modules/a": entry } });
            packages(lock.to_string().as_bytes())
        };
        let hash = format!("sha512-{}w==", "x".repeat(85));
        let good =
            json!({ "version": "1.0.0", "resolved": "https://r.test/a.tgz", "integrity": hash });
        assert_eq!(entry(good.clone()).unwrap()["node_modules/a"].version, "1.0.0");
        for (member, value) in [
            ("integrity", json!("sha1-x")),
            ("integrity", json!("")),
            ("resolved", json!("git+ssh://git@github.com/a/b.git#1")),
            ("resolved", json!("file:../a")),
            ("link", json!(true)),
            ("dependencies", json!({ "a": "https://evil.test/a.tgz" })),
            ("dependencies", json!({ "a": "evil/a" })),
            ("optionalDependencies", json!({ "a": "git+ssh://git@evil.test/a" })),
        ] {
            let mut bad = good.clone();
            bad[member] = value;
            let reason = entry(bad).unwrap_err();
            assert!(reason.starts_with("it needs `a`"), "{reason}");
        }
        let mut alias = good;
        alias["dependencies"] = json!({ "a": "^1.0.0 || >=2", "b": "npm:@s/b@1" });
        entry(alias).unwrap();
        packages(b"{}").unwrap_err();
    }

    #[test]
    fn the_program_is_the_one_that_npx_would_start() {
        let folder = tempfile::tempdir().unwrap();
        let package = folder.path().join("node_modules/@s/pkg");
        std::fs::create_dir_all(package.join("dist")).unwrap();
        for file in ["one.js", "dist/two.js"] {
            std::fs::write(package.join(file), "").unwrap();
        }
        std::fs::write(folder.path().join("outside.js"), "").unwrap();
        let find = |bin: serde_json::Value, program: Option<&str>| {
            std::fs::write(package.join("package.json"), json!({ "bin": bin }).to_string())
                .unwrap();
            let mut arguments = vec!["-p".to_owned(), "@s/pkg".to_owned()];
            match program {
                Some(program) => arguments.push(program.to_owned()),
                None => drop(arguments.remove(0)),
            }
            let request = Request::of("npx", &arguments).unwrap().unwrap();
            let file = super::program(&request, folder.path())?;
            Ok::<_, String>(file.strip_prefix(package.canonicalize().unwrap()).unwrap().to_owned())
        };
        let two = json!({ "pkg": "one.js", "other": "./dist/two.js" });
        assert_eq!(find(json!("one.js"), None).unwrap(), Path::new("one.js"));
        assert_eq!(find(json!({ "x": "dist/two.js" }), None).unwrap(), Path::new("dist/two.js"));
        assert_eq!(
            find(json!({ "x": "one.js", "y": "one.js" }), None).unwrap(),
            Path::new("one.js")
        );
        assert_eq!(find(two.clone(), None).unwrap(), Path::new("one.js"));
        assert_eq!(find(two.clone(), Some("other")).unwrap(), Path::new("dist/two.js"));
        let none = find(two, Some("third")).unwrap_err();
        assert_eq!(none, "has no program `third`; it has: `other`, `pkg`");
        let unclear = find(json!({ "x": "one.js", "y": "dist/two.js" }), None).unwrap_err();
        assert!(unclear.contains("`x`, `y`"), "{unclear}");
        for outside in ["../../../outside.js", "/etc/passwd", "none.js", ""] {
            find(json!(outside), None).expect_err(outside);
        }
        find(json!({}), None).unwrap_err();
    }
}
