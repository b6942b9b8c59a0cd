//! One file per command.

mod add;
pub(crate) mod analyze;
mod approve;
mod cleanup;
mod doctor;
pub(crate) mod exec;
mod hidden;
pub(crate) mod init;
pub(crate) mod lifecycle;
mod list;
mod lock;
mod login;
mod man;
mod permissions;
pub(crate) mod plan;
mod policy;
pub(crate) mod program;
pub(crate) mod publish;
mod run;
mod runs;
mod search;
pub(crate) mod secrets;
mod serve;
mod spans;
mod terminal;
pub(crate) mod trust;
mod types;
pub(crate) mod unpublish;
mod upgrade;
mod verify;

use std::path::Path;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;

use clap::CommandFactory as _;
use execution::spans::Span;
use protocol::ErrorCode;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use self::terminal::{note, say, unless_stopped};
use crate::analyser::Analyser;
use crate::app::{App, config_error};
use crate::args::{
    Cli, Command, ListRuns, PermissionsCommand, PolicyCommand, ReportFormat, RunsCommand,
    SecretsCommand, Settings, ShowRun,
};
use crate::config;
use crate::error::CliError;
use crate::{logging, stdio};

/// Runs the chosen command and returns its exit code. Failures go to stderr, or
/// with `--json` as an error envelope to stdout.
pub(crate) fn run(cli: Cli) -> ExitCode {
    let json = match &cli.command {
        Command::Exec(exec) => exec.json,
        Command::Plan(plan) => plan.json,
        Command::Analyze(analyze) => analyze.json,
        Command::Lock(lock) => lock.json,
        Command::Publish(publish) => publish.json,
        Command::Doctor(doctor) => doctor.json,
        Command::Secrets(SecretsCommand::List { json, .. }) => *json,
        Command::Permissions(PermissionsCommand::Explain { json, .. }) => *json,
        Command::Policy(PolicyCommand::Check { json, .. }) => *json,
        Command::Runs(
            RunsCommand::List(ListRuns { json, .. })
            | RunsCommand::Show(ShowRun { json, .. })
            | RunsCommand::Undo { json, .. }
            | RunsCommand::Verify { json },
        ) => *json,
        Command::Runs(RunsCommand::Erase(erase)) => erase.json,
        Command::Runs(RunsCommand::Resume(resume)) => resume.json,
        Command::Replay(replay) => replay.json,
        Command::Report(report) => report.format == ReportFormat::Json,
        Command::Verify(verify) => verify.json,
        Command::Search(search) => search.json,
        Command::List(list) => list.json,
        Command::Serve(serve) => serve.json,
        Command::Upgrade(upgrade) => upgrade.json,
        _ => false,
    };
    match start(cli) {
        Ok(code) => code,
        Err(error) => {
            // If stdout is closed, the error still reaches stderr.
            if !json || say(&format!("{:#}\n", error.to_json())).is_err() {
                note(&error.render());
            }
            error.exit_code()
        }
    }
}

/// Tests the sandbox, prints what each layer does, and returns whether it holds.
pub(crate) fn self_test() -> ExitCode {
    let tested = runtime().and_then(|runtime| {
        let tested = runtime.block_on(sandbox::self_test()).map_err(|error| {
            CliError::from_code(ErrorCode::SandboxUnavailable, error.to_string())
        })?;
        say(&tested.to_string())?;
        Ok(tested.holds())
    });
    match tested {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            note(&error.render());
            error.exit_code()
        }
    }
}

fn runtime() -> Result<tokio::runtime::Runtime, CliError> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| CliError::failed(format!("cannot start: {error}")))
}

