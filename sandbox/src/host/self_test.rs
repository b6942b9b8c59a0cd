//! Starts sealed children that try forbidden system calls, and reports the exit status of each.

use crate::error::SandboxError;
use crate::host::pool::Pool;
use crate::host::spawner::ExitStatus;
use crate::limits::PoolConfig;
use crate::self_test::{CallReport, SelfTest};
use crate::wire::probe::{EXIT_NOT_BLOCKED, PROBES};

/// Tests the seal: one sealed child tries each forbidden system call.
///
/// # Errors
/// Returns [`SandboxError::Unavailable`] when no child can be sealed, or when a child without a probe does not
/// exit as expected: then the test would be meaningless.
pub async fn self_test() -> Result<SelfTest, SandboxError> {
    let pool = Pool::new(PoolConfig { warm: 2, max_running: 1, ..PoolConfig::default() })?;
    let layers = pool.layers().await?;
    let control = pool.probe(PROBES.len()).await?;
    if control != ExitStatus::Code(EXIT_NOT_BLOCKED) {
        let message = format!("a child without a task failed: {}", describe(control));
        return Err(SandboxError::Unavailable(message));
    }
    let mut calls = Vec::with_capacity(PROBES.len());
    for (index, probe) in PROBES.iter().enumerate() {
        let ended = pool.probe(index).await?;
        calls.push(CallReport {
            name: probe.name.to_owned(),
            refused: ended == ExitStatus::Signal(libc::SIGSYS),
            saw: describe(ended),
        });
    }
    Ok(SelfTest { layers, calls })
}

fn describe(status: ExitStatus) -> String {
    match status {
        ExitStatus::Signal(libc::SIGSYS) => "the kernel killed the child (SIGSYS)".to_owned(),
        ExitStatus::Signal(signal) => format!("the child died of signal {signal}"),
        ExitStatus::Code(EXIT_NOT_BLOCKED) => "the system call was not blocked".to_owned(),
        ExitStatus::Code(code) => format!("the child exited with code {code}"),
        ExitStatus::Unknown => "the child's exit status is unknown".to_owned(),
    }
}
