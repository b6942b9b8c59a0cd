//! PML's companion on the user's machine.
//!
//! It serves MCP on stdin and stdout, analyses programs, lets the gateway decide where they run, and runs the local
//! ones in a sealed sandbox, with the user's rules on every tool call. It never trusts the gateway about what a
//! program calls, runs only submitted code and the capabilities that the user approved, and never links the gateway
//! or its database.
//!
//! Its modules are private; [`run()`] is the program.

// Who may import whom (`tests/it/layering.rs` checks it, without exceptions). No modules import each other in a circle;
// a file and its folder count as one module. From below:
//
// - `files`, `workspace` and `processes` are what this machine is made of: small private files, the folder that tools
//   may touch, and programs that are started.
// - `gateway`, `local_mcp` and `tools` are where calls go. None of them knows a permission.
// - `consent` alone decides about calls. It knows what can be called, and nothing of runs.
// - `config` and `app` put these together as one project.
// - `placement` and `discover` look without running anything. `run` runs programs, and is the only room that makes a
//   call of one.
// - `stdio` and `commands` are the doors.

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
