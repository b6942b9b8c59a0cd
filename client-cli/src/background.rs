//! Work in the background that a running project asks for, and that is repeated until nothing of it is left.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use protocol::{ErrorBody, ErrorCode};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How long to wait before the first and the last attempts after a failure.
const WAITS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));

/// What an attempt has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Left {
    /// Nothing.
    Nothing,
    /// Some work, which may succeed later.
    Some,
    /// Some work, which this gateway takes from nobody or not with this key: there is no other attempt until one is
    /// asked for.
    Refused,
}

impl Left {
    /// Returns what a failed request to the gateway leaves.
    pub(crate) fn after(error: &ErrorBody) -> Self {
        match error.error_code {
            ErrorCode::GatewayUnreachable
            | ErrorCode::DatabaseUnavailable
            | ErrorCode::Busy
            | ErrorCode::RateLimited
            | ErrorCode::Internal => Self::Some,
            // For example a gateway of an earlier version, or a key without the right to run programs.
            _ => Self::Refused,
        }
    }
}

/// Work of which something may be left.
pub(crate) trait Work: Send + Sync + 'static {
    /// Does what there is to do.
    fn attempt(self: &Arc<Self>) -> impl Future<Output = Left> + Send;
}

/// Does some work in the background whenever it is asked for.
pub(crate) struct Background<W> {
    work: Arc<W>,
    /// How many attempts were asked for.
    asked: watch::Sender<u64>,
    /// How many of them have been made.
    made: watch::Sender<u64>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl<W: Work> Background<W> {
    /// Prepares the work; nothing is done before it is asked for.
    pub(crate) fn new(work: W) -> Self {
        Self {
            work: Arc::new(work),
            asked: watch::Sender::new(0),
            made: watch::Sender::new(0),
            task: Mutex::default(),
        }
    }

    /// Asks for an attempt.
    pub(crate) fn ask(&self) {
        self.asked.send_modify(|asked| *asked += 1);
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if task.is_none() {
            let (work, asked) = (Arc::clone(&self.work), self.asked.subscribe());
            *task = Some(tokio::spawn(work_on(work, asked, self.made.clone())));
        }
    }

    /// Waits for the attempts that were asked for, for at most `patience`, and ends the work.
    pub(crate) async fn finish(&self, patience: Duration) {
        let asked = *self.asked.borrow();
        let mut made = self.made.subscribe();
        let _ = tokio::time::timeout(patience, made.wait_for(|made| *made >= asked)).await;
        if let Some(task) = self.task.lock().unwrap_or_else(PoisonError::into_inner).take() {
            task.abort();
        }
    }
}

/// Makes an attempt whenever one is asked for, and repeats it until nothing is left.
async fn work_on<W: Work>(work: Arc<W>, mut asked: watch::Receiver<u64>, made: watch::Sender<u64>) {
    let mut wait = WAITS.0;
    loop {
        let round = *asked.borrow_and_update();
        let left = work.attempt().await;
        made.send_replace(round);
        match left {
            Left::Some => {
                tokio::select! {
                    () = tokio::time::sleep(wait) => wait = (wait * 2).min(WAITS.1),
                    changed = asked.changed() => if changed.is_err() { return },
                }
            }
            Left::Nothing | Left::Refused => {
                wait = WAITS.0;
                if asked.changed().await.is_err() {
                    return;
                }
            }
        }
    }
}

/// Does a part of the work that blocks.
///
/// # Errors
/// Returns the error of `work`, or that it panicked.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ErrorBody> + Send + 'static,
) -> Result<T, ErrorBody> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(ErrorBody::new(ErrorCode::Internal, error.to_string())))
}
