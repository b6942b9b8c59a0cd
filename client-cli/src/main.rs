//! `pml`: arguments → run → exit code.

use std::process::ExitCode;

use clap::Parser as _;
use client_cli::analyser::ANALYSE;
use client_cli::args::Cli;
use client_cli::commands::program::BUNDLE;
use client_cli::gateway::keys;
use client_cli::{commands, processes};

fn main() -> ExitCode {
    // Sealed children and supervisors are this same program; they never get past here.
    sandbox::child_main_if_requested(&[ANALYSE, BUNDLE]);
    processes::supervise::main_if_requested();
    // Child processes must not find the API key in the environment.
    keys::take_variable();
    commands::run(Cli::parse())
}
