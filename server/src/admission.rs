//! What a caller may use of the gateway, and how much at a time.
//!
//! Every limit belongs to a tenant, a key or an address, so that one of them cannot take everything from the others.

pub mod exchanges;
pub mod limits;
pub mod memory;
pub mod turns;
