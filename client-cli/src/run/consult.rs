//! Submits a program to the gateway, which answers with the locations of its tools or with its result.
//!
//! Nothing runs on this machine here, and the user is not asked.

use analysis::Analysis;
use protocol::{
    Delegation, Envelope, ErrorBody, ErrorCode, ExecuteRequest, ExecutedOn, Include, Integrity,
    Routing, RunNote, Success, ToolId, ToolUse, ToolUseType,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::app::{App, Elsewhere};
use crate::consent::decision::{
    asks_by_full_name, has_ask_rule, refuse_denied, refuse_denied_by_rule,
};
use crate::placement::inquiry::{
    LocalFacts, Located, Reply, Resolution, ask_gateway, check_tools, dry_run, escaped, full_name,
    listed, locate, needs_gateway, read_dry_run, resolution_of, unknown_of,
};
use crate::placement::{self, Placement};

/// The gateway's answer about a program.
pub(crate) enum Consulted {
    /// It runs here, with these tools.
    RunHere(Resolution),
    /// It runs here with this machine's tools only, without the gateway; with warnings for the user.
    RunWithoutGateway(Vec<String>),
    /// The gateway has answered already.
    Answered(Box<Envelope>),
}

/// Submits a program; `elsewhere` has those of its tools that the gateway is not asked about.
///
/// Arguments leave the machine only with a program that has no local tool, after the gateway has confirmed that it
/// will run the program. A program that reaches a tool with an `ask` rule, directly or through a capability, runs here
/// wherever its tools are, because only this machine can ask the user. So does every program under a policy that counts
/// calls, and a program that is to run `here`. With `analysis` as `local`, the gateway gets names only.
///
/// # Errors
/// Returns why there is no valid answer.
pub(crate) async fn consult(
    app: &App,
    request: ExecuteRequest,
    analysis: &Analysis,
    args: &Value,
    here: bool,
    elsewhere: &Elsewhere,
    cancel: &CancellationToken,
) -> Result<Consulted, ErrorBody> {
    // A full name cannot be sent as one of this machine. The program runs here anyway, because a server elsewhere does.
    if app.permissions().keeps_text() || elsewhere.has_full_names() {
        return consult_by_name(app, request, analysis, elsewhere, cancel).await;
    }
    let local = |id: &&ToolId| app.is_local(id) || elsewhere.has(id);
    let local: Vec<&ToolId> = analysis.tools.iter().filter(local).collect();
    let none_local = !analysis.dynamic && local.is_empty();
    // Without local tools, the gateway may run the program, even if this machine could run it too.
    let facts = LocalFacts {
        runs_here: !none_local,
        needs_no_gateway: !needs_gateway(app, analysis, elsewhere)?,
    };
    let mut submission = ExecuteRequest {
        // Added below, once it is known that the gateway will run the program.
        args: None,
        local_tools: local.iter().map(|id| id.to_string()).collect(),
        continue_workflow: None,
        ..request
    };
    // The CLI needs all fields of the answer; the agent gets those that it requested.
    submission.options.get_or_insert_default().include = Include::ALL.to_vec();
    if submission.options.as_ref().is_some_and(|options| options.dry_run) {
        let answer = dry_run(app, &submission, facts, cancel).await?;
        let answer = answer_dry_run(app, analysis, answer, elsewhere, cancel).await?;
        return Ok(Consulted::Answered(Box::new(answer)));
    }
    // The rules may cover tools that the program reaches through capabilities, which only the gateway's answer lists.
    let has_args = args.as_object().is_some_and(|args| !args.is_empty());
    if here || none_local && (has_args || app.permissions().restrict()) {
        match dry_run(app, &submission, facts, cancel).await? {
            Reply::NotNeeded(warnings) => return Ok(Consulted::RunWithoutGateway(warnings)),
            Reply::Answer(Envelope::Success(plan)) => {
                let on_gateway = read_dry_run(&plan.result)?.routing == Routing::Server;
                let resolution = resolution_of(*plan)?;
                placement::learn(app, &resolution.tools).await;
                // Only this machine can ask, and count calls over the whole program.
                let mut asks = has_ask_rule(&app.permissions(), analysis.tools.iter())
                    || app.permissions().policy().counts_calls();
                asks |= has_ask_rule(&app.permissions(), reached(app, &resolution)?.iter());
                if here || on_gateway && asks {
                    return Ok(Consulted::RunHere(resolution));
                }
                // A gateway that will delegate the program does not need them.
                submission.args = (on_gateway && has_args).then(|| args.clone());
            }
            Reply::Answer(other) => return Ok(Consulted::Answered(Box::new(other))),
        }
    }
    Ok(match ask_gateway(app, &submission, facts, cancel).await? {
        Reply::Answer(Envelope::Success(_)) if facts.runs_here && facts.needs_no_gateway => {
            // The gateway cannot have run the program, because a tool of it is on this machine.
            let warning = "the gateway returned a result for a program that must run here; the result was ignored";
            Consulted::RunWithoutGateway(vec![warning.to_owned()])
        }
        Reply::Answer(Envelope::Success(_)) if facts.runs_here => {
            return Err(ErrorBody::new(
                ErrorCode::GatewayBadAnswer,
                "the gateway returned a result for a program that must run here",
            ));
        }
        Reply::Answer(Envelope::ExecuteLocally(delegation)) => {
            let code = submission.code.as_deref().unwrap_or_default();
            let resolution = check(*delegation, code)?;
            placement::learn(app, &resolution.tools).await;
            Consulted::RunHere(resolution)
        }
        Reply::Answer(other) => Consulted::Answered(Box::new(other)),
        Reply::NotNeeded(warnings) => Consulted::RunWithoutGateway(warnings),
    })
}

/// Returns the tools of a program that the gateway does not have, if that is what it answered.
pub(crate) fn unknown(answer: &Result<Consulted, ErrorBody>, tools: &[ToolId]) -> Vec<ToolId> {
    let error = match answer {
        Err(error) => error,
        Ok(Consulted::Answered(envelope)) => match &**envelope {
            Envelope::Error(refused) => &refused.error,
            _ => return Vec::new(),
        },
        Ok(_) => return Vec::new(),
    };
    if error.error_code != ErrorCode::ToolNotFound {
        return Vec::new();
    }
    let unknown = unknown_of(error);
    tools.iter().filter(|id| unknown.contains(&id.as_str())).cloned().collect()
}

/// Returns what the capabilities of a program call, according to the gateway, and the full names that a rule asks about.
///
/// # Errors
/// Returns `PERMISSION_DENIED` if a rule denies one of them, or that the answer is invalid.
fn reached(app: &App, resolution: &Resolution) -> Result<Vec<ToolId>, ErrorBody> {
    let mut all = Vec::new();
    for tool in &resolution.tools {
        let reached = listed(tool)?;
        let why = format!(", and `{}` calls it", protocol::escape_text(&tool.id));
        // `prepare` has checked the program's own names.
        for id in &reached {
            refuse_denied(&app.permissions(), id, &why)?;
        }
        all.extend(reached);
        // A rule may use the full name of a tool that the program calls by its short name.
        if let Some(id) = full_name(tool) {
            refuse_denied_by_rule(&app.permissions(), &id, &why)?;
            let name: Option<ToolId> = tool.id.parse().ok();
            if name.is_none_or(|name| asks_by_full_name(&app.permissions(), &name, &id)) {
                all.push(id);
            }
        }
    }
    Ok(all)
}

/// Locates the tools of a program that runs here, and whose text stays here: the gateway gets the names of those that are
/// not on this machine.
async fn consult_by_name(
    app: &App,
    request: ExecuteRequest,
    analysis: &Analysis,
    elsewhere: &Elsewhere,
    cancel: &CancellationToken,
) -> Result<Consulted, ErrorBody> {
    let others = |id: &&ToolId| !app.is_local(id) && !elsewhere.has(id);
    let ids: Vec<ToolId> = analysis.tools.iter().filter(others).cloned().collect();
    let located = match ids.is_empty() {
        true => Located::NotNeeded(Vec::new()),
        false => {
            let needs_no_gateway = !needs_gateway(app, analysis, elsewhere)?;
            let facts = LocalFacts { runs_here: true, needs_no_gateway };
            locate(app, &ids, None, facts, cancel).await?
        }
    };
    if let Located::There(resolution) = &located {
        placement::learn(app, &resolution.tools).await;
        reached(app, resolution)?;
    }
    if !request.options.is_some_and(|options| options.dry_run) {
        return Ok(match located {
            Located::There(resolution) => Consulted::RunHere(resolution),
            // The names that it computes are resolved when they are called.
            Located::NotNeeded(_) if analysis.dynamic => Consulted::RunHere(Resolution::default()),
            Located::NotNeeded(warnings) => Consulted::RunWithoutGateway(warnings),
        });
    }
    let (resolution, warnings) = match located {
        Located::There(resolution) => (Some(resolution), Vec::new()),
        Located::NotNeeded(warnings) => (None, warnings),
    };
    let tools = resolution.as_ref().map_or_else(Vec::new, |found| found.tools.clone());
    let mut placement =
        Placement::of_resolution(app, analysis, resolution, elsewhere, cancel).await?;
    placement.notes.extend(warnings);
    let answer = without_gateway(analysis, &placement, &tools);
    Ok(Consulted::Answered(Box::new(Envelope::Success(Box::new(answer)))))
}

/// Answers a dry run: the gateway locates the tools, and the user's rules and servers override it.
async fn answer_dry_run(
    app: &App,
    analysis: &Analysis,
    answer: Reply,
    elsewhere: &Elsewhere,
    cancel: &CancellationToken,
) -> Result<Envelope, ErrorBody> {
    let mut success = match answer {
        Reply::Answer(Envelope::Success(success)) => {
            // Only checked: the plan of this machine replaces it below.
            read_dry_run(&success.result)?;
            success
        }
        Reply::Answer(refused) => return Ok(refused),
        Reply::NotNeeded(warnings) => {
            let mut placement =
                Placement::of_resolution(app, analysis, None, elsewhere, cancel).await?;
            placement.notes.extend(warnings);
            return Ok(Envelope::Success(Box::new(without_gateway(analysis, &placement, &[]))));
        }
    };
    let resolution = resolution_of((*success).clone())?;
    placement::learn(app, &resolution.tools).await;
    success.tools_used = Some(resolution.tools.clone());
    let placement =
        Placement::of_resolution(app, analysis, Some(resolution), elsewhere, cancel).await?;
    success.result = json!(placement.dry_run(analysis));
    success.run.warnings.extend(placement.warnings());
    Ok(Envelope::Success(success))
}

/// Returns the answer to a dry run that the gateway did not make; `known` are the tools that it located.
fn without_gateway(analysis: &Analysis, placement: &Placement, known: &[ToolUse]) -> Success {
    let tool_use = |id: &ToolId| {
        let found = known.iter().find(|tool| tool.id == id.as_str());
        found.cloned().unwrap_or_else(|| local_tool_use(id))
    };
    Success {
        result: json!(placement.dry_run(analysis)),
        run: RunNote {
            execution_id: uuid::Uuid::now_v7().to_string(),
            executed: ExecutedOn::Client,
            duration_ms: 0.0,
            console: Vec::new(),
            console_truncated: false,
            warnings: placement.warnings(),
            calls: Some(Vec::new()),
            failed_calls: Vec::new(),
            meta: None,
        },
        tools_used: Some(analysis.tools.iter().map(tool_use).collect()),
        dag: serde_json::to_value(&analysis.dag).ok(),
    }
}

/// Checks a delegation against the submitted program; returns its tools.
fn check(delegation: Delegation, code: &str) -> Result<Resolution, ErrorBody> {
    let submitted = Integrity::of(code.as_bytes());
    // The returned text is never run. A difference means that the tools in the answer belong to
    // another program.
    if delegation.code_hash != submitted || delegation.code != code {
        return Err(ErrorBody::new(
            ErrorCode::CodeHashMismatch,
            format!(
                "the gateway returned a program ({}) that is not the submitted one ({submitted})",
                delegation.code_hash
            ),
        ));
    }
    Ok(Resolution {
        tools: check_tools(delegation.tools_used)?,
        warnings: escaped(&delegation.warnings),
        scope: None,
        execution: Some(delegation.workflow_id),
    })
}

/// Describes a tool that only this machine knows.
pub(crate) fn local_tool_use(id: &ToolId) -> ToolUse {
    ToolUse {
        id: id.to_string(),
        fqdn: None,
        version: None,
        kind: ToolUseType::Tool,
        routing: Routing::Client,
        integrity: None,
        tools: None,
        lacks_key: None,
    }
}
