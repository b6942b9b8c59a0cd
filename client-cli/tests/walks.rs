//! Walks of `filesystem:*` through folders: their limits, their cancellation, and the descriptors that they hold.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/tree.rs"]
mod tree;

use std::os::unix::fs::symlink;
use std::path::Path;

use client_cli::testing::{Granted, filesystem};
use protocol::ErrorCode;
use serde_json::json;

use tree::Tree;

#[test]
fn walks_have_limits_and_can_be_cancelled() {
    let tree = Tree::new();
    let mut deep = tree.root().to_owned();
    for _ in 0..150 {
        deep.push("d");
    }
    std::fs::create_dir_all(&deep).unwrap();
    let error = tree.call("directory_tree", json!({ "path": "" })).unwrap_err();
    assert!(error.message.contains("nested deeper"), "{error}");
    tree.call("directory_tree", json!({ "path": "d/".repeat(50) })).unwrap();
    let cancelled = filesystem::call(
        tree.workspace.reach(&Granted::default()),
        "search_files",
        json!({ "path": "", "pattern": "*" }),
        &|| true,
    );
    assert_eq!(cancelled.unwrap_err().code, ErrorCode::Cancelled);
}

/// Returns the number of this process's descriptors of files in a folder.
fn open_in(folder: &Path) -> usize {
    let links = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    links
        .filter(|link| std::fs::read_link(link.path()).is_ok_and(|to| to.starts_with(folder)))
        .count()
}

#[test]
fn walks_hold_few_descriptors() {
    let tree = Tree::new();
    for number in 0..200 {
        std::fs::create_dir(tree.root().join(number.to_string())).unwrap();
    }
    std::fs::create_dir_all(tree.root().join("d/".repeat(60))).unwrap();
    for (tool, arguments) in [
        ("search_files", json!({ "path": "", "pattern": "**" })),
        ("directory_tree", json!({ "path": "" })),
    ] {
        let most = std::cell::Cell::new(0);
        let count = || {
            most.set(most.get().max(open_in(tree.root())));
            false
        };
        let reach = Granted::default();
        filesystem::call(tree.workspace.reach(&reach), tool, arguments, &count).unwrap();
        assert!((1..=3).contains(&most.get()), "{tool}: {} descriptors", most.get());
    }
}

/// A walk without a free descriptor fails: its result never lacks what it could not open.
#[test]
fn a_walk_without_descriptors_is_an_error() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    const CHILD: &str = "PML_TEST_FEW_DESCRIPTORS";
    let name = "a_walk_without_descriptors_is_an_error";
    if std::env::var_os(CHILD).is_none() {
        // The limit is that of a whole process, and the other tests run in this one.
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        let output = child.args(["--exact", name, "--nocapture"]).env(CHILD, "1").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    let tree = Tree::new();
    symlink("a.txt", tree.root().join("link")).unwrap();
    let before = getrlimit(Resource::Nofile);
    for (tool, arguments) in [
        ("search_files", json!({ "path": "", "pattern": "**" })),
        ("directory_tree", json!({ "path": "" })),
        ("list_directory", json!({ "path": "" })),
        ("list_directory_with_sizes", json!({ "path": "" })),
    ] {
        let whole = tree.call(tool, arguments.clone()).unwrap();
        let mut failures = 0;
        for limit in 3..16 {
            setrlimit(Resource::Nofile, Rlimit { current: Some(limit), ..before }).unwrap();
            let found = tree.call(tool, arguments.clone());
            setrlimit(Resource::Nofile, before).unwrap();
            match found {
                Ok(found) => assert_eq!(found, whole, "{tool} with {limit} descriptors"),
                Err(error) => {
                    assert_eq!(error.code, ErrorCode::ToolFailed, "{tool}: {error}");
                    failures += 1;
                }
            }
        }
        assert!((1..13).contains(&failures), "{tool}: {failures}");
    }
}
