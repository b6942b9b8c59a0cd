//! `pml-server doctor`: the settings, and what can be measured on this machine.

mod database;
mod machine;
mod network;

use tokio::runtime::Runtime;

use super::check;
use super::report::Report;
use crate::config::{Inspect, Settings};

/// Checks the settings, then everything that they name. A private Postgres that does not run is started for this
/// command, and nothing is created.
///
/// Call it on a thread that lives as long as the database is needed.
pub(super) fn doctor(settings: &Settings, inspect: &Inspect, runtime: &Runtime) -> Report {
    let mut report = check::check(settings, inspect);
    runtime.block_on(machine::sandbox(&mut report));
    runtime.block_on(machine::stdio_servers(&mut report, &settings.stdio_dir()));
    machine::open_files(&mut report);
    machine::disk(&mut report, &settings.data_dir());
    database::inspect(&mut report, settings, runtime);
    runtime.block_on(async {
        network::issuer(&mut report, &inspect.serve.oauth).await;
        network::address(&mut report, &inspect.serve).await;
    });
    report
}
