//! Packages of npm.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::json;

use super::folder::Package;
use super::{Installer, Request};

/// The part of `package-lock.json` that is read.
#[derive(Debug, Deserialize)]
struct Lock {
    /// By the folder; the package that depends on all has an empty one.
    packages: BTreeMap<String, Locked>,
}

#[derive(Debug, Deserialize)]
struct Locked {
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
    #[serde(default)]
    dependencies: BTreeMap<String, String>,
    #[serde(default, rename = "optionalDependencies")]
    optional_dependencies: BTreeMap<String, String>,
}

/// The part of `package.json` that is read.
#[derive(Debug, Deserialize)]
struct Manifest {
    #[serde(default)]
    bin: Option<Programs>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Programs {
    One(String),
    Named(BTreeMap<String, String>),
}

/// Installs a package into a folder, and returns everything that was installed.
pub(super) async fn install(
    installer: &Installer<'_>,
    request: &Request,
    folder: &Path,
) -> Result<Vec<Package>, String> {
    let npm = installer.program(request).map_err(|error| error.to_string())?.file;
    let version = request.version.as_deref().unwrap_or("latest");
    let manifest = json!({
        "name": "pml-server", "private": true, "dependencies": { &request.package: version },
    });
    std::fs::write(folder.join("package.json"), manifest.to_string())
        .map_err(|error| format!("cannot write `package.json`: {error}"))?;
    let arguments = [
        "install",
        "--ignore-scripts",
        "--omit=dev",
        "--no-audit",
        "--no-fund",
        "--no-update-notifier",
        "--no-progress",
        "--loglevel=error",
        // Whatever the user's settings are: programs can be executed, and the lock has the form that is read below.
        "--bin-links",
        "--install-strategy=hoisted",
        "--package-lock",
        "--lockfile-version=3",
        "--omit-lockfile-registry-resolved=false",
        // It gives up long before the time limit.
        "--fetch-retry-mintimeout=1000",
        "--fetch-retry-maxtimeout=4000",
    ];
    installer.run(&npm, &arguments, folder).await?;
    let lock = std::fs::read(folder.join("package-lock.json"))
        .map_err(|error| format!("cannot read `package-lock.json`: {error}"))?;
    packages(&lock)
}

/// Reads what was installed from the lock that npm wrote.
fn packages(lock: &[u8]) -> Result<Vec<Package>, String> {
    let lock: Lock = serde_json::from_slice(lock)
        .map_err(|error| format!("npm wrote a `package-lock.json` that cannot be read: {error}"))?;
    let mut packages = Vec::new();
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
        let Some((_, name)) = path.rsplit_once("node_modules/") else { continue };
        let is_pinned = locked.integrity.starts_with("sha512-")
            && (locked.resolved.starts_with("https://") || locked.resolved.starts_with("http://"));
        if locked.link || !is_pinned {
            return refused(name);
        }
        let (name, version) = (name.to_owned(), locked.version);
        packages.push(Package { name, version, integrity: locked.integrity });
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
        let good = json!({ "version": "1.0.0", "resolved": "https://r.test/a.tgz", "integrity": "sha512-x" });
        assert_eq!(entry(good.clone()).unwrap()[0].name, "a");
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
