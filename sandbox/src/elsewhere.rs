//! The other side of the wall: a system that cannot contain a program runs none.

use std::convert::Infallible;
use std::ffi::{CStr, OsString};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::error::SandboxError;
use crate::job::{Job, JobFailure, JobLimits};
use crate::layer::LayerReport;
use crate::limits::{Limits, PoolConfig};
use crate::outcome::{Outcome, Program};
use crate::self_test::SelfTest;
use crate::tool::ToolCaller;

/// Does nothing: no process is ever started as a child here.
pub fn child_main_if_requested(_jobs: &[Job]) {}

/// No process is ever a child here.
pub fn marks_child(_first_argument: &[u8]) -> bool {
    false
}

/// Does nothing: process privacy is specific to each system.
///
/// # Errors
/// Never fails.
pub fn keep_private() -> Result<(), String> {
    Ok(())
}

/// Does nothing: this platform has no such right.
pub fn give_up_tracing() {}

/// Reads the variable and leaves it where it is.
pub fn take_variable(name: &CStr) -> Option<OsString> {
    std::env::var_os(name.to_str().ok()?)
}

/// Would run programs; cannot be made here.
#[derive(Debug)]
pub struct Pool(Infallible);

impl Pool {
    /// Refuses.
    pub fn new(_config: PoolConfig) -> Result<Pool, SandboxError> {
        Err(SandboxError::PlatformUnsupported)
    }

    /// Cannot be reached.
    pub async fn run(
        &self,
        _program: Program,
        _limits: &Limits,
        _tools: Arc<dyn ToolCaller>,
        _cancel: CancellationToken,
    ) -> Outcome {
        match self.0 {}
    }

    /// Cannot be reached.
    pub async fn layers(&self) -> Result<Vec<LayerReport>, SandboxError> {
        match self.0 {}
    }
}

/// Would run jobs; cannot be made here.
#[derive(Debug)]
pub struct JobPool(Infallible);

impl JobPool {
    /// Refuses.
    pub fn new(_job: Job, _limits: JobLimits, _workers: usize) -> Result<JobPool, SandboxError> {
        Err(SandboxError::PlatformUnsupported)
    }

    /// Cannot be reached.
    pub async fn run(&self, _input: Vec<u8>) -> Result<Vec<u8>, JobFailure> {
        match self.0 {}
    }
}

/// Reports that there is nothing to test.
///
/// # Errors
/// Always returns [`SandboxError::PlatformUnsupported`].
pub async fn self_test() -> Result<SelfTest, SandboxError> {
    Err(SandboxError::PlatformUnsupported)
}
