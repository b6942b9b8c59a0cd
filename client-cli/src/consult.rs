//! What the gateway says about a program: where its tools are, or its result.
//!
//! Nothing has run here and nobody was asked when this returns.

use std::collections::HashSet;
use std::time::Instant;

use analysis::Analysis;
use protocol::{
    Delegation, Envelope, ErrorBody, ErrorCode, ExecuteRequest, ExecutedOn, Integrity, Routing,
    RunNote, Success, ToolId, ToolUse, ToolUseType,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::consent::permissions::Verdict;
use crate::targets::refuse_denied;

/// The gateway's word on a program.
pub(crate) enum Word {
    /// It runs here, with these tools.
    RunHere(Vec<ToolUse>),
    /// It runs here, with what this machine has: there is no gateway to ask.
    RunAlone,
    /// The gateway has answered already.
    Answered(Box<Envelope>),
}

/// Submits a program.
///
/// Arguments leave the machine only with a program that has no part here, and
/// that the gateway has said it runs itself. A program with a tool that a rule
/// says to ask about runs here, wherever its tools are: only here somebody asks.
/// So does one that reaches such a tool through a capability.
///
/// # Errors
/// Returns why the gateway's answer cannot be had or used.
pub(crate) async fn consult(
    app: &App,
    request: ExecuteRequest,
    analysis: &Analysis,
    args: &Value,
    cancel: &CancellationToken,
) -> Result<Word, ErrorBody> {
    let local: Vec<&ToolId> = analysis.tools.iter().filter(|id| app.is_local(id)).collect();
    let none_local = !analysis.dynamic && local.is_empty();
    let needs_gateway = analysis.dynamic || !can_do_alone(app, &analysis.tools)?;
    let all_local = !needs_gateway;
    let mut submission = ExecuteRequest {
        args: None,
        local_tools: local.iter().map(|id| id.to_string()).collect(),
        continue_workflow: None,
        ..request
    };
    if submission.options.as_ref().is_some_and(|options| options.dry_run) {
        let answer = dry_run(app, &submission, all_local, cancel).await?;
        let answer = answer.unwrap_or_else(|| plan_without_gateway(analysis));
        return Ok(Word::Answered(Box::new(answer)));
    }
    // Which rules cover what it reaches, only the gateway's answer shows.
    let has_args = args.as_object().is_some_and(|args| !args.is_empty());
    if none_local && (has_args || app.permissions().restrict()) {
        match dry_run(app, &submission, all_local, cancel).await? {
            None => return Ok(Word::RunAlone),
            Some(Envelope::Success(plan)) => {
                let told = check_tools(plan.tools_used)?;
                let mut asks = has_ask_rule(app, analysis.tools.iter());
                for tool in &told {
                    let below = listed(tool)?;
                    for id in &below {
                        let why = format!(", and `{}` calls it", protocol::escape_text(&tool.id));
                        refuse_denied(app, id, &why)?;
                    }
                    asks |= has_ask_rule(app, below.iter());
                }
                let there = plan.result.get("routing").and_then(Value::as_str)
                    == Some(Routing::Server.as_str());
                if there && asks {
                    return Ok(Word::RunHere(told));
                }
                submission.args = (there && has_args).then(|| args.clone());
            }
            Some(other) => return Ok(Word::Answered(Box::new(other))),
        }
    }
    Ok(match ask_gateway(app, &submission, all_local, cancel).await? {
        Some(Envelope::ExecuteLocally(delegation)) => {
            let code = submission.code.as_deref().unwrap_or_default();
            Word::RunHere(check(*delegation, code)?)
        }
        Some(other) => Word::Answered(Box::new(other)),
        None => Word::RunAlone,
    })
}

/// Asks the gateway what the tools of a piece of code are. It runs nowhere.
///
/// # Errors
/// Returns why the gateway's answer cannot be had or used.
pub(crate) async fn look_up(
    app: &App,
    code: &str,
    tools: &[ToolId],
    cancel: &CancellationToken,
) -> Result<Vec<ToolUse>, ErrorBody> {
    let local = tools.iter().filter(|id| app.is_local(id));
    let question = ExecuteRequest {
        code: Some(code.to_owned()),
        local_tools: local.map(ToolId::to_string).collect(),
        ..ExecuteRequest::default()
    };
    match dry_run(app, &question, false, cancel).await? {
        Some(Envelope::Success(plan)) => check_tools(plan.tools_used),
        Some(Envelope::Error(refused)) => Err(refused.error),
        _ => Err(ErrorBody::new(
            ErrorCode::GatewayBadAnswer,
            "the gateway answered a dry run with something else",
        )),
    }
}

/// Returns what the gateway says that a capability reaches; nothing for a tool.
///
/// It is believed where it leads to a refusal or a question, and only there.
///
/// # Errors
/// Returns `GATEWAY_BAD_ANSWER` for what is no id.
pub(crate) fn listed(tool: &ToolUse) -> Result<Vec<ToolId>, ErrorBody> {
    let names = tool.tools.iter().flatten();
    names
        .map(|name| name.parse())
        .collect::<Result<_, _>>()
        .map_err(|error| ErrorBody::new(ErrorCode::GatewayBadAnswer, format!("{error}")))
}

/// Tells whether this machine has all that tools need: they are here, or
/// capabilities that ran here before.
fn can_do_alone(app: &App, tools: &[ToolId]) -> Result<bool, ErrorBody> {
    for id in tools {
        if !app.is_local(id) && app.lockfile.capabilities(id)?.is_empty() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Tells whether a rule says to ask about one of these tools.
///
/// The default, to ask where no rule stands, is for what runs on this machine
/// or gets data from it.
pub(crate) fn has_ask_rule<'a>(app: &App, mut tools: impl Iterator<Item = &'a ToolId>) -> bool {
    let permissions = app.permissions();
    tools.any(|id| {
        let decision = permissions.decide(id);
        decision.verdict == Verdict::Ask && decision.rule.is_some()
    })
}

/// Asks where a program would run; it runs nowhere.
async fn dry_run(
    app: &App,
    submission: &ExecuteRequest,
    all_local: bool,
    cancel: &CancellationToken,
) -> Result<Option<Envelope>, ErrorBody> {
    let mut question = submission.clone();
    question.options.get_or_insert_default().dry_run = true;
    match ask_gateway(app, &question, all_local, cancel).await? {
        Some(Envelope::ExecuteLocally(_)) => Err(ErrorBody::new(
            ErrorCode::GatewayBadAnswer,
            "the gateway answered a dry run with a program to run",
        )),
        answer => Ok(answer),
    }
}

/// Asks the gateway what it knows of a program.
///
/// Returns nothing for a program whose tools are all here when there is no
/// gateway to ask: it cannot be reached, or there is no key for it.
async fn ask_gateway(
    app: &App,
    submission: &ExecuteRequest,
    all_local: bool,
    cancel: &CancellationToken,
) -> Result<Option<Envelope>, ErrorBody> {
    let cloud = app.cloud()?;
    if all_local && !cloud.has_key() {
        return Ok(None);
    }
    let started = Instant::now();
    let answer = cloud.execute(submission, cancel).await;
    tracing::debug!(
        gateway = %cloud.gateway(),
        duration_ms = started.elapsed().as_secs_f64() * 1e3,
        status = answer.as_ref().map_or_else(|error| error.error_code.name(), Envelope::status),
        "The gateway was asked"
    );
    match answer {
        Err(error) if all_local && error.error_code == ErrorCode::GatewayUnreachable => {
            tracing::warn!(error = %error.message, "Running without the gateway");
            Ok(None)
        }
        answer => answer.map(Some),
    }
}

/// Tells of a program whose tools are all here where it would run.
fn plan_without_gateway(analysis: &Analysis) -> Envelope {
    let result = json!({
        "dry_run": true,
        "routing": Routing::Client,
        "dynamic": analysis.dynamic,
        "client_tools": analysis.tools,
        "diagnostics": analysis.diagnostics,
    });
    Envelope::Success(Box::new(Success {
        result,
        run: RunNote {
            execution_id: uuid::Uuid::now_v7().to_string(),
            executed: ExecutedOn::Client,
            duration_ms: 0.0,
            console: Vec::new(),
            console_truncated: false,
            warnings: Vec::new(),
            calls: Vec::new(),
        },
        tools_used: analysis.tools.iter().map(local_tool_use).collect(),
        dag: serde_json::to_value(&analysis.dag).unwrap_or_default(),
    }))
}

/// Holds the gateway's answer against what was submitted; returns its tools.
fn check(delegation: Delegation, code: &str) -> Result<Vec<ToolUse>, ErrorBody> {
    let submitted = Integrity::of(code.as_bytes());
    if delegation.code_hash != submitted || delegation.code != code {
        return Err(ErrorBody::new(
            ErrorCode::CodeHashMismatch,
            format!(
                "the gateway answered with a program ({}) that is not the submitted one ({submitted})",
                delegation.code_hash
            ),
        ));
    }
    check_tools(delegation.tools_used)
}

fn check_tools(tools: Vec<ToolUse>) -> Result<Vec<ToolUse>, ErrorBody> {
    let mut seen = HashSet::new();
    if let Some(twice) = tools.iter().find(|tool| !seen.insert(&tool.id)) {
        return Err(ErrorBody::new(
            ErrorCode::GatewayBadAnswer,
            format!("the gateway named tool `{}` twice", protocol::escape_text(&twice.id)),
        ));
    }
    Ok(tools)
}

/// Describes a tool that only this machine knows of.
pub(crate) fn local_tool_use(id: &ToolId) -> ToolUse {
    ToolUse {
        id: id.to_string(),
        fqdn: None,
        kind: ToolUseType::Tool,
        routing: Routing::Client,
        integrity: None,
        tools: None,
    }
}