fn start(cli: Cli) -> Result<ExitCode, CliError> {
    // Other processes of the user must not be able to read keys in the memory of this one.
    sandbox::keep_private().map_err(|error| {
        CliError::failed(format!("cannot protect this process from others: {error}"))
    })?;
    logging::start(&cli.settings.log)?;
    // The HTTP library is built without a TLS provider, so one must be installed before its first
    // client is created.
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| CliError::failed("the TLS provider was installed twice"))?;
    let settings = &cli.settings;
    // These commands need no runtime. `trust` asks on stdin before signals are handled, so Ctrl-C ends it at once.
    match cli.command {
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "pml", &mut script);
            say(&String::from_utf8_lossy(&script))?;
            return Ok(ExitCode::SUCCESS);
        }
        Command::Man { folder } => return man::man(&folder),
        Command::Cleanup(options) => return cleanup::cleanup(settings, &options),
        Command::Trust { yes } => return trust::trust(settings, yes),
        Command::Runs(RunsCommand::Resume(_)) => {}
        Command::Runs(
            RunsCommand::List(ListRuns { cloud: true, .. })
            | RunsCommand::Show(ShowRun { cloud: true, .. }),
        ) => {}
        Command::Runs(command) => return runs::runs(settings, command),
        Command::Verify(options) => return verify::verify(&options),
        Command::Policy(command) => return policy::policy(settings, command),
        Command::Approve { workflow } => return approve::approve(workflow.as_deref()),
        Command::Deny { workflow } => return approve::deny(workflow.as_deref()),
        // Listed instead of `_`, so that a new command has to be assigned to one of the two
        // matches.
        Command::Stdio
        | Command::Serve(_)
        | Command::Exec(_)
        | Command::Plan(_)
        | Command::Analyze(_)
        | Command::Lock(_)
        | Command::Publish(_)
        | Command::Deprecate(_)
        | Command::Yank { .. }
        | Command::Unpublish(_)
        | Command::Doctor(_)
        | Command::Secrets(_)
        | Command::Permissions(_)
        | Command::Replay(_)
        | Command::Report(_)
        | Command::Search(_)
        | Command::Types(_)
        | Command::Add(_)
        | Command::Run(_)
        | Command::List(_)
        | Command::Remove(_)
        | Command::Upgrade(_)
        | Command::Init(_)
        | Command::Login(_)
        | Command::Logout => {}
    }
    let runtime = runtime()?;
    let work = async {
        let stop = CancellationToken::new();
        stop_on_signals(stop.clone())?;
        // Those that make calls.
        if let Command::Stdio
        | Command::Serve(_)
        | Command::Exec(_)
        | Command::Run(_)
        | Command::Runs(RunsCommand::Resume(_)) = &cli.command
        {
            spans::start();
        }
        let read = async |file| program::read(file, settings.workspace.as_deref(), &stop).await;
        let ended = match cli.command {
            Command::Stdio => {
                let app = App::open(settings)?;
                // Boxed: its future is large, and would make the future of every command as large.
                Box::pin(stdio::serve(app, stop)).await.map_err(|error| {
                    CliError::failed(format!("the connection to the agent failed: {error:#}"))
                })?;
                Ok(ExitCode::SUCCESS)
            }
            Command::Serve(options) => {
                let app = App::open(settings)?;
                Box::pin(serve::serve(app, &options, stop)).await
            }
            Command::Exec(exec) => {
                let app = open_under(settings, exec.policy.as_deref())?;
                let program = read(&exec.file).await?;
                let mock = exec.mock.as_deref();
                let mock = mock.map(|run| runs::mock::open(app.workspace(), run)).transpose()?;
                let span = Span::of_step("pml exec");
                let ended = span.within(exec::exec(app, exec, program, mock, stop.clone())).await;
                span.end(ended.is_err().then_some("failed"));
                ended
            }
            Command::Plan(plan) => {
                let program = read(&plan.file).await?;
                let app = open_under(settings, plan.policy.as_deref())?;
                plan::plan(app, &plan, &program, &stop).await
            }
            Command::Analyze(analyze) => {
                let program = read(&analyze.file).await?;
                unless_stopped(&stop, analyze::analyze(analyser()?, &analyze, &program)).await
            }
            Command::Lock(lock) => match &lock.file {
                Some(file) => {
                    lock::check_file(file)?;
                    let program = read(file).await?;
                    lock::lock(App::open(settings)?, file, &lock, &program, &stop).await
                }
                None => lock::update::update(App::open(settings)?, &lock, &stop).await,
            },
            Command::Publish(publish) if publish.mcp => {
                let app = App::open(settings)?;
                let published = publish::server::publish(&app, publish, &stop).await;
                app.shut_down().await;
                published
            }
            Command::Publish(publish) => {
                let app = App::open(settings)?;
                let program = read(&publish.file).await?;
                publish::publish(app, publish, program, &stop).await
            }
            Command::Deprecate(deprecate) => {
                lifecycle::deprecate(App::open(settings)?, deprecate, &stop).await
            }
            Command::Yank { name } => lifecycle::yank(App::open(settings)?, &name, &stop).await,
            Command::Unpublish(name) => {
                unpublish::unpublish(App::open(settings)?, name, &stop).await
            }
            Command::Doctor(doctor) => {
                unless_stopped(&stop, doctor::doctor(settings, &doctor)).await
            }
            Command::Permissions(command) => {
                let app = App::open(settings)?;
                permissions::permissions(app, command, &stop).await
            }
            Command::Secrets(command) => secrets::secrets(settings, command, &stop).await,
            Command::Runs(RunsCommand::Resume(resume)) => {
                let app = App::open(settings)?;
                let span = Span::of_step("pml runs resume");
                let resumed = runs::resume::resume(app, settings, resume, stop.clone());
                let ended = span.within(resumed).await;
                span.end(ended.is_err().then_some("failed"));
                ended
            }
            Command::Runs(RunsCommand::List(options)) => {
                runs::cloud::list(&App::open(settings)?, options, &stop).await
            }
            Command::Runs(RunsCommand::Show(options)) => {
                runs::cloud::show(&App::open(settings)?, options, &stop).await
            }
            Command::Replay(replay) => {
                let changed = match &replay.program {
                    Some(file) => Some(read(file).await?),
                    None => None,
                };
                runs::replay::replay(analyser()?, settings, replay, changed, &stop).await
            }
            Command::Upgrade(options) => unless_stopped(&stop, upgrade::upgrade(&options)).await,
            Command::Report(report) => runs::report::report(settings, &report, &stop).await,
            Command::Search(options) => search::search(App::open(settings)?, options, &stop).await,
            Command::Add(options) => Box::pin(add::add(App::open(settings)?, options, &stop)).await,
            Command::Run(options) => run::run(App::open(settings)?, &options, stop.clone()).await,
            Command::List(options) => list::list(&App::open(settings)?, &options),
            Command::Remove(options) => list::remove(&App::open(settings)?, &options),
            Command::Types(options) => types::types(App::open(settings)?, options, &stop).await,
            Command::Login(options) => login::login(settings, options, &stop).await,
            Command::Logout => login::logout(settings, &stop).await,
            Command::Init(options) => init::init(settings, &options, &stop).await,
            Command::Trust { .. }
            | Command::Runs(_)
            | Command::Verify(_)
            | Command::Policy(_)
            | Command::Approve { .. }
            | Command::Deny { .. }
            | Command::Cleanup(_)
            | Command::Man { .. }
            | Command::Completions { .. } => {
                unreachable!("handled before the runtime was started")
            }
        };
        spans::finish().await;
        ended
    };
    // Of one type, because the runtime has several loops that would each contain all commands.
    let work: Pin<Box<dyn Future<Output = Result<ExitCode, CliError>>>> = Box::pin(work);
    let ended = runtime.block_on(work);
    // A blocking read of stdin cannot be cancelled and must not delay the exit.
    runtime.shutdown_background();
    ended
}

/// Opens the project, and applies a policy file as well.
fn open_under(settings: &Settings, policy: Option<&Path>) -> Result<Arc<App>, CliError> {
    let app = App::open(settings)?;
    if let Some(file) = policy {
        let given = config::given_policy(app.project(), file).map_err(config_error)?;
        app.restrict(given)?;
    }
    Ok(app)
}

/// Starts an analyser without opening a project.
fn analyser() -> Result<Arc<Analyser>, CliError> {
    Analyser::start()
        .map(Arc::new)
        .map_err(|error| CliError::from_code(ErrorCode::SandboxUnavailable, error.to_string()))
}

fn stop_on_signals(stop: CancellationToken) -> Result<(), CliError> {
    let listen = |kind| {
        signal(kind)
            .map_err(|error| CliError::failed(format!("cannot listen for signals: {error}")))
    };
    let mut terminate = listen(SignalKind::terminate())?;
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut hangup = listen(SignalKind::hangup())?;
    // Only the first signal counts. tokio never restores the default action of a signal, so the
    // command must end by itself after this.
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = hangup.recv() => {}
        }
        stop.cancel();
    });
    Ok(())
}
