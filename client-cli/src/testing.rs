//! What the tests in `tests/` use, which start the built `pml` as a supervisor or compare with other programs.

pub use crate::args::GraphFormat;
pub use crate::commands::plan::{Style, draw, text, to_json};
pub use crate::local_mcp::{LocalMcpError, LocalServers, ServerSpec, Timing};
pub use crate::processes::environment::Environment;
pub use crate::processes::supervise::Supervisor;
pub use crate::tools::{NativeError, NativeTools};
pub use crate::workspace::Workspace;
pub use crate::workspace::protected::Granted;

/// The tools of `filesystem`, called without a permission.
pub mod filesystem {
    pub use crate::tools::filesystem::{call, check, descriptors};
}
