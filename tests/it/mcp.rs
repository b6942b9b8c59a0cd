//! Both programs as MCP servers: protocol, conformance and third-party clients.

mod answer_contents;
mod call_forms;
mod cancellation;
mod client_kinds;
mod clients;
mod conformance;
mod progress;
mod stdio_protocol;
