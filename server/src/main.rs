//! `pml-server`: selects the allocator and runs the program.

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod allocator;

use std::process::ExitCode;

fn main() -> ExitCode {
    server::run()
}
