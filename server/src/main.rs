//! `pml-server`: arguments → run → exit code.

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod allocator;

use std::process::ExitCode;

use server::analyser::ANALYSE;
use server::config::Cli;
use server::{commands, database::master_key, telemetry};

fn main() -> ExitCode {
    // A sandbox child is this same program; it never gets past this line.
    sandbox::child_main_if_requested(&[ANALYSE]);
    let cli = Cli::of_process();
    // The values already parsed into `cli`, and those that only the environment has: others of the same user could
    // read them there.
    for name in [c"PML_DATABASE_URL", c"PML_MIGRATE_URL"] {
        sandbox::take_variable(name);
    }
    master_key::take_variables();
    match start(cli) {
        Ok(code) => code,
        Err(error) => {
            commands::say_error(&error);
            ExitCode::FAILURE
        }
    }
}

fn start(cli: Cli) -> anyhow::Result<ExitCode> {
    sandbox::keep_private()
        .map_err(|error| anyhow::anyhow!("cannot protect this process from others: {error}"))?;
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    allocator::use_small_pages();
    telemetry::start(&cli.settings.log)?;
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| anyhow::anyhow!("the TLS provider was installed twice"))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    // The private Postgres is tied to the thread that starts it, so it is
    // started here, on the main thread, which lives as long as the process.
    commands::run(cli, &runtime)
}
