//! `pml cleanup` and `pml man`, and what killed processes leave of the lock.

use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use super::server_starts::RUNNER;
use crate::support::cli::{Project, text};
use crate::support::expect::success;
use crate::support::registry::Registry;
use crate::support::scaled;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Lets every file that `is_it` selects look 40 days old.
fn age(folder: &std::path::Path, is_it: impl Fn(&str) -> bool) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        if is_it(entry.file_name().to_str().unwrap()) {
            let file = std::fs::File::options().write(true).open(entry.path()).unwrap();
            file.set_modified(SystemTime::now() - 40 * DAY).unwrap();
        }
    }
}

fn cleaned(project: &Project, arguments: &[&str]) -> Value {
    let output = project.run(&[&["cleanup", "--json"], arguments].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A package that no server uses is deleted, and installed again when it is needed. One that runs is kept, and so is
/// what servers stored.
#[test]
fn unused_packages_are_deleted() {
    let registry = Registry::start();
    let project = Project::offline().configure(&json!({
        "permissions": { "allow": ["*"] },
        "mcpServers": { "jotter": { "command": "npx", "args": ["-y", "notes@1.0.0"], "network": [] } },
    }));
    let manifest = json!({ "bin": "index.js" });
    registry.publish(&project.home(), "notes", &[("index.js", RUNNER)], &manifest, b"");
    let project = project.set("npm_config_registry", registry.npm());
    assert_eq!(cleaned(&project, &[])["packages"], json!([]));

    let mut pml = project.stdio();
    success(&pml.execute("return await mcp.jotter.add({})"));
    let packages = project.home().join(".local/state/pml/packages");
    let is_lock = |name: &str| name.ends_with(".lock");
    age(&packages, is_lock);
    assert_eq!(cleaned(&project, &[])["packages"], json!([]), "it runs");
    drop(pml);
    assert_eq!(cleaned(&project, &["--unused-for", "50"])["packages"], json!([]));
    let shown = project.run(&["cleanup", "--dry-run"]);
    assert!(text(&shown.stdout).starts_with("Would delete notes@1.0.0 ("), "{shown:?}");
    assert!(text(&shown.stdout).contains("last used 40 days ago"), "{shown:?}");
    let found = cleaned(&project, &[]);
    assert_eq!(found["packages"][0]["package"], "notes@1.0.0", "{found}");
    assert!(found["packages"][0]["bytes"].as_u64() > Some(100), "{found}");
    let folders = std::fs::read_dir(&packages).unwrap().map(|entry| entry.unwrap());
    assert_eq!(folders.filter(|entry| entry.file_type().unwrap().is_dir()).count(), 0);
    let homes = project.home().join(".local/state/pml/server-homes");
    assert_eq!(std::fs::read_dir(homes).unwrap().count(), 1);

    let (envelope, _) = project.exec("return await mcp.jotter.add({})");
    success(&envelope);
    assert_eq!(cleaned(&project, &[])["packages"], json!([]), "it was used");
}

/// What a killed write left is deleted once it is old; nothing else of the workspace is.
#[test]
fn temporary_files_of_killed_writes_are_deleted() {
    let project = Project::offline();
    let (old, new) =
        (".pml-write-0123456789abcdef01234567.tmp", ".pml-write-0123456789abcdef01234568.tmp");
    for name in [old, ".pml-write-mine.tmp", "notes.tmp"] {
        project.write(name, "");
        project.write(&format!(".pml/{name}"), "");
    }
    for folder in [project.workspace(), project.path(".pml")] {
        age(&folder, |name| name.ends_with(".tmp"));
    }
    project.write(new, "");
    std::os::unix::fs::symlink(
        "notes.tmp",
        project.path(".pml/.pml-write-0123456789abcdef01234569.tmp"),
    )
    .unwrap();
    assert_eq!(cleaned(&project, &["--dry-run"])["temporary_files"], 2);
    let output = project.run(&["cleanup"]);
    assert_eq!(
        text(&output.stdout),
        "Deleted 2 temporary files of interrupted writes\nThis freed 0 kB\n"
    );
    assert!(!project.path(old).exists() && project.path(new).exists());
    assert!(
        project.path(".pml-write-mine.tmp").exists() && project.path(".pml/notes.tmp").exists()
    );
    assert_eq!(cleaned(&project, &[])["temporary_files"], 0);
}

/// `pml man` writes a page for each command.
#[test]
fn each_command_has_a_manual_page() {
    let project = Project::offline();
    let folder = project.path("man1");
    let written = project.run(&["man", folder.to_str().unwrap()]);
    assert!(written.status.success(), "{}", text(&written.stderr));
    for (page, words) in [
        ("pml.1", "pml\\-exec(1)"),
        ("pml-exec.1", "\\-\\-frozen"),
        ("pml-runs-show.1", "Print JSON"),
        ("pml-cleanup.1", "\\-\\-unused\\-for"),
    ] {
        let page = std::fs::read_to_string(folder.join(page)).unwrap();
        assert!(page.contains(words), "{words}: {page}");
    }
    project.write("file", "");
    let refused = project.run(&["man", project.path("file/x").to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("cannot write manual pages to"), "{refused:?}");
}

/// LK-06: whatever writers of the lock are killed with SIGKILL, and whenever, the lock is valid, and contains only what
/// it had; what a writer reported as removed is not there.
#[test]
fn killed_and_concurrent_writers_leave_a_valid_lock() {
    let project = Project::offline();
    let names: Vec<String> = (0..8).map(|number| format!("acme.tools.server{number}")).collect();
    let entry = json!({
        "integrity": "sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=", "command": "npx", "args": ["-y", "a@1.0.0"],
    });
    let servers: serde_json::Map<String, Value> =
        names.iter().map(|name| (name.clone(), entry.clone())).collect();
    let full = json!({ "version": 1, "servers": servers }).to_string();
    let listed = || {
        let output = project.run(&["list", "--json"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
        let names = listed["allowed"].as_array().unwrap().iter();
        names.map(|one| one["name"].as_str().unwrap().to_owned()).collect::<BTreeSet<_>>()
    };
    let start = |name: &str| {
        let mut command = project.command(&["remove", name]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().unwrap()
    };
    // How long one takes without being killed.
    project.write(".pml/mcp.lock", &full);
    let began = std::time::Instant::now();
    assert!(start(&names[0]).wait().unwrap().success());
    let usual = began.elapsed();
    assert_eq!(listed().len(), 7);

    let (mut killed, mut ended) = (0, 0);
    for round in 0..u32::try_from(scaled(75)).unwrap() {
        project.write(".pml/mcp.lock", &full);
        let ends: Vec<bool> = std::thread::scope(|scope| {
            let writers: Vec<_> = names
                .iter()
                .zip(0..)
                .map(|(name, number)| {
                    // Instants before, within and after the write: the eight share the processors.
                    let after = usual * ((round * 7 + number * 5) % 24) / 3;
                    let start = &start;
                    scope.spawn(move || {
                        let mut writer = start(name);
                        std::thread::sleep(after);
                        // A process that has ended keeps its exit code.
                        writer.kill().unwrap();
                        let status = writer.wait().unwrap();
                        assert!(status.success() || status.signal() == Some(9), "{status}");
                        status.success()
                    })
                })
                .collect();
            writers.into_iter().map(|writer| writer.join().unwrap()).collect()
        });
        let left = listed();
        for (name, has_ended) in names.iter().zip(ends) {
            assert!(
                !(has_ended && left.contains(name)),
                "{name} was reported as removed: {left:?}"
            );
            *(if has_ended { &mut ended } else { &mut killed }) += 1;
        }
        assert!(left.iter().all(|name| names.contains(name)), "{left:?}");
    }
    assert!(killed > 0 && ended > 0, "{killed} killed, {ended} ended");
    // All at once, none killed: nothing is lost.
    project.write(".pml/mcp.lock", &full);
    let writers: Vec<_> = names.iter().map(|name| start(name)).collect();
    assert!(writers.into_iter().all(|mut writer| writer.wait().unwrap().success()));
    assert_eq!(listed(), BTreeSet::new());
}
