//! Prepares a run: analyses the program, checks its permissions and determines where it runs.

use std::collections::HashMap;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use analysis::Analysis;
use execution::spans::{self, Span};
use protocol::{Envelope, ErrorBody, ErrorCode, ExecuteRequest, ToolId, ToolUse};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::consult::{self, Consulted, consult};
use super::resolver::Resolver;
use crate::app::{App, Elsewhere};
use crate::capabilities::Target;
use crate::consent::decision::refuse_denied;
use crate::consent::permissions::TraceLevel;
use crate::consent::program_lock::{LockFile, ProgramLock};
use crate::placement::inquiry::Resolution;
use crate::run_store::record::TraceTarget;

/// The time limit for resolving all tools and capabilities that a program reaches.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(90);

/// The number of tools that an error names.
const SHOWN: usize = 5;

/// A program that is about to run here.
pub(super) struct LocalProgram {
    pub(super) code: String,
    pub(super) args: Value,
    pub(super) analysis: Arc<Analysis>,
    pub(super) targets: HashMap<ToolId, Target>,
    pub(super) warnings: Vec<String>,
    pub(super) tools_used: Vec<ToolUse>,
    pub(super) timeout_ms: Option<NonZeroU64>,
    /// What it was locked to, if it was.
    pub(super) lock: Option<Arc<LockFile>>,
    /// Where its trace goes, if anywhere.
    pub(super) trace: Option<TraceTarget>,
}

/// A program that was checked and resolved.
pub(super) enum Prepared {
    /// It runs here.
    Local(Box<LocalProgram>),
    /// The gateway has answered already.
    Answered(Box<Envelope>),
}

/// Where a program may run, and as what.
pub(super) enum Terms<'a> {
    /// Here or on the gateway, depending on where its tools are.
    Anywhere,
    /// On this machine only.
    Here,
    /// On this machine only, with what is stored here: the gateway is not asked.
    WithoutGateway,
    /// Nowhere: it is about to be locked.
    ToLock,
    /// On this machine only, and only as it was locked.
    Locked(&'a Arc<LockFile>),
}

/// Returns what a program would be locked to, from the same resolution as that of a run. Nothing runs.
///
/// # Errors
/// Returns why it cannot run or cannot be locked.
pub(crate) async fn lock(
    app: &Arc<App>,
    code: &str,
    cancel: &CancellationToken,
) -> Result<ProgramLock, ErrorBody> {
    let request = ExecuteRequest { code: Some(code.to_owned()), ..ExecuteRequest::default() };
    match prepare(app, request, Terms::ToLock, cancel).await? {
        Prepared::Local(program) => lock_of(app, &program.analysis, &program.targets),
        Prepared::Answered(envelope) => match *envelope {
            Envelope::Error(refused) => Err(refused.error),
            // It was not to run the program.
            _ => Err(ErrorBody::new(
                ErrorCode::GatewayBadAnswer,
                "the gateway did not locate the program's tools",
            )),
        },
    }
}

fn lock_of(
    app: &App,
    analysis: &Analysis,
    targets: &HashMap<ToolId, Target>,
) -> Result<ProgramLock, ErrorBody> {
    ProgramLock::of(analysis, targets, |namespace| app.configured_server(namespace))
}

/// Prepares a program. If this returns an error, nothing has run and the user was not asked.
pub(super) async fn prepare(
    app: &Arc<App>,
    request: ExecuteRequest,
    terms: Terms<'_>,
    cancel: &CancellationToken,
) -> Result<Prepared, ErrorBody> {
    let here = !matches!(terms, Terms::Anywhere);
    let code = request.code.clone().ok_or_else(|| {
        ErrorBody::new(ErrorCode::InvalidRequest, "`code` is missing: the program to run")
    })?;
    let args = match request.args.clone() {
        None | Some(Value::Null) => json!({}),
        Some(args @ Value::Object(_)) => args,
        Some(_) => {
            return Err(ErrorBody::new(ErrorCode::InvalidRequest, "`args` is not an object"));
        }
    };
    let span = Span::of_step("pml.analyze");
    let analysis = span.within(app.analyser()?.analyse(&code)).await;
    spans::end_step(span, analysis.as_ref().err().map(|error| error.error_code));
    let analysis = analysis?;
    if let Some(error) = analysis.error_body() {
        return Err(error);
    }
    if let Terms::ToLock | Terms::Locked(_) = terms {
        ProgramLock::check_lockable(&analysis)?;
    }
    // The user may have edited the rules since the last program.
    app.read_permissions()?;
    // Before the gateway is asked: the text of a refused program stays on this machine.
    for id in &analysis.tools {
        refuse_denied(&app.permissions(), id, "")?;
    }
    let timeout_ms = request.options.as_ref().and_then(|options| options.timeout_ms);
    let (consulted, elsewhere) = match terms {
        Terms::WithoutGateway => (Consulted::RunWithoutGateway(Vec::new()), Elsewhere::default()),
        _ => locate(app, &request, &analysis, &args, here, cancel).await?,
    };
    let (resolution, offline) = match consulted {
        Consulted::RunHere(resolution) => (resolution, false),
        Consulted::RunWithoutGateway(warnings) => {
            (Resolution { warnings, ..Default::default() }, true)
        }
        Consulted::Answered(envelope) => return Ok(Prepared::Answered(envelope)),
    };
    // A gateway that does not know of the run gets no trace of it.
    let trace = if offline { None } else { trace_target(app, resolution.execution) };
    // The analysis here determines which tools may be called; the gateway only locates them.
    let mut warnings = resolution.warnings;
    warnings.extend_from_slice(elsewhere.warnings());
    let mut resolver = Resolver::new(app, offline, cancel).with_elsewhere(elsewhere);
    if let Terms::Locked(_) = terms {
        resolver = resolver.with_exact_versions();
    }
    // One limit for all: each capability takes several requests, and the limit of a single request
    // does not bound their sum.
    let found =
        tokio::time::timeout(RESOLVE_TIMEOUT, resolver.resolve(&analysis.tools, &resolution.tools));
    let targets = tokio::select! {
        found = found => found.unwrap_or_else(|_| Err(too_slow()))?,
        () = cancel.cancelled() => {
            return Err(ErrorBody::new(ErrorCode::Cancelled, "the run was cancelled"));
        }
    };
    // What is compared is what runs: the calls go to these targets.
    let lock = match terms {
        Terms::Locked(lock) => Some(Arc::clone(lock)),
        Terms::Anywhere | Terms::Here | Terms::WithoutGateway | Terms::ToLock => None,
    };
    if let Some(lock) = &lock {
        lock.check(&lock_of(app, &analysis, &targets)?)?;
    }
    let tools_used = analysis.tools.iter().map(|id| match targets.get(id) {
        Some(Target::Capability(capability)) => capability.tool_use(id),
        Some(Target::Registered(server)) if server.registry.is_some() => ToolUse {
            fqdn: Some(server.fqdn.clone()),
            version: server.server_version.clone(),
            integrity: Some(server.integrity),
            ..consult::local_tool_use(id)
        },
        _ => {
            let known = resolution.tools.iter().find(|tool| tool.id == id.as_str());
            known.cloned().unwrap_or_else(|| consult::local_tool_use(id))
        }
    });
    let tools_used = tools_used.collect();
    Ok(Prepared::Local(Box::new(LocalProgram {
        code,
        args,
        analysis,
        targets,
        tools_used,
        warnings,
        timeout_ms,
        lock,
        trace,
    })))
}

