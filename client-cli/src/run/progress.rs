//! The progress of a request, for an agent that subscribed to it.

use rmcp::model::ProgressToken;
use rmcp::service::{Peer, RoleServer};
use tokio::sync::watch;

tokio::task_local! {
    /// Counts the tool calls that have ended in the request of this task, if there is a subscriber.
    static ENDED: watch::Sender<u64>;
}

/// Reports that a tool call has ended in the request of this task.
pub(crate) fn call_ended() {
    // Commands on the terminal have no subscriber.
    let _ = ENDED.try_with(|calls| calls.send_modify(|ended| *ended += 1));
}

/// Waits for the answer to a request, and notifies its agent of each call that ends in the meantime.
pub(crate) async fn notify<T>(
    peer: &Peer<RoleServer>,
    token: ProgressToken,
    answer: impl Future<Output = T>,
) -> T {
    let (sender, calls) = watch::channel(0);
    let answer = Box::pin(ENDED.scope(sender, answer));
    execution::mcp_server::progress::notify(peer, token, calls, answer).await
}
