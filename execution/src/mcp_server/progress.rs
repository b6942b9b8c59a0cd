//! Progress notifications for a request.

use std::pin::pin;
use std::time::Duration;

use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::{Peer, RoleServer};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};

/// The interval between notifications while no call ends.
const BEAT: Duration = Duration::from_secs(5);

/// What is known about a request that has no answer yet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    /// The number of its tool calls that have ended.
    pub ended: u64,
    /// What it waits for before a call can begin, such as `installing a package`.
    pub waits_for: Option<String>,
}

/// Waits for the answer to a request, and notifies its client whenever the progress changes, and at least every 5 seconds.
///
/// `progress` must increase, so it is the elapsed time in seconds. The total is unknown.
pub async fn notify<T>(
    peer: &Peer<RoleServer>,
    token: ProgressToken,
    mut progress: watch::Receiver<Progress>,
    answer: impl Future<Output = T>,
) -> T {
    let started = Instant::now();
    let mut beat = tokio::time::interval_at(started + BEAT, BEAT);
    // Missed beats are not made up for: several notifications at once tell the client no more.
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut answer = pin!(answer);
    let mut notified = 0;
    loop {
        let mut last = None;
        tokio::select! {
            // The answer comes first, because MCP permits no progress after it.
            biased;
            answer = &mut answer => last = Some(answer),
            // Without a sender, this never matches, and only the beat remains.
            Ok(()) = progress.changed() => beat.reset(),
            _ = beat.tick() => {}
        }
        // Also marks the number as seen, so that `changed` does not report it again.
        let now = progress.borrow_and_update().clone();
        // A call that ended just before the answer is reported as well.
        if last.is_none() || now.ended > notified {
            notify_once(peer, &token, started, &now).await;
            notified = now.ended;
        }
        if let Some(answer) = last {
            return answer;
        }
    }
}

async fn notify_once(
    peer: &Peer<RoleServer>,
    token: &ProgressToken,
    started: Instant,
    progress: &Progress,
) {
    let calls = if progress.ended == 1 { "tool call" } else { "tool calls" };
    let finished = format!("{} {calls} finished", progress.ended);
    let mut notification =
        ProgressNotificationParam::new(token.clone(), started.elapsed().as_secs_f64());
    notification.message = Some(match &progress.waits_for {
        Some(waits_for) => format!("{finished}; {waits_for}"),
        None => finished,
    });
    // The answer is what matters, so a notification that fails is only logged.
    if let Err(error) = peer.notify_progress(notification).await {
        tracing::debug!(%error, "Could not send the progress of a request");
    }
}
