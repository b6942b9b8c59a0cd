//! What both PML programs do with programs and with MCP servers.
//!
//! [`failure`] turns what ended a program into an error for its caller. [`mcp_server`] is what both answer over MCP, and
//! [`mcp_client`] is the client side of MCP over HTTP. Responses are [budgeted](Budget) before they are parsed, because
//! a parsed response takes many times the memory of its bytes.
//!
//! The crate has no database, serves no HTTP, writes to no terminal and decides nothing about permission.

mod budget;
pub mod failure;
pub mod mcp_client;
pub mod mcp_server;
pub mod mcp_version;

pub use budget::{Budget, NotKept, UNBUDGETED, Values, gather};
