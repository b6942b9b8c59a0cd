//! `pml-server stdio`: the `stdio` servers that run on this gateway.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context as _, bail};
use execution::packages::{Activity, Installer, LockedPackages, NotInstalled, Pinned, Pins};
use execution::processes::programs::Programs;
use execution::processes::supervise::Supervisor;
use execution::processes::variables::is_base;
use protocol::{ErrorBody, Routing};
use registry::StdioServer;
use serde_json::json;
use tokio::sync::watch;

use super::table::table;
use crate::config::{Settings, StdioCommand};
use crate::database::Database;
use crate::upstreams::stdio::launch::request;
use crate::upstreams::stdio::store::{InstalledServer, Store};

/// Runs the command and returns its output.
pub(super) async fn run(
    database: &Database,
    settings: &Settings,
    command: &StdioCommand,
) -> anyhow::Result<String> {
    let store = Store::new(settings.stdio_dir());
    let operator = database.operator().await?;
    operator.migrate().await?;
    let known = || async { operator.stdio_servers().await.context("could not read the catalog") };
    match command {
        StdioCommand::List { json } => list(&store, &known().await?, *json),
        StdioCommand::Install { server } => {
            let known = known().await?;
            let Some(entry) = known.iter().find(|known| known.fqdn == *server) else {
                bail!(
                    "the catalog has no `stdio` server `{server}`; `pml-server stdio list` lists them"
                );
            };
            install(&store, entry).await
        }
        StdioCommand::Remove { server } => {
            if !store.remove(server).context("could not remove it")? {
                bail!("`{server}` is not installed; `pml-server stdio list` lists what is");
            }
            Ok(format!(
                "`{server}` is no longer installed on this gateway. If it still runs, it ends when it is idle.\n"
            ))
        }
    }
}

fn list(store: &Store, known: &[StdioServer], is_json: bool) -> anyhow::Result<String> {
    let mut installed: BTreeMap<String, InstalledServer> = store
        .list()
        .context("could not read what is installed")?
        .into_iter()
        .map(|server| (server.server.to_string(), server))
        .collect();
    let mut rows = Vec::new();
    for server in known {
        let here = installed.remove(&server.fqdn.to_string());
        let state = match &here {
            None => "no",
            Some(here) if here.install == server.install => "yes",
            Some(_) => "changed",
        };
        let routing = server.routing.map_or("by rule", Routing::as_str);
        rows.push((server.fqdn.to_string(), here, state, routing));
    }
    // What the catalog no longer has.
    rows.extend(installed.into_iter().map(|(name, here)| (name, Some(here), "changed", "-")));
    let package = |here: &Option<InstalledServer>| {
        here.as_ref().map(|here| {
            let packages = &here.packages;
            packages.version().map_or_else(|| packages.request().to_owned(), str::to_owned)
        })
    };
    if is_json {
        let rows: Vec<_> = rows
            .iter()
            .map(|(server, here, state, routing)| {
                json!({ "server": server, "installed": state, "version": package(here), "routing": routing })
            })
            .collect();
        return Ok(serde_json::to_string_pretty(&rows)? + "\n");
    }
    let mut lines = Vec::new();
    for (server, here, state, routing) in &rows {
        let version = package(here).unwrap_or_else(|| "-".to_owned());
        lines.push([server.clone(), (*state).to_owned(), version, (*routing).to_owned()]);
    }
    Ok(table(["SERVER", "INSTALLED", "VERSION", "RUNS ON"], &lines))
}

/// Installs what the newest packages are that fit the entry, and stores exactly these.
async fn install(store: &Store, entry: &StdioServer) -> anyhow::Result<String> {
    let server = &entry.fqdn;
    let request = request(&entry.install).map_err(|reason| {
        anyhow::anyhow!("`{server}` cannot run on a gateway: its entry {reason}")
    })?;
    if let Err(reason) = sandbox::Confinement::check_support() {
        bail!("`{server}` cannot run on this gateway, which cannot confine it: {reason}");
    }
    let environment: BTreeMap<String, String> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| is_base(name))
        .collect();
    let programs = Programs::new(environment.get("PATH").map(String::as_str), &[]);
    let (packages, supervisor) = (store.packages(), Supervisor::default());
    let (activity, _) = watch::channel(Activity::None);
    let installer = Installer {
        folder: &packages,
        programs: &programs,
        variables: environment,
        supervisor: &supervisor,
        activity: &activity,
    };
    installer.program(&request).with_context(|| format!("cannot install `{server}`"))?;
    let newest = installer.newest(&request).await.map_err(anyhow::Error::msg)?;
    let pins = Fixed(newest);
    let pinned = Pinned { pins: Some(&pins), server: "server" };
    let installed = installer.install(&request, pinned).await;
    installed.map_err(|why| match why {
        NotInstalled::Failed(reason) => anyhow::Error::msg(reason),
        NotInstalled::Refused(error) => anyhow::Error::msg(error.message),
    })?;
    let Fixed(packages) = pins;
    let count = packages.count();
    let here = InstalledServer { server: server.clone(), install: entry.install.clone(), packages };
    store.add(&here).context("could not store that it is installed")?;
    let mut out = format!(
        "`{server}` is installed: {}, with {count} packages.\n",
        request.shown_with_place()
    );
    if entry.routing != Some(Routing::Server) {
        writeln!(out, "Next: pml-server routing set {server} server")?;
    }
    Ok(out)
}

/// Installs exactly these packages.
#[derive(Debug)]
struct Fixed(LockedPackages);

impl Pins for Fixed {
    fn locked(&self, _server: &str, _request: &str) -> Result<Option<LockedPackages>, ErrorBody> {
        Ok(Some(self.0.clone()))
    }

    fn keep(&self, _server: &str, packages: LockedPackages) -> Result<LockedPackages, ErrorBody> {
        Ok(packages)
    }
}
