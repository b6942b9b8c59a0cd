//! Identical calls that wait at the same time. They form one question, which states their number.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use protocol::{Integrity, ToolId};
use serde_json::Value;

use crate::consent::question::Channel;
use crate::workspace::touched::Touched;

/// How long to wait for further identical calls before the user is asked.
const SETTLING: Duration = Duration::from_millis(30);

/// The maximum number of such waits.
const SETTLING_ROUNDS: usize = 20;

/// What identical calls have in common: the tool, the capabilities that call it, and a hash of the arguments and of the
/// places that they lead to.
type CallKey = (ToolId, Vec<ToolId>, Integrity);

/// The identical calls of a run.
#[derive(Default)]
pub(crate) struct IdenticalCalls(Mutex<HashMap<CallKey, CallGroup>>);

#[derive(Default)]
struct CallGroup {
    /// The number of waiting calls.
    waiting: u64,
    /// The channel of the answer that allowed some of them, and how many of those have not started.
    approved: Option<(Channel, u64)>,
}

/// A call that waits for the answer to its question.
pub(crate) struct WaitingCall<'a> {
    calls: &'a IdenticalCalls,
    key: CallKey,
}

impl IdenticalCalls {
    /// Adds a call to its group.
    pub(crate) fn join(
        &self,
        tool: &ToolId,
        through: &[ToolId],
        arguments: &Value,
        touched: &Touched,
    ) -> WaitingCall<'_> {
        // The places belong to the key, too: a link may change between two calls with equal arguments,
        // and the answer is about the places that the user saw.
        let arguments = Integrity::of(format!("{touched:?}{arguments}").as_bytes());
        let key = (tool.clone(), through.to_vec(), arguments);
        self.groups().entry(key.clone()).or_default().waiting += 1;
        WaitingCall { calls: self, key }
    }

    fn groups(&self) -> MutexGuard<'_, HashMap<CallKey, CallGroup>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WaitingCall<'_> {
    /// Takes one of the remaining approvals of the group, if there is one; returns the channel of the answer.
    pub(crate) fn take_approval(&self) -> Option<Channel> {
        let mut groups = self.calls.groups();
        let (by, left) = groups.get_mut(&self.key)?.approved.as_mut()?;
        *left = left.checked_sub(1)?;
        Some(*by)
    }

    /// Allows this many other calls of the group.
    pub(crate) fn allow(&self, others: u64, by: Channel) {
        if let Some(group) = self.calls.groups().get_mut(&self.key) {
            group.approved = Some((by, others));
        }
    }

    /// Waits until no further identical calls arrive, and returns how many wait. Calls that a program starts
    /// concurrently arrive one after the other.
    pub(crate) async fn settle(&self) -> u64 {
        let count = || self.calls.groups().get(&self.key).map_or(1, |group| group.waiting);
        let mut known = count();
        // Bounded, because a program can start another identical call in each round.
        for _ in 0..SETTLING_ROUNDS {
            tokio::time::sleep(SETTLING).await;
            let now = count();
            if now == known {
                break;
            }
            known = now;
        }
        known
    }
}

impl Drop for WaitingCall<'_> {
    fn drop(&mut self) {
        let mut groups = self.calls.groups();
        let Some(group) = groups.get_mut(&self.key) else { return };
        group.waiting -= 1;
        if group.waiting == 0 {
            // Unused approvals expire with the group: the user has not seen later calls.
            groups.remove(&self.key);
        }
    }
}
