//! Both programs as MCP servers, called by clients that others wrote.

mod answer_contents;
mod call_forms;
mod cancellation;
mod client_kinds;
mod clients;
mod conformance;
mod progress;
mod stdio_protocol;
