//! Limits on the use of the gateway: requests, memory, programs, proxied messages.
//!
//! Every limit applies per tenant, key or address, so that one of them cannot use up the capacity of all others.

pub(crate) mod exchanges;
pub(crate) mod limits;
pub(crate) mod memory;
pub(crate) mod queue;
