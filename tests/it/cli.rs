//! `pml`: its commands, approvals and permissions, and its behaviour towards hostile gateways and servers.

mod analyze;
mod approvals;
mod approve;
mod create;
mod error_messages;
mod forms;
mod gateway_down;
mod hostile_capabilities;
pub(crate) mod hostile_gateway;
mod init;
mod keyring;
mod local_capabilities;
mod login;
mod odd_clients;
mod permissions;
mod plan;
mod plan_routing;
mod policy;
mod previews;
mod protected_places;
mod remote_servers;
mod runs;
mod secrets;
mod server_starts;
mod undo;
mod web;
mod whole_program;
