//! Both programs as MCP servers: protocol, conformance and third-party clients.

mod answer_contents;
mod approvals_by_clients;
mod call_forms;
mod cancellation;
mod claude_code;
mod client_kinds;
mod clients;
mod conformance;
mod named_calls;
mod progress;
pub(crate) mod sdk_clients;
mod spans;
mod stdio_protocol;
mod trace_context;
