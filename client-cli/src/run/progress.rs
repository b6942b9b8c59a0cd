//! The progress of a request, for an agent that subscribed to it.

use std::pin::pin;

use execution::mcp_server::progress::{self, Progress};
use rmcp::model::ProgressToken;
use rmcp::service::{Peer, RoleServer};
use tokio::sync::watch;

use crate::app::PackageActivity;

tokio::task_local! {
    /// The progress of the request of this task, if there is a subscriber.
    static PROGRESS: watch::Sender<Progress>;
}

/// Reports that a tool call has ended in the request of this task.
pub(crate) fn call_ended() {
    // Commands on the terminal have no subscriber.
    let _ = PROGRESS.try_with(|it| it.send_modify(|progress| progress.ended += 1));
}

/// Waits for the answer to a request, and notifies its agent of each call that ends in the meantime, and of packages that
/// are installed, for this request or another.
pub(crate) async fn notify<T>(
    peer: &Peer<RoleServer>,
    token: ProgressToken,
    mut activity: watch::Receiver<PackageActivity>,
    answer: impl Future<Output = T>,
) -> T {
    let (sender, changes) = watch::channel(Progress::default());
    let answer = PROGRESS.scope(sender.clone(), answer);
    let answer = Box::pin(async move {
        let mut answer = pin!(answer);
        loop {
            tokio::select! {
                biased;
                answer = &mut answer => return answer,
                // Without a sender this never matches.
                Ok(()) = activity.changed() => {
                    let waits_for = match &*activity.borrow_and_update() {
                        PackageActivity::Installs(package) => Some(format!("installing {package}")),
                        PackageActivity::None | PackageActivity::Installed { .. } => None,
                    };
                    sender.send_modify(|progress| progress.waits_for = waits_for);
                }
            }
        }
    });
    progress::notify(peer, token, changes, answer).await
}
