//! Starts sealed children that try forbidden system calls, and reports how each of them ended.

use crate::error::SandboxError;
use crate::host::pool::Pool;
use crate::host::spawner::Ended;
use crate::limits::PoolConfig;
use crate::self_test::{CallReport, SelfTest};
use crate::wire::probe::{EXIT_ANSWERED, PROBES};

/// Has sealed children ask for what they must not have, one child a question.
///
/// # Errors
/// Returns [`SandboxError::Unavailable`] when no child can be sealed, or when a child without a probe does not
/// exit as expected: then the test would be meaningless.
pub async fn self_test() -> Result<SelfTest, SandboxError> {
    let pool = Pool::new(PoolConfig { warm: 2, max_running: 1, ..PoolConfig::default() })?;
    let layers = pool.layers().await?;
    let control = pool.probe(PROBES.len()).await?;
    if control != Ended::Exit(EXIT_ANSWERED) {
        let message = format!("a child without a task failed: {}", told(control));
        return Err(SandboxError::Unavailable(message));
    }
    let mut calls = Vec::with_capacity(PROBES.len());
    for (index, probe) in PROBES.iter().enumerate() {
        let ended = pool.probe(index).await?;
        calls.push(CallReport {
            name: probe.name.to_owned(),
            refused: ended == Ended::Signal(libc::SIGSYS),
            saw: told(ended),
        });
    }
    Ok(SelfTest { layers, calls })
}

fn told(ended: Ended) -> String {
    match ended {
        Ended::Signal(libc::SIGSYS) => "the kernel killed the child (SIGSYS)".to_owned(),
        Ended::Signal(signal) => format!("the child died of signal {signal}"),
        Ended::Exit(EXIT_ANSWERED) => "the kernel gave an answer".to_owned(),
        Ended::Exit(code) => format!("the child exited with code {code}"),
        Ended::Unknown => "the child's exit status is unknown".to_owned(),
    }
}