/// Returns where the trace of a run goes whose tools the gateway has located, as far as the user allows that.
fn trace_target(app: &App, execution: Option<String>) -> Option<TraceTarget> {
    let values = match app.permissions().traces() {
        TraceLevel::Off => return None,
        TraceLevel::Summary => false,
        TraceLevel::Full => true,
    };
    let gateway = app.cloud().ok()?.gateway().origin();
    // It is stored, and sent back: an id has 35 characters.
    let execution = execution.filter(|id| id.len() <= 64);
    Some(TraceTarget { gateway, execution, values })
}

/// Looks for the tools of a program in the registries before the gateway, on the gateway, and in the registries after it.
async fn locate(
    app: &App,
    request: &ExecuteRequest,
    analysis: &Analysis,
    args: &Value,
    here: bool,
    cancel: &CancellationToken,
) -> Result<(Consulted, Elsewhere), ErrorBody> {
    let mut elsewhere = app.look_before_gateway(&analysis.tools, cancel).await?;
    loop {
        let answer = consult(app, request.clone(), analysis, args, here, &elsewhere, cancel).await;
        let unknown = consult::unknown(&answer, &analysis.tools);
        // Nothing has run: the gateway refuses a program with a tool that it does not have.
        if !unknown.is_empty() && app.look_after_gateway(&unknown, &mut elsewhere, cancel).await? {
            continue;
        }
        return match answer {
            Ok(Consulted::Answered(envelope)) => match *envelope {
                Envelope::Error(mut refused) => {
                    add_skipped(&mut refused.error, &elsewhere);
                    Ok((Consulted::Answered(Box::new(Envelope::Error(refused))), elsewhere))
                }
                Envelope::Success(mut done) => {
                    // The notes of a dry run have them already.
                    let new = elsewhere.warnings().iter();
                    let new = new.filter(|text| !done.run.warnings.contains(*text)).cloned();
                    let new: Vec<String> = new.collect();
                    done.run.warnings.extend(new);
                    Ok((Consulted::Answered(Box::new(Envelope::Success(done))), elsewhere))
                }
                other => Ok((Consulted::Answered(Box::new(other)), elsewhere)),
            },
            Ok(consulted) => Ok((consulted, elsewhere)),
            Err(mut error) => {
                add_needed(&mut error, app, analysis, &elsewhere);
                add_skipped(&mut error, &elsewhere);
                Err(error)
            }
        };
    }
}

/// Adds to the error of a gateway that cannot be reached what the program needs it for.
fn add_needed(error: &mut ErrorBody, app: &App, analysis: &Analysis, elsewhere: &Elsewhere) {
    if error.error_code != ErrorCode::GatewayUnreachable {
        return;
    }
    let missing = analysis.tools.iter().filter(|id| !app.is_local(id) && !elsewhere.has(id));
    let missing: Vec<String> = missing.map(|id| format!("`{id}`")).collect();
    let (shown, more) = missing.split_at(missing.len().min(SHOWN));
    let needed = match (shown, more.len()) {
        ([], _) => return,
        ([one], _) => format!("`pml` has no {one} of its own"),
        (several, 0) => format!("`pml` has none of these of its own: {}", several.join(", ")),
        (several, more) => {
            let several = several.join(", ");
            format!("`pml` has none of these of its own: {several} and {more} more")
        }
    };
    error.message = format!("{}; {needed}", error.message);
}

/// Adds to an error which registries were skipped: one of them may have what is missing.
fn add_skipped(error: &mut ErrorBody, elsewhere: &Elsewhere) {
    for warning in elsewhere.warnings() {
        error.message = format!("{}; {warning}", error.message);
    }
}

fn too_slow() -> ErrorBody {
    let message = format!(
        "the gateway did not describe the program's capabilities within {} s",
        RESOLVE_TIMEOUT.as_secs()
    );
    ErrorBody::new(ErrorCode::GatewayUnreachable, message)
}
