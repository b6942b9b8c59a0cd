//! What a caller may use of the gateway, and how much at a time.
//!
//! Every limit belongs to a tenant, a key or an address, so that one of them cannot take everything from the others.

pub(crate) mod exchanges;
pub(crate) mod limits;
pub(crate) mod memory;
pub(crate) mod turns;
