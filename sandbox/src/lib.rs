//! Runs programs and jobs in sealed child processes of the binary that links this crate.
//!
//! A [`Pool`] runs JavaScript, one program per child; a [`JobPool`] runs a function of the binary itself on untrusted
//! input, `bytes → bytes`. A child has no files, no network, no environment and no access to other processes, and is
//! killed when it exceeds a limit. The operating system enforces this: if a child cannot be sealed, nothing runs.
//!
//! A process can also apply a [`Confinement`] to itself, before it becomes a program that the user knows: it keeps some
//! files, and the network only if it is granted.
//!
//! This crate never opens a connection and decides nothing about tools. The only way out of a program is the
//! [`ToolCaller`] that its caller supplies.
//!
//! ```no_run
//! use std::sync::Arc;
//! use futures::future::BoxFuture;
//! use sandbox::{CallError, Limits, Pool, PoolConfig, Program, ToolCall, ToolCaller};
//! use tokio_util::sync::CancellationToken;
//!
//! struct Echo;
//! impl ToolCaller for Echo {
//!     fn call(&self, call: ToolCall, _: CancellationToken) -> BoxFuture<'static, Result<serde_json::Value, CallError>> {
//!         Box::pin(async move { Ok(call.args) })
//!     }
//! }
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     // First of all, because this process may be one of the children.
//!     sandbox::child_main_if_requested(&[]);
//!     let runtime = tokio::runtime::Runtime::new()?;
//!     runtime.block_on(async {
//!         let pool = Pool::new(PoolConfig::default())?;
//!         let program = Program {
//!             source: "return (await mcp.demo.echo({ n: args.n })).n + 1".to_owned(),
//!             args: serde_json::json!({ "n": 41 }),
//!             ..Program::default()
//!         };
//!         let outcome = pool.run(program, &Limits::server(), Arc::new(Echo), CancellationToken::new()).await;
//!         assert_eq!(outcome.result, Ok(serde_json::json!(42)));
//!         Ok(())
//!     })
//! }
//! ```

// Imports between modules (checked by `tests/it/project/layering.rs`, without exceptions):
//
// - `host` runs in the trusted process, `child` in the sealed one, and `wire` is their protocol. `host` and `child`
//   import `wire` and the shared types, never each other: all that the host knows of a child arrived in a frame.
// - The other modules are types and limits for all platforms. They import only each other.
// - `dumpable` is a layer that the host applies to itself, and a child to itself, so both import it.
// - `confine` is what a process applies to itself before it becomes a program of the user. It is no layer of the seal.
// - `elsewhere` replaces `host`, `child` and `confine` on other platforms than Linux.
//
// No modules import each other in a circle; a file and its folder count as one module. The one exception is
// `host/spawner`: a process and the zygote that forked it own each other, because only the zygote can reap it.

#![cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only Linux uses the limits"))]

mod clock;
mod error;
mod job;
mod layer;
mod limits;
mod outcome;
mod repeatable;
mod self_test;
mod stats;
mod tool;

#[cfg(target_os = "linux")]
mod child;
#[cfg(target_os = "linux")]
mod confine;
#[cfg(target_os = "linux")]
mod dumpable;
#[cfg(not(target_os = "linux"))]
mod elsewhere;
#[cfg(target_os = "linux")]
mod host;
#[cfg(target_os = "linux")]
mod wire;

#[cfg(target_os = "linux")]
pub use child::{child_main_if_requested, marks_child};
#[cfg(target_os = "linux")]
pub use confine::{Bounds, Confinement, Handover, Network, PROXY_PORT};
#[cfg(not(target_os = "linux"))]
pub use elsewhere::{
    Bounds, Confinement, Handover, JobPool, Network, PROXY_PORT, Pool, child_main_if_requested,
    give_up_tracing, keep_private, marks_child, self_test, take_variable,
};
#[cfg(target_os = "linux")]
pub use host::{JobPool, Pool, give_up_tracing, keep_private, self_test, take_variable};

pub use clock::{WallClock, WallPause};
pub use error::SandboxError;
pub use job::{Job, JobFailure, JobLimits};
pub use layer::{LayerReport, LayerState};
pub use limits::{Limits, PoolConfig};
pub use outcome::{ConsoleLine, Failure, FailureKind, Outcome, Program};
pub use repeatable::{AnswerOrder, NotMade, ProgramClock, Repeatable, Seed};
pub use self_test::{CallReport, SelfTest};
pub use stats::PoolStats;
pub use tool::{CallError, ToolCall, ToolCaller};
