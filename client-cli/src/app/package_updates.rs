//! The newest packages of the servers that start from some.

use execution::packages::{self, LockedPackages, Request};
use protocol::{ErrorBody, ErrorCode, escape_text};

use super::open_server::body;
use super::{App, PACKAGES, config_error};

/// A server that starts from a package that `pml` installs.
pub(crate) struct PackageServer {
    /// Its name in the lock.
    pub(crate) name: String,
    /// The package, as the command of the server requests it.
    pub(crate) request: Request,
}

impl App {
    /// Returns the servers that start from packages: those of `.pml.json`, and those of the registry that the user allowed
    /// here; those that are called `name`, if there is one. And the names of others whose packages the lock has.
    ///
    /// # Errors
    /// Returns `NOT_FOUND` if there is none of that name, and `CONFIG_INVALID` if the lock is invalid, or a server's entry.
    pub(crate) fn package_servers(
        &self,
        name: Option<&str>,
    ) -> Result<(Vec<PackageServer>, Vec<String>), ErrorBody> {
        let namespace = name.and_then(|name| self.namespace_of(name));
        let mut servers = Vec::new();
        for configured in &self.configured {
            if name.is_none() || namespace == Some(configured) {
                let request = self.local.request(configured).map_err(body)?;
                let server = |request| PackageServer { name: configured.clone(), request };
                servers.extend(request.map(server));
            }
        }
        // A server of `.pml.json` comes before those of the registry that have its name.
        let called = if namespace.is_some() { Some("") } else { name };
        for allowed in self.lockfile.servers_called(called)? {
            let (command, arguments) = allowed.command.split_first().unzip();
            let request =
                Request::of(command.map_or("", String::as_str), arguments.unwrap_or_default());
            // An entry that cannot be read was never started, and one that does not count is asked about first.
            if let Some(Ok(request)) = request.filter(|_| allowed.counts) {
                servers.push(PackageServer { name: allowed.name, request });
            }
        }
        let mut others = self.lockfile.servers_with_packages(called)?;
        others.retain(|other| !servers.iter().any(|server| server.name == *other));
        if let Some(name) = name.filter(|_| servers.is_empty()) {
            return Err(no_server(name, namespace.is_some(), !others.is_empty()));
        }
        Ok((servers, others.into_iter().collect()))
    }

    /// Finds out which packages a server would start from if nothing was locked, without installing them.
    ///
    /// # Errors
    /// Returns why that cannot be found out.
    pub(crate) async fn newest_packages(
        &self,
        server: &PackageServer,
    ) -> Result<LockedPackages, String> {
        let packages = self.records().join(PACKAGES);
        self.local.newest_packages(&packages, &server.request).await
    }

    /// Stores what a request leads to, for projects that do not have it locked.
    ///
    /// # Errors
    /// Returns `CONFIG_INVALID` if that cannot be stored.
    pub(crate) fn remember_packages(&self, now: &LockedPackages) -> Result<(), ErrorBody> {
        let remembered = packages::remember(&self.records().join(PACKAGES), now);
        remembered.map_err(|error| config_error(format!("cannot store what is newest: {error}")))
    }
}

fn no_server(name: &str, is_configured: bool, is_locked: bool) -> ErrorBody {
    let name = escape_text(name);
    let (message, hint) = if is_configured {
        (
            format!(
                "the server `{name}` of `.pml.json` starts from no package that `pml` installs"
            ),
            "Packages are locked of servers that start with `npx`, `bunx` or `uvx` and are sealed.",
        )
    } else if is_locked {
        (
            format!("`.pml/mcp.lock` has packages of `{name}`, but no such server may start here"),
            "Trust `.pml.json` with `pml trust` if it defines the server; otherwise run a program that calls one of its tools.",
        )
    } else {
        (
            format!("no server `{name}` may start here"),
            "`pml list` shows which may. The lock of a program is written by `pml lock FILE`.",
        )
    };
    let mut error = ErrorBody::new(ErrorCode::NotFound, message);
    error.hint = hint.to_owned();
    error
}
