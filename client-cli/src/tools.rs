//! The tools that `pml` itself implements.

mod command;
pub(crate) mod filesystem;
mod git;
pub(crate) mod shell;
mod web;

use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use execution::processes::supervise::Supervisor;
use protocol::{ErrorCode, ToolDescriptor, ToolId};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use self::filesystem::preview::Preview;
use crate::policy::{GIT_READS, PolicyOfRun};
use crate::processes::environment::Environment;
use crate::workspace::Workspace;
use crate::workspace::changes::Watch;
use crate::workspace::path_error::PathError;
use crate::workspace::touched::{Granted, Touched};

/// The maximum size of the text that a native tool returns, in bytes.
pub(crate) const RESULT_LIMIT: usize = 8 * 1024 * 1024;

/// Why a native tool returned no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct NativeError {
    /// The stable code.
    pub code: ErrorCode,
    /// What failed, for which object, and the remedy.
    pub message: String,
}

impl NativeError {
    /// Creates the error for a change that cannot be recorded, and is not made for that reason.
    pub(crate) fn not_recorded(message: String) -> Self {
        Self::new(ErrorCode::RunStoreUnavailable, message)
    }

    /// Creates an error.
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// Returns the error as an MCP `CallToolResult`.
    pub fn to_result(&self) -> Value {
        json!({ "content": [{ "type": "text", "text": self.message }], "isError": true })
    }
}

impl From<PathError> for NativeError {
    fn from(error: PathError) -> Self {
        let code = match &error {
            PathError::Outside { .. } => ErrorCode::PathOutsideWorkspace,
            PathError::Protected { .. } | PathError::Denied { .. } | PathError::Diverted { .. } => {
                ErrorCode::PolicyDenied
            }
            PathError::Kind { .. } | PathError::System { .. } => ErrorCode::ToolFailed,
            PathError::Unsupported => ErrorCode::PlatformUnsupported,
        };
        Self::new(code, error.to_string())
    }
}

/// The dependencies of native tools.
#[derive(Debug, Clone)]
pub struct NativeTools {
    workspace: Arc<Workspace>,
    environment: Arc<Environment>,
    supervisor: Supervisor,
    /// Held while a file is changed. An edit reads the file first, so concurrent calls could overwrite each other's
    /// changes.
    write_lock: Arc<Mutex<()>>,
}

impl NativeTools {
    /// Creates the tools of a workspace.
    pub fn new(
        workspace: Arc<Workspace>,
        environment: Arc<Environment>,
        supervisor: Supervisor,
    ) -> Self {
        Self { workspace, environment, supervisor, write_lock: Arc::default() }
    }

    /// Calls a native tool without a record of what it changes; see `call_recorded`.
    ///
    /// # Errors
    /// Returns [`NativeError`] if the tool does not exist or failed.
    pub async fn call(
        &self,
        tool: &ToolId,
        arguments: Value,
        granted: Granted,
        cancel: &CancellationToken,
    ) -> Result<Value, NativeError> {
        self.call_recorded(tool, arguments, granted, Arc::new(|_| Ok(())), cancel).await
    }

