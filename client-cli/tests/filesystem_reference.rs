//! Compares `filesystem:*` with the reference server on identical trees.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use client_cli::testing::{Granted, Workspace, filesystem};
use serde_json::{Value, json};

#[path = "../../tests/it/support/mcp_servers.rs"]
#[expect(dead_code, reason = "the black-box tests install more than these")]
mod mcp_servers;
#[path = "support/reference.rs"]
mod reference;

use reference::Reference;

/// Two identical trees, one for each implementation, so that changes can be compared too.
struct Pair {
    _folder: tempfile::TempDir,
    ours: std::path::PathBuf,
    theirs: std::path::PathBuf,
    workspace: Workspace,
    reference: Reference,
}

impl Pair {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        // The names have the same length, so that padding is the same.
        let (ours, theirs) = (root.join("ours-tree"), root.join("them-tree"));
        for tree in [&ours, &theirs] {
            plant(tree);
        }
        let workspace = Workspace::open(&ours).unwrap();
        let reference = Reference::start(&theirs);
        Self { _folder: folder, ours, theirs, workspace, reference }
    }

    /// Calls both implementations, with `${root}` replaced by the root of the respective tree.
    fn both(&mut self, tool: &str, arguments: &Value) -> (Value, Value) {
        let fill = |root: &Path| -> Value {
            let text = arguments.to_string().replace("${root}", root.to_str().unwrap());
            serde_json::from_str(&text).unwrap()
        };
        let nothing = Granted::default();
        let checked = filesystem::check(self.workspace.reach(&nothing), tool, fill(&self.ours));
        // As if the user allowed what needs approval: the reference asks about nothing.
        let granted = checked.as_ref().map_or(nothing, Granted::of);
        let reach = self.workspace.reach(&granted);
        let ours = filesystem::call(reach, tool, fill(&self.ours), &|| false)
            .unwrap_or_else(|error| error.to_result());
        let theirs = self.reference.call(tool, &fill(&self.theirs));
        let neutral = |value: &Value, root: &Path| -> Value {
            let text = value.to_string().replace(root.to_str().unwrap(), "ROOT");
            serde_json::from_str(&text).unwrap()
        };
        (neutral(&ours, &self.ours), neutral(&theirs, &self.theirs))
    }

    fn assert_same(&mut self, tool: &str, arguments: Value) {
        let (ours, theirs) = self.both(tool, &arguments);
        assert_eq!(ours, theirs, "{tool} {arguments}");
        assert!(ours.get("isError").is_none(), "{tool} {arguments} failed in both: {ours}");
    }

    /// Compares texts whose lines may be in any order.
    fn assert_same_lines(&mut self, tool: &str, arguments: Value) {
        let (ours, theirs) = self.both(tool, &arguments);
        let sorted = |value: &Value| {
            let text = value["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{value}"));
            assert_eq!(value["structuredContent"]["content"], text);
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        assert!(ours.get("isError").is_none(), "{tool} {arguments}: {ours}");
        assert_eq!(sorted(&ours), sorted(&theirs), "{tool} {arguments}");
    }

    fn assert_both_fail(&mut self, tool: &str, arguments: Value) {
        let (ours, theirs) = self.both(tool, &arguments);
        assert_eq!(ours["isError"], true, "{tool} {arguments}: ours {ours}");
        assert_eq!(theirs["isError"], true, "{tool} {arguments}: theirs {theirs}");
    }

    fn assert_same_trees(&self) {
        assert_eq!(snapshot(&self.ours), snapshot(&self.theirs));
    }
}

