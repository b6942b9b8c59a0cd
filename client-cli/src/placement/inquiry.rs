//! Queries to the gateway about a program and its names, with checks of the answers.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use analysis::Analysis;
use protocol::{
    CODE_FIELD_LIMIT, DryRun, Envelope, ErrorBody, ErrorCode, ExecuteRequest, Fqdn, Include, Scope,
    Success, ToolId, ToolUse,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::app::{App, Elsewhere};

/// The time limit of the gateway's answer about a program that can run here without it.
const LOCAL_TIMEOUT: Duration = Duration::from_secs(3);

/// The result of a query to the gateway.
pub(crate) enum Reply {
    /// The gateway's answer.
    Answer(Envelope),
    /// There is no answer, and the program can run without one; with warnings for the user.
    NotNeeded(Vec<String>),
}

/// What this machine knows about a program without the gateway.
#[derive(Clone, Copy)]
pub(crate) struct LocalFacts {
    /// One of its tools is local, so it runs here, whatever the gateway answers.
    pub(crate) runs_here: bool,
    /// Everything that it needs is on this machine.
    pub(crate) needs_no_gateway: bool,
}

/// The gateway's answer about the tools of a program.
#[derive(Debug, Default)]
pub(crate) struct Resolution {
    /// Its tools.
    pub(crate) tools: Vec<ToolUse>,
    /// Warnings for the user, escaped.
    pub(crate) warnings: Vec<String>,
    /// The caller's own scope.
    pub(crate) scope: Option<Scope>,
    /// The `workflowId` with which the gateway delegated the program.
    pub(crate) execution: Option<String>,
}

/// Asks the gateway how names resolve in programs of the scope `within`, as [`locate`] does.
///
/// # Errors
/// Returns why there is no valid answer.
pub(crate) async fn look_up(
    app: &App,
    ids: &[ToolId],
    within: Option<&Scope>,
    cancel: &CancellationToken,
) -> Result<Resolution, ErrorBody> {
    match locate(app, ids, within, ANSWER_REQUIRED, cancel).await? {
        Located::There(resolution) => Ok(resolution),
        Located::NotNeeded(_) => Err(not_a_dry_run()),
    }
}

/// Reads the answer to a dry run.
pub(crate) fn resolution_of(plan: Success) -> Result<Resolution, ErrorBody> {
    Ok(Resolution {
        scope: read_dry_run(&plan.result)?.scope,
        warnings: escaped(&plan.run.warnings),
        tools: check_tools(plan.tools_used.unwrap_or_default())?,
        execution: None,
    })
}

/// Returns the first warnings, escaped for display.
pub(crate) fn escaped(warnings: &[String]) -> Vec<String> {
    const MOST: usize = 20;
    warnings.iter().take(MOST).map(|warning| protocol::escape_text(warning)).collect()
}

/// Returns the full name in the gateway's answer about a tool.
pub(crate) fn full_name(tool: &ToolUse) -> Option<ToolId> {
    tool.fqdn.as_deref()?.parse::<Fqdn>().ok()?.full_tool()
}

/// The gateway's answer about names.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// The tools and capabilities that it has.
    pub(crate) tools: Vec<ToolUse>,
    /// The names that resolve to nothing that the caller can see.
    pub(crate) missing: Vec<ToolId>,
    /// Its warnings, escaped.
    pub(crate) warnings: Vec<String>,
    /// The caller's own scope.
    pub(crate) scope: Option<Scope>,
}

/// The gateway's answer about the tools of a program that it does not get.
pub(crate) enum Located {
    /// Where the tools are.
    There(Resolution),
    /// There is no answer, and the program can run without one; with warnings for the user.
    NotNeeded(Vec<String>),
}

/// Asks the gateway about tools by name, as [`ask_names`] does; here a name that it does not have is an error. The names
/// are those of programs of the scope `within`, by default the caller's.
///
/// # Errors
/// Returns `TOOL_NOT_FOUND`, or why there is no valid answer.
pub(crate) async fn locate(
    app: &App,
    ids: &[ToolId],
    within: Option<&Scope>,
    facts: LocalFacts,
    cancel: &CancellationToken,
) -> Result<Located, ErrorBody> {
    let mut found = Resolution::default();
    let mut rest = ids;
    while !rest.is_empty() {
        let (code, count) = code_of_names(rest);
        let local = rest[..count].iter().filter(|id| app.is_local(id));
        let question = ExecuteRequest {
            code: Some(code),
            within: within.cloned(),
            local_tools: local.map(ToolId::to_string).collect(),
            ..ExecuteRequest::default()
        };
        rest = &rest[count..];
        let resolution = match dry_run(app, &question, facts, cancel).await? {
            Reply::Answer(Envelope::Success(plan)) => resolution_of(*plan)?,
            Reply::Answer(Envelope::Error(refused)) => return Err(refused.error),
            Reply::Answer(_) => return Err(not_a_dry_run()),
            Reply::NotNeeded(warnings) => return Ok(Located::NotNeeded(warnings)),
        };
        found.tools.extend(resolution.tools);
        found.warnings.extend(resolution.warnings);
        found.scope = resolution.scope.or(found.scope);
    }
    // The answers about two parts may name the same tool.
    found.tools = check_tools(found.tools)?;
    Ok(Located::There(found))
}

