//! PML's companion on the user's machine.
//!
//! It serves MCP on stdin and stdout, analyses programs, lets the gateway decide where they run, and runs the local
//! ones in a sealed sandbox, with the user's rules on every tool call. It never trusts the gateway about what a
//! program calls, runs only submitted code and the capabilities that the user approved, and never links the gateway
//! or its database.

pub mod analyser;
pub mod app;
pub mod args;
pub mod capabilities;
pub mod commands;
pub mod config;
pub mod consent;
pub mod discover;
pub mod error;
mod files;
pub mod gateway;
mod http_client;
pub mod local_mcp;
mod logging;
mod placement;
pub mod processes;
pub mod run;
pub mod stdio;
pub mod tools;
pub mod workspace;
