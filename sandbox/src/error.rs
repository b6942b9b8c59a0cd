//! The error of this crate: why a pool could not be created.

/// Why a pool could not be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SandboxError {
    /// This system has no way to seal a child.
    #[error("programs can be sandboxed only on Linux; run this on such a system")]
    PlatformUnsupported,
    /// The pool was configured with zero workers.
    #[error("a pool needs at least one worker")]
    NoWorkers,
    /// No child could be sealed.
    #[error("no sealed child could be started: {0}")]
    Unavailable(String),
}
