//! Questions to the human, and the runs that wait for the answers.
//!
//! A run that asks stays alive, paused inside its call, so that it continues where it stopped and nothing is
//! repeated. A question can be answered once.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use protocol::{Approval, ApprovalType, ErrorBody, ErrorCode, Integrity, ToolId, escape_text};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::look_alike;
use crate::run::PausedRun;
use crate::workspace::protected::Protected;

/// The time limit of a question.
pub const EXPIRY: Duration = Duration::from_secs(300);

/// The maximum number of paused runs; beyond it, the oldest is ended. Each occupies one of the slots in which
/// programs run, so there must be fewer of them than slots.
const PAUSED_LIMIT: usize = 32;

/// How many runs that ended without an answer are remembered, for the error message.
const ENDED_LIMIT: usize = 256;

/// The displayed length of one argument's text; the rest is represented by its length and hash.
const SHOWN_TEXT: usize = 2_000;

/// What has to be started or approved before a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// Its identity: its name, its hash, and the command or the program.
    pub what: String,
    /// The variables that it receives, one line each.
    pub grants: Vec<String>,
    /// The hash of all of that, as it is pinned.
    pub hash: Option<Integrity>,
}

/// A question for a human.
#[derive(Debug)]
pub struct Question {
    /// The tool that wants to run.
    pub tool: ToolId,
    /// The capabilities that call it, the outermost first; none for the program itself.
    pub through: Vec<ToolId>,
    /// The arguments of the call that waits.
    pub arguments: Value,
    /// The reason for the question: the rule that applies.
    pub reason: String,
    /// The number of calls with these arguments that wait for the answer.
    pub count: u64,
    /// The protected places that it touches.
    pub places: Vec<Protected>,
    /// The server or capability that has to be started or installed first, if any.
    pub start: Option<Start>,
    /// The address that receives the call, if its server is not on this machine.
    pub sends_to: Option<String>,
    /// Takes the answer.
    pub answer: oneshot::Sender<Answer>,
}

/// The human's decision.
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

/// Why a run ended without an answer.
#[derive(Debug, Clone, Copy)]
enum Unanswered {
    /// Nobody answered in time.
    Expired,
    /// Newer questions took its place.
    MadeRoom,
}

#[derive(Default)]
struct Runs {
    waiting: HashMap<String, Waiting>,
    ended: VecDeque<(String, ToolId, Unanswered)>,
}

impl Runs {
    fn end(&mut self, workflow_id: &str, why: Unanswered) {
        // Dropping a paused run cancels it.
        let Some(entry) = self.waiting.remove(workflow_id) else { return };
        if self.ended.len() == ENDED_LIMIT {
            self.ended.pop_front();
        }
        self.ended.push_back((workflow_id.to_owned(), entry.tool, why));
    }
}

/// The paused runs of this process.
pub struct Approvals {
    runs: Mutex<Runs>,
    expiry: Duration,
}

impl Default for Approvals {
    fn default() -> Self {
        Self { runs: Mutex::default(), expiry: EXPIRY }
    }
}

/// A paused run that was found again.
pub struct Resumed {
    /// The run.
    pub run: PausedRun,
    /// Takes the answer.
    pub answer: oneshot::Sender<Answer>,
    /// The tool of the question.
    pub tool: ToolId,
}

impl Approvals {
    /// Keeps a run until its question is answered, for at most [`EXPIRY`]; returns the question to show.
    pub fn pause(
        self: &Arc<Self>,
        run: PausedRun,
        question: Question,
        code_hash: Integrity,
    ) -> Approval {
        let workflow_id = new_workflow_id();
        let approval = describe(&workflow_id, &question, code_hash);
        let deadline = Instant::now() + self.expiry;
        let entry = Waiting { run, answer: question.answer, tool: question.tool, deadline };
        let mut runs = self.lock();
        if runs.waiting.len() >= PAUSED_LIMIT {
            let oldest = runs.waiting.iter().min_by_key(|(_, entry)| entry.deadline);
            let oldest = oldest.map(|(id, _)| id.clone());
            oldest.iter().for_each(|id| runs.end(id, Unanswered::MadeRoom));
        }
        runs.waiting.insert(workflow_id.clone(), entry);
        drop(runs);
        // An unanswered question must not keep its program alive.
        let approvals = Arc::downgrade(self);
        tokio::spawn(async move {
            tokio::time::sleep_until(deadline).await;
            if let Some(approvals) = approvals.upgrade() {
                approvals.lock().end(&workflow_id, Unanswered::Expired);
            }
        });
        approval
    }

