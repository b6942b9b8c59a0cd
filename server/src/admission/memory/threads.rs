//! The threads that work on large messages.
//!
//! Parsing a large message, answering it and freeing it keeps a processor busy for up to a tenth of a second. On the
//! threads that serve requests, everybody else would wait for that long.

use std::io;

use tokio::runtime::{Builder, Runtime};
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument as _;

/// How far these threads stand behind those that serve, in steps of `nice`.
const NICENESS: i32 = 10;
/// How many threads there are beyond half of the processors. Connections to the database and to servers that are opened
/// here are heard by these threads for everybody, so one must be free while two tenants' largest messages are parsed.
const SPARE: usize = 2;
/// How many calls of native tools, and look-ups of host names, such messages may have under way on threads of their own. One
/// alone could be held up by the slowest tool of another tenant.
const BLOCKING: usize = 8;

/// A runtime beside the one that serves.
#[derive(Debug)]
pub(super) struct Threads(Option<Runtime>);

impl Threads {
    /// Starts them.
    ///
    /// # Errors
    /// Returns an error when the system gives no thread.
    pub(super) fn start() -> io::Result<Self> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let runtime = Builder::new_multi_thread()
            .worker_threads(processors / 2 + SPARE)
            .max_blocking_threads(BLOCKING)
            .thread_name("large-messages")
            .on_thread_start(|| {
                // Of the calling thread alone, as Linux has it. Without it the threads share the processors evenly.
                let _ = rustix::process::setpriority_process(None, NICENESS);
            })
            .enable_all()
            .build()?;
        Ok(Self(Some(runtime)))
    }

    /// Runs work on these threads, until it is done or the caller does not wait for it any longer.
    pub(super) async fn run<F>(&self, work: F) -> F::Output
    where
        F: Future<Output: Send> + Send + 'static,
    {
        let runtime = self.0.as_ref().expect("it is taken only when this is dropped");
        match AbortOnDropHandle::new(runtime.spawn(work.in_current_span())).await {
            Ok(output) => output,
            Err(ended) => match ended.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The gateway stops.
                Err(_) => std::future::pending().await,
            },
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // A runtime must not be waited for where others run.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
