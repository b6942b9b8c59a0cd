//! What one run has used of its policy's limits.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use protocol::ToolId;

use super::Policy;
use super::limits::Limit;

/// The policy of one run, which does not change while it runs, and what the run has used of its limits.
///
/// The default is the built-in policy.
#[derive(Debug, Default)]
pub(crate) struct PolicyOfRun {
    policy: Arc<Policy>,
    used: Mutex<Used>,
}

#[derive(Debug, Default)]
struct Used {
    /// The calls that each limit has counted, in the order of the policies.
    calls: Vec<u64>,
    /// The bytes that were written.
    written: u64,
}

/// Bytes that a write takes from the limit of the run. They are returned unless the write succeeds.
#[derive(Debug)]
pub(crate) struct ReservedBytes<'a> {
    of: &'a PolicyOfRun,
    bytes: u64,
}

impl PolicyOfRun {
    /// Creates the policy of a run that has used nothing.
    pub(crate) fn new(policy: Arc<Policy>) -> Self {
        Self { policy, used: Mutex::default() }
    }

    /// Returns the same policy for a run that has used nothing.
    pub(crate) fn unused(&self) -> Self {
        Self::new(Arc::clone(&self.policy))
    }

    /// Returns the policy.
    pub(crate) fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Counts a call.
    ///
    /// # Errors
    /// Returns which limit is reached. Nothing is counted then.
    pub(crate) fn count_call(&self, tool: &ToolId) -> Result<(), String> {
        let limits = self.policy.rules();
        let limits = limits.flat_map(|(rules, source)| {
            rules.calls.iter().map(move |(pattern, limit)| (pattern, *limit, source))
        });
        let mut used = self.used();
        let mut counted = Vec::new();
        for (place, (pattern, limit, source)) in limits.enumerate() {
            if used.calls.len() <= place {
                used.calls.push(0);
            }
            // As a denial does, a limit covers a tool in every spelling.
            if !pattern.restricts(tool) {
                continue;
            }
            if used.calls[place] >= limit {
                return Err(format!(
                    "{} allows {limit} calls of `{pattern}` in a run",
                    source.named("calls")
                ));
            }
            counted.push(place);
        }
        counted.into_iter().for_each(|place| used.calls[place] += 1);
        Ok(())
    }

    /// Takes the bytes of a write from the limits.
    ///
    /// # Errors
    /// Returns which limit would be exceeded.
    pub(crate) fn reserve_bytes(&self, bytes: u64) -> Result<ReservedBytes<'_>, String> {
        self.check_size(bytes)?;
        let limit = self.policy.write_total_limit();
        let mut used = self.used();
        let total = used.written.saturating_add(bytes);
        if let Some(Limit { value, named }) = limit.filter(|limit| total > limit.value) {
            return Err(format!(
                "the run has written {} bytes, and {named} is {value}",
                used.written
            ));
        }
        used.written = total;
        Ok(ReservedBytes { of: self, bytes })
    }

    /// Checks the size of one file that is about to be written.
    ///
    /// # Errors
    /// Returns that it is too large.
    pub(crate) fn check_size(&self, bytes: u64) -> Result<(), String> {
        match self.policy.write_limit() {
            Some(Limit { value, named }) if bytes > value => {
                Err(format!("the content has {bytes} bytes, and {named} is {value}"))
            }
            _ => Ok(()),
        }
    }

    fn used(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReservedBytes<'_> {
    /// Keeps the bytes counted, because they were written.
    pub(crate) fn keep(mut self) {
        self.bytes = 0;
    }
}

impl Drop for ReservedBytes<'_> {
    fn drop(&mut self) {
        let mut used = self.of.used();
        used.written = used.written.saturating_sub(self.bytes);
    }
}
