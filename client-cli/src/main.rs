//! `pml`: arguments → run → exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    client_cli::run(std::env::args_os())
}
