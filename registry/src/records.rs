//! Records: the audit log, executions, their traces, tools of users' own servers, and idempotent requests.

pub(crate) mod audit;
pub(crate) mod executions;
pub(crate) mod expiry;
pub(crate) mod idempotency;
pub(crate) mod synced_tools;
pub(crate) mod traces;