    /// Takes a paused run out, so that its question can be answered: once.
    ///
    /// # Errors
    /// Returns `APPROVAL_EXPIRED` past the deadline, `WORKFLOW_LOST` for an id that
    /// this process does not know, `WORKFLOW_NOT_FOUND` for anything else.
    pub fn resume(&self, workflow_id: &str) -> Result<Resumed, ErrorBody> {
        let shown = escape_text(&workflow_id.chars().take(64).collect::<String>());
        let mut runs = self.lock();
        if let Some(entry) = runs.waiting.remove(workflow_id) {
            return Ok(Resumed { run: entry.run, answer: entry.answer, tool: entry.tool });
        }
        if let Some((_, tool, why)) = runs.ended.iter().find(|(id, ..)| id == workflow_id) {
            return Err(match why {
                Unanswered::Expired => ErrorBody::new(
                    ErrorCode::ApprovalExpired,
                    format!(
                        "the approval of `{tool}` timed out after {} minutes; the run was ended",
                        EXPIRY.as_secs() / 60
                    ),
                ),
                Unanswered::MadeRoom => ErrorBody::new(
                    ErrorCode::WorkflowLost,
                    format!(
                        "the run that asked about `{tool}` was ended, because more than {PAUSED_LIMIT} runs were waiting for an answer"
                    ),
                ),
            });
        }
        let own = workflow_id
            .strip_prefix("wl_")
            .is_some_and(|rest| rest.len() == 32 && rest.bytes().all(|b| b.is_ascii_hexdigit()));
        Err(if own {
            ErrorBody::new(
                ErrorCode::WorkflowLost,
                format!(
                    "the paused run `{shown}` was already answered, or ended when its `pml` process exited"
                ),
            )
        } else {
            ErrorBody::new(ErrorCode::WorkflowNotFound, format!("there is no paused run `{shown}`"))
        })
    }

    /// Ends every paused run.
    pub fn end_all(&self) {
        // Dropping a paused run cancels it.
        self.lock().waiting.clear();
    }

    fn lock(&self) -> MutexGuard<'_, Runs> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns an unguessable id: 128 random bits.
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
    let way = question.through.iter().map(|id| format!("{} → ", id.call_form()));
    let way: String = way.collect();
    let times = match question.count {
        0 | 1 => String::new(),
        count => format!(" {count} times"),
    };
    let mut description = format!("Run `{way}{}`{times} with {}", question.tool, shown(&arguments));
    for place in question.places.iter().rev() {
        let path = shown(&place.real.to_string_lossy());
        description = format!("Protected place `{path}`: {}\n{description}", place.reason);
    }
    if let Some(other) = look_alike::of(&question.tool) {
        description = format!(
            "Mind the name: `{}` is not `{other}`\n{description}",
            question.tool.namespace()
        );
    }
    if let Some(start) = &question.start {
        // Each line is shown for itself: a long command hides nothing of what follows it.
        let lines: Vec<String> =
            start.grants.iter().map(|line| format!("{}\n", shown(line))).collect();
        description = format!("Start {}\n{}{description}", shown(&start.what), lines.concat());
    }
    if let Some(place) = &question.sends_to {
        description = format!("Send to {}\n{description}", shown(place));
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
        context: context(question, &arguments, code_hash),
        options: options(question).into_iter().map(str::to_owned).collect(),
        expires_at: expires.to_rfc3339_opts(chrono::SecondsFormat::Secs, true),
    }
}

/// Returns the possible answers: a protected place is never allowed permanently.
fn options(question: &Question) -> Vec<&'static str> {
    match question.places.is_empty() {
        true => vec!["continue", "always", "abort"],
        false => vec!["continue", "abort"],
    }
}

