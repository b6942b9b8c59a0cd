//! What both PML programs do with programs and with MCP servers.
//!
//! [`mcp_client`] is the client side of MCP over HTTP. Responses are [budgeted](Budget) before they are parsed, because
//! a parsed response takes many times the memory of its bytes.
//!
//! The crate has no database, serves no HTTP, writes to no terminal and decides nothing about permission.

mod budget;
pub mod mcp_client;

pub use budget::{Budget, NotKept, UNBUDGETED, Values, gather};
