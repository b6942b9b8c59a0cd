//! `pml approve` and `pml deny`: answer a run that waits in an agent's session.

use std::io::{BufRead as _, IsTerminal as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use protocol::ApprovalType;
use serde_json::Value;

use super::terminal::{note, say};
use crate::consent::question::left_out::LeftOut;
use crate::consent::question::{Answer, code};
use crate::consent::trust::TrustStore;
use crate::error::CliError;
use crate::run::posted::{self, Posted, PostedQuestions};

/// How long the waiting `pml` may take to read an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// `pml approve`: shows the question, asks on the terminal, and passes the answer on.
///
/// # Errors
/// Returns that there is no such question, or no terminal to ask on.
pub(crate) fn approve(workflow_id: Option<&str>) -> Result<ExitCode, CliError> {
    let questions = questions()?;
    let Some(posted) = select(&questions, workflow_id, "approve")? else {
        return Ok(ExitCode::SUCCESS);
    };
    // If an agent runs this command, none of these streams is a terminal.
    let is_person = std::io::stdin().is_terminal()
        && std::io::stdout().is_terminal()
        && std::io::stderr().is_terminal();
    if !is_person {
        return Err(CliError::cannot_run("there is no terminal to ask on")
            .with_hint("Run `pml approve` yourself, in a terminal of your own."));
    }
    note(&posted::shown(&posted));
    let offers_always = posted.approval.options.iter().any(|option| option == "always");
    let context = &posted.approval.context;
    let is_dangerous = context.get("dangerous") == Some(&Value::Bool(true));
    let reason = context.get("needs_person").and_then(Value::as_str);
    let is_list = posted.approval.approval_type == ApprovalType::Plan;
    let mut without = LeftOut::default();
    let mut leave_out = |line: &str| match LeftOut::of_line(line, &posted.approval) {
        None => Ok(None),
        Some(Ok(left_out)) => {
            without = left_out;
            Ok(Some(Answer::Once))
        }
        Some(Err(reason)) => {
            Err(CliError::cannot_run(reason).with_hint("Not answered; the run waits."))
        }
    };
    let answer = match reason.filter(|_| is_dangerous) {
        Some(why) => {
            let code = code();
            let some = match is_list {
                true => format!("{code} w 2,4 to leave calls out, "),
                false => String::new(),
            };
            note(&format!(
                "Careful: {}.\nType {code} to allow it, {some}anything else to leave it unanswered: ",
                protocol::escape_text(why)
            ));
            match line()?.strip_prefix(&code).map(str::trim) {
                Some("") => Some(Answer::Once),
                Some(rest) => leave_out(rest)?,
                None => None,
            }
        }
        None => {
            let always = if offers_always { " once, [a]lways" } else { "" };
            let some = if is_list { ", [w]ithout some calls (w 2,4)" } else { "" };
            note(&format!("Allow? [y]es{always}{some}, [d]eny and end the run, [N]ot now: "));
            match line()?.as_str() {
                "y" | "yes" => Some(Answer::Once),
                "a" | "always" if offers_always => Some(Answer::Always),
                "d" | "deny" => Some(Answer::Abort),
                other => leave_out(other)?,
            }
        }
    };
    match answer {
        Some(answer) => pass_on(&questions, &posted, answer, without),
        None => Err(CliError::cannot_run("not answered; the run waits")),
    }
}

/// `pml deny`: ends the run. Needs no terminal, because anybody may deny.
///
/// # Errors
/// Returns that there is no such question.
pub(crate) fn deny(workflow_id: Option<&str>) -> Result<ExitCode, CliError> {
    let questions = questions()?;
    match select(&questions, workflow_id, "deny")? {
        Some(posted) => pass_on(&questions, &posted, Answer::Abort, LeftOut::default()),
        None => Ok(ExitCode::SUCCESS),
    }
}

fn questions() -> Result<PostedQuestions, CliError> {
    let store = TrustStore::of_user().map_err(|error| CliError::cannot_run(error.to_string()))?;
    Ok(PostedQuestions::of(store.folder()))
}

/// Returns the question that is meant. Without an id, the only one; several are listed instead.
fn select(
    questions: &PostedQuestions,
    workflow_id: Option<&str>,
    command: &str,
) -> Result<Option<Posted>, CliError> {
    if let Some(id) = workflow_id {
        return questions.find(id).map(Some).ok_or_else(|| {
            let id = protocol::escape_text(id);
            CliError::cannot_run(format!("no question waits as `{id}`"))
                .with_hint("It was answered, it expired, or its `pml` has ended. `pml approve` lists the questions that wait.")
        });
    }
    let mut waiting = questions.list();
    match waiting.len() {
        0 => {
            say("No question waits for an answer.\n")?;
            Ok(None)
        }
        1 => Ok(waiting.pop()),
        _ => {
            let all: String = waiting.iter().map(posted::shown).collect();
            say(&format!("{all}\n"))?;
            Err(CliError::cannot_run("several questions wait")
                .with_hint(format!("Name one: `pml {command} WORKFLOW`.")))
        }
    }
}

/// Writes the answer, and waits until the run has it.
fn pass_on(
    questions: &PostedQuestions,
    posted: &Posted,
    answer: Answer,
    without: LeftOut,
) -> Result<ExitCode, CliError> {
    let id = &posted.approval.workflow_id;
    let ended = || {
        CliError::cannot_run(
            "the question no longer waits: it was answered elsewhere, or its run has ended",
        )
    };
    // The person may have thought about it for minutes.
    if questions.find(id).is_none() {
        return Err(ended());
    }
    questions
        .answer(id, answer, without)
        .map_err(|error| CliError::failed(format!("cannot pass the answer on: {error}")))?;
    let begun = Instant::now();
    while !questions.was_taken(id) {
        if questions.find(id).is_none() {
            // Taken in between, or gone for another reason.
            if questions.was_taken(id) {
                break;
            }
            questions.remove(id);
            return Err(ended());
        }
        if begun.elapsed() > PATIENCE {
            questions.remove(id);
            return Err(CliError::failed("the waiting `pml` did not read the answer"));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    say(match answer {
        Answer::Once => "Allowed; the run continues.\n",
        Answer::Always => "Allowed from now on; the run continues.\n",
        Answer::Abort => "Denied; the run was ended.\n",
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Reads an answer from the terminal. The end of the input is an empty one.
fn line() -> Result<String, CliError> {
    let mut line = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut line)
        .map_err(|error| CliError::failed(format!("cannot ask: {error}")))?;
    Ok(line.trim().to_ascii_lowercase())
}
