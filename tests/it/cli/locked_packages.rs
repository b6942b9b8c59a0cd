//! The packages from which servers start, locked in `.pml/mcp.lock` in exact versions with their hashes.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};

use super::server_starts::{self, ADD, RUNNER, tenant};
use crate::support::cli::{Project, text};
use crate::support::expect::{failure, question, success};
use crate::support::registry::Registry;
use crate::support::terminal::approve;
use crate::support::{PATIENCE, poll};

pub(super) const CALL: &str = "return (await mcp.tool.add({})).names.length > 0";
pub(super) const LOCK: &str = ".pml/mcp.lock";

/// Returns a project with the server `tool` from npm, which needs `part`.
pub(super) fn project(registry: &Registry) -> Project {
    project_with(registry, &json!({ "command": "npx", "args": ["-y", "tool"], "network": [] }))
}

pub(super) fn project_with(registry: &Registry, server: &Value) -> Project {
    Project::offline()
        .set("npm_config_registry", registry.npm())
        .set("PIP_INDEX_URL", &registry.pypi())
        .configure(&json!({ "permissions": { "allow": ["*"] }, "mcpServers": { "tool": server } }))
}

/// Publishes `part` in a version, and `tool`, which needs it, with the first one.
pub(super) fn publish(registry: &Registry, scratch: &Path, version: &str) {
    registry.publish(scratch, "part", &[], &json!({ "version": version }), b"");
    if version == "1.0.0" {
        let needs = json!({ "bin": "index.js", "dependencies": { "part": "^1.0.0" } });
        registry.publish(scratch, "tool", &[("index.js", RUNNER)], &needs, b"");
    }
}

/// Returns the folders of installed packages that have this file.
pub(super) fn installed(project: &Project, file: &str) -> Vec<PathBuf> {
    let packages = project.home().join(".local/state/pml/packages");
    let entries = std::fs::read_dir(packages).into_iter().flatten().flatten();
    entries.map(|entry| entry.path().join(file)).filter(|file| file.exists()).collect()
}

/// Returns the versions of `part` that are installed.
pub(super) fn parts(project: &Project) -> Vec<String> {
    let manifests = installed(project, "node_modules/part/package.json");
    let version = |file: &PathBuf| {
        let manifest: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        manifest["version"].as_str().unwrap().to_owned()
    };
    let mut versions: Vec<String> = manifests.iter().map(version).collect();
    versions.sort();
    versions
}

pub(super) fn lock_of(project: &Project) -> Value {
    serde_json::from_str(&project.read(LOCK)).unwrap()
}

/// Returns the packages of a lock: what comes with a repository, without the pins of tools.
pub(super) fn shared(project: &Project) -> Value {
    json!({ "version": 1, "servers": {}, "packages": lock_of(project)["packages"] })
}

/// Runs the call, approves the start, and returns the result with what was asked.
#[track_caller]
pub(super) fn approved(project: &Project, code: &str) -> (Value, String) {
    let mut pml = project.stdio();
    let asked = pml.execute(code);
    assert_eq!(question(&asked)["approval_type"], "dependency", "{asked:#}");
    assert_eq!(asked["context"]["dangerous"], true, "{asked:#}");
    let description = asked["description"].as_str().unwrap().to_owned();
    approve(project, &asked, false);
    (pml.resume(&asked, true, false), description)
}

