//! The gateway: its address, its API key, and requests to it.

pub(crate) mod cloud;
pub(crate) mod keys;
