//! The one decision about every call, and how it is asked for.

pub mod permissions;
pub mod trust;
