//! What one run has used of its policy's limits.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use protocol::ToolId;

use super::{Policy, named};

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
    /// The calls that each limit has counted, in the order of the policy.
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
        let Some(rules) = &self.policy.rules else { return Ok(()) };
        let mut used = self.used();
        used.calls.resize(rules.calls.len(), 0);
        let mut counted = Vec::new();
        for (place, (pattern, limit)) in rules.calls.iter().enumerate() {
            // As a denial does, a limit covers a tool in every spelling.
            if !pattern.restricts(tool) {
                continue;
            }
            if used.calls[place] >= *limit {
                return Err(format!(
                    "{} allows {limit} calls of `{pattern}` in a run",
                    named("calls")
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
        let access = self.policy.rules.as_ref().and_then(|rules| rules.write.as_ref());
        let mut used = self.used();
        let total = used.written.saturating_add(bytes);
        if let Some(limit) = access.and_then(|access| access.max_total_bytes)
            && total > limit
        {
            return Err(format!(
                "the run has written {} bytes, and {} is {limit}",
                used.written,
                named("filesystem.write.max_total_bytes")
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
            Some(limit) if bytes > limit => Err(format!(
                "the content has {bytes} bytes, and {} is {limit}",
                named("filesystem.write.max_bytes")
            )),
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