/// LK-01: whoever has the lock gets what it has, though there are newer versions by now. Another lock is asked about, with
/// what differs.
#[test]
fn a_lock_decides_which_versions_are_installed() {
    let registry = Registry::start();
    let first = project(&registry);
    publish(&registry, &first.home(), "1.0.0");
    success(&first.exec(CALL).0);
    let npm = lock_of(&first)["packages"]["tool"]["npm"].clone();
    let places: Vec<&String> = npm.as_object().unwrap().keys().collect();
    assert_eq!(places, ["node_modules/part", "node_modules/tool"], "{npm:#}");
    for package in npm.as_object().unwrap().values() {
        assert!(package.as_str().unwrap().starts_with("1.0.0 sha512-"), "{npm:#}");
    }
    assert!(!first.read(LOCK).contains(registry.npm()), "the lock names no address");
    let listed = text(&first.run(&["list"]).stdout);
    assert!(listed.contains("locked: 1.0.0 and 1 other package"), "{listed}");

    publish(&registry, &first.home(), "1.1.0");
    // With its lock: asked once, and nothing is installed before the answer.
    let second = project(&registry);
    second.write(LOCK, shared(&first).to_string());
    let asked = second.stdio().execute(CALL);
    question(&asked);
    assert_eq!(parts(&second), [""; 0]);
    let (answer, description) = approved(&second, CALL);
    success(&answer);
    let words = "`tool` of `.pml.json`, with the 2 packages of `.pml/mcp.lock` (version 1.0.0)";
    assert!(description.contains(words), "{description}");
    assert_eq!(parts(&second), ["1.0.0"]);
    success(&second.exec(CALL).0);
    // Without it: the newest.
    let third = project(&registry);
    success(&third.exec(CALL).0);
    assert_eq!(parts(&third), ["1.1.0"]);

    // Both have it now, and the first user is told what it changes.
    let before = first.read(LOCK);
    let mut newer = lock_of(&first);
    newer["packages"] = lock_of(&third)["packages"].clone();
    first.write(LOCK, newer.to_string());
    let output = first.run_with(&["exec", "-"], CALL.as_bytes());
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    let words = "whose packages CHANGED since you allowed them (`part`: was 1.0.0, now 1.1.0)";
    assert!(said.contains(words), "{said}");
    assert_eq!(parts(&first), ["1.0.0"]);
    first.write(LOCK, &before);
    success(&first.exec(CALL).0);
    first.write(LOCK, newer.to_string());
    success(&approved(&first, CALL).0);
    assert_eq!(parts(&first), ["1.0.0", "1.1.0"]);
}

/// LK-01: the question before a server of the registry starts says that the lock has its packages, and which are others.
#[test]
fn the_packages_of_a_registered_server_are_asked_about() {
    let tenant = tenant();
    server_starts::publish(&tenant, "1.0.0", &[], &[]);
    let registry = Registry::start();
    let first = server_starts::project(&tenant, &registry);
    let (answer, description) = approved(&first, ADD);
    success(&answer);
    assert!(!description.contains("mcp.lock"), "{description}");
    success(&first.stdio().execute(ADD));

    let second = Project::of(&tenant).allow(&["*"]).set("npm_config_registry", registry.npm());
    let mut lock = shared(&first);
    second.write(LOCK, lock.to_string());
    let (answer, description) = approved(&second, ADD);
    success(&answer);
    let words = ", with the package of `.pml/mcp.lock` (version 1.0.0): \"npx\"";
    assert!(description.contains(words), "{description}");

    let packages = lock["packages"].as_object_mut().unwrap();
    let name = packages.keys().next().unwrap().clone();
    let hash = format!("1.0.0 sha512-{}w==", "x".repeat(85));
    packages[&name]["npm"]["node_modules/notes"] = hash.into();
    let mut changed = lock_of(&first);
    changed["packages"] = lock["packages"].clone();
    first.write(LOCK, changed.to_string());
    let asked = first.stdio().execute(ADD);
    let description = asked["description"].as_str().unwrap();
    let words = "whose packages CHANGED since you allowed them (`notes` 1.0.0: other hash)";
    assert!(description.contains(words), "{asked:#}");
}

/// LK-06: processes that start a server at the same time lock one set of packages, and install it once.
#[test]
fn concurrent_starts_lock_one_set() {
    let registry = Registry::start();
    let project = project(&registry);
    publish(&registry, &project.home(), "1.0.0");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| success(&project.exec(CALL).0).clone());
        }
    });
    assert_eq!(parts(&project), ["1.0.0"]);
    assert_eq!(lock_of(&project)["packages"].as_object().unwrap().len(), 1);
}

