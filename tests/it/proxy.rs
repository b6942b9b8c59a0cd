//! `/mcp/proxy/{server}`: one server passed through.

mod keys;
pub(crate) mod messages;
mod streams;
