//! The gateway: its address, the key for it, and what it is asked.

pub(crate) mod cloud;
pub(crate) mod keys;
