//! Records: the audit log, executions, and idempotent requests.

pub(crate) mod audit;
pub(crate) mod executions;
pub(crate) mod idempotency;
