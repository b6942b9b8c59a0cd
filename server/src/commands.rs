//! The implementation of each subcommand of `pml-server`.

mod backup;
mod catalog;
mod check;
mod doctor;
mod keys;
mod quotas;
mod report;
mod restore;
mod routing;
mod secrets;
mod serve;
mod stdio;
mod table;
mod tenancy;
mod tools;

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::CommandFactory as _;
use protocol::Scope;
use protocol::redaction::keys_in_use;
use tokio::runtime::Runtime;

use crate::config::{Cli, Command, ScopeCommand};
use crate::database::Database;

/// Runs the chosen command to its end.
///
/// # Errors
/// Returns an error with the cause and the remedy.
pub(crate) fn run(cli: Cli, runtime: &Runtime) -> anyhow::Result<ExitCode> {
    let settings = &cli.settings;
    if cli.sandbox_selftest {
        let seen = runtime.block_on(sandbox::self_test())?;
        print(&seen.to_string())?;
        return Ok(if seen.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    match cli.command {
        None => bail!("no command was given"),
        Some(Command::Serve(serve)) => serve::serve(settings, &serve, runtime)?,
        Some(Command::Check(inspect)) => {
            let report = check::check(settings, &inspect);
            print(&report.render(inspect.json)?)?;
            return Ok(report.exit_code());
        }
        Some(Command::Doctor(inspect)) => {
            let report = doctor::doctor(settings, &inspect, runtime);
            print(&report.render(inspect.json)?)?;
            return Ok(report.exit_code());
        }
        Some(Command::Backup(command)) => {
            let database = Database::open(settings)?;
            runtime.block_on(backup::run(&database, settings, &command))?;
        }
        Some(Command::Restore(command)) => print(&restore::run(settings, &command, runtime)?)?,
        Some(Command::Migrate) => {
            let database = Database::open(settings)?;
            runtime.block_on(async { anyhow::Ok(database.operator().await?.migrate().await?) })?;
            print("The schema is up to date.\n")?;
        }
        Some(Command::Seed) => {
            let database = Database::open(settings)?;
            runtime.block_on(seed(&database))?;
        }
        Some(Command::Scope(ScopeCommand::Create { scope })) => {
            let database = Database::open(settings)?;
            print(&runtime.block_on(create_scope(&database, &scope))?)?;
        }
        Some(Command::Orgs(command)) => {
            let database = Database::open(settings)?;
            print(&runtime.block_on(tenancy::orgs(&database, &command))?)?;
        }
        Some(Command::Projects(command)) => {
            let database = Database::open(settings)?;
            print(&runtime.block_on(tenancy::projects(&database, &command))?)?;
        }
        Some(Command::Members(command)) => {
            let database = Database::open(settings)?;
            print(&runtime.block_on(tenancy::members(&database, &command))?)?;
        }
        Some(Command::Keys(command)) => {
            let database = Database::open(settings)?;
            print(&runtime.block_on(keys::run(&database, &command))?)?;
        }
        Some(Command::Routing(command)) => {
            let database = Database::open(settings)?;
            print(&runtime.block_on(routing::run(&database, &command))?)?;
        }
        Some(Command::Quotas(command)) => {
            let database = Database::open(settings)?;
            print(&runtime.block_on(quotas::run(&database, command))?)?;
        }
        Some(Command::Tools(command)) => {
            let database = Database::open(settings)?;
            print(&runtime.block_on(tools::run(&database, &command))?)?;
        }
        Some(Command::Catalog(command)) => {
            let database = Database::open(settings)?;
            print(&runtime.block_on(catalog::run(&database, &command))?)?;
        }
        Some(Command::Stdio(command)) => {
            let database = Database::open(settings)?;
            print(&runtime.block_on(stdio::run(&database, settings, &command))?)?;
        }
        Some(Command::Secrets(command)) => {
            let database = Database::open(settings)?;
            print(&runtime.block_on(secrets::run(&database, settings, &command))?)?;
        }
        Some(Command::Routes { json }) => print(&routes(json)?)?,
        Some(Command::Completions { shell }) => print(&completions(shell))?,
        Some(Command::Man { folder }) => print(&man(&folder)?)?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn seed(database: &Database) -> anyhow::Result<()> {
    let operator = database.operator().await?;
    // The command may be the first one on a new database.
    operator.migrate().await?;
    let seeded = operator
        .seed(&crate::tools::catalog::all())
        .await
        .context("could not write the catalog")?;
    print(&format!(
        "{} servers and {} tools are in the catalog; {} changed.\n",
        seeded.servers, seeded.tools, seeded.changed
    ))
}

async fn create_scope(database: &Database, scope: &Scope) -> anyhow::Result<String> {
    let operator = database.operator().await?;
    operator.migrate().await?;
    let created = operator.create_scope(scope).await.context("could not create the scope")?;
    let word = if created { "now exists" } else { "already existed" };
    Ok(format!("Scope `{scope}` {word}. Next: pml-server keys create --scope {scope}\n"))
}

fn routes(json: bool) -> anyhow::Result<String> {
    use std::fmt::Write as _;
    let routes = crate::http::openapi::routes();
    if json {
        return Ok(serde_json::to_string_pretty(&routes)? + "\n");
    }
    let mut out = String::new();
    for route in routes {
        let auth = serde_json::to_value(route.auth)?;
        let auth = auth.as_str().unwrap_or_default();
        writeln!(out, "{:6} {:45} {auth}", route.method, route.path)?;
    }
    Ok(out)
}

fn completions(shell: clap_complete::Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "pml-server", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

fn man(folder: &Path) -> anyhow::Result<String> {
    let refused = || format!("cannot write manual pages to `{}`", folder.display());
    std::fs::create_dir_all(folder).with_context(refused)?;
    clap_mangen::generate_to(Cli::command(), folder).with_context(refused)?;
    Ok(format!("Wrote the manual pages to {}\n", folder.display()))
}

/// Writes to stdout; a closed pipe is an error, never a panic.
fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    // Flushed here, because a failure to write the rest at the end of the process would be lost.
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("could not write to stdout")
}

/// Writes an error and its causes to stderr.
pub(crate) fn print_error(error: &anyhow::Error) {
    // There is nowhere left to report a failure of stderr.
    let text = format!("error: {error:#}");
    let _ = writeln!(std::io::stderr(), "{}", keys_in_use().text(&text));
}