/// Returns a program that calls the first of these names, and their number, which is at least one.
fn code_of_names(ids: &[ToolId]) -> (String, usize) {
    let mut code = String::new();
    let mut count = 0;
    for id in ids.iter().take(NAMES_LIMIT) {
        // The names are JSON strings, so that none can break out of the generated program.
        let call = format!(
            "await mcp[{}][{}]({{}});\n",
            json!(id.program_namespace()),
            json!(id.program_action())
        );
        if count > 0 && code.len() + call.len() > CODE_FIELD_LIMIT / 2 {
            break;
        }
        code += &call;
        count += 1;
    }
    (code, count)
}

/// Asks the gateway about tools by name, with a program that consists of the names only.
///
/// # Errors
/// Returns why there is no valid answer.
pub(crate) async fn ask_names(
    app: &App,
    ids: &[ToolId],
    cancel: &CancellationToken,
) -> Result<Names, ErrorBody> {
    let mut names = Names::default();
    let mut rest = ids;
    while !rest.is_empty() {
        let (code, count) = code_of_names(rest);
        let (now, later) = rest.split_at(count);
        rest = later;
        match ask_some_names(app, code, cancel).await {
            Ok(resolution) => names.extend(Names {
                tools: resolution.tools,
                missing: Vec::new(),
                warnings: resolution.warnings,
                scope: resolution.scope,
            }),
            Err(error) if error.error_code == ErrorCode::ToolNotFound && now.len() > 1 => {
                // One unknown name fails the whole query, so the others are queried again without it.
                let unknown = unknown_of(&error);
                let (missing, known): (Vec<ToolId>, Vec<ToolId>) =
                    now.iter().cloned().partition(|id| unknown.contains(&id.as_str()));
                // The error does not say which name is unknown, so each half is queried separately.
                if missing.is_empty() {
                    let (left, right) = now.split_at(now.len() / 2);
                    for half in [left, right] {
                        let half = Box::pin(ask_names(app, half, cancel)).await?;
                        names.extend(half);
                    }
                } else {
                    names.missing.extend(missing);
                    names.extend(Box::pin(ask_names(app, &known, cancel)).await?);
                }
            }
            Err(error) if error.error_code == ErrorCode::ToolNotFound => {
                names.missing.extend(now.iter().cloned());
            }
            Err(error) => return Err(error),
        }
    }
    Ok(names)
}

/// The maximum number of names in one query. A program may have more.
const NAMES_LIMIT: usize = 500;

impl Names {
    fn extend(&mut self, other: Self) {
        self.tools.extend(other.tools);
        self.missing.extend(other.missing);
        self.warnings.extend(other.warnings);
        self.scope = other.scope.or(self.scope.take());
    }
}

async fn ask_some_names(
    app: &App,
    code: String,
    cancel: &CancellationToken,
) -> Result<Resolution, ErrorBody> {
    let question = ExecuteRequest { code: Some(code), ..ExecuteRequest::default() };
    match dry_run(app, &question, ANSWER_REQUIRED, cancel).await? {
        Reply::Answer(Envelope::Success(plan)) => resolution_of(*plan),
        Reply::Answer(Envelope::Error(refused)) => Err(refused.error),
        _ => Err(not_a_dry_run()),
    }
}

/// Returns the tools that the gateway does not have, as far as an error names them.
pub(crate) fn unknown_of(error: &ErrorBody) -> Vec<&str> {
    let unknown = error.details.get("unknown_tools");
    let unknown = unknown.and_then(Value::as_array).into_iter().flatten();
    unknown.filter_map(|one| one.get("tool")?.as_str()).collect()
}

fn not_a_dry_run() -> ErrorBody {
    ErrorBody::new(ErrorCode::GatewayBadAnswer, "the gateway did not answer a dry run with a plan")
}

pub(crate) fn read_dry_run(result: &Value) -> Result<DryRun, ErrorBody> {
    serde_json::from_value(result.clone()).map_err(|error| {
        let message = format!("the gateway's answer to a dry run cannot be decoded: {error}");
        ErrorBody::new(ErrorCode::GatewayBadAnswer, message)
    })
}

/// Returns the tools that a capability reaches, according to the gateway; empty for a tool.
///
/// The list is not trusted: it may only add a refusal or a question, never remove one.
///
/// # Errors
/// Returns `GATEWAY_BAD_ANSWER` for an invalid id.
pub(crate) fn listed(tool: &ToolUse) -> Result<Vec<ToolId>, ErrorBody> {
    let names = tool.tools.iter().flatten();
    names
        .map(|name| name.parse())
        .collect::<Result<_, _>>()
        .map_err(|error| ErrorBody::new(ErrorCode::GatewayBadAnswer, format!("{error}")))
}

