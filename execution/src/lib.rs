//! What both PML programs do with programs and with MCP servers.
//!
//! The first of it is the client side of MCP over HTTP: [`mcp_client`] calls a server whose answers are
//! [budgeted](Budget) before they are parsed, because a parsed answer takes many times the memory of its bytes.
//!
//! It has no database, serves no HTTP, writes to no terminal, and decides nothing about permission.

mod budget;
pub mod mcp_client;

pub use budget::{Budget, NotKept, UNBUDGETED, Values, gather};