    /// Calls a native tool and returns its MCP `CallToolResult`.
    ///
    /// The caller must have checked the permission; `granted` is what the user approved. `watch` is told about each change
    /// of a file before it is made.
    ///
    /// # Errors
    /// Returns [`NativeError`] if the tool does not exist or failed; [`NativeError::to_result`] converts it for MCP.
    pub(crate) async fn call_recorded(
        &self,
        tool: &ToolId,
        arguments: Value,
        granted: Granted,
        watch: Arc<Watch<'static>>,
        cancel: &CancellationToken,
    ) -> Result<Value, NativeError> {
        match Native::of(tool.namespace()) {
            Some(Native::Filesystem) => {
                let workspace = Arc::clone(&self.workspace);
                let action = tool.action().to_owned();
                let done = cancel.clone();
                let write_lock = Arc::clone(&self.write_lock);
                // File operations block, so they must not run on the async threads.
                let work = tokio::task::spawn_blocking(move || {
                    // Reads need no lock: files are replaced atomically, so a read sees one content
                    // or the other.
                    let _guard = filesystem::changes(&action)
                        .then(|| write_lock.lock().unwrap_or_else(PoisonError::into_inner));
                    let reach = workspace.reach(&granted).watched_by(&*watch);
                    filesystem::call(reach, &action, arguments, &|| done.is_cancelled())
                });
                work.await.unwrap_or_else(|_| {
                    Err(NativeError::new(ErrorCode::Internal, format!("tool `{tool}` crashed")))
                })
            }
            Some(Native::Shell) if tool.action() == "exec" => {
                self.shell().exec(arguments, &granted, cancel).await
            }
            Some(Native::Git) => {
                git::Git(self.commands()).call(tool.action(), arguments, &granted, cancel).await
            }
            Some(Native::Web) if tool.action() == "get" => {
                web::get(arguments, &granted, cancel).await
            }
            _ => Err(unknown(tool.as_str())),
        }
    }

    /// Checks that a call can run: its arguments, its paths and the policy. Has no side effect. Returns what it touches;
    /// protected places need the user's approval.
    ///
    /// # Errors
    /// Returns the error that the call would fail with.
    pub(crate) fn check(
        &self,
        tool: &ToolId,
        arguments: &Value,
        policy: &Arc<PolicyOfRun>,
    ) -> Result<Touched, NativeError> {
        match Native::of(tool.namespace()) {
            Some(Native::Filesystem) => {
                let granted = Granted::by_rule(Arc::clone(policy));
                let reach = self.workspace.reach(&granted);
                filesystem::check(reach, tool.action(), arguments.clone())
            }
            Some(Native::Shell) if tool.action() == "exec" => {
                // A command can do whatever the user can, so no protected places are listed.
                self.shell().check(arguments.clone(), policy.policy())
            }
            Some(Native::Git) => {
                git::Git(self.commands()).check(tool.action(), arguments.clone(), policy)
            }
            Some(Native::Web) if tool.action() == "get" => {
                web::check(arguments.clone(), policy.policy())
            }
            // `pml:search_tools` touches no place. Unknown tools were refused when the program was
            // resolved.
            _ => Ok(Touched::default()),
        }
    }

    /// Returns what a call would do to a file, as far as that is known; `shown` allows to show a difference.
    pub(crate) fn preview(
        &self,
        tool: &ToolId,
        arguments: &Value,
        policy: &Arc<PolicyOfRun>,
        shown: bool,
    ) -> Option<Preview> {
        if Native::of(tool.namespace()) != Some(Native::Filesystem) {
            return None;
        }
        let granted = Granted::by_rule(Arc::clone(policy));
        filesystem::preview::of(self.workspace.reach(&granted), tool.action(), arguments, shown)
    }

    fn commands(&self) -> command::Commands<'_> {
        command::Commands {
            workspace: &self.workspace,
            environment: &self.environment,
            supervisor: &self.supervisor,
        }
    }

    fn shell(&self) -> shell::Shell<'_> {
        shell::Shell(self.commands())
    }
}

/// A namespace that `pml` itself implements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Native {
    Filesystem,
    Shell,
    Git,
    Web,
    /// Its tools are implemented by `discover`, because they need the gateway.
    Pml,
}

/// Returns whether a native tool only reads files, so that its call has no effect outside the program.
pub(crate) fn only_reads(tool: &ToolId) -> bool {
    matches!(Native::of(tool.namespace()), Some(Native::Filesystem))
        && !filesystem::changes(tool.action())
}

/// The namespaces that `pml` itself implements. This is the only list of them.
const NAMESPACES: &[(&str, Native)] = &[
    ("filesystem", Native::Filesystem),
    ("shell", Native::Shell),
    ("git", Native::Git),
    ("web", Native::Web),
    ("pml", Native::Pml),
];

