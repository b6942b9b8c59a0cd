//! The parts of program execution and MCP that the gateway and the CLI share.
//!
//! [`failure`] converts a program's failure to an error for its caller. [`mcp_server`] is the common part of both MCP
//! servers, and [`mcp_client`] is the client side of MCP over HTTP. [`addresses`] decides which addresses a URL may lead
//! to. [`trace_context`] reads the W3C trace context of a request and carries it on, and
//! [`spans`] exports what was done for it. Responses are
//! [budgeted](Budget) before they are parsed, because a parsed response takes many times the memory of its bytes.
//! [`trace_value()`] and [`sanitize()`] decide what a trace tells of a value, and [`sanitize_tool()`] what the gateway is
//! told of a tool that it does not have. [`processes`] supervises and confines programs of this machine, [`packages`]
//! installs those that MCP servers start from, and [`mcp_process`] runs such a server, sealed.
//!
//! The crate has no database, serves no HTTP except as the proxy of a sealed process, writes to no terminal and decides nothing about permission.

pub mod addresses;
mod budget;
pub mod connections;
pub mod failure;
pub mod files;
pub mod host_pattern;
pub mod mcp_client;
pub mod mcp_process;
pub mod mcp_server;
pub mod mcp_version;
pub mod packages;
pub mod processes;
mod sanitize;
pub mod spans;
pub mod trace_context;
mod trace_value;

pub use budget::{Budget, NotKept, UNBUDGETED, Values, gather};
pub use sanitize::{sanitize, sanitize_tool};
pub use trace_value::trace_value;
