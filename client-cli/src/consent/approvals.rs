//! Questions to the human, and the runs that wait for the answers.
//!
//! A run that asks stays alive, paused inside its call, so that it goes on where
//! it stood and nothing is done twice. A question is answered once.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use protocol::{Approval, ApprovalType, ErrorBody, ErrorCode, Integrity, ToolId, escape_text};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::run::PausedRun;

/// How long a question waits for an answer.
pub const EXPIRY: Duration = Duration::from_secs(300);

/// How many paused runs may wait at once; the oldest makes room.
const PAUSED_LIMIT: usize = 64;

/// How much of one argument's text is shown; the rest is told by length and hash.
const SHOWN_TEXT: usize = 2_000;

/// What a human is asked.
#[derive(Debug)]
pub struct Question {
    /// The tool that wants to run.
    pub tool: ToolId,
    /// The arguments of the call that waits.
    pub arguments: Value,
    /// Why it is asked: the rule that applies.
    pub reason: String,
    /// What has to be started or installed first, if anything.
    pub start: Option<String>,
    /// Takes the answer.
    pub answer: oneshot::Sender<Answer>,
}

/// What the human decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// This call may run.
    Once,
    /// This call may run, and the tool from now on.
    Always,
    /// The run ends.
    Abort,
}

/// A paused run and the question it waits on.
struct Waiting {
    run: PausedRun,
    answer: oneshot::Sender<Answer>,
    tool: ToolId,
    deadline: Instant,
}

/// The paused runs of this process.
#[derive(Default)]
pub struct Approvals {
    waiting: Mutex<HashMap<String, Waiting>>,
}

/// A paused run that was found again.
pub struct Resumed {
    /// The run.
    pub run: PausedRun,
    /// Takes the answer.
    pub answer: oneshot::Sender<Answer>,
    /// The tool that was asked about.
    pub tool: ToolId,
}

impl Approvals {
    /// Keeps a run until its question is answered; returns what to show.
    pub fn pause(&self, run: PausedRun, question: Question, code_hash: Integrity) -> Approval {
        let workflow_id = new_workflow_id();
        let approval = describe(&workflow_id, &question, code_hash);
        let mut waiting = self.lock();
        waiting.retain(|_, entry| entry.deadline > Instant::now());
        if waiting.len() >= PAUSED_LIMIT {
            let oldest =
                waiting.iter().min_by_key(|(_, entry)| entry.deadline).map(|(id, _)| id.clone());
            // Dropping a paused run cancels it.
            oldest.map(|id| waiting.remove(&id));
        }
        waiting.insert(
            workflow_id,
            Waiting {
                run,
                answer: question.answer,
                tool: question.tool,
                deadline: Instant::now() + EXPIRY,
            },
        );
        approval
    }

    /// Takes a paused run out, so that its question can be answered: once.
    ///
    /// # Errors
    /// Returns `APPROVAL_EXPIRED` past the deadline, `WORKFLOW_LOST` for an id that
    /// this process does not know, `WORKFLOW_NOT_FOUND` for anything else.
    pub fn resume(&self, workflow_id: &str) -> Result<Resumed, ErrorBody> {
        let shown = escape_text(&workflow_id.chars().take(64).collect::<String>());
        let Some(entry) = self.lock().remove(workflow_id) else {
            let own = workflow_id.strip_prefix("wl_").is_some_and(|rest| {
                rest.len() == 32 && rest.bytes().all(|b| b.is_ascii_hexdigit())
            });
            return Err(if own {
                ErrorBody::new(
                    ErrorCode::WorkflowLost,
                    format!(
                        "the paused run `{shown}` was answered already, or ended with the `pml` process that held it"
                    ),
                )
            } else {
                ErrorBody::new(
                    ErrorCode::WorkflowNotFound,
                    format!("there is no paused run `{shown}`"),
                )
            });
        };
        if entry.deadline <= Instant::now() {
            return Err(ErrorBody::new(
                ErrorCode::ApprovalExpired,
                format!(
                    "nobody answered for `{}` within {} minutes; the run was ended",
                    entry.tool,
                    EXPIRY.as_secs() / 60
                ),
            ));
        }
        Ok(Resumed { run: entry.run, answer: entry.answer, tool: entry.tool })
    }

    /// Ends every paused run.
    pub fn end_all(&self) {
        // Dropping a paused run cancels it.
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns an id that nobody can guess: 128 random bits.
fn new_workflow_id() -> String {
    format!("wl_{}", uuid::Uuid::from_bytes(random_bits()).simple())
}

fn random_bits() -> [u8; 16] {
    let mut bits = [0; 16];
    getrandom::fill(&mut bits).expect("the kernel has random bits");
    bits
}

/// Renders a question from the very arguments that will be used.
fn describe(workflow_id: &str, question: &Question, code_hash: Integrity) -> Approval {
    let arguments = question.arguments.to_string();
    let mut description = format!("Run `{}` with {}", question.tool, shown(&arguments));
    if let Some(start) = &question.start {
        description = format!("Start {}\n{description}", shown(start));
    }
    let expires: chrono::DateTime<chrono::Utc> = (SystemTime::now() + EXPIRY).into();
    Approval {
        approval_required: true,
        approval_type: if question.start.is_some() {
            ApprovalType::Dependency
        } else {
            ApprovalType::ToolPermission
        },
        workflow_id: workflow_id.to_owned(),
        description,
        context: json!({
            "tool": question.tool,
            "arguments": question.arguments,
            "arguments_hash": Integrity::of(arguments.as_bytes()),
            "code_hash": code_hash,
            "reason": question.reason,
            "start": question.start.as_deref().map(escape_text),
        }),
        options: ["continue", "always", "abort"].map(str::to_owned).to_vec(),
        expires_at: expires.to_rfc3339_opts(chrono::SecondsFormat::Secs, true),
    }
}

/// Shows a text whole, or head and tail with its length and hash: never cut silently.
pub fn shown(text: &str) -> String {
    let count = text.chars().count();
    if count <= SHOWN_TEXT {
        return escape_text(text);
    }
    let head: String = text.chars().take(SHOWN_TEXT / 2).collect();
    let tail: String = text.chars().skip(count - SHOWN_TEXT / 2).collect();
    format!(
        "{} … [{count} characters in all, {}] … {}",
        escape_text(&head),
        Integrity::of(text.as_bytes()),
        escape_text(&tail)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_long_random_and_own() {
        let (a, b) = (new_workflow_id(), new_workflow_id());
        assert_ne!(a, b);
        assert_eq!(a.len(), 3 + 32);
        assert!(a.starts_with("wl_"));
    }

    /// AP-02, AP-03: what a human sees is escaped, and a long text is told, not cut.
    #[test]
    fn texts_are_shown_whole_or_told() {
        assert_eq!(shown("a\u{202e}b\x1b[2J\n"), "a\\u{202e}b\\u{1b}[2J\\u{a}");
        let long = format!("{}END", "x".repeat(65_536));
        let text = shown(&long);
        assert!(text.contains("65539 characters in all, sha256-") && text.ends_with("END"));
    }

    #[test]
    fn unknown_workflows_are_told_apart() {
        let approvals = Approvals::default();
        let code = |id: &str| approvals.resume(id).err().map(|error| error.error_code);
        assert_eq!(code(&new_workflow_id()), Some(ErrorCode::WorkflowLost));
        assert_eq!(code("wl_x"), Some(ErrorCode::WorkflowNotFound));
        assert_eq!(code(""), Some(ErrorCode::WorkflowNotFound));
    }
}
