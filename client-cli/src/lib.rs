//! PML's companion on the user's machine.
//!
//! It serves MCP on stdin and stdout, analyses programs, lets the gateway decide where they run, and runs the local
//! ones in a sealed sandbox, with the user's rules on every tool call. It never trusts the gateway about what a
//! program calls, runs only submitted code and the capabilities that the user approved, and never links the gateway
//! or its database.
//!
//! Its modules are private; [`run()`] is the program.

// Allowed imports (`tests/it/project/layering.rs` checks them, without exceptions). Modules do not import each other in
// a circle; a file and its folder count as one module. From the bottom up:
//
// - `policy` judges what a call may touch. It knows nothing but paths, commands and names.
// - `files`, `workspace` and `processes` wrap the operating system: small private files, the folder that tools may
//   touch, and child processes.
// - `origin` is the name of a registry. `registries` asks those that `.pml.json` lists, and decides nothing.
// - `gateway`, `local_mcp` and `tools` execute calls. None of them checks permissions.
// - `run_store` records runs, and decides nothing. `undo` puts back what it recorded.
// - `consent` alone decides whether a call is allowed. It knows which tools exist, and nothing about runs.
// - `config` and `app` combine these into one project.
// - `placement` and `discover` look things up and run nothing. `run` runs programs; no other module executes their
//   calls.
// - `exposed` selects the tools that agents are offered next to the meta-tools, and calls nothing.
// - `agents` reads and writes the files in which agents look for MCP servers.
// - `agent` answers agents, whose connections `stdio` and `serve` accept; `commands` is for people.

mod added;
mod agent;
mod agents;
mod analyser;
mod app;
mod approval_page;
mod args;
mod attestation;
mod background;
mod browser;
mod capabilities;
mod commands;
mod config;
mod consent;
mod diagram;
mod discover;
mod error;
mod exposed;
mod files;
mod gateway;
mod http_client;
mod local_mcp;
mod logging;
mod origin;
mod placement;
mod policy;
mod processes;
mod registries;
mod release;
mod run;
mod run_store;
mod serve;
mod stdio;
#[doc(hidden)]
pub mod testing;
mod tool_sync;
mod tools;
mod traces;
mod undo;
mod workspace;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser as _;

/// Runs `pml` with the arguments of its command line, the program's name first, and returns its exit code.
///
/// Must be called first in `main`, before any thread starts: sealed children and supervisors are this same program, and
/// the API key is removed from the environment.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    // Does not return in a sealed child, which seals itself before any other code of this program
    // runs.
    sandbox::child_main_if_requested(&[analyser::ANALYSE, commands::program::BUNDLE]);
    // Does not return in a supervisor.
    execution::processes::supervise::main_if_requested();
    // Child processes must not find the API key in the environment.
    gateway::keys::take_variable();
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    // The same flag as that of `pml-server`, which has no other purpose and goes with no command.
    if matches!(&arguments[..], [_, flag] if flag == args::SELF_TEST) {
        return commands::self_test();
    }
    commands::run(args::Cli::parse_from(arguments))
}
