//! The PML gateway.
//!
//! It authenticates a caller, analyses the submitted program before anything
//! runs, resolves every tool in the caller's scope, and either runs the program
//! in a sealed sandbox or delegates it to the caller's machine. It is also the
//! registry at `/mcp/<fqdn>`.
//!
//! It never runs a program that it did not parse, never calls a tool that the
//! analysis did not declare, and never answers with another tenant's rows. SQL
//! lives in `registry`, the analysis in `analysis`, containment in `sandbox`.
//!
//! The modules form no circle. From the top: `commands` starts everything;
//! `http` reads requests and writes answers; `proxy`, `publish` and `execution`
//! do the work; `state` holds the handles that they share; `upstreams`,
//! `identity`, `admission`, `analyser`, `traces` and `tools` are the parts that
//! `state` consists of, and do not know it; `database`, `connections`, `metrics`,
//! `private_settings`, `config` and `error` are used by all modules above.

mod admission;
mod analyser;
mod commands;
mod config;
mod connections;
mod database;
mod error;
mod execution;
mod http;
mod http_client;
mod identity;
mod metrics;
mod private_settings;
mod proxy;
mod publish;
mod state;
mod synced_tools;
mod telemetry;
mod tools;
mod traces;
mod upstreams;

use std::process::ExitCode;

use crate::analyser::ANALYSE;
use crate::config::{Cli, Command};

/// Runs `pml-server` with the arguments and the environment of this process.
pub fn run() -> ExitCode {
    // Sandbox children are started from this program; they never get past this line.
    sandbox::child_main_if_requested(&[ANALYSE]);
    // Neither do the supervisors of `stdio` servers.
    ::execution::processes::supervise::main_if_requested();
    let cli = Cli::of_process();
    // Remove secrets from the environment, where other processes of the same user could read them. The URLs are already
    // parsed into `cli`.
    for name in [c"PML_DATABASE_URL", c"PML_MIGRATE_URL", c"PML_BACKUP_URL"] {
        sandbox::take_variable(name);
    }
    // Before any thread starts: afterwards, `take_variable` can only read a variable.
    private_settings::take_variables();
    match start(cli) {
        Ok(code) => code,
        Err(error) => {
            commands::print_error(&error);
            ExitCode::FAILURE
        }
    }
}

fn start(cli: Cli) -> anyhow::Result<ExitCode> {
    // First: until then, other processes of the same user can read the secrets in this one.
    sandbox::keep_private().map_err(|error| {
        anyhow::anyhow!("cannot protect this process from access by others: {error}")
    })?;
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    use_small_pages();
    let log = &cli.settings.log;
    // Commands that report invalid settings report this one as well, so they log with the default.
    let is_reported = matches!(cli.command, Some(Command::Check(_) | Command::Doctor(_)));
    let log = if is_reported && telemetry::check(log).is_err() { "warn" } else { log };
    telemetry::start(log)?;
    // The HTTP client is built without a TLS provider, so that there is only one. It uses this one.
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| anyhow::anyhow!("the TLS provider was installed twice"))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    // The private Postgres is tied to the thread that starts it, so it is
    // started here, on the main thread, which lives as long as the process.
    commands::run(cli, &runtime)
}

/// Disables transparent huge pages for this process and its children. The kernel reclaims a huge page only as a whole,
/// so after a burst of large messages most of the memory would stay allocated.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn use_small_pages() {
    // Fails only on a kernel without huge pages.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

/// Access for the benchmarks of this crate.
#[doc(hidden)]
pub mod bench {
    use std::error::Error;
    use std::path::Path;

    use crate::database::embedded_postgres::EmbeddedPostgres;

    /// Returns the URL of the private Postgres that a running gateway has in its data directory, for the role that
    /// serves.
    ///
    /// # Errors
    /// Returns an error when none runs there.
    pub fn postgres_url(data_dir: &Path) -> Result<String, Box<dyn Error>> {
        let postgres = EmbeddedPostgres::attach(data_dir)?;
        Ok(postgres.ok_or("the gateway's Postgres does not run")?.app_url())
    }
}
