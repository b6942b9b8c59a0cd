//! PML's companion on the user's machine.
//!
//! It serves MCP on stdin and stdout, analyses programs, lets the gateway decide where they run, and runs the local
//! ones in a sealed sandbox, with the user's rules on every tool call. It never trusts the gateway about what a
//! program calls, runs only submitted code and the capabilities that the user approved, and never links the gateway
//! or its database.
//!
//! Its modules are private; [`run()`] is the program.

mod analyser;
mod app;
mod args;
mod capabilities;
mod commands;
mod config;
mod consent;
mod discover;
mod error;
mod files;
mod gateway;
mod http_client;
mod local_mcp;
mod logging;
mod placement;
mod processes;
mod run;
mod stdio;
#[doc(hidden)]
pub mod testing;
mod tools;
mod workspace;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser as _;

/// Runs `pml` with the arguments of its command line, the program's name first, and returns its exit code.
///
/// Call it first in `main`, before there are threads: sealed children and supervisors are this same program, and it
/// takes the API key out of the environment.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    sandbox::child_main_if_requested(&[analyser::ANALYSE, commands::program::BUNDLE]);
    // A supervisor never gets past here.
    processes::supervise::main_if_requested();
    // Child processes must not find the API key in the environment.
    gateway::keys::take_variable();
    commands::run(args::Cli::parse_from(arguments))
}
