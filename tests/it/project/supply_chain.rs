//! NX-13: the dependencies: licences, sources, banned crates, duplicate versions, build scripts, advisories.
//!
//! The policy is `deny.toml`, as cargo-deny reads it. CI has no network, so this test checks what can be determined from
//! `Cargo.lock`, `cargo metadata` and a checked-in list of advisories. `make audit` runs cargo-deny itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use semver::{Version, VersionReq};
use serde_json::Value as Json;
use spdx::{Expression, ParseMode};
use toml::{Table, Value};

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// A crate in `Cargo.lock`.
#[derive(Debug, Clone)]
struct Package {
    name: String,
    version: Version,
    /// Its source; `None` for crates of the workspace.
    source: Option<String>,
    checksum: Option<String>,
    /// Its `Cargo.toml`; only for crates that this platform needs.
    manifest: Option<Manifest>,
}

#[derive(Debug, Clone)]
struct Manifest {
    license: Option<String>,
    has_build_script: bool,
    /// The dependencies of a workspace crate that accept any version.
    wildcards: Vec<String>,
}

/// The rules of `deny.toml` that can be checked without a network.
struct Policy {
    ignored: Vec<String>,
    licenses: Vec<String>,
    exceptions: Vec<(String, Vec<String>)>,
    banned: Vec<String>,
    skipped: Vec<(String, VersionReq)>,
    build_scripts: BTreeSet<String>,
    registries: Vec<String>,
}

/// Introduces a violation into a valid crate.
type Change<'a> = &'a dyn Fn(&mut Package);

/// A security advisory about a crate.
struct Advisory {
    name: String,
    id: String,
    /// Versions that are not affected.
    fine: Vec<VersionReq>,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in the workspace")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

impl Policy {
    fn read(text: &str) -> Self {
        let policy: Table = text.parse().unwrap();
        let rows = |section: &str, list: &str| -> Vec<Value> {
            policy[section][list].as_array().unwrap().clone()
        };
        let name = |row: &Value, field: &str| row[field].as_str().unwrap().to_owned();
        // Each exception needs a reason.
        for row in
            [rows("bans", "deny"), rows("bans", "skip"), rows("advisories", "ignore")].concat()
        {
            assert!(name(&row, "reason").len() > 3, "{row:?} has no reason");
        }
        let deny = |section: &str, rule: &str| {
            assert_eq!(policy[section][rule].as_str(), Some("deny"), "{section}.{rule}");
        };
        deny("bans", "multiple-versions");
        deny("bans", "wildcards");
        deny("advisories", "yanked");
        deny("sources", "unknown-registry");
        deny("sources", "unknown-git");
        assert!(texts(&policy["sources"]["allow-git"]).is_empty());
        let skipped = rows("bans", "skip").into_iter().map(|row| {
            let row = name(&row, "crate");
            let (name, versions) = row.split_once('@').unwrap();
            (name.to_owned(), versions.parse().unwrap())
        });
        Self {
            ignored: rows("advisories", "ignore").iter().map(|row| name(row, "id")).collect(),
            licenses: texts(&policy["licenses"]["allow"]),
            exceptions: rows("licenses", "exceptions")
                .iter()
                .map(|row| (name(row, "crate"), texts(&row["allow"])))
                .collect(),
            banned: rows("bans", "deny").iter().map(|row| name(row, "crate")).collect(),
            skipped: skipped.collect(),
            build_scripts: texts(&policy["bans"]["build"]["allow-build-scripts"])
                .into_iter()
                .collect(),
            registries: texts(&policy["sources"]["allow-registry"]),
        }
    }

    fn allows_license(&self, package: &Package, license: &str) -> bool {
        // Like Cargo: in old manifests, a slash means `OR`.
        let Ok(expression) = Expression::parse_mode(license, ParseMode::LAX) else { return false };
        let own = self.exceptions.iter().filter(|(name, _)| *name == package.name);
        let allowed: Vec<String> =
            self.licenses.iter().chain(own.flat_map(|(_, licenses)| licenses)).cloned().collect();
        expression.evaluate(|required| allowed.contains(&required.to_string()))
    }
}

/// Returns all packages in `Cargo.lock`, with the manifests of those that this platform needs.
fn packages() -> Vec<Package> {
    let host = Command::new("rustc").arg("-vV").output().expect("rustc runs, as it built this");
    let host = String::from_utf8(host.stdout).unwrap();
    let host = host.lines().find_map(|line| line.strip_prefix("host: ")).unwrap().to_owned();
    // Packages of other platforms were not downloaded, so Cargo must not ask for them.
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--locked",
            "--offline",
            "--format-version",
            "1",
            "--filter-platform",
            &host,
        ])
        .current_dir(root())
        .output()
        .expect("cargo runs, as it has built this test");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Json = serde_json::from_slice(&output.stdout).unwrap();
    let text = |value: &Json| value.as_str().map(str::to_owned);
    let manifests: BTreeMap<(String, String), Manifest> = metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|package| {
            let key = (text(&package["name"]).unwrap(), text(&package["version"]).unwrap());
            let kinds = package["targets"].as_array().unwrap().iter();
            let has_build_script = kinds
                .flat_map(|target| target["kind"].as_array().unwrap())
                .any(|kind| kind == "custom-build");
            let is_ours = package["source"].is_null();
            let wildcards = package["dependencies"].as_array().unwrap().iter();
            let wildcards = wildcards
                .filter(|to| is_ours && to["req"] == "*" && to["path"].is_null())
                .map(|to| text(&to["name"]).unwrap());
            let manifest = Manifest {
                license: text(&package["license"]),
                has_build_script,
                wildcards: wildcards.collect(),
            };
            (key, manifest)
        })
        .collect();
    let lock: Table = read("Cargo.lock").parse().unwrap();
    let packages = lock["package"].as_array().unwrap().iter().map(|package| {
        let text = |field: &str| package.get(field).map(|it| it.as_str().unwrap().to_owned());
        let (name, version) = (text("name").unwrap(), text("version").unwrap());
        Package {
            manifest: manifests.get(&(name.clone(), version.clone())).cloned(),
            version: version.parse().unwrap(),
            name,
            source: text("source"),
            checksum: text("checksum"),
        }
    });
    packages.collect()
}

