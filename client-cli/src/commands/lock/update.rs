//! `pml lock --update [NAME]`: locks the newest packages from which MCP servers start, after showing what differs.

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::Arc;

use execution::packages::{ChangeKind, LockedPackages, PackageChange};
use protocol::{ErrorBody, ErrorCode, escape_text};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{listed, say_json};
use crate::app::App;
use crate::args::Lock;
use crate::commands::exec::is_person;
use crate::commands::terminal::{ask_line, note, say, unless_stopped};
use crate::consent::lockfile::PackagesUpdate;
use crate::error::CliError;

/// The lock, as messages name it.
const FILE: &str = ".pml/mcp.lock";

/// The exit code of `--dry-run` if something is newer.
const NEWER: u8 = 1;

/// The newest packages of a server.
struct Newest {
    update: PackagesUpdate,
    /// What differs from the lock; nothing is said about each package of a server that is not locked yet.
    changes: Vec<PackageChange>,
}

/// Runs the command.
///
/// # Errors
/// Returns why the newest packages are not known, or must not or cannot be locked. Nothing is changed then.
pub(in super::super) async fn update(
    app: Arc<App>,
    options: &Lock,
    stop: &CancellationToken,
) -> Result<ExitCode, CliError> {
    let name = options.update.as_ref().and_then(|name| name.as_deref());
    let asks = !options.yes && !options.dry_run;
    // Before the registries are asked, for nothing.
    if asks && !is_person(options.json) {
        return Err(nobody_to_ask(name));
    }
    let (servers, others) = app.package_servers(name).map_err(|error| match error.error_code {
        // Not 1, which says that something is newer.
        ErrorCode::NotFound => CliError::cannot_run(error.message.clone())
            .with_hint(error.hint.clone())
            .with_body(error),
        _ => error.into(),
    })?;
    let shows = std::io::stderr().is_terminal();
    let newest = unless_stopped(stop, async {
        let mut newest = Vec::new();
        for server in &servers {
            if shows {
                let package = server.request.shown_with_place();
                note(&format!("Asking for the newest packages of {package} …\n"));
            }
            let before = app.lockfile.packages_of(&server.name)?;
            let now = app.newest_packages(server).await.map_err(|reason| {
                let message = format!("nothing was changed: {reason}");
                let body = ErrorBody::new(ErrorCode::ToolUnavailable, message.clone());
                CliError::unavailable(message).with_body(body)
            })?;
            newest.push(Newest::new(server.name.clone(), before, now));
        }
        Ok::<_, CliError>(newest)
    });
    let newest = newest.await;
    app.shut_down().await;
    let newest = newest?;
    let text = text(&newest, &others);
    if let Some(error) = replaced(&newest) {
        if !options.json {
            say(&text)?;
        }
        return Err(error.into());
    }
    let is_newer = newest.iter().any(Newest::is_newer);
    if !options.json {
        say(&text)?;
    }
    if is_newer && !options.dry_run {
        if asks && !is_confirmed(stop).await? {
            return Err(CliError::cannot_run(format!("`{FILE}` was not changed")));
        }
        let by = if asks { "terminal" } else { "--yes" };
        write(&app, newest.iter().filter(|one| one.is_newer()), by)?;
    }
    let is_written = is_newer && !options.dry_run;
    if options.json {
        say_json(&json!({
            "file": FILE, "newer": is_newer, "written": is_written, "not_updated": others,
            "servers": newest.iter().map(Newest::json).collect::<Vec<_>>(),
        }))?;
    } else if is_written {
        say(&format!(
            "`{FILE}` was written; what it has is installed when the servers start. A `pml stdio` that runs keeps what it started until it ends.\n"
        ))?;
    }
    Ok(if is_newer && options.dry_run { ExitCode::from(NEWER) } else { ExitCode::SUCCESS })
}