/// Returns whether a run of a program sends its text to the gateway.
///
/// # Errors
/// Returns `CONFIG_INVALID` for settings or a lock that do not parse.
pub(crate) async fn sends_text(
    app: &App,
    analysis: &Analysis,
    elsewhere: &Elsewhere,
) -> Result<bool, ErrorBody> {
    if app.permissions().keeps_text() || elsewhere.has_full_names() {
        return Ok(false);
    }
    let cloud = app.cloud()?;
    if cloud.has_key().await {
        return Ok(true);
    }
    Ok(!cloud.gateway().is_default() && needs_gateway(app, analysis, elsewhere)?)
}

/// Returns whether a program may need the gateway, next to what other registries have of it.
///
/// # Errors
/// Returns `CONFIG_INVALID` for a lock that does not parse.
pub(crate) fn needs_gateway(
    app: &App,
    analysis: &Analysis,
    elsewhere: &Elsewhere,
) -> Result<bool, ErrorBody> {
    Ok(analysis.dynamic || !is_self_sufficient(app, &analysis.tools, elsewhere)?)
}

/// Returns whether all tools are on this machine, or are of capabilities and servers that ran here before.
fn is_self_sufficient(
    app: &App,
    tools: &[ToolId],
    elsewhere: &Elsewhere,
) -> Result<bool, ErrorBody> {
    for id in tools {
        let is_here = app.is_local(id)
            || elsewhere.has(id)
            || !app.lockfile.capabilities(id)?.is_empty()
            || app.stored_servers(id, None)?.len() == 1;
        if !is_here {
            return Ok(false);
        }
    }
    Ok(true)
}

/// For queries without which the program cannot run.
const ANSWER_REQUIRED: LocalFacts = LocalFacts { runs_here: false, needs_no_gateway: false };

/// Asks in a dry run where a program would run.
pub(crate) async fn dry_run(
    app: &App,
    submission: &ExecuteRequest,
    facts: LocalFacts,
    cancel: &CancellationToken,
) -> Result<Reply, ErrorBody> {
    let mut question = submission.clone();
    let options = question.options.get_or_insert_default();
    options.dry_run = true;
    options.include = Include::ALL.to_vec();
    match ask_gateway(app, &question, facts, cancel).await? {
        // Otherwise a gateway could turn a dry run into a run.
        Reply::Answer(Envelope::ExecuteLocally(_)) => Err(ErrorBody::new(
            ErrorCode::GatewayBadAnswer,
            "the gateway answered a dry run with a program to run",
        )),
        answer => Ok(answer),
    }
}

/// Asks the gateway about a program.
///
/// Returns [`Reply::NotNeeded`] if the program can run without the gateway, and the gateway is unreachable or there
/// is no API key for it.
pub(crate) async fn ask_gateway(
    app: &App,
    submission: &ExecuteRequest,
    facts: LocalFacts,
    cancel: &CancellationToken,
) -> Result<Reply, ErrorBody> {
    let cloud = app.cloud()?;
    if facts.needs_no_gateway && !cloud.has_key().await {
        return Ok(Reply::NotNeeded(Vec::new()));
    }
    // Without a key, the default gateway rejects the request, and the user has not chosen to send it the program.
    if cloud.gateway().is_default() && !cloud.has_key().await {
        return Err(cloud.unauthorized());
    }
    let started = Instant::now();
    let answer = if facts.runs_here && facts.needs_no_gateway {
        // The program runs here in any case, so a silent gateway may only delay it.
        match tokio::time::timeout(LOCAL_TIMEOUT, cloud.execute(submission, cancel)).await {
            Ok(answer) => answer,
            Err(_) => {
                let limit = LOCAL_TIMEOUT.as_secs();
                return Ok(Reply::NotNeeded(vec![format!(
                    "the gateway at {} did not answer within {limit} s; the program ran without it",
                    cloud.gateway()
                )]));
            }
        }
    } else {
        cloud.execute(submission, cancel).await
    };
    tracing::debug!(
        gateway = %cloud.gateway(),
        duration_ms = started.elapsed().as_secs_f64() * 1e3,
        status = answer.as_ref().map_or_else(|error| error.error_code.name(), Envelope::status),
        "Asked the gateway"
    );
    match answer {
        // Only this error: a key that the gateway rejects, for example, is reported.
        Err(error)
            if facts.needs_no_gateway && error.error_code == ErrorCode::GatewayUnreachable =>
        {
            tracing::warn!("Running without the gateway: {}", error.message);
            Ok(Reply::NotNeeded(Vec::new()))
        }
        answer => answer.map(Reply::Answer),
    }
}

/// Refuses an answer that lists a tool twice.
pub(crate) fn check_tools(tools: Vec<ToolUse>) -> Result<Vec<ToolUse>, ErrorBody> {
    // Of two entries for one tool, a run would use the first and a plan the last.
    let mut seen = HashSet::new();
    if let Some(duplicate) = tools.iter().find(|tool| !seen.insert(&tool.id)) {
        return Err(ErrorBody::new(
            ErrorCode::GatewayBadAnswer,
            format!("the gateway listed tool `{}` twice", protocol::escape_text(&duplicate.id)),
        ));
    }
    Ok(tools)
}