/// Describes the subject of the question. The description's content is included only where a client could use it
/// separately.
fn context(question: &Question, arguments: &str, code_hash: Integrity) -> Value {
    let mut context =
        json!({ "tool": question.tool, "reason": question.reason, "code_hash": code_hash });
    // The call that waits has the arguments; a model that reads a megabyte of them is of no use to anybody.
    if arguments.len() <= SHOWN_TEXT {
        context["arguments"] = question.arguments.clone();
    } else {
        context["arguments_hash"] = json!(Integrity::of(arguments.as_bytes()));
    }
    if question.count > 1 {
        context["count"] = question.count.into();
    }
    if !question.places.is_empty() {
        let places = question.places.iter().map(|place| {
            json!({ "path": escape_text(&place.real.to_string_lossy()), "reason": place.reason })
        });
        context["protected"] = places.collect();
    }
    if !question.through.is_empty() {
        context["through"] = json!(question.through);
    }
    if let Some(start) = &question.start {
        context["start"] = escape_text(&start.what).into();
        if !start.grants.is_empty() {
            let grants: Vec<String> = start.grants.iter().map(|line| escape_text(line)).collect();
            context["grants"] = json!(grants);
        }
        if let Some(hash) = start.hash {
            context["start_hash"] = json!(hash);
        }
    }
    if let Some(place) = &question.sends_to {
        context["sends_to"] = escape_text(place).into();
    }
    context
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
    use tokio_util::sync::CancellationToken;

    use super::*;

    #[test]
    fn ids_are_long_random_and_own() {
        let (a, b) = (new_workflow_id(), new_workflow_id());
        assert_ne!(a, b);
        assert_eq!(a.len(), 3 + 32);
        assert!(a.starts_with("wl_"));
    }

    /// AP-02, AP-03: text for a human is escaped, and a long text is summarized, not silently cut.
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

    /// Starts a run that waits until it is cancelled, and pauses it.
    fn ask(approvals: &Arc<Approvals>) -> (String, CancellationToken) {
        let ended = CancellationToken::new();
        let tell = ended.clone();
        let hash = Integrity::of(b"");
        let run = PausedRun::start(hash, |_, stop| async move {
            stop.cancelled().await;
            tell.cancel();
            protocol::Envelope::error(ErrorBody::new(ErrorCode::Cancelled, "cancelled"))
        });
        let (answer, _) = oneshot::channel();
        let tool = "shell:exec".parse().unwrap();
        let question = Question {
            tool,
            through: Vec::new(),
            arguments: json!({}),
            reason: String::new(),
            start: None,
            count: 1,
            places: Vec::new(),
            sends_to: None,
            answer,
        };
        (approvals.pause(run, question, hash).workflow_id, ended)
    }

    /// AP-09: silence is a no, and it ends the run although nobody comes back.
    #[tokio::test]
    async fn an_unanswered_run_ends() {
        let expiry = Duration::from_millis(200);
        let approvals = Arc::new(Approvals { expiry, ..Approvals::default() });
        let begun = Instant::now();
        let (id, ended) = ask(&approvals);
        tokio::time::timeout(Duration::from_secs(30), ended.cancelled()).await.unwrap();
        assert!(begun.elapsed() >= expiry);
        let error = approvals.resume(&id).err().unwrap();
        assert_eq!(error.error_code, ErrorCode::ApprovalExpired);
    }

    /// Questions that nobody answers never take every place in which programs run.
    #[tokio::test]
    async fn the_oldest_question_makes_room() {
        assert!(PAUSED_LIMIT < sandbox::PoolConfig::default().max_running);
        let approvals = Arc::default();
        let first = ask(&approvals);
        let rest: Vec<_> = (0..PAUSED_LIMIT).map(|_| ask(&approvals)).collect();
        tokio::time::timeout(Duration::from_secs(30), first.1.cancelled()).await.unwrap();
        let error = approvals.resume(&first.0).err().unwrap();
        assert_eq!(error.error_code, ErrorCode::WorkflowLost);
        assert!(error.message.contains("were waiting for an answer"), "{}", error.message);
        assert!(rest.iter().all(|(_, ended)| !ended.is_cancelled()));
        assert_eq!(approvals.resume(&rest[0].0).unwrap().tool.as_str(), "shell:exec");
    }
}
