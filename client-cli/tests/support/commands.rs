//! Commands in a workspace of their own, allowed by the user.

use std::sync::Arc;
use std::time::Duration;

use client_cli::testing::{
    Environment, NativeError, NativeTools, Supervisor, Workspace, call_approved,
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

pub(crate) struct Bench {
    pub(crate) folder: tempfile::TempDir,
    tools: NativeTools,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("sub")).unwrap();
        let workspace = Arc::new(Workspace::open(folder.path()).unwrap());
        let [path, home] = ["PATH", "HOME"].map(|name| std::env::var(name).unwrap());
        let pairs = [
            ("HOME", home.as_str()),
            ("PATH", path.as_str()),
            ("LANG", "C"),
            ("CANARY", "canary-1"),
            ("PML_API_KEY", "canary-2"),
        ];
        let environment = Environment::of(pairs.map(|(n, v)| (n.to_owned(), v.to_owned())));
        let supervisor = Supervisor::new(env!("CARGO_BIN_EXE_pml"));
        Self { folder, tools: NativeTools::new(workspace, Arc::new(environment), supervisor) }
    }

    pub(crate) async fn exec(&self, arguments: Value) -> Result<Value, NativeError> {
        self.exec_until(arguments, &CancellationToken::new()).await
    }

    pub(crate) async fn exec_until(
        &self,
        arguments: Value,
        cancel: &CancellationToken,
    ) -> Result<Value, NativeError> {
        let tool = "shell:exec".parse().unwrap();
        let call = call_approved(&self.tools, &tool, arguments, cancel);
        let result =
            tokio::time::timeout(Duration::from_secs(30), call).await.expect("the call hangs")?;
        protocol::unwrap_tool_result(&result, protocol::ResultMode::Text)
            .map_err(|error| panic!("{error}"))
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.path().canonicalize().unwrap().join(name).to_str().unwrap().to_owned()
    }
}
