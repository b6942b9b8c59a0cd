//! Tests the seal on this machine, with sealed children that try forbidden system calls.

use std::fmt;

use serde::Serialize;

use crate::layer::{LayerReport, LayerState};

/// The results of a self-test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SelfTest {
    /// The layers, as a child found them.
    pub layers: Vec<LayerReport>,
    /// The forbidden system calls, each tried in a child that is sealed like any program's.
    pub calls: Vec<CallReport>,
}

/// The result of one forbidden system call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CallReport {
    /// The system call.
    pub name: String,
    /// Whether the kernel killed the child for it, as required.
    pub refused: bool,
    /// How the child ended, as text.
    pub saw: String,
}

impl SelfTest {
    /// Returns whether every mandatory layer holds and every call was refused.
    #[must_use]
    pub fn holds(&self) -> bool {
        // A mandatory layer that an older kernel supports only partially was requested as a whole.
        let broken =
            |layer: &LayerReport| layer.mandatory && matches!(layer.state, LayerState::Absent(_));
        !self.layers.is_empty()
            && !self.layers.iter().any(broken)
            && !self.calls.is_empty()
            && self.calls.iter().all(|call| call.refused)
    }
}

/// One line a layer and a call, and what follows from them.
impl fmt::Display for SelfTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for layer in &self.layers {
            let kind = if layer.mandatory { "mandatory" } else { "best effort" };
            let state = match &layer.state {
                LayerState::Holds => "holds".to_owned(),
                LayerState::Partial(why) => format!("holds partially ({why})"),
                LayerState::Absent(why) => format!("is absent ({why})"),
            };
            writeln!(f, "layer  {:<28} {state}, {kind}", layer.name)?;
        }
        for call in &self.calls {
            let state = if call.refused { "refused" } else { "NOT REFUSED" };
            writeln!(f, "call   {:<28} {state}: {}", call.name, call.saw)?;
        }
        let refused = self.calls.iter().filter(|call| call.refused).count();
        let verdict = if self.holds() { "The sandbox holds" } else { "THE SANDBOX DOES NOT HOLD" };
        writeln!(f, "{verdict}: {refused} of {} calls are refused.", self.calls.len())
    }
}

#[cfg(target_os = "linux")]
mod asking {
    use super::{CallReport, SelfTest};
    use crate::SandboxError;
    use crate::limits::PoolConfig;
    use crate::nursery::Ended;
    use crate::pool::Pool;
    use crate::probe::{EXIT_ANSWERED, PROBES};

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
}

#[cfg(target_os = "linux")]
pub use asking::self_test;

/// Reports that there is nothing to test.
///
/// # Errors
/// Always returns [`SandboxError::PlatformUnsupported`](crate::SandboxError::PlatformUnsupported).
#[cfg(not(target_os = "linux"))]
pub async fn self_test() -> Result<SelfTest, crate::SandboxError> {
    Err(crate::SandboxError::PlatformUnsupported)
}
