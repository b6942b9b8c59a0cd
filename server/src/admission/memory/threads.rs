//! The threads for large messages.
//!
//! Parsing, answering and freeing a large message keeps a processor busy for up to a tenth of a second. On the threads
//! that serve requests, all other requests would wait for that long.

use std::io;

use tokio::runtime::{Builder, Runtime};
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument as _;

/// The `nice` value of these threads relative to those that serve requests.
const NICENESS: i32 = 10;
/// The number of threads in addition to half of the processors. A connection to the database or to a server that is
/// opened on this runtime is driven by it, even when other requests use it later. So one thread must be free while two
/// tenants' largest messages are parsed.
const SPARE: usize = 2;
/// The maximum number of blocking tasks of these messages: native tools, and look-ups of host names. With only one, a
/// tenant would wait for the slowest tool of another.
const BLOCKING: usize = 8;

/// A runtime in addition to the one that serves requests.
#[derive(Debug)]
pub(super) struct Threads(Option<Runtime>);

impl Threads {
    /// Starts the threads.
    ///
    /// # Errors
    /// Returns an error when the system cannot create a thread.
    pub(super) fn start() -> io::Result<Self> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let runtime = Builder::new_multi_thread()
            .worker_threads(processors / 2 + SPARE)
            .max_blocking_threads(BLOCKING)
            .thread_name("large-messages")
            .on_thread_start(|| {
                // On Linux, this applies to the calling thread only. If it fails, the threads compete as equals.
                let _ = rustix::process::setpriority_process(None, NICENESS);
            })
            .enable_all()
            .build()?;
        Ok(Self(Some(runtime)))
    }

    /// Runs work on these threads. It is aborted when the returned future is dropped.
    pub(super) async fn run<F>(&self, work: F) -> F::Output
    where
        F: Future<Output: Send> + Send + 'static,
    {
        let runtime = self.0.as_ref().expect("it is taken only when this is dropped");
        // In the request's span, so that log lines of the work have the request's id.
        match AbortOnDropHandle::new(runtime.spawn(work.in_current_span())).await {
            Ok(output) => output,
            Err(ended) => match ended.try_into_panic() {
                // Continued here, where the layer that answers panics catches it.
                Ok(panic) => std::panic::resume_unwind(panic),
                // Aborted, because the gateway is stopping: no answer is needed.
                Err(_) => std::future::pending().await,
            },
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // A normal drop blocks until all tasks have ended, which panics within another runtime.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