fn advisories() -> Vec<Advisory> {
    let list = read("tests/advisories.tsv");
    let rows = list.lines().filter(|line| !line.starts_with('#'));
    rows.map(|row| {
        let columns: Vec<&str> = row.split('\t').collect();
        let [name, id, _, fine] = columns[..] else { panic!("{row}") };
        let fine = fine.split("; ").filter(|fine| *fine != "none");
        Advisory {
            name: name.to_owned(),
            id: id.to_owned(),
            fine: fine.map(|fine| fine.parse().unwrap_or_else(|e| panic!("{row}: {e}"))).collect(),
        }
    })
    .collect()
}

/// Returns the violations of the policy, one line each, beginning with the crate.
fn faults(packages: &[Package], policy: &Policy, advisories: &[Advisory]) -> Vec<String> {
    let mut found = Vec::new();
    let mut fault = |package: &Package, what: String| {
        found.push(format!("{} {}: {what}", package.name, package.version));
    };
    for package in packages {
        if let Some(source) = &package.source {
            let is_allowed = source
                .strip_prefix("registry+")
                .is_some_and(|source| policy.registries.iter().any(|allowed| allowed == source));
            if !is_allowed {
                fault(package, format!("comes from `{source}`"));
            }
            let is_hash =
                |sum: &String| sum.len() == 64 && sum.bytes().all(|b| b.is_ascii_hexdigit());
            if !package.checksum.as_ref().is_some_and(is_hash) {
                fault(package, "has no checksum in Cargo.lock".to_owned());
            }
            // Advisories are about crates of a registry, not about workspace crates of the same name.
            for advisory in advisories.iter().filter(|advisory| advisory.name == package.name) {
                let is_fine = advisory.fine.iter().any(|fine| fine.matches(&package.version));
                if !is_fine && !policy.ignored.contains(&advisory.id) {
                    fault(package, format!("has {}", advisory.id));
                }
            }
        }
        if policy.banned.contains(&package.name) {
            fault(package, "is banned".to_owned());
        }
        let Some(manifest) = &package.manifest else { continue };
        match &manifest.license {
            None => fault(package, "names no licence".to_owned()),
            Some(license) if !policy.allows_license(package, license) => {
                fault(package, format!("is under `{license}`"));
            }
            Some(_) => {}
        }
        if manifest.has_build_script && !policy.build_scripts.contains(&package.name) {
            fault(package, "has a build script".to_owned());
        }
        for wildcard in &manifest.wildcards {
            fault(package, format!("takes any version of `{wildcard}`"));
        }
        let is_skipped = |it: &Package| {
            policy.skipped.iter().any(|(name, req)| *name == it.name && req.matches(&it.version))
        };
        let others = packages.iter().filter(|other| {
            other.name == package.name
                && other.version != package.version
                && other.manifest.is_some()
                && !is_skipped(other)
        });
        if !is_skipped(package) && others.count() > 0 {
            fault(package, "is there in several versions".to_owned());
        }
    }
    found
}

