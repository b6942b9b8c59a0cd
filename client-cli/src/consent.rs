//! The only decision about every call, and how approval is requested.

pub mod approvals;
mod look_alike;
pub mod permissions;
pub mod trust;