fn plant(root: &Path) {
    for folder in ["src/deep/er", "empty", "docs"] {
        std::fs::create_dir_all(root.join(folder)).unwrap();
    }
    let long: String = (1..=3000).map(|n| format!("line {n} äöü\n")).collect();
    for (name, content) in [
        ("a.txt", "one\ntwo\nthree\n".as_bytes()),
        ("no-end.txt", b"one\ntwo"),
        ("crlf.txt", b"one\r\ntwo\r\nthree\r\n"),
        ("empty.txt", b""),
        ("newline.txt", b"\n"),
        ("latin1.txt", b"caf\xe9 \xf0\x9f\n"),
        ("bom.txt", b"\xef\xbb\xbfx\n"),
        ("long.txt", long.as_bytes()),
        ("code.rs", b"fn main() {\n    if true {\n        run();\n    }\n}\n"),
        ("ticks.md", b"```\ncode\n```\n"),
        ("pixel.png", b"\x89PNG\r\n\x1a\n"),
        ("sound.mp3", b"ID3"),
        ("data.bin", b"\x00\x01\x02"),
        ("with space & %41#.bin", b"x"),
        (".hidden", b"h"),
        ("src/main.ts", b"x"),
        ("src/deep/util.ts", b"y"),
        ("src/deep/er/last.md", b"z"),
        ("docs/read.md", b"r"),
    ] {
        std::fs::write(root.join(name), content).unwrap();
    }
    std::os::unix::fs::symlink("a.txt", root.join("link.txt")).unwrap();
    std::os::unix::fs::symlink("src/deep", root.join("linkdir")).unwrap();
    std::os::unix::fs::symlink(root.join("docs/read.md"), root.join("absolute-link")).unwrap();
    std::os::unix::fs::symlink("nowhere", root.join("dangling")).unwrap();
}

fn snapshot(root: &Path) -> Vec<(String, Option<Vec<u8>>)> {
    let mut out = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let kind = path.symlink_metadata().unwrap().file_type();
            let content = kind.is_file().then(|| std::fs::read(&path).unwrap());
            out.push((path.strip_prefix(root).unwrap().to_str().unwrap().to_owned(), content));
            if kind.is_dir() {
                folders.push(path);
            }
        }
    }
    out.sort();
    out
}

#[test]
fn the_tools_are_those_of_the_reference_server() {
    let folder = tempfile::tempdir().unwrap();
    let listed = Reference::start(folder.path()).ask("tools/list", json!({}))["tools"].clone();
    let theirs: Vec<Value> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| {
            json!({
                "name": tool["name"],
                "description": tool["description"],
                "inputSchema": tool["inputSchema"],
                "outputSchema": tool["outputSchema"],
                "annotations": tool["annotations"],
            })
        })
        .collect();
    assert_eq!(theirs.len(), 14);
    assert_eq!(serde_json::to_value(filesystem::descriptors()).unwrap(), json!(theirs));
}

#[test]
fn reading_is_the_same() {
    let mut pair = Pair::new();
    let texts = [
        "a.txt",
        "no-end.txt",
        "crlf.txt",
        "empty.txt",
        "newline.txt",
        "latin1.txt",
        "bom.txt",
        "link.txt",
        "linkdir/util.ts",
        "absolute-link",
        "./src/main.ts",
        "src//main.ts",
        "${root}/a.txt",
        ".hidden",
    ];
    for path in texts {
        pair.assert_same("read_text_file", json!({ "path": path }));
        pair.assert_same("read_file", json!({ "path": path, "head": 0 }));
    }
    for path in
        ["a.txt", "no-end.txt", "crlf.txt", "empty.txt", "newline.txt", "long.txt", "bom.txt"]
    {
        for count in [1, 2, 3, 4, 100, 2_999, 3_001] {
            pair.assert_same("read_text_file", json!({ "path": path, "head": count }));
            pair.assert_same("read_text_file", json!({ "path": path, "tail": count }));
        }
    }
    for path in ["pixel.png", "sound.mp3", "data.bin", "with space & %41#.bin", "empty.txt"] {
        pair.assert_same("read_media_file", json!({ "path": path }));
    }
    pair.assert_same("read_multiple_files", json!({ "paths": ["a.txt", "src/main.ts", "a.txt"] }));
    pair.assert_same("list_allowed_directories", json!({}));
    for arguments in [
        json!({}),
        json!({ "path": 1 }),
        json!({ "path": "a.txt", "head": 1, "tail": 1 }),
        json!({ "path": "none" }),
        json!({ "path": "src" }),
        json!({ "path": "../x" }),
        json!({ "path": "/etc/hostname" }),
        json!({ "path": "dangling" }),
        json!({ "path": "a.txt/x" }),
        json!({ "path": "a\0b" }),
        json!({ "path": "C:\\x" }),
    ] {
        pair.assert_both_fail("read_text_file", arguments);
    }
    pair.assert_both_fail("read_multiple_files", json!({ "paths": [] }));
    let (ours, theirs) =
        pair.both("read_multiple_files", &json!({ "paths": ["a.txt", "none", "no-end.txt"] }));
    let shape = |value: &Value| -> Vec<String> {
        let text = value["content"][0]["text"].as_str().unwrap();
        text.lines().map(|line| line.split(" - ").next().unwrap().to_owned()).collect()
    };
    assert_eq!(shape(&ours), shape(&theirs));
}

