//! What a user does with `pml` besides running programs.

mod analyze;
mod approvals;
mod create;
mod error_messages;
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
mod protected_places;
mod remote_servers;
mod server_starts;
mod tool_keys;