/// Stores what is newer.
fn write<'a>(
    app: &App,
    newer: impl Iterator<Item = &'a Newest>,
    by: &str,
) -> Result<(), ErrorBody> {
    let updates: Vec<PackagesUpdate> = newer.map(|one| one.update.clone()).collect();
    app.lockfile.update_packages(&updates, by)?;
    updates.iter().try_for_each(|update| app.remember_packages(&update.now))
}

/// Asks on the terminal; anything except a clear yes means no.
async fn is_confirmed(stop: &CancellationToken) -> Result<bool, CliError> {
    let answer = ask_line("Lock these packages? [y/N]: ".to_owned(), stop).await?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

fn nobody_to_ask(name: Option<&str>) -> CliError {
    let name = name.map_or_else(String::new, |name| format!(" {}", escape_text(name)));
    let error = CliError::cannot_run("there is no terminal to ask on; nothing was changed");
    error.with_hint(format!(
        "`pml lock --update{name} --dry-run` shows the difference; `pml lock --update{name} --yes` locks the packages without asking."
    ))
}

/// Returns that what was published was replaced, if it was.
fn replaced(newest: &[Newest]) -> Option<ErrorBody> {
    let mut of = newest.iter().flat_map(|one| {
        let changes = one.changes.iter().filter(|change| change.change == ChangeKind::Hash);
        changes.map(move |change| (&one.update.server, change))
    });
    let (server, first) = of.next()?;
    let (server, more) = (escape_text(server), of.count());
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    let message = format!(
        "nothing was changed, because a version is not what it was when it was locked: {first} ({server}){more}"
    );
    let mut error = ErrorBody::new(ErrorCode::IntegrityMismatch, message);
    error.hint = format!(
        "A published version does not change by itself: ask its publisher, or whoever runs the registry in your settings of npm or pip. If a file was only added to a release of PyPI, `pml remove {server}` forgets what is locked."
    );
    Some(error)
}

impl Newest {
    fn new(server: String, before: Option<LockedPackages>, now: LockedPackages) -> Self {
        let now = match &before {
            Some(before) => now.succeeding(before),
            None => now,
        };
        let changes = before.as_ref().map(|before| now.changes(before)).unwrap_or_default();
        Self { update: PackagesUpdate { server, before, now }, changes }
    }

    fn is_newer(&self) -> bool {
        self.update.before.as_ref() != Some(&self.update.now)
    }

    fn text(&self) -> String {
        let PackagesUpdate { server, before, now } = &self.update;
        let (server, request) = (escape_text(server), escape_text(now.request()));
        let version = now.version().unwrap_or_default();
        let Some(before) = before else {
            let count = now.count();
            let packages = if count == 1 { "package" } else { "packages" };
            return format!(
                "`{server}` ({request}) is not locked yet: {count} {packages}, version {version}\n"
            );
        };
        if !self.is_newer() {
            return format!("`{server}` ({request}): nothing is newer than {version}\n");
        }
        let was = before.version().unwrap_or_default();
        let asked = match before.is_for(now.request()) {
            true => String::new(),
            false => format!(", which was {}", escape_text(before.request())),
        };
        format!(
            "`{server}` ({request}{asked}): was {was}, now {version}\n{}",
            listed(self.changes.iter().map(ToString::to_string).collect())
        )
    }

    fn json(&self) -> Value {
        let PackagesUpdate { server, before, now } = &self.update;
        json!({
            "server": server, "request": now.request(), "newer": self.is_newer(),
            "from": before.as_ref().and_then(LockedPackages::version), "to": now.version(),
            "packages": now.count(), "changes": self.changes,
        })
    }
}

fn text(newest: &[Newest], others: &[String]) -> String {
    let mut text: String = newest.iter().map(Newest::text).collect();
    for other in others {
        text +=
            &format!("`{}` is not updated: no such server may start here\n", escape_text(other));
    }
    if text.is_empty() {
        text = "No server starts from a package that `pml` installs.\n".to_owned();
    }
    text
}
