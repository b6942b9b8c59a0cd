//! The one decision about every call, and how it is asked for.

pub mod approvals;
mod look_alike;
pub mod permissions;
pub mod trust;
