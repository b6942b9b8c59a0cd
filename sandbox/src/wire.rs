//! What the host and its children say to each other.

pub(crate) mod control;
pub(crate) mod frame;
pub(crate) mod inbox;
pub(crate) mod json;
pub(crate) mod probe;
pub(crate) mod start;