/// Returns the rows of the policy that are no longer needed.
fn leftovers(packages: &[Package], policy: &Policy, advisories: &[Advisory]) -> Vec<String> {
    let here = || packages.iter().filter(|package| package.manifest.is_some());
    let skipped = policy.skipped.iter().filter(|(name, versions)| {
        let matching = |it: &&Package| it.name == *name && versions.matches(&it.version);
        let is_second = here().filter(|it| it.name == *name).count() > 1;
        !is_second || here().filter(matching).count() == 0
    });
    let scripts = policy.build_scripts.iter().filter(|name| {
        let has_one = |it: &Package| it.manifest.as_ref().is_some_and(|it| it.has_build_script);
        !here().any(|package| package.name == **name && has_one(package))
    });
    let exceptions =
        policy.exceptions.iter().filter(|(name, _)| !here().any(|package| package.name == *name));
    let ignored = policy.ignored.iter().filter(|id| {
        !advisories.iter().any(|advisory| {
            let has_it = |package: &Package| {
                package.name == advisory.name
                    && !advisory.fine.iter().any(|fine| fine.matches(&package.version))
            };
            advisory.id == **id && packages.iter().any(has_it)
        })
    });
    skipped
        .map(|(name, versions)| format!("skip {name}@{versions}"))
        .chain(scripts.map(|name| format!("allow-build-scripts {name}")))
        .chain(exceptions.map(|(name, _)| format!("exception {name}")))
        .chain(ignored.map(|id| format!("ignore {id}")))
        .collect()
}

/// NX-13: no dependency violates `deny.toml`, and none of its rows is unnecessary.
#[test]
fn dependencies_conform_to_deny_toml() {
    let (packages, policy, advisories) =
        (packages(), Policy::read(&read("deny.toml")), advisories());
    assert!(
        packages.len() > 300 && advisories.len() > 1_000,
        "{} {}",
        packages.len(),
        advisories.len()
    );
    let found = faults(&packages, &policy, &advisories);
    assert!(found.is_empty(), "{found:#?}");
    let left = leftovers(&packages, &policy, &advisories);
    assert!(left.is_empty(), "{left:#?}");
}

/// NX-13: checks the checker: each kind of violation by a made-up crate is detected.
#[test]
fn violations_of_deny_toml_are_detected() {
    let policy = Policy::read(&read("deny.toml"));
    let (advisories, real) = (advisories(), packages());
    let good = Package {
        name: "good".to_owned(),
        version: Version::new(1, 0, 0),
        source: Some(CRATES_IO.to_owned()),
        checksum: Some("0".repeat(64)),
        manifest: Some(Manifest {
            license: Some("MIT/Apache-2.0".to_owned()),
            has_build_script: false,
            wildcards: Vec::new(),
        }),
    };
    let with = |change: Change<'_>| {
        let mut package = good.clone();
        change(&mut package);
        let mut all = real.clone();
        all.push(package);
        faults(&all, &policy, &advisories)
    };
    assert_eq!(with(&|_| {}), [""; 0], "positive control");
    let manifest = |package: &mut Package, change: &dyn Fn(&mut Manifest)| {
        change(package.manifest.as_mut().unwrap());
    };
    let licensed = |package: &mut Package, license: &str| {
        manifest(package, &|it| it.license = Some(license.to_owned()));
    };
    for license in
        ["MIT OR GPL-3.0-only", "GPL-2.0-or-later / MIT", "(MIT OR AGPL-3.0-only) AND ISC"]
    {
        assert_eq!(with(&|it| licensed(it, license)), [""; 0], "{license}");
    }
    for license in [
        "GPL-3.0-only",
        "MIT AND GPL-3.0-or-later",
        "CDLA-Permissive-2.0",
        "GPL-2.0-only WITH Classpath-exception-2.0",
        "LicenseRef-mine",
        "no licence at all",
        "",
    ] {
        let found = with(&|it| licensed(it, license));
        assert_eq!(found, [format!("good 1.0.0: is under `{license}`")]);
    }
    let wrongs: [(Change<'_>, &str); 10] = [
        (&|it| manifest(it, &|it| it.license = None), "names no licence"),
        (&|it| manifest(it, &|it| it.has_build_script = true), "has a build script"),
        (&|it| manifest(it, &|it| it.wildcards = vec!["x".to_owned()]), "takes any version of `x`"),
        (&|it| it.source = Some("git+https://github.com/a/b#0".to_owned()), "comes from `git+"),
        (&|it| it.source = Some("registry+https://evil.test/index".to_owned()), "comes from `reg"),
        (&|it| it.checksum = None, "has no checksum"),
        (&|it| it.checksum = Some("0".to_owned()), "has no checksum"),
        (&|it| it.name = "openssl-sys".to_owned(), "is banned"),
        (
            &|it| (it.name, it.version) = ("time".to_owned(), Version::new(0, 1, 40)),
            "RUSTSEC-2020-0071",
        ),
        (
            &|it| (it.name, it.version) = ("rustls".to_owned(), Version::new(9, 0, 0)),
            "several versions",
        ),
    ];
    for (change, why) in wrongs {
        let found = with(change);
        assert!(
            !found.is_empty() && found.iter().any(|found| found.contains(why)),
            "{why}: {found:?}"
        );
    }
    // Unnecessary rows are detected as well.
    let mut old = Policy::read(&read("deny.toml"));
    old.build_scripts.insert("gone".to_owned());
    old.skipped.push(("serde".to_owned(), VersionReq::STAR));
    old.ignored.push("RUSTSEC-2020-0071".to_owned());
    old.exceptions.push(("gone".to_owned(), Vec::new()));
    assert_eq!(leftovers(&real, &old, &advisories).len(), 4);
}
