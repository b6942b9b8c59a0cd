//! `pml-server`: arguments → run → exit code.

use std::process::ExitCode;

use clap::Parser as _;
use server::analyser::ANALYSE;
use server::config::Cli;
use server::{commands, telemetry};

fn main() -> ExitCode {
    // A sandbox child is this same program; it never gets past this line.
    sandbox::child_main_if_requested(&[ANALYSE]);
    let cli = Cli::parse();
    match start(cli) {
        Ok(code) => code,
        Err(error) => {
            commands::say_error(&error);
            ExitCode::FAILURE
        }
    }
}

fn start(cli: Cli) -> anyhow::Result<ExitCode> {
    telemetry::start(&cli.settings.log)?;
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| anyhow::anyhow!("the TLS provider was installed twice"))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    // The private Postgres is tied to the thread that starts it, so it is
    // started here, on the main thread, which lives as long as the process.
    commands::run(cli, &runtime)
}
