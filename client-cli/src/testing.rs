//! What the tests in `tests/` use, which start the built `pml` as a supervisor or compare with other programs.

pub use crate::args::GraphFormat;
pub use crate::commands::plan::{Style, draw, text, to_json};
pub use crate::local_mcp::{
    HostList, ListOf, LocalMcpError, LocalServers, Reachable, Seal, ServerSpec, StartCheck, Timing,
};
pub use crate::processes::environment::Environment;
pub use crate::tools::{NativeError, NativeTools};
pub use crate::workspace::Workspace;
pub use crate::workspace::touched::{Granted, Touched};
pub use execution::processes::confinement::Machine;
pub use execution::processes::supervise::Supervisor;

/// Calls a tool of `pml` as after the user was asked about the call and allowed it.
///
/// # Errors
/// Returns why the call cannot be made, or its error.
pub async fn call_approved(
    tools: &NativeTools,
    tool: &protocol::ToolId,
    arguments: serde_json::Value,
    cancel: &tokio_util::sync::CancellationToken,
) -> Result<serde_json::Value, NativeError> {
    let touched = tools.check(tool, &arguments, &std::sync::Arc::default())?;
    tools.call(tool, arguments, Granted::of(&touched), cancel).await
}

/// The tools of `filesystem`, called without a permission.
pub mod filesystem {
    pub use crate::tools::filesystem::{call, check, descriptors};
}

/// Compiles a pattern of a policy; the result says whether it covers a path.
///
/// # Errors
/// Returns why it is invalid.
pub fn place_pattern(text: &str) -> Result<impl Fn(&std::path::Path) -> bool, String> {
    let pattern = crate::policy::glob::PlacePattern::new(text, false)?;
    Ok(move |path: &std::path::Path| pattern.covers(path))
}

/// What the bench `consent` measures: decisions about calls, and their records.
pub mod consent {
    use std::path::Path;
    use std::sync::Arc;

    use protocol::ToolId;
    use serde_json::{Value, json};

    use crate::consent::decision::{Call, Decision, decide};
    use crate::consent::permissions::Permissions;
    use crate::run_store::record::{CallBegan, CallEnded, Record, RunBegan, Status, now};
    use crate::run_store::{Lost, RunStore};
    use crate::workspace::Workspace;

    /// The rules of a project.
    pub struct Rules(Permissions);

    impl Rules {
        /// Reads what is in `permissions` of a `.pml.json`.
        ///
        /// # Errors
        /// Returns why it is invalid.
        pub fn read(permissions: Value) -> Result<Self, serde_json::Error> {
            Ok(Self(Permissions::new(serde_json::from_value(permissions)?, ".pml.json")))
        }

        /// Decides about a call; returns whether it runs without a question.
        pub fn allow(&self, tool: &ToolId) -> bool {
            matches!(decide(&self.0, tool, Call::default()), Decision::Run { .. })
        }
    }

    /// The record of a run that makes calls.
    pub struct Records {
        store: RunStore,
        lost: Arc<Lost>,
    }

    impl Records {
        /// Begins a run in a new store below a folder.
        ///
        /// # Errors
        /// Returns why it cannot be recorded.
        pub async fn begin(folder: &Path) -> Result<Self, Box<dyn std::error::Error>> {
            let root = folder.canonicalize()?.join("work");
            std::fs::create_dir(&root)?;
            let store = RunStore::open(&Workspace::open(&root)?, &folder.join("records"))?;
            let none = store.content(&json!({}))?;
            let began = RunBegan {
                at: now(),
                run: "run".to_owned(),
                mode: "run".to_owned(),
                of: None,
                pml: String::new(),
                code: none.clone(),
                args: none.clone(),
                plan: none.clone(),
                policy: none,
                trace: None,
            };
            store.append(Record::RunBegan(began)).await?;
            Ok(Self { store, lost: Arc::default() })
        }

        /// Records a call as a run does: waits until its start is stored, and not for the record of its end.
        ///
        /// # Errors
        /// Returns why it cannot be recorded.
        pub async fn call(&self, number: u64) -> Result<(), Box<dyn std::error::Error>> {
            let (run, call) = ("run".to_owned(), number.to_string());
            let args = self.store.content(&json!({ "path": "src/main.rs", "number": number }))?;
            let began = CallBegan {
                at: now(),
                run: run.clone(),
                call: call.clone(),
                tool: "filesystem:read_text_file".to_owned(),
                routing: "client".to_owned(),
                native: true,
                args,
                decision: "`allow` has `filesystem:*` in `.pml.json`".to_owned(),
                epoch_ms: None,
            };
            self.store.append(Record::CallBegan(began)).await?;
            let output = Some(self.store.output(&json!("x".repeat(1_000)))?);
            let ended = CallEnded {
                at: now(),
                run,
                call,
                status: Status::Success,
                output,
                error: None,
                refused_connections: None,
                at_ms: Some(number),
            };
            Ok(self.store.queue(Record::CallEnded(ended), &self.lost)?)
        }
    }
}