/// `pml trust` allows what the lock has at that time, so that nobody is asked later.
#[test]
fn trust_allows_the_locked_packages() {
    let registry = Registry::start();
    let first = project(&registry);
    publish(&registry, &first.home(), "1.0.0");
    success(&first.exec(CALL).0);
    publish(&registry, &first.home(), "1.1.0");
    let second = Project::offline().set("npm_config_registry", registry.npm());
    second.write(LOCK, shared(&first).to_string());
    let config: Value = serde_json::from_str(&first.read(".pml.json")).unwrap();
    let second = second.configure(&config);
    success(&second.exec(CALL).0);
    assert_eq!(parts(&second), ["1.0.0"]);
}

/// A server moves to newer versions when it is removed from the lock, and not before.
#[test]
fn a_removed_server_gets_the_newest_versions() {
    let registry = Registry::start();
    let project = project(&registry);
    publish(&registry, &project.home(), "1.0.0");
    success(&project.exec(CALL).0);
    publish(&registry, &project.home(), "1.1.0");
    // A lock that was deleted is written again.
    let before = lock_of(&project)["packages"].clone();
    std::fs::remove_file(project.path(LOCK)).unwrap();
    success(&project.exec(CALL).0);
    assert_eq!(lock_of(&project)["packages"], before);
    assert!(project.run(&["remove", "tool"]).status.success());
    success(&project.exec(CALL).0);
    assert_eq!(parts(&project), ["1.0.0", "1.1.0"]);
}

/// LK-02, LK-03: what is not an exact version with a strong hash is refused before anything is installed.
#[test]
fn a_lock_with_anything_but_exact_packages_is_refused() {
    let registry = Registry::start();
    let first = project(&registry);
    publish(&registry, &first.home(), "1.0.0");
    success(&first.exec(CALL).0);
    let good = shared(&first);
    let part = good["packages"]["tool"]["npm"]["node_modules/part"].as_str().unwrap().to_owned();
    let second = project(&registry);
    let refused = |what: &str, change: &dyn Fn(&mut Value)| {
        let mut lock = good.clone();
        change(&mut lock["packages"]["tool"]);
        second.write(LOCK, lock.to_string());
        let output = second.run_with(&["exec", "-"], CALL.as_bytes());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{what}: {said}");
        assert!(said.contains("`.pml/mcp.lock`"), "{what}: {said}");
        assert_eq!(parts(&second), [""; 0], "{what}");
    };
    let place = "node_modules/part";
    let with = |what: &str, text: String| {
        refused(what, &|tool| tool["npm"][place] = text.clone().into());
    };
    with("an address", format!("npm:http://evil.test/a.tgz {}", part.split_once(' ').unwrap().1));
    with("a weak hash", "1.0.0 sha1-2jmj7l5rSw0yVb/vlWAYkK/YBwk=".to_owned());
    with("no hash", "1.0.0".to_owned());
    with("a range", part.replace("1.0.0", "^1.0.0"));
    with("a bundled package", format!("{part} inBundle"));
    with("a link", format!("{part} link"));
    refused("a place outside", &|tool| tool["npm"]["node_modules/../part"] = part.clone().into());
    refused("a resolved address", &|tool| tool["resolved"] = json!("http://evil.test"));
    second.write(LOCK, good.to_string());
    success(&approved(&second, CALL).0);
}