#[test]
fn facts_are_the_same() {
    let mut pair = Pair::new();
    for path in ["a.txt", "link.txt"] {
        let (ours, theirs) = pair.both("get_file_info", &json!({ "path": path }));
        // The trees were created at most a second apart.
        let neutral = |value: &Value| {
            let text = value["content"][0]["text"].as_str().unwrap().to_owned();
            let is_time = |line: &str| {
                ["created", "modified", "accessed"].iter().any(|name| line.starts_with(name))
            };
            let lines: Vec<String> = text
                .lines()
                .map(|line| {
                    if is_time(line) {
                        line.get(..28).unwrap_or(line).to_owned()
                    } else {
                        line.to_owned()
                    }
                })
                .collect();
            assert!(text.contains("GMT+0000 (Coordinated Universal Time)"), "{text}");
            lines
        };
        assert_eq!(neutral(&ours).len(), 7);
        assert_eq!(neutral(&ours)[0], neutral(&theirs)[0]);
        assert_eq!(neutral(&ours)[4..], neutral(&theirs)[4..]);
        let names = |value: &Value| -> Vec<String> {
            neutral(value).iter().map(|line| line.split(':').next().unwrap().to_owned()).collect()
        };
        assert_eq!(names(&ours), names(&theirs));
    }
    pair.assert_both_fail("get_file_info", json!({ "path": "none" }));
}

#[test]
fn listing_and_searching_are_the_same() {
    let mut pair = Pair::new();
    for path in ["", ".", "src", "empty", "linkdir", "${root}"] {
        pair.assert_same_lines("list_directory", json!({ "path": path }));
        // Directories have no size in the list, and links inside the tree have the size of their target.
        pair.assert_same_lines(
            "list_directory_with_sizes",
            json!({ "path": path, "sortBy": "size" }),
        );
        pair.assert_same_lines("list_directory_with_sizes", json!({ "path": path }));
    }
    for pattern in [
        "*",
        "**",
        "*.txt",
        "**/*.ts",
        "**/*.{ts,md}",
        "src/**",
        "src",
        "deep",
        "**/deep",
        "?.txt",
        "[ab].txt",
        "!*.txt",
        "{a,../b}",
        "**/../..",
        ".*",
        "**/.*",
        "*e*",
        "src/*",
        "src/**/last.md",
        "s*c/**",
    ] {
        for exclude in [json!([]), json!(["src/**"]), json!(["**/*.md", "docs"])] {
            pair.assert_same_lines(
                "search_files",
                json!({ "path": "${root}", "pattern": pattern, "excludePatterns": exclude }),
            );
        }
    }
    pair.assert_same_lines("search_files", json!({ "path": "src", "pattern": "**/*.ts" }));
    for path in ["a.txt", "none", "../", "/"] {
        pair.assert_both_fail("list_directory", json!({ "path": path }));
        pair.assert_both_fail("search_files", json!({ "path": path, "pattern": "*" }));
    }
    for exclude in
        [json!([]), json!(["deep"]), json!(["*.md"]), json!(["**/*.ts"]), json!(["src/deep"])]
    {
        let (ours, theirs) =
            pair.both("directory_tree", &json!({ "path": "${root}", "excludePatterns": exclude }));
        assert_eq!(sorted_tree(&ours), sorted_tree(&theirs), "{exclude}");
    }
}

fn sorted_tree(result: &Value) -> Value {
    fn sort(nodes: &mut Value) {
        let Some(nodes) = nodes.as_array_mut() else { return };
        nodes.sort_by_key(|node| node["name"].to_string());
        for node in nodes {
            if node.get("children").is_some() {
                sort(&mut node["children"]);
            }
        }
    }
    let text = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}"));
    let mut tree: Value = serde_json::from_str(text).unwrap();
    // The formatting of the text is the same too.
    assert_eq!(serde_json::to_string_pretty(&tree).unwrap(), text);
    sort(&mut tree);
    tree
}

