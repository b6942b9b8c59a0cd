//! `filesystem:*` cannot leave the workspace. For each refused case there is a similar one that is allowed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/tree.rs"]
mod tree;

use std::os::unix::fs::symlink;
use std::path::Path;

use client_cli::testing::{Granted, filesystem};
use protocol::ErrorCode;
use serde_json::json;

use tree::{SECRET, Tree};

/// PC-01, PC-02, PC-04: every spelling of a path that leads outside, with every tool.
#[test]
fn paths_that_lead_out_are_refused() {
    let tree = Tree::new();
    let root = tree.root().to_str().unwrap().to_owned();
    let outside = tree.folder.path().canonicalize().unwrap().join("outside");
    let evil = format!("{root}-evil");
    for path in [
        "..",
        "../x",
        "../outside",
        "sub/../../x",
        "sub/deep/../../../outside/x",
        "/",
        "/etc",
        "/etc/passwd",
        outside.to_str().unwrap(),
        evil.as_str(),
        &format!("{evil}/x"),
        &format!("{root}/../x"),
        "../app-evil/x",
        "~",
        "~/x",
        "file:///etc/passwd",
        "/proc/self/root/etc",
        "/proc/self/cwd",
        "/proc/self/environ",
        "/dev/fd/0",
        "/dev/zero",
        "a\0b",
        "../\0",
        "sub/..",
    ] {
        tree.assert_refused(path);
    }
    // These spellings lead outside on other systems, but are plain names here.
    let before = tree.outside();
    for path in ["%2e%2e/x", "..%2fx", "\\..\\x", "....//x", "sub/..;/x", "~root", "..."] {
        for (tool, result) in tree.every_tool(path) {
            assert!(!format!("{result:?}").contains(SECRET), "{tool} on {path}");
        }
    }
    assert_eq!(tree.outside(), before);
    std::fs::write(tree.root().join("a.txt"), "a").unwrap();
    let error = tree.read("../x").unwrap_err();
    assert_eq!(error.code, ErrorCode::PathOutsideWorkspace);
    for path in [
        "a.txt",
        "./a.txt",
        "sub/./b.txt",
        "sub//b.txt",
        &format!("{root}/a.txt"),
        &format!("{root}//sub/b.txt"),
    ] {
        tree.read(path).expect(path);
    }
    assert!(tree.call("list_directory", json!({ "path": &root })).is_ok());
}

/// PC-03: a link is allowed or refused by its target.
#[test]
fn links_are_refused_or_followed_by_their_target() {
    let tree = Tree::new();
    let outside = tree.folder.path().canonicalize().unwrap().join("outside");
    let at = |name: &str| tree.root().join(name);
    symlink(&outside, at("absolute-out")).unwrap();
    symlink("../outside", at("relative-out")).unwrap();
    symlink("relative-out", at("chain-out")).unwrap();
    symlink(outside.join("x"), at("file-out")).unwrap();
    symlink("/proc/self/root", at("magic")).unwrap();
    symlink("/dev/zero", at("zero")).unwrap();
    symlink("../../outside", at("sub/climb")).unwrap();
    for path in [
        "absolute-out",
        "absolute-out/x",
        "relative-out/x",
        "chain-out/x",
        "sub/climb/x",
        "zero",
        "magic/etc/hostname",
    ] {
        for (tool, result) in tree.every_tool(path) {
            // The link itself may be moved, but its target must not be accessed.
            if tool != "move_file" {
                result.expect_err(&format!("{tool} on {path}"));
            }
        }
        let _ = std::fs::rename(at("stolen"), at(path));
    }
    assert_eq!(std::fs::read_to_string(outside.join("x")).unwrap(), SECRET);
    tree.write("file-out").unwrap_err();
    assert_eq!(std::fs::read_to_string(outside.join("x")).unwrap(), SECRET);

    // NP-15: the error is the same whether the target outside exists or not.
    symlink(outside.join("none"), at("file-none")).unwrap();
    symlink("../outside/none", at("relative-none")).unwrap();
    let refusal = |path: &str| tree.read(path).unwrap_err().message.replace(path, "PATH");
    assert_eq!(refusal("file-out"), refusal("file-none"));
    assert_eq!(refusal("file-out"), refusal("relative-none"));
    assert_eq!(refusal("relative-out/x"), refusal("relative-out/none"));

    symlink("sub", at("in")).unwrap();
    symlink(at("sub"), at("absolute-in")).unwrap();
    symlink("../a.txt", at("sub/up-but-in")).unwrap();
    assert_eq!(tree.read("in/b.txt").unwrap(), "b");
    assert_eq!(tree.read("absolute-in/b.txt").unwrap(), "b");
    assert_eq!(tree.read("sub/up-but-in").unwrap(), "a");
    tree.write("absolute-in/new.txt").unwrap();
    tree.write("sub/up-but-in").unwrap();
    assert_eq!(tree.read("a.txt").unwrap(), "written");
    // A search finds the links and reveals nothing about targets outside.
    let found =
        tree.call("search_files", json!({ "path": "", "pattern": "**" })).unwrap().to_string();
    assert!(!found.contains("out/x") && !found.contains("file-out"), "{found}");
    assert!(found.contains("up-but-in"), "{found}");
    let sizes = tree.call("list_directory_with_sizes", json!({ "path": "" })).unwrap().to_string();
    assert!(sizes.contains("file-out") && sizes.contains("0 B"), "{sizes}");
}

