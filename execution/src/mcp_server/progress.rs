//! Progress notifications for a request.

use std::pin::pin;
use std::time::Duration;

use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::{Peer, RoleServer};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};

/// The interval between notifications while no call ends.
const BEAT: Duration = Duration::from_secs(5);

/// Waits for the answer to a request, and notifies its client whenever a tool call ends, and at least every 5 seconds.
/// `calls` is the number of calls that have ended.
///
/// `progress` must increase, so it is the elapsed time in seconds. The total is unknown.
pub async fn notify<T>(
    peer: &Peer<RoleServer>,
    token: ProgressToken,
    mut calls: watch::Receiver<u64>,
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
            Ok(()) = calls.changed() => beat.reset(),
            _ = beat.tick() => {}
        }
        // Also marks the number as seen, so that `changed` does not report it again.
        let ended = *calls.borrow_and_update();
        // A call that ended just before the answer is reported as well.
        if last.is_none() || ended > notified {
            notify_once(peer, &token, started, ended).await;
            notified = ended;
        }
        if let Some(answer) = last {
            return answer;
        }
    }
}

async fn notify_once(peer: &Peer<RoleServer>, token: &ProgressToken, started: Instant, ended: u64) {
    let calls = if ended == 1 { "tool call" } else { "tool calls" };
    let mut progress =
        ProgressNotificationParam::new(token.clone(), started.elapsed().as_secs_f64());
    progress.message = Some(format!("{ended} {calls} finished"));
    // The answer is what matters, so a notification that fails is only logged.
    if let Err(error) = peer.notify_progress(progress).await {
        tracing::debug!(%error, "Could not send the progress of a request");
    }
}
