//! The progress of a request, for an agent that subscribed to it.

use std::pin::pin;
use std::time::Duration;

use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::{Peer, RoleServer};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};

/// The interval of notifications while no call ends.
const BEAT: Duration = Duration::from_secs(5);

tokio::task_local! {
    /// Counts the tool calls that have ended in the request of this task, if there is a subscriber.
    static ENDED: watch::Sender<u64>;
}

/// Reports that a tool call has ended in the request of this task.
pub(crate) fn call_ended() {
    // Commands on the terminal have no subscriber.
    let _ = ENDED.try_with(|calls| calls.send_modify(|ended| *ended += 1));
}

/// Waits for the answer to a request, and notifies its agent whenever a tool call ends, and every few seconds.
///
/// `progress` must increase, so it is the elapsed time in seconds. The total is unknown.
pub(crate) async fn tell<T>(
    peer: &Peer<RoleServer>,
    token: ProgressToken,
    answer: impl Future<Output = T>,
) -> T {
    let started = Instant::now();
    let (sender, mut calls) = watch::channel(0);
    let mut beat = tokio::time::interval_at(started + BEAT, BEAT);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut answer = pin!(ENDED.scope(sender, answer));
    let mut said = 0;
    loop {
        let mut last = None;
        tokio::select! {
            biased;
            answer = &mut answer => last = Some(answer),
            Ok(()) = calls.changed() => beat.reset(),
            _ = beat.tick() => {}
        }
        let ended = *calls.borrow_and_update();
        // A call that ended just before the answer is reported as well.
        if last.is_none() || ended > said {
            say(peer, &token, started, ended).await;
            said = ended;
        }
        if let Some(answer) = last {
            return answer;
        }
    }
}

async fn say(peer: &Peer<RoleServer>, token: &ProgressToken, started: Instant, ended: u64) {
    let calls = if ended == 1 { "tool call" } else { "tool calls" };
    let mut told = ProgressNotificationParam::new(token.clone(), started.elapsed().as_secs_f64());
    told.message = Some(format!("{ended} {calls} finished"));
    if let Err(error) = peer.notify_progress(told).await {
        tracing::debug!(%error, "Could not send the progress of a request");
    }
}
