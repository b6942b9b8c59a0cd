//! Records: the audit log, executions, their traces, and idempotent requests.

pub(crate) mod audit;
pub(crate) mod executions;
pub(crate) mod expiry;
pub(crate) mod idempotency;
pub(crate) mod traces;
