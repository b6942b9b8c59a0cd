//! What host and child must agree on: the arguments of a start, the requests to a zygote, and the frames of a run.

pub(crate) mod control;
pub(crate) mod frame;
pub(crate) mod inbox;
pub(crate) mod json;
pub(crate) mod probe;
pub(crate) mod start;
