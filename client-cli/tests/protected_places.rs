//! Places that need a grant of the user, and paths that lead elsewhere than when it was given.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/tree.rs"]
mod tree;

use std::os::unix::fs::symlink;
use std::path::Path;

use client_cli::testing::{Granted, filesystem};
use protocol::ErrorCode;
use serde_json::json;

use tree::{SECRET, Tree};

/// A program cannot change the files that grant it rights, with any tool or spelling.
#[test]
fn files_that_grant_rights_cannot_be_changed() {
    let tree = Tree::new();
    for folder in [".git/hooks", ".pml", ".vscode", "plain"] {
        std::fs::create_dir_all(tree.root().join(folder)).unwrap();
    }
    std::fs::write(tree.root().join(".pml.json"), "{}").unwrap();
    std::fs::write(tree.root().join(".git/config"), "g").unwrap();
    std::fs::write(tree.root().join(".pml/serve-token"), SECRET).unwrap();
    symlink(".pml.json", tree.root().join("innocent.json")).unwrap();
    symlink(".git", tree.root().join("innocent")).unwrap();
    for path in [
        ".pml.json",
        "innocent.json",
        "./.pml.json",
        ".PML.json",
        ".mcp.json",
        ".git/config",
        ".git/hooks/pre-commit",
        "innocent/hooks/pre-commit",
        ".pml/runs.db",
        "sub/.pml.json",
        "sub/.git",
        ".vscode/tasks.json",
        // These fail for another reason: the first is a directory, and the parent of the last does not exist.
        ".git",
        ".claude/settings.json",
    ] {
        let expected = match path {
            ".git" | ".claude/settings.json" => ErrorCode::ToolFailed,
            _ => ErrorCode::PolicyDenied,
        };
        let written = tree.write(path).unwrap_err();
        assert_eq!(written.code, expected, "{path}: {written}");
        tree.call("move_file", json!({ "source": "a.txt", "destination": path })).expect_err(path);
    }
    for (source, destination) in [
        ("plain", ".git2/../.git"),
        ("plain", "sub/.git"),
        (".git", "free"),
        (".pml.json", "free"),
        ("plain", ".claude"),
        (".vscode", "free"),
        ("innocent/config", "free"),
    ] {
        tree.call("move_file", json!({ "source": source, "destination": destination }))
            .expect_err(destination);
    }
    tree.call("create_directory", json!({ "path": "sub/.git/hooks" })).unwrap_err();
    tree.call(
        "edit_file",
        json!({ "path": "innocent.json", "edits": [{ "oldText": "{}", "newText": "{ }" }] }),
    )
    .unwrap_err();
    assert_eq!(std::fs::read_to_string(tree.root().join(".pml.json")).unwrap(), "{}");
    for path in [".pml/serve-token", ".pml"] {
        for tool in
            ["read_file", "list_directory", "directory_tree", "search_files", "get_file_info"]
        {
            let result = tree.call(tool, json!({ "path": path, "pattern": "*" }));
            result.expect_err(&format!("{tool} {path}"));
        }
    }
    let tree_text = tree.call("directory_tree", json!({ "path": "" })).unwrap().to_string();
    assert!(!tree_text.contains("serve-token"), "{tree_text}");
    // It is hidden, so it is read with approval only.
    tree.read(".git/config").unwrap_err();
    let asked = tree.check("read_file", json!({ "path": ".git/config" })).unwrap();
    let granted = Granted::of(&asked);
    let reach = tree.workspace.reach(&granted);
    filesystem::call(reach, "read_file", json!({ "path": ".git/config" }), &|| false).unwrap();
    for path in [".vscode.md", ".gitignore", "pml.json", ".github.yml"] {
        let arguments = json!({ "path": path, "content": "x" });
        let asked = tree.check("write_file", arguments.clone()).unwrap();
        // Hidden, and nothing worse.
        let is_hidden = |reason: &str| reason.starts_with("it is hidden");
        assert!(asked.protected.iter().all(|place| is_hidden(place.reason)), "{path}");
        let granted = Granted::of(&asked);
        filesystem::call(tree.workspace.reach(&granted), "write_file", arguments, &|| false)
            .expect(path);
    }
}