#[test]
fn changes_are_the_same() {
    let mut pair = Pair::new();
    for (path, content) in [
        ("new.txt", "x"),
        ("a.txt", ""),
        ("src/n ü.txt", "ä"),
        ("link.txt", "through"),
        ("${root}/abs.txt", "1"),
        ("absolute-link", "2"),
    ] {
        pair.assert_same("write_file", json!({ "path": path, "content": content }));
        pair.assert_same_trees();
    }
    for path in ["made", "made/of/many", "made", "linkdir/in", "src"] {
        pair.assert_same("create_directory", json!({ "path": path }));
    }
    pair.assert_same("move_file", json!({ "source": "new.txt", "destination": "made/new.txt" }));
    pair.assert_same("move_file", json!({ "source": "made", "destination": "moved" }));
    pair.assert_same_trees();
    for (source, destination) in [
        ("none", "x"),
        ("a.txt", "crlf.txt"),
        ("a.txt", "none/x"),
        ("moved", "moved/in"),
        ("a.txt", "../x"),
    ] {
        pair.assert_both_fail("move_file", json!({ "source": source, "destination": destination }));
    }
    for path in ["src", "none/x.txt", "../x", "/tmp/pml-outside", "dangling"] {
        pair.assert_both_fail("write_file", json!({ "path": path, "content": "x" }));
    }
    pair.assert_both_fail("create_directory", json!({ "path": "a.txt/x" }));
    pair.assert_same_trees();
}

#[test]
fn edits_and_their_diffs_are_the_same() {
    let mut pair = Pair::new();
    let edits = [
        ("a.txt", json!([{ "oldText": "two", "newText": "2" }])),
        ("a.txt", json!([{ "oldText": "one\n", "newText": "" }])),
        ("a.txt", json!([{ "oldText": "three\n", "newText": "three\nfour\nfive\n" }])),
        ("a.txt", json!([{ "oldText": "one\ntwo\nthree\n", "newText": "" }])),
        ("a.txt", json!([])),
        ("empty.txt", json!([{ "oldText": "", "newText": "first\n" }])),
        ("no-end.txt", json!([{ "oldText": "two", "newText": "zwei" }])),
        ("no-end.txt", json!([{ "oldText": "one", "newText": "$& $1" }])),
        ("crlf.txt", json!([{ "oldText": "two\r\n", "newText": "zwei\r\n" }])),
        (
            "long.txt",
            json!([{ "oldText": "line 5 ", "newText": "LINE 5 " }, { "oldText": "line 2000 ", "newText": "x\ny " }]),
        ),
        (
            "long.txt",
            json!([{ "oldText": "line 10 äöü\n", "newText": "" }, { "oldText": "line 18 äöü\n", "newText": "" }, { "oldText": "line 30 äöü\n", "newText": "" }]),
        ),
        (
            "code.rs",
            json!([{ "oldText": "if true {\n  run();", "newText": "if false {\n    stop();\n      more();" }]),
        ),
        ("code.rs", json!([{ "oldText": "  run();  ", "newText": "walk();" }])),
        ("ticks.md", json!([{ "oldText": "code", "newText": "````" }])),
        ("link.txt", json!([{ "oldText": "two", "newText": "deux" }])),
    ];
    for (path, edits) in edits {
        for dry_run in [true, false] {
            pair.assert_same(
                "edit_file",
                json!({ "path": path, "edits": edits, "dryRun": dry_run }),
            );
            pair.assert_same_trees();
        }
        for tree in [&pair.ours, &pair.theirs] {
            std::fs::remove_dir_all(tree).unwrap();
            plant(tree);
        }
        // Open the workspace again: the old descriptor refers to the removed folder.
        pair.workspace = Workspace::open(&pair.ours).unwrap();
    }
    pair.assert_both_fail(
        "edit_file",
        json!({ "path": "a.txt", "edits": [{ "oldText": "none", "newText": "x" }] }),
    );
    pair.assert_both_fail("edit_file", json!({ "path": "none", "edits": [] }));
    pair.assert_same_trees();
}