/// LK-01: what the registry sends must have the locked hash, and be the package that belongs there.
#[test]
fn other_packages_in_the_place_of_locked_ones_are_refused() {
    let registry = Registry::start();
    let first = project(&registry);
    publish(&registry, &first.home(), "1.0.0");
    registry.publish(&first.home(), "evil", &[], &json!({}), b"");
    let scratch = first.home();
    let taking = json!({ "bin": "index.js", "dependencies": { "evil": "1.0.0" } });
    registry.publish(&scratch, "taker", &[("index.js", RUNNER)], &taking, b"");
    success(&first.exec(CALL).0);
    let taker =
        project_with(&registry, &json!({ "command": "npx", "args": ["taker"], "network": [] }));
    success(&taker.exec(CALL).0);
    let evil = lock_of(&taker)["packages"]["tool"]["npm"]["node_modules/evil"].clone();
    let evil = evil.as_str().unwrap();
    let good = shared(&first);
    let hash = evil.split_once(' ').unwrap().1;
    for (place, package, words) in [
        ("node_modules/part", format!("1.0.0 {hash}"), "does not have the hash"),
        ("node_modules/part", format!("npm:evil@{evil}"), "nothing needs what would be in"),
        ("node_modules/evil", evil.to_owned(), "nothing needs what would be in"),
        ("node_modules/tool", format!("npm:evil@{evil}"), "its locked packages do not have `tool`"),
    ] {
        let mut lock = good.clone();
        lock["packages"]["tool"]["npm"][place] = package.clone().into();
        let other = project(&registry);
        other.write(LOCK, lock.to_string());
        let (answer, _) = approved(&other, CALL);
        let message = failure(&answer, "TOOL_UNAVAILABLE");
        assert!(message.contains(words), "{package}: {message}");
    }
    let other = project(&registry);
    other.write(LOCK, good.to_string());
    success(&approved(&other, CALL).0);

    // The same version with other bytes, which the registry lists with their own hash.
    registry.publish(&scratch, "part", &[("new.js", "")], &json!({}), b"");
    let last = project(&registry);
    last.write(LOCK, good.to_string());
    let (answer, _) = approved(&last, CALL);
    let message = failure(&answer, "TOOL_UNAVAILABLE");
    assert!(message.contains("or that `.pml/mcp.lock` has"), "{message}");
}

/// With `--frozen`, nothing is installed or locked that the lock does not have.
#[test]
fn a_frozen_run_installs_only_what_is_locked() {
    let registry = Registry::start();
    let project = project(&registry);
    publish(&registry, &project.home(), "1.0.0");
    project.write("call.ts", CALL);
    let frozen = |expected: i32| {
        let output = project.run(&["exec", "--frozen", "call.ts"]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(expected), "{said}");
        said
    };
    assert!(project.run(&["lock", "call.ts"]).status.success());
    let said = frozen(2);
    assert!(said.contains("does not have the packages of the MCP server `tool`"), "{said}");
    assert!(said.contains("run it once without it, and commit"), "{said}");
    assert_eq!(parts(&project), [""; 0]);
    assert!(!project.path(LOCK).exists() || lock_of(&project).get("packages").is_none());

    success(&project.exec(CALL).0);
    frozen(0);
    std::fs::remove_dir_all(project.home().join(".local/state/pml/packages")).unwrap();
    frozen(0);
    let mut lock = lock_of(&project);
    lock.as_object_mut().unwrap().remove("packages");
    project.write(LOCK, lock.to_string());
    frozen(2);
    assert!(lock_of(&project).get("packages").is_none());
}

/// A lock from another platform has the versions, and this one adds its hashes. With `--frozen` it does not.
#[test]
fn another_platform_gets_the_same_versions() {
    let registry = Registry::start();
    let server = json!({ "command": "uvx", "args": ["wheeled"], "network": [] });
    let first = project_with(&registry, &server);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/reaches_out.py");
    registry.publish_wheel(&first.home(), "wheeled", "1.0.0", &source);
    let code = "return await mcp.tool.write({ path: 'out.txt' })";
    success(&first.exec(code).0);
    let lock = lock_of(&first)["packages"]["tool"].clone();
    let platforms = lock["pypi"].as_object().expect("it was installed");
    let (platform, wheels) = platforms.iter().next().unwrap();
    assert!(wheels["wheeled"].as_str().unwrap().starts_with("1.0.0 sha256:"), "{lock:#}");
    registry.publish_wheel(&first.home(), "wheeled", "1.1.0", &source);

    let second = project_with(&registry, &server);
    let mut other = shared(&first);
    other["packages"]["tool"]["pypi"] = json!({ "cpython-399-other": wheels });
    second.write(LOCK, other.to_string());
    second.write("call.ts", code);
    assert!(second.run(&["lock", "call.ts"]).status.success());
    assert!(second.run(&["trust", "--yes"]).status.success());
    let frozen = second.run(&["exec", "--frozen", "call.ts"]);
    let said = text(&frozen.stderr);
    assert!(said.contains("for this platform, and `--frozen` was given"), "{said}");
    assert_eq!(lock_of(&second)["packages"], other["packages"]);

    success(&second.exec(code).0);
    let pypi = lock_of(&second)["packages"]["tool"]["pypi"].clone();
    assert_eq!(pypi, json!({ "cpython-399-other": wheels, platform: wheels }));
    assert_eq!(installed(&second, "venv/bin/wheeled").len(), 1);
    let frozen = second.run(&["exec", "--frozen", "call.ts"]);
    let said = text(&frozen.stderr);
    assert!(!said.contains("--frozen"), "{said}");
}

