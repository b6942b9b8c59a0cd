//! The gateway: its address, the key for it, and what it is asked.

pub mod cloud;
pub mod keys;
