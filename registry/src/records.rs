//! What is recorded: the audit log, executions, and requests that are done only once.

pub(crate) mod audit;
pub(crate) mod executions;
pub(crate) mod idempotency;
