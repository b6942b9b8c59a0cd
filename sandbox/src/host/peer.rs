//! Waits that programs and jobs share: for the report of a child's seal, and for its CPU time.

use std::time::{Duration, Instant};

use crate::host::child_socket::ChildSocket;
use crate::layer::LayerReport;
use crate::wire::frame::{self, FromChild};
use crate::wire::inbox::Inbox;

/// How long a child may take to start and seal itself.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest `ready` frame.
const READY_BYTES: usize = 64 * 1024;

/// Reads a child's first frame: its seal holds, or the reason why not.
pub(crate) async fn await_ready(
    socket: &ChildSocket,
    inbox: &mut Inbox,
) -> Result<Vec<LayerReport>, String> {
    let deadline = Instant::now() + START_TIMEOUT;
    loop {
        if let Some(body) = inbox.next(READY_BYTES)? {
            return match frame::read_from_child(body)? {
                FromChild::Ready { layers } => Ok(layers),
                FromChild::Unavailable { message } => Err(message),
                _ => Err("the child sent a message before it reported its seal".to_owned()),
            };
        }
        let left = deadline.saturating_duration_since(Instant::now());
        match tokio::time::timeout(left, socket.receive(inbox)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return Err("the child died before it was sealed".to_owned()),
            Err(_) => return Err("the child did not seal itself in time".to_owned()),
        }
    }
}

/// Returns once `amount` of CPU time has been used since `before`. A child has one busy thread, which needs at least as
/// much time as is left of the amount, so this sleeps that long between two checks.
pub(crate) async fn cpu_reaches(
    cpu: &impl Fn() -> Option<Duration>,
    before: Duration,
    amount: Duration,
) {
    loop {
        // A child that cannot be measured has died, and its socket reports that.
        let Some(now) = cpu() else { return std::future::pending().await };
        let left = amount.saturating_sub(now.saturating_sub(before));
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left).await;
    }
}
