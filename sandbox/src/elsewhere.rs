//! Platforms other than Linux: they cannot contain a program, so every pool refuses to start.

use std::convert::Infallible;
use std::ffi::{CStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::error::SandboxError;
use crate::job::{Job, JobFailure, JobLimits};
use crate::layer::LayerReport;
use crate::limits::{Limits, PoolConfig};
use crate::outcome::{Outcome, Program};
use crate::self_test::SelfTest;
use crate::stats::PoolStats;
use crate::tool::ToolCaller;

/// Does nothing: no process is started as a child on this platform.
pub fn child_main_if_requested(_jobs: &[Job]) {}

/// Returns false: no process is a child on this platform.
pub fn marks_child(_first_argument: &[u8]) -> bool {
    false
}

/// Does nothing: the protection is implemented only for Linux.
///
/// # Errors
/// Never fails.
pub fn keep_private() -> Result<(), String> {
    Ok(())
}

/// Does nothing: this platform has no such right.
pub fn give_up_tracing() {}

/// Reads the variable without removing it.
pub fn take_variable(name: &CStr) -> Option<OsString> {
    std::env::var_os(name.to_str().ok()?)
}

/// Would confine a process; cannot on this platform.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Confinement {
    /// The files and folders that it may read and execute.
    pub read: Vec<PathBuf>,
    /// Those that it may also change.
    pub write: Vec<PathBuf>,
    /// What it may open connections to.
    pub network: Network,
    /// What it may use of the machine.
    pub bounds: Option<Bounds>,
}

/// Bounds on each process of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The memory that it can write, in bytes.
    pub memory: u64,
    /// Its CPU time, in seconds.
    pub cpu_seconds: u64,
    /// The size of a file that it writes, in bytes.
    pub file: u64,
    /// The number of its open files.
    pub descriptors: u64,
    /// The number of processes of the program together.
    pub processes: u32,
}

/// What a confined process could open connections to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Network {
    /// Nothing.
    #[default]
    None,
    /// Only a proxy.
    Proxied(PathBuf),
    /// Everything, over IP.
    All,
}

/// The port of the proxy.
pub const PROXY_PORT: u16 = 3128;

/// Would receive the socket of a proxy; cannot be created on this platform.
#[derive(Debug)]
pub struct Handover(Infallible);

impl Handover {
    /// Always fails.
    ///
    /// # Errors
    /// Returns that this platform cannot confine a process.
    pub fn new(_folder: &Path) -> std::io::Result<Self> {
        Err(std::io::Error::other("it requires Linux"))
    }

    /// Unreachable: there is no value of this type.
    pub fn path(&self) -> &Path {
        match self.0 {}
    }

    /// Unreachable: there is no value of this type.
    pub async fn receive(self) -> std::io::Result<std::net::TcpListener> {
        match self.0 {}
    }
}

impl Confinement {
    /// Always fails.
    ///
    /// # Errors
    /// Returns that this platform cannot confine a process.
    pub fn apply(&self) -> Result<(), String> {
        Self::check_support()
    }

    /// Always fails.
    ///
    /// # Errors
    /// Returns that this platform cannot confine a process.
    pub fn check_support() -> Result<(), String> {
        Err("it requires Linux".to_owned())
    }
}

/// Would run programs; cannot be created on this platform.
#[derive(Debug)]
pub struct Pool(Infallible);

impl Pool {
    /// Always fails.
    pub fn new(_config: PoolConfig) -> Result<Pool, SandboxError> {
        Err(SandboxError::PlatformUnsupported)
    }

    /// Unreachable: there is no value of this type.
    pub async fn run(
        &self,
        _program: Program,
        _limits: &Limits,
        _tools: Arc<dyn ToolCaller>,
        _cancel: CancellationToken,
    ) -> Outcome {
        match self.0 {}
    }

    /// Unreachable: there is no value of this type.
    pub fn stats(&self) -> PoolStats {
        match self.0 {}
    }

    /// Unreachable: there is no value of this type.
    pub async fn layers(&self) -> Result<Vec<LayerReport>, SandboxError> {
        match self.0 {}
    }
}

/// Would run jobs; cannot be created on this platform.
#[derive(Debug)]
pub struct JobPool(Infallible);

impl JobPool {
    /// Always fails.
    pub fn new(_job: Job, _limits: JobLimits, _workers: usize) -> Result<JobPool, SandboxError> {
        Err(SandboxError::PlatformUnsupported)
    }

    /// Unreachable: there is no value of this type.
    pub fn stats(&self) -> PoolStats {
        match self.0 {}
    }

    /// Unreachable: there is no value of this type.
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