/// A package that comes with its dependencies is one package, whose hash covers them.
#[test]
fn bundled_packages_are_part_of_their_package() {
    let registry = Registry::start();
    let project = project(&registry);
    let manifest = json!({ "name": "part", "version": "9.0.0" }).to_string();
    let bundling = json!({
        "bin": "index.js", "dependencies": { "part": "^9.0.0" }, "bundleDependencies": ["part"],
    });
    // As `npm pack` makes it. The registry has no `part`.
    let server = RUNNER.replace("args: process", "part: require('part'), args: process");
    let files = [
        ("index.js", &*server),
        ("node_modules/part/package.json", &manifest),
        ("node_modules/part/index.js", "module.exports = 'bundled'"),
    ];
    registry.publish(&project.home(), "tool", &files, &bundling, b"");
    let code = "return (await mcp.tool.add({})).part";
    assert_eq!(success(&project.exec(code).0), "bundled");
    let npm = lock_of(&project)["packages"]["tool"]["npm"].clone();
    let places: Vec<&String> = npm.as_object().unwrap().keys().collect();
    assert_eq!(places, ["node_modules/tool"]);
    // From the lock, too.
    std::fs::remove_dir_all(project.home().join(".local/state/pml/packages")).unwrap();
    assert_eq!(success(&project.exec(code).0), "bundled");
    assert_eq!(lock_of(&project)["packages"]["tool"]["npm"], npm);
}

/// LK-06: a `pml` that is killed after the versions were locked and before they are installed leaves a lock that the next
/// start follows.
#[test]
fn a_kill_between_resolving_and_installing_leaves_everything_whole() {
    let registry = Registry::start();
    let project = project(&registry);
    publish(&registry, &project.home(), "1.0.0");
    let (programs, waits) = (project.home().join("programs"), project.home().join("waits"));
    std::fs::create_dir(&programs).unwrap();
    std::fs::write(&waits, "").unwrap();
    let path = std::env::var("PATH").unwrap();
    let find = std::env::split_paths(&path).map(|folder| folder.join("npm"));
    let npm = find.into_iter().find(|file| file.exists()).expect("npm is installed");
    // Waits with what it has to install, as a slow registry would.
    let wrapper = format!(
        "#!/bin/sh\nif [ \"$1\" = ci ] && [ -e '{0}' ]; then echo > '{0}.reached'; exec sleep 600; fi\nexec '{1}' \"$@\"\n",
        waits.display(),
        npm.display()
    );
    std::fs::write(programs.join("npm"), wrapper).unwrap();
    std::fs::set_permissions(programs.join("npm"), PermissionsExt::from_mode(0o755)).unwrap();
    let project = project.set("PATH", &format!("{}:{path}", programs.display()));
    project.write("call.ts", CALL);
    let mut command = project.command(&["exec", "call.ts"]);
    let mut killed = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let reached = PathBuf::from(format!("{}.reached", waits.display()));
    poll("npm ci", PATIENCE, || reached.exists().then_some(()));
    killed.kill().unwrap();
    killed.wait().unwrap();

    let locked = lock_of(&project)["packages"].clone();
    assert_eq!(locked["tool"]["npm"].as_object().unwrap().len(), 2, "{locked:#}");
    assert!(installed(&project, "installed.json").is_empty());
    std::fs::remove_file(&waits).unwrap();
    publish(&registry, &project.home(), "1.1.0");
    success(&project.exec(CALL).0);
    assert_eq!(parts(&project), ["1.0.0"]);
    assert_eq!(lock_of(&project)["packages"], locked);
    assert_eq!(installed(&project, "installed.json").len(), 1);
}