/// PC-03: a folder is replaced by a link to the outside while tools use it.
#[test]
fn a_swapped_folder_never_leads_out() {
    let tree = Tree::new();
    let outside = tree.folder.path().canonicalize().unwrap().join("outside");
    let (flip, kept) = (tree.root().join("flip"), tree.root().join("kept"));
    std::fs::create_dir(&flip).unwrap();
    std::fs::write(flip.join("x"), "inside").unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                std::fs::rename(&flip, &kept).unwrap();
                symlink(&outside, &flip).unwrap();
                std::fs::remove_file(&flip).unwrap();
                std::fs::rename(&kept, &flip).unwrap();
            }
        });
        let mut reads = 0;
        for _ in 0..3_000 {
            if let Ok(text) = tree.read("flip/x") {
                assert_ne!(text, SECRET);
                reads += 1;
            }
            let _ = tree.call("write_file", json!({ "path": "flip/y", "content": "y" }));
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(reads > 0, "the test never read anything");
    });
    let names: Vec<_> =
        std::fs::read_dir(&outside).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["x"]);
    assert_eq!(std::fs::read_to_string(outside.join("x")).unwrap(), SECRET);
}

/// PC-07: the error for a special file names its type, and no tool blocks on it.
#[test]
fn special_and_huge_files_are_refused() {
    let tree = Tree::new();
    rustix::fs::mknodat(
        tree.workspace.directory(),
        "fifo",
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(tree.root().join("socket")).unwrap();
    for (path, kind) in [("fifo", "FIFO"), ("socket", "socket"), ("sub", "directory")] {
        for tool in ["read_file", "read_media_file"] {
            let error = tree.call(tool, json!({ "path": path })).unwrap_err();
            assert!(error.message.contains(kind), "{error}");
        }
        tree.write(path).expect_err(path);
        tree.call("edit_file", json!({ "path": path, "edits": [] })).expect_err(path);
    }
    let sparse = std::fs::File::create(tree.root().join("sparse")).unwrap();
    sparse.set_len(1 << 40).unwrap();
    for (tool, arguments) in [
        ("read_file", json!({ "path": "sparse" })),
        ("read_file", json!({ "path": "sparse", "head": 5 })),
        ("read_file", json!({ "path": "sparse", "tail": 5 })),
        ("read_media_file", json!({ "path": "sparse" })),
        ("edit_file", json!({ "path": "sparse", "edits": [] })),
    ] {
        let error = tree.call(tool, arguments).unwrap_err();
        assert_eq!(error.code, ErrorCode::ToolResultTooLarge, "{error}");
    }
    sparse.set_len(8 * 1024 * 1024).unwrap();
    assert_eq!(tree.read("sparse").unwrap().len(), 8 * 1024 * 1024);
    assert!(tree.call("get_file_info", json!({ "path": "fifo" })).is_ok());
}

/// PC-08: unusual names refer to exactly that file, or are refused.
#[test]
fn unusual_names_are_exact() {
    let tree = Tree::new();
    let long = "n".repeat(255);
    for name in [
        "-rf",
        " space ",
        "new\nline",
        "é",
        "e\u{301}",
        "A.TXT",
        "tab\t",
        "'q\"",
        long.as_str(),
        ".hidden",
        "a.txt ",
        "*",
        "%2e%2e",
    ] {
        let arguments = json!({ "path": name, "content": name });
        if name == ".hidden" {
            let error = tree.call("write_file", arguments.clone()).unwrap_err();
            assert_eq!(error.code, ErrorCode::PolicyDenied, "{error}");
            let granted = Granted::of(&tree.check("write_file", arguments.clone()).unwrap());
            let reach = tree.workspace.reach(&granted);
            filesystem::call(reach, "write_file", arguments, &|| false).unwrap();
            continue;
        }
        tree.call("write_file", arguments).expect(name);
    }
    for name in ["-rf", " space ", "new\nline", "é", "e\u{301}", "A.TXT", "a.txt ", "*"] {
        assert_eq!(tree.read(name).unwrap(), name);
    }
    assert_eq!(tree.read("a.txt").unwrap(), "a");
    let error = tree.write(&"n".repeat(256)).unwrap_err();
    assert!(error.message.contains("too long"), "{error}");
    tree.write(&"d/".repeat(3_000)).unwrap_err();
    let error = tree.read("esc\u{1b}[31m\u{202e}").unwrap_err();
    assert!(!error.message.contains('\u{1b}') && !error.message.contains('\u{202e}'), "{error}");
}

/// PC-09: nothing is created below a link that leads outside.
#[test]
fn new_paths_are_created_inside_only() {
    let tree = Tree::new();
    symlink("../outside", tree.root().join("out")).unwrap();
    symlink("sub", tree.root().join("in")).unwrap();
    tree.call("create_directory", json!({ "path": "out/new/deep" })).unwrap_err();
    tree.write("out/new.txt").unwrap_err();
    tree.call("move_file", json!({ "source": "a.txt", "destination": "out/a.txt" })).unwrap_err();
    assert!(!tree.folder.path().join("outside/new").exists());
    tree.call("create_directory", json!({ "path": "in/new/deep" })).unwrap();
    assert!(tree.root().join("sub/new/deep").is_dir());
    tree.write("in/new/deep/file").unwrap();
}

#[test]
fn writes_are_atomic_and_keep_the_mode() {
    use std::os::unix::fs::PermissionsExt;
    let tree = Tree::new();
    let path = tree.root().join("a.txt");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o751)).unwrap();
    tree.write("a.txt").unwrap();
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o751);
    // Concurrent writers and a reader: the reader sees complete contents only.
    let (one, two) = ("1".repeat(100_000), "2".repeat(200_000));
    std::thread::scope(|scope| {
        for content in [&one, &two] {
            let tree = &tree;
            scope.spawn(move || {
                for _ in 0..50 {
                    tree.call("write_file", json!({ "path": "busy", "content": content })).unwrap();
                }
            });
        }
        for _ in 0..200 {
            if let Ok(text) = tree.read("busy") {
                assert!(text == one || text == two, "{} bytes", text.len());
            }
        }
    });
    let names: Vec<String> = std::fs::read_dir(tree.root())
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(!names.iter().any(|name| name.ends_with(".tmp")), "{names:?}");
}

