//! Concurrent calls of native tools.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use client_cli::testing::{Environment, Granted, NativeTools, Supervisor, Workspace};
use serde_json::json;
use tokio_util::sync::CancellationToken;

/// Concurrent edits of one file, as `Promise.all` makes them, are all applied.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_edits_are_all_applied() {
    let folder = tempfile::tempdir().unwrap();
    let lines: Vec<String> = (0..40).map(|n| format!("<old {n}>")).collect();
    std::fs::write(folder.path().join("a.txt"), lines.join("\n")).unwrap();
    let workspace = Arc::new(Workspace::open(folder.path()).unwrap());
    let supervisor = Supervisor::new(env!("CARGO_BIN_EXE_pml"));
    let environment = Arc::new(Environment::of([]));
    let tools = NativeTools::new(workspace, environment, supervisor);
    let mut edits = tokio::task::JoinSet::new();
    for n in 0..40 {
        let tools = tools.clone();
        edits.spawn(async move {
            let edit = json!({ "oldText": format!("<old {n}>"), "newText": format!("<new {n}>") });
            let arguments = json!({ "path": "a.txt", "edits": [edit] });
            let tool = "filesystem:edit_file".parse().unwrap();
            tools
                .call(&tool, arguments, Granted::default(), &CancellationToken::new())
                .await
                .unwrap();
        });
    }
    edits.join_all().await;
    let text = std::fs::read_to_string(folder.path().join("a.txt")).unwrap();
    assert!(!text.contains("old"), "an edit was lost:\n{text}");
}
