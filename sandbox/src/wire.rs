//! The protocol between host and child: start arguments, requests to a zygote, and the frames of a run.

pub(crate) mod control;
pub(crate) mod frame;
pub(crate) mod inbox;
pub(crate) mod json;
pub(crate) mod probe;
pub(crate) mod start;