/// PC-11: a pattern matches only paths that the walk found, and matching is fast.
#[test]
fn globs_stay_inside_and_are_fast() {
    let tree = Tree::new();
    for pattern in ["**/../..", "{a,../x}", "../**", "/**", "/etc/*", "**/x"] {
        let found = tree.call("search_files", json!({ "path": "", "pattern": pattern })).unwrap();
        let text = found["structuredContent"]["content"].as_str().unwrap().to_owned();
        let root = tree.root().to_str().unwrap();
        assert!(
            text == "No matches found"
                || text.lines().all(|line| Path::new(line).starts_with(root)),
            "{pattern}: {text}"
        );
    }
    let bomb = "{a,b}".repeat(60);
    tree.call("search_files", json!({ "path": "", "pattern": bomb })).unwrap_err();
    let heavy = format!("{}x", "*a".repeat(100));
    tree.write(&"a".repeat(200)).unwrap();
    tree.call("search_files", json!({ "path": "", "pattern": heavy })).unwrap();
    // The limit counts the patterns as written, although a plain name becomes several.
    for (count, is_valid) in [(100, true), (101, false)] {
        let arguments = json!({ "path": "", "excludePatterns": vec!["x"; count] });
        for tool in ["directory_tree", "search_files"] {
            let mut arguments = arguments.clone();
            arguments["pattern"] = json!("**");
            assert_eq!(tree.call(tool, arguments.clone()).is_ok(), is_valid, "{tool}");
            let checked = tree.check(tool, arguments);
            assert_eq!(checked.is_ok(), is_valid, "{tool}");
        }
    }
}

#[test]
fn arguments_are_checked() {
    let tree = Tree::new();
    for (tool, arguments) in [
        ("read_file", json!({})),
        ("read_file", json!([])),
        ("read_file", json!("a.txt")),
        ("read_file", json!({ "path": 1 })),
        ("read_file", json!({ "path": "a.txt", "head": -1 })),
        ("read_file", json!({ "path": "a.txt", "head": 1.5 })),
        ("read_file", json!({ "path": "a.txt", "tail": "1" })),
        ("write_file", json!({ "path": "a.txt" })),
        ("edit_file", json!({ "path": "a.txt", "edits": {} })),
        ("list_directory_with_sizes", json!({ "path": "", "sortBy": "date" })),
        ("search_files", json!({ "path": "", "pattern": "[" })),
        ("read_multiple_files", json!({ "paths": [] })),
    ] {
        let error = tree.call(tool, arguments.clone()).expect_err(&format!("{tool} {arguments}"));
        assert_eq!(error.code, ErrorCode::InvalidArguments, "{tool} {arguments}: {error}");
        assert_eq!(error.to_result()["isError"], true);
    }
    assert_eq!(tree.call("chmod", json!({})).unwrap_err().code, ErrorCode::ToolNotFound);
    assert_eq!(std::fs::read_to_string(tree.root().join("a.txt")).unwrap(), "a");
}

/// NX-03: writing to a hard link of a protected file replaces the link and does not change the file.
#[test]
fn writing_to_a_hard_link_replaces_it() {
    let tree = Tree::new();
    std::fs::write(tree.root().join(".bashrc"), "kept").unwrap();
    std::fs::hard_link(tree.root().join(".bashrc"), tree.root().join("twin")).unwrap();
    tree.write("twin").unwrap();
    tree.call(
        "edit_file",
        json!({ "path": "twin", "edits": [{ "oldText": "w", "newText": "v" }] }),
    )
    .unwrap();
    assert_eq!(std::fs::read_to_string(tree.root().join(".bashrc")).unwrap(), "kept");
}