impl Native {
    fn of(namespace: &str) -> Option<Self> {
        NAMESPACES.iter().find(|(name, _)| *name == namespace).map(|(_, native)| *native)
    }

    fn descriptors(self) -> &'static [ToolDescriptor] {
        static SHELL: LazyLock<Vec<ToolDescriptor>> = LazyLock::new(|| vec![shell::descriptor()]);
        static WEB: LazyLock<Vec<ToolDescriptor>> = LazyLock::new(|| vec![web::descriptor()]);
        static PML: LazyLock<Vec<ToolDescriptor>> =
            LazyLock::new(|| vec![protocol::discovery::search_tools()]);
        match self {
            Self::Filesystem => filesystem::descriptors(),
            Self::Shell => &SHELL,
            Self::Git => git::descriptors(),
            Self::Web => &WEB,
            Self::Pml => &PML,
        }
    }
}

/// Returns the namespaces that `pml` itself implements.
pub(crate) fn namespaces() -> impl Iterator<Item = &'static str> + Clone {
    NAMESPACES.iter().map(|(name, _)| *name)
}

/// Returns whether a namespace is implemented by `pml` itself.
pub(crate) fn is_native(namespace: &str) -> bool {
    Native::of(namespace).is_some()
}

/// Returns whether an id names a tool of `pml` itself, not of the registry.
pub(crate) fn is_native_tool(id: &ToolId) -> bool {
    id.is_plain() && descriptors(id.namespace()).iter().any(|tool| tool.name == id.action())
}

/// Returns whether a native tool runs a command, with whatever that runs.
pub(crate) fn runs_command(id: &ToolId) -> bool {
    match Native::of(id.namespace()) {
        Some(Native::Shell) => true,
        Some(Native::Git) => !GIT_READS.contains(&id.action()),
        _ => false,
    }
}

/// Returns who receives the arguments of a native tool, as the end of a sentence, if it sends them from this machine.
pub(crate) fn sends_to(id: &ToolId) -> Option<&'static str> {
    (Native::of(id.namespace()) == Some(Native::Web)).then_some("the host of its `url`")
}

/// Returns the native tools of a namespace; empty when it is not native.
pub(crate) fn descriptors(namespace: &str) -> &'static [ToolDescriptor] {
    Native::of(namespace).map_or(&[], Native::descriptors)
}

fn unknown(tool: &str) -> NativeError {
    NativeError::new(ErrorCode::ToolNotFound, format!("`{tool}` is not a tool of `pml`"))
}

/// Parses a tool's arguments.
fn arguments<T: DeserializeOwned>(tool: &str, value: Value) -> Result<T, NativeError> {
    let value = if value.is_null() { json!({}) } else { value };
    serde_json::from_value(value).map_err(|error| {
        let message = format!("invalid arguments for `{tool}`: {error}");
        NativeError::new(ErrorCode::InvalidArguments, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tool that a plan lists as a read runs no command, and the other way round.
    #[test]
    fn plans_and_permissions_agree_about_what_reads() {
        for tool in descriptors("git") {
            let id = ToolId::new("git", &tool.name).unwrap();
            let reads = analysis::Effect::of(&id) == analysis::Effect::Reads;
            assert_eq!(runs_command(&id), !reads, "{id}");
        }
        assert!(
            GIT_READS.iter().all(|name| descriptors("git").iter().any(|tool| tool.name == *name))
        );
    }

    /// The gateway describes the tools of `pml` as `pml` implements them.
    #[test]
    fn the_catalog_describes_these_tools() {
        for namespace in ["filesystem", "shell", "git", "web"] {
            let root = env!("CARGO_MANIFEST_DIR");
            let file = format!("{root}/../registry/catalog/{namespace}.json");
            let file: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
            let described: Vec<ToolDescriptor> =
                serde_json::from_value(file["tools"].clone()).unwrap();
            assert_eq!(json!(described), json!(descriptors(namespace)), "{namespace}");
        }
    }
}
