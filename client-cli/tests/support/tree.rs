//! A workspace of the file tools, with siblings that must not be read or changed.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use client_cli::testing::{Granted, NativeError, Touched, Workspace, filesystem};
use protocol::ErrorCode;
use serde_json::{Value, json};

/// A workspace with files, and files outside of it.
pub(crate) struct Tree {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) workspace: Workspace,
}

/// The content of every file outside.
pub(crate) const SECRET: &str = "canary-outside";

impl Tree {
    /// Creates a workspace `app` with sibling folders that must not be read or changed.
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for name in ["app/sub/deep", "app-evil", "outside"] {
            std::fs::create_dir_all(root.join(name)).unwrap();
        }
        for name in ["app-evil/x", "outside/x", "x"] {
            std::fs::write(root.join(name), SECRET).unwrap();
        }
        std::fs::write(root.join("app/a.txt"), "a").unwrap();
        std::fs::write(root.join("app/sub/b.txt"), "b").unwrap();
        let workspace = Workspace::open(&root.join("app")).unwrap();
        Self { folder, workspace }
    }

    pub(crate) fn root(&self) -> &Path {
        self.workspace.root()
    }

    pub(crate) fn call(&self, tool: &str, arguments: Value) -> Result<Value, NativeError> {
        let started = Instant::now();
        let result =
            filesystem::call(self.workspace.reach(&Granted::default()), tool, arguments, &|| false);
        assert!(started.elapsed() < Duration::from_secs(10), "{tool} hangs");
        if let Err(error) = &result {
            assert!(
                !error.message.contains(SECRET),
                "the error of {tool} reveals content from outside: {error}"
            );
        }
        result
    }

    pub(crate) fn check(&self, tool: &str, arguments: Value) -> Result<Touched, NativeError> {
        filesystem::check(self.workspace.reach(&Granted::default()), tool, arguments)
    }

    pub(crate) fn read(&self, path: &str) -> Result<String, NativeError> {
        let result = self.call("read_text_file", json!({ "path": path }))?;
        Ok(result["structuredContent"]["content"].as_str().unwrap().to_owned())
    }

    pub(crate) fn write(&self, path: &str) -> Result<Value, NativeError> {
        self.call("write_file", json!({ "path": path, "content": "written" }))
    }

    /// Calls every tool with a path in every path argument.
    pub(crate) fn every_tool(&self, path: &str) -> Vec<(&'static str, Result<Value, NativeError>)> {
        [
            ("read_file", json!({ "path": path })),
            ("read_text_file", json!({ "path": path, "head": 1 })),
            ("read_text_file", json!({ "path": path, "tail": 1 })),
            ("read_media_file", json!({ "path": path })),
            ("write_file", json!({ "path": path, "content": "overwritten" })),
            ("edit_file", json!({ "path": path, "edits": [{ "oldText": "c", "newText": "d" }] })),
            ("create_directory", json!({ "path": format!("{path}/made") })),
            ("list_directory", json!({ "path": path })),
            ("list_directory_with_sizes", json!({ "path": path })),
            ("directory_tree", json!({ "path": path })),
            ("search_files", json!({ "path": path, "pattern": "**" })),
            ("get_file_info", json!({ "path": path })),
            ("move_file", json!({ "source": path, "destination": "stolen" })),
            ("move_file", json!({ "source": "a.txt", "destination": format!("{path}/planted") })),
        ]
        .map(|(tool, arguments)| (tool, self.call(tool, arguments)))
        .into()
    }

    pub(crate) fn outside(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut files = Vec::new();
        for folder in ["", "outside", "app-evil"] {
            for entry in std::fs::read_dir(self.folder.path().join(folder)).unwrap() {
                let path = entry.unwrap().path();
                let content = if path.is_file() { std::fs::read(&path).unwrap() } else { vec![] };
                files.push((path, content));
            }
        }
        files.sort();
        files
    }

    pub(crate) fn assert_refused(&self, path: &str) {
        let before = self.outside();
        for (tool, result) in self.every_tool(path) {
            let error = result.expect_err(&format!("{tool} on {path:?}"));
            assert_ne!(error.code, ErrorCode::Internal, "{tool} on {path:?}");
        }
        let many = self.call("read_multiple_files", json!({ "paths": [path, "a.txt"] })).unwrap();
        assert!(!many.to_string().contains(SECRET), "{path}");
        assert_eq!(self.outside(), before, "{path} changed something outside");
    }
}
