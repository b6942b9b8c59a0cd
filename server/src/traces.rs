//! Traces: what the calls of runs were, as clients tell it and as the gateway itself sees it.

pub(crate) mod check;
pub(crate) mod maintenance;
pub(crate) mod recorder;
pub(crate) mod run_log;