/// NX-03: a protected place can be changed only with a grant for exactly that place.
#[test]
fn protected_places_need_a_grant() {
    let tree = Tree::new();
    for folder in [".github/workflows", "plain/workflows", "store/objects", "store/refs", "bin"] {
        std::fs::create_dir_all(tree.root().join(folder)).unwrap();
    }
    std::fs::write(tree.root().join("store/HEAD"), "ref: refs/heads/main\n").unwrap();
    std::fs::write(tree.root().join("store/config"), "[core]\n").unwrap();
    std::fs::write(tree.root().join(".env"), SECRET).unwrap();
    symlink(".github/workflows", tree.root().join("innocent")).unwrap();
    let write = |path: &str| ("write_file", json!({ "path": path, "content": "x" }));
    let to = |path: &str| ("move_file", json!({ "source": "a.txt", "destination": path }));
    let edit = json!({ "path": ".env", "edits": [], "dryRun": true });
    for (tool, arguments) in [
        write(".bashrc"),
        write("sub/.vscode"),
        write(".VSCODE "),
        write("AGENTS.md"),
        write("innocent/ci.yml"),
        // A Git folder as `git init --separate-git-dir` creates it, recognized by its content.
        write("store/config"),
        write("store/hooks"),
        // A file that would turn its folder into a Git folder.
        write("sub/HEAD"),
        to(".envrc"),
        to("sub/.Husky"),
        ("move_file", json!({ "source": "plain", "destination": "sub/.github" })),
        ("move_file", json!({ "source": ".env", "destination": "seen.txt" })),
        ("create_directory", json!({ "path": "sub/.vscode" })),
        ("read_file", json!({ "path": ".env" })),
        ("read_media_file", json!({ "path": ".env" })),
        ("edit_file", edit),
    ] {
        let shown = format!("{tool} {arguments}");
        let error = tree.call(tool, arguments.clone()).expect_err(&shown);
        assert_eq!(error.code, ErrorCode::PolicyDenied, "{shown}: {error}");
        let places = tree.check(tool, arguments.clone()).expect(&shown).protected;
        assert_eq!(places.len(), 1, "{shown}: {places:?}");
        let other = Granted::of(
            &tree.check("write_file", json!({ "path": ".profile", "content": "" })).unwrap(),
        );
        let reach = tree.workspace.reach(&other);
        filesystem::call(reach, tool, arguments, &|| false).expect_err(&shown);
    }
    let many = tree.call("read_multiple_files", json!({ "paths": [".env", "a.txt"] })).unwrap();
    assert!(!many.to_string().contains(SECRET), "{many}");
    let arguments = json!({ "path": "innocent/ci.yml", "content": "x" });
    let granted = tree.check("write_file", arguments.clone()).unwrap();
    assert_eq!(granted.protected[0].real, Path::new(".github/workflows/ci.yml"));
    let granted = Granted::of(&granted);
    filesystem::call(tree.workspace.reach(&granted), "write_file", arguments, &|| false).unwrap();
    assert_eq!(std::fs::read_to_string(tree.root().join(".github/workflows/ci.yml")).unwrap(), "x");
    // A grant covers the place that was shown, even if the link leads elsewhere later.
    std::fs::remove_file(tree.root().join("innocent")).unwrap();
    symlink("store", tree.root().join("innocent")).unwrap();
    let swapped = json!({ "path": "innocent/config", "content": "x" });
    filesystem::call(tree.workspace.reach(&granted), "write_file", swapped, &|| false).unwrap_err();
    assert_eq!(std::fs::read_to_string(tree.root().join("store/config")).unwrap(), "[core]\n");
}

/// AP-05: an approved call uses the file that its path led to when the user was asked.
#[test]
fn an_approved_path_must_not_be_diverted() {
    let tree = Tree::new();
    std::fs::create_dir(tree.root().join("other")).unwrap();
    for name in ["shown.txt", "hidden.txt", "other/in.txt"] {
        std::fs::write(tree.root().join(name), "old").unwrap();
    }
    let link = tree.root().join("link");
    let write = json!({ "path": "link", "content": "new" });
    let edits = json!([{ "oldText": "old", "newText": "new" }]);
    for (tool, arguments) in [
        ("write_file", write),
        ("edit_file", json!({ "path": "link", "edits": edits })),
        ("read_text_file", json!({ "path": "link" })),
        ("read_media_file", json!({ "path": "link" })),
    ] {
        symlink("shown.txt", &link).unwrap();
        let touched = tree.check(tool, arguments.clone()).unwrap();
        assert!(touched.paths.iter().all(|led| led.by_link), "{touched:?}");
        assert_eq!(touched.paths[0].real, Path::new("shown.txt"));
        let granted = Granted::of(&touched);
        let call = || {
            let reach = tree.workspace.reach(&granted);
            filesystem::call(reach, tool, arguments.clone(), &|| false)
        };
        std::fs::remove_file(&link).unwrap();
        symlink("hidden.txt", &link).unwrap();
        assert_eq!(call().unwrap_err().code, ErrorCode::PolicyDenied, "{tool}");
        // An ordinary file in place of the link is another file, too.
        std::fs::remove_file(&link).unwrap();
        std::fs::write(&link, "old").unwrap();
        assert_eq!(call().unwrap_err().code, ErrorCode::PolicyDenied, "{tool}");
        std::fs::remove_file(&link).unwrap();
        symlink("shown.txt", &link).unwrap();
        call().unwrap();
        std::fs::remove_file(&link).unwrap();
        std::fs::write(tree.root().join("shown.txt"), "old").unwrap();
    }
    // The folder of a new file, of a new folder and of a moved file.
    for (tool, arguments) in [
        ("write_file", json!({ "path": "folder/new.txt", "content": "new" })),
        ("create_directory", json!({ "path": "folder/a/b" })),
        ("move_file", json!({ "source": "hidden.txt", "destination": "folder/moved.txt" })),
    ] {
        let folder = tree.root().join("folder");
        std::fs::create_dir(&folder).unwrap();
        let touched = tree.check(tool, arguments.clone()).unwrap();
        let granted = Granted::of(&touched);
        let call = || {
            let reach = tree.workspace.reach(&granted);
            filesystem::call(reach, tool, arguments.clone(), &|| false)
        };
        std::fs::remove_dir(&folder).unwrap();
        symlink("other", &folder).unwrap();
        assert_eq!(call().unwrap_err().code, ErrorCode::PolicyDenied, "{tool}");
        std::fs::remove_file(&folder).unwrap();
        std::fs::create_dir(&folder).unwrap();
        call().unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
    }
    let left = std::fs::read_dir(tree.root().join("other")).unwrap();
    assert_eq!(left.count(), 1);
}
