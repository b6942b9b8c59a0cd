//! The gateway's answer about a program: where its tools are, or its result.
//!
//! When this returns, nothing has run here and nobody was asked.

use analysis::Analysis;
use protocol::{
    Delegation, Envelope, ErrorBody, ErrorCode, ExecuteRequest, ExecutedOn, Include, Integrity,
    Routing, RunNote, Success, ToolId, ToolUse, ToolUseType,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::consent::decision::{has_ask_rule, refuse_denied};
use crate::placement::inquiry::{
    Heard, Own, Told, ask_gateway, check_tools, dry_run, full_name, listed, needs_gateway,
    read_dry_run, shown, told,
};
use crate::placement::{self, Placement};

/// The gateway's word on a program.
pub(crate) enum Word {
    /// It runs here, with these tools.
    RunHere(Told),
    /// It runs here, with this machine's tools only: there is no gateway. These are warnings for the user.
    RunAlone(Vec<String>),
    /// The gateway has answered already.
    Answered(Box<Envelope>),
}

/// Submits a program.
///
/// Arguments leave the machine only with a program that has no local tool, after the gateway has confirmed that it
/// will run the program. A program with a tool that a rule asks about runs here, wherever its tools are, because only
/// here somebody can be asked. The same holds for a program that reaches such a tool through a capability.
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
    // A program without a tool here may be the gateway's to run, even where this machine could.
    let own = Own { runs_here: !none_local, needs_nothing: !needs_gateway(app, analysis)? };
    let mut submission = ExecuteRequest {
        args: None,
        local_tools: local.iter().map(|id| id.to_string()).collect(),
        continue_workflow: None,
        ..request
    };
    // The CLI needs all fields of the answer; the agent gets those that it requested.
    submission.options.get_or_insert_default().include = Include::ALL.to_vec();
    if submission.options.as_ref().is_some_and(|options| options.dry_run) {
        let answer = dry_run(app, &submission, own, cancel).await?;
        let answer = answer_dry_run(app, analysis, answer, cancel).await?;
        return Ok(Word::Answered(Box::new(answer)));
    }
    // Only the gateway's answer shows which rules cover what it reaches.
    let has_args = args.as_object().is_some_and(|args| !args.is_empty());
    if none_local && (has_args || app.permissions().restrict()) {
        match dry_run(app, &submission, own, cancel).await? {
            Heard::Nothing(warnings) => return Ok(Word::RunAlone(warnings)),
            Heard::Said(Envelope::Success(plan)) => {
                let there = read_dry_run(&plan.result)?.routing == Routing::Server;
                let told = told(*plan)?;
                placement::learn(app, &told.tools).await;
                let mut asks = has_ask_rule(&app.permissions(), analysis.tools.iter());
                for tool in &told.tools {
                    let mut below = listed(tool)?;
                    // A rule may name in full what the program names in short.
                    below.extend(full_name(tool));
                    for id in &below {
                        let why = format!(", and `{}` calls it", protocol::escape_text(&tool.id));
                        refuse_denied(&app.permissions(), id, &why)?;
                    }
                    asks |= has_ask_rule(&app.permissions(), below.iter());
                }
                if there && asks {
                    return Ok(Word::RunHere(told));
                }
                submission.args = (there && has_args).then(|| args.clone());
            }
            Heard::Said(other) => return Ok(Word::Answered(Box::new(other))),
        }
    }
    Ok(match ask_gateway(app, &submission, own, cancel).await? {
        Heard::Said(Envelope::Success(_)) if own.runs_here && own.needs_nothing => {
            let warning = "the gateway returned a result for a program that must run here; the result was ignored";
            Word::RunAlone(vec![warning.to_owned()])
        }
        Heard::Said(Envelope::Success(_)) if own.runs_here => {
            return Err(ErrorBody::new(
                ErrorCode::GatewayBadAnswer,
                "the gateway returned a result for a program that must run here",
            ));
        }
        Heard::Said(Envelope::ExecuteLocally(delegation)) => {
            let code = submission.code.as_deref().unwrap_or_default();
            let told = check(*delegation, code)?;
            placement::learn(app, &told.tools).await;
            Word::RunHere(told)
        }
        Heard::Said(other) => Word::Answered(Box::new(other)),
        Heard::Nothing(warnings) => Word::RunAlone(warnings),
    })
}

/// Answers a dry run as this machine would run the program: the gateway knows where its tools are; the user's rules
/// and servers may change that.
async fn answer_dry_run(
    app: &App,
    analysis: &Analysis,
    answer: Heard,
    cancel: &CancellationToken,
) -> Result<Envelope, ErrorBody> {
    let mut success = match answer {
        Heard::Said(Envelope::Success(success)) => {
            read_dry_run(&success.result)?;
            success
        }
        Heard::Said(refused) => return Ok(refused),
        Heard::Nothing(warnings) => {
            let mut placement = Placement::of_told(app, analysis, None, cancel).await?;
            placement.notes.extend(warnings);
            return Ok(Envelope::Success(Box::new(without_gateway(analysis, &placement))));
        }
    };
    let told = told((*success).clone())?;
    placement::learn(app, &told.tools).await;
    success.tools_used = Some(told.tools.clone());
    let placement = Placement::of_told(app, analysis, Some(told), cancel).await?;
    success.result = json!(placement.dry_run(analysis));
    success.run.warnings.extend(placement.notes);
    Ok(Envelope::Success(success))
}

fn without_gateway(analysis: &Analysis, placement: &Placement) -> Success {
    Success {
        result: json!(placement.dry_run(analysis)),
        run: RunNote {
            execution_id: uuid::Uuid::now_v7().to_string(),
            executed: ExecutedOn::Client,
            duration_ms: 0.0,
            console: Vec::new(),
            console_truncated: false,
            warnings: placement.notes.clone(),
            calls: Some(Vec::new()),
            failed_calls: Vec::new(),
            meta: None,
        },
        tools_used: Some(analysis.tools.iter().map(local_tool_use).collect()),
        dag: serde_json::to_value(&analysis.dag).ok(),
    }
}

/// Checks the gateway's answer against the submission; returns its tools.
fn check(delegation: Delegation, code: &str) -> Result<Told, ErrorBody> {
    let submitted = Integrity::of(code.as_bytes());
    if delegation.code_hash != submitted || delegation.code != code {
        return Err(ErrorBody::new(
            ErrorCode::CodeHashMismatch,
            format!(
                "the gateway returned a program ({}) that is not the submitted one ({submitted})",
                delegation.code_hash
            ),
        ));
    }
    Ok(Told {
        tools: check_tools(delegation.tools_used)?,
        warnings: shown(&delegation.warnings),
        scope: None,
    })
}

/// Describes a tool that only this machine knows of.
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
