//! The sandbox, the limit on open files, and the disk.

use std::path::Path;

use execution::mcp_process::Starter;
use execution::processes::supervise::Supervisor;
use sandbox::{Confinement, LayerState};

use super::super::report::Report;
use crate::connections;
use crate::upstreams::stdio::START;
use crate::upstreams::stdio::store::Store;

/// The number of open files below which the gateway serves few connections.
const FEW_FILES: u64 = 4_096;

/// Free space at which Postgres still works for a while, and below which it soon stops.
const LITTLE_SPACE: u64 = 1024 * 1024 * 1024;
/// Free space below which Postgres cannot start or write.
const NO_SPACE: u64 = 64 * 1024 * 1024;

/// Tries the sandbox: its layers, and each forbidden system call.
pub(super) async fn sandbox(report: &mut Report) {
    const REMEDY: &str = "no program can run here; `pml-server --sandbox-selftest` has each call, deploy/README.md the requirements";
    match sandbox::self_test().await {
        Ok(seen) if seen.holds() => {
            let layers: Vec<String> = seen
                .layers
                .iter()
                .map(|layer| match &layer.state {
                    LayerState::Holds => layer.name.clone(),
                    LayerState::Partial(_) => format!("{} (partly)", layer.name),
                    LayerState::Absent(_) => format!("without {}", layer.name),
                })
                .collect();
            report.ok("sandbox", layers.join(", "));
        }
        Ok(_) => report.fail("sandbox", "a forbidden system call was not blocked", REMEDY),
        Err(error) => report.fail("sandbox", error.to_string(), REMEDY),
    }
}

/// Reports whether the `stdio` servers that are installed can be sealed. Says nothing if none is.
pub(super) async fn stdio_servers(report: &mut Report, folder: &Path) {
    const SUBJECT: &str = "stdio servers";
    let servers = match Store::new(folder.to_owned()).list() {
        Ok(servers) => servers,
        Err(error) => {
            let message =
                format!("cannot read what is installed in `{}`: {error}", folder.display());
            report.fail(SUBJECT, message, "run the gateway as the user who has installed them");
            return;
        }
    };
    if servers.is_empty() {
        return;
    }
    if let Err(reason) = Confinement::check_support() {
        report.fail(SUBJECT, format!("cannot be confined: {reason}"), "none of them runs here");
        return;
    }
    let with_hosts = servers.iter().any(|server| !server.install.network.is_empty());
    let starter = Starter::new(Supervisor::default(), START, "");
    if with_hosts && !starter.allows_network().await {
        report.fail(
            SUBJECT,
            "this system allows no network namespaces, which those with hosts need",
            "allow user namespaces, or remove these servers with `pml-server stdio remove`",
        );
        return;
    }
    report.ok(
        SUBJECT,
        format!("{} installed; limits for each process, none by cgroups", servers.len()),
    );
}

/// Reports how many files the gateway may open.
pub(super) fn open_files(report: &mut Report) {
    let open = connections::raise_descriptors();
    if open < FEW_FILES {
        report.warn(
            "open files",
            format!("the limit is {open}, which limits connections to two thirds of it"),
            "raise `LimitNOFILE=` of the unit, or `ulimit -n`",
        );
    } else {
        report.ok("open files", format!("the limit is {open}"));
    }
}

/// Reports the free space at the data directory, or where it will be created.
pub(super) fn disk(report: &mut Report, data_dir: &Path) {
    let Some(existing) = data_dir.ancestors().find(|folder| folder.exists()) else { return };
    let shown = data_dir.display();
    let free = match rustix::fs::statvfs(existing) {
        Ok(seen) => seen.f_bavail.saturating_mul(seen.f_frsize),
        Err(error) => {
            report.warn(
                "disk",
                format!("cannot read the free space of `{shown}`: {error}"),
                "make the folder accessible",
            );
            return;
        }
    };
    let message = format!("{} MiB free for `{shown}`", free / (1024 * 1024));
    let remedy = "free some space, or move the data directory";
    if free < NO_SPACE {
        report.fail("disk", message, remedy);
    } else if free < LITTLE_SPACE {
        report.warn("disk", message, remedy);
    } else {
        report.ok("disk", message);
    }
}
