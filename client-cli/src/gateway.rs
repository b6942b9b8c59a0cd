//! The gateway: its address, the API key or sign-in for it, and requests to it.

pub(crate) mod cloud;
pub(crate) mod keys;
pub(crate) mod oauth;
