//! `/mcp/proxy/{server}`: the pass-through proxy to one server.

mod keys;
pub(crate) mod messages;
mod refusals;
mod streams;
