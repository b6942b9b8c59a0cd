//! The runs that wait for the user's answer.
//!
//! A run that asks stays alive, paused inside its call, so that it continues where it stopped and nothing is
//! repeated. A question can be answered once.

#[cfg(test)]
mod every_order;
mod page;
#[cfg(test)]
mod tests;

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use analysis::Plan;
use protocol::{Approval, Envelope, ErrorBody, ErrorCode, Integrity, escape_text};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::paused::{Next, PausedRun};
use super::posted::{self, Posted, PostedQuestions};
use crate::approval_page::ApprovalPages;
use crate::consent::question::left_out::LeftOut;
use crate::consent::question::{Channel, EXPIRY, Given, NeedsPerson, Question, describe};
use crate::files::records;

/// The maximum number of paused runs; beyond it, the oldest is ended. A paused run occupies a slot of the sandbox pool,
/// so the limit must be less than the number of slots.
const PAUSED_LIMIT: usize = 32;

/// The maximum number of outcomes that are kept for the agent.
const SETTLED_LIMIT: usize = 64;

/// How often an answer from a terminal is looked for.
const POLL: Duration = Duration::from_millis(200);

/// How many runs that ended without an answer are remembered, for the error message.
const ENDED_LIMIT: usize = 256;

/// A paused run and the question it waits on.
struct Waiting {
    /// Dropped before the run, which learns in this order that nobody answered, and that it is cancelled.
    answer: oneshot::Sender<Given>,
    run: PausedRun,
    /// What it is about, for messages.
    about: String,
    deadline: Instant,
    /// The question as it is shown.
    approval: Approval,
    /// Whether only a person can approve it.
    needs_person: bool,
    /// The plan of its program, if it is about that.
    plan: Option<Arc<Plan>>,
    /// Cancelled once the question is no longer open.
    closed: CancellationToken,
    /// Cancels it: this value is dropped when the question is answered or its run ends.
    _open: DropGuard,
}

/// Why a run ended without an answer.
#[derive(Debug, Clone, Copy)]
enum Unanswered {
    /// Nobody answered in time.
    Expired,
    /// It was the oldest of too many.
    Evicted,
}

/// A question that a person answered on a terminal or the page.
struct Settled {
    workflow_id: String,
    outcome: watch::Receiver<Option<Envelope>>,
    /// Ends its run.
    stop: CancellationToken,
}

#[derive(Default)]
struct Runs {
    waiting: HashMap<String, Waiting>,
    ended: VecDeque<(String, String, Unanswered)>,
    /// The outcomes of questions that a person answered on a terminal or the page: the agent has yet to ask for them.
    settled: VecDeque<Settled>,
}

impl Runs {
    fn end(&mut self, workflow_id: &str, why: Unanswered) {
        // Dropping a paused run cancels it.
        let Some(entry) = self.waiting.remove(workflow_id) else { return };
        if self.ended.len() == ENDED_LIMIT {
            self.ended.pop_front();
        }
        self.ended.push_back((workflow_id.to_owned(), entry.about, why));
    }
}

/// The paused runs of this process.
pub(crate) struct Approvals {
    runs: Mutex<Runs>,
    expiry: Duration,
    /// Where their questions are posted, and for which workspace; `None` for a process that asks by itself.
    posted: Option<(PostedQuestions, PathBuf)>,
    /// Their pages.
    pages: Option<Arc<ApprovalPages>>,
}

impl Default for Approvals {
    fn default() -> Self {
        Self { runs: Mutex::default(), expiry: EXPIRY, posted: None, pages: None }
    }
}

/// A paused run that is about to be resumed.
pub(crate) struct Resumed {
    /// The run.
    pub(crate) run: PausedRun,
    /// Takes the answer.
    pub(crate) answer: oneshot::Sender<Given>,
}

impl Approvals {
    /// Creates the set of a process whose questions can be answered from a terminal or on a page; `records` is the
    /// folder of the user's records.
    pub(crate) fn posted(records: &Path, workspace: &Path) -> Arc<Self> {
        let posted = Some((PostedQuestions::of(records), workspace.to_owned()));
        Arc::new_cyclic(|approvals| {
            let pages = Some(Arc::new(Self::pages(Weak::clone(approvals))));
            Self { posted, pages, ..Self::default() }
        })
    }

    /// Follows a run until it ends or asks. A run that asks is stored until its question is answered.
    ///
    /// `caller` is the request that follows the run: if the request is cancelled, so is the run.
    pub(crate) async fn follow(
        self: &Arc<Self>,
        mut run: PausedRun,
        caller: &CancellationToken,
    ) -> Envelope {
        match run.next(caller).await {
            Next::Asks(question) => {
                let code_hash = run.code_hash();
                let approval = self.pause(run, *question, code_hash);
                Envelope::ApprovalRequired(Box::new(approval))
            }
            Next::Ended(envelope) => *envelope,
        }
    }

    /// Stores a run until its question is answered, for at most [`EXPIRY`]; returns the question to show.
    fn pause(
        self: &Arc<Self>,
        run: PausedRun,
        question: Question,
        code_hash: Integrity,
    ) -> Approval {
        // Each question has its own id: the timer of an answered question must not end its run,
        // which may be waiting for the next answer.
        let workflow_id = new_workflow_id();
        let approval = describe(&workflow_id, &question, code_hash);
        let deadline = Instant::now() + self.expiry;
        let closed = CancellationToken::new();
        let entry = Waiting {
            run,
            _open: closed.clone().drop_guard(),
            closed,
            needs_person: question.needs_person.is_some(),
            answer: question.answer,
            about: question.about.name(),
            plan: question.about.plan(),
            deadline,
            approval: approval.clone(),
        };
        let mut runs = self.lock();
        if runs.waiting.len() >= PAUSED_LIMIT {
            // All questions have the same time limit, so the earliest deadline is that of the
            // oldest.
            let oldest = runs.waiting.iter().min_by_key(|(_, entry)| entry.deadline);
            let oldest = oldest.map(|(id, _)| id.clone());
            oldest.iter().for_each(|id| runs.end(id, Unanswered::Evicted));
        }
        runs.waiting.insert(workflow_id.clone(), entry);
        drop(runs);
        self.post(&approval);
        // An unanswered question must not keep its program alive.
        // A weak reference: the timer must not keep the process's runs alive.
        let approvals = Arc::downgrade(self);
        tokio::spawn(async move {
            tokio::time::sleep_until(deadline).await;
            if let Some(approvals) = approvals.upgrade() {
                approvals.lock().end(&workflow_id, Unanswered::Expired);
            }
        });
        approval
    }

    /// Posts a question, and waits in the background for an answer from a terminal.
    fn post(self: &Arc<Self>, approval: &Approval) {
        let Some((posted, _)) = self.posted.clone() else { return };
        let Some(question) = self.posted_question(approval) else { return };
        if let Err(error) = posted.post(&question) {
            // The agent and its client can still answer.
            tracing::warn!(%error, "The question cannot be answered with `pml approve`");
            return;
        }
        let (approvals, id) = (Arc::downgrade(self), approval.workflow_id.clone());
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(POLL).await;
                let Some(approvals) = approvals.upgrade() else { break };
                if !approvals.lock().waiting.contains_key(&id) {
                    break;
                }
                if let Some((answer, without)) = posted.take_answer(&id) {
                    approvals.settle(&id, Given { answer, without, by: Channel::Terminal });
                    break;
                }
            }
            posted.remove(&id);
        });
    }

    /// Returns a question with what a person needs to know about its run.
    fn posted_question(&self, approval: &Approval) -> Option<Posted> {
        let (_, workspace) = self.posted.as_ref()?;
        Some(Posted {
            workspace: workspace.clone(),
            pid: std::process::id(),
            expires: records::now() + self.expiry.as_secs(),
            approval: approval.clone(),
        })
    }

    /// Checks that the answer to a question can leave these calls out.
    ///
    /// # Errors
    /// Returns why it cannot.
    pub(crate) fn check_left_out(&self, id: &str, without: &LeftOut) -> Result<(), String> {
        // Whether the question is open is found out when it is answered.
        self.lock().waiting.get(id).map_or(Ok(()), |waiting| without.check(&waiting.approval))
    }

    /// Continues a run after a person answered elsewhere than in the agent's session; returns whether the question was
    /// still open. The agent gets the outcome when it asks for it.
    fn settle(self: &Arc<Self>, workflow_id: &str, given: Given) -> bool {
        let (outcome, settled) = watch::channel(None);
        let stop = CancellationToken::new();
        let mut runs = self.lock();
        let Entry::Occupied(open) = runs.waiting.entry(workflow_id.to_owned()) else {
            return false;
        };
        // Who answers has checked it; a question that the answer does not fit stays open.
        if given.without.check(&open.get().approval).is_err() {
            return false;
        }
        let waiting = open.remove();
        if runs.settled.len() == SETTLED_LIMIT {
            runs.settled.pop_front();
        }
        // Under the same lock: at no time is the question unknown.
        runs.settled.push_back(Settled {
            workflow_id: workflow_id.to_owned(),
            outcome: settled,
            stop: stop.clone(),
        });
        drop(runs);
        // The program may have ended without awaiting this call; then its result is the outcome.
        let _ = waiting.answer.send(given);
        let approvals = Arc::clone(self);
        tokio::spawn(async move {
            let envelope = approvals.follow(waiting.run, &stop).await;
            let _ = outcome.send(Some(envelope));
        });
        true
    }

    /// Returns the outcome of a question that a person answered on a terminal or the page, once it is there; `None` if nobody has.
    /// If `caller` is cancelled, so is the run.
    pub(crate) async fn settled(
        &self,
        workflow_id: &str,
        caller: &CancellationToken,
    ) -> Option<Envelope> {
        let (mut outcome, stop) = {
            let runs = self.lock();
            let settled = runs.settled.iter().find(|settled| settled.workflow_id == workflow_id)?;
            (settled.outcome.clone(), settled.stop.clone())
        };
        tokio::select! {
            envelope = outcome.wait_for(Option::is_some) => drop(envelope.ok()?),
            // A cancelled run still sends its envelope.
            () = caller.cancelled() => stop.cancel(),
        }
        let envelope = outcome.wait_for(Option::is_some).await.ok()?.clone();
        self.lock().settled.retain(|settled| settled.workflow_id != workflow_id);
        envelope
    }

    /// Waits until a question is no longer open.
    pub(crate) async fn closed(&self, workflow_id: &str) {
        let closed = self.lock().waiting.get(workflow_id).map(|waiting| waiting.closed.clone());
        if let Some(closed) = closed {
            closed.cancelled().await;
        }
    }

    /// Returns an open question that only a person can approve; `by_person_only` if that is every one.
    pub(crate) fn needs_person(&self, workflow_id: &str, by_person_only: bool) -> Option<Approval> {
        let runs = self.lock();
        let waiting = runs.waiting.get(workflow_id)?;
        let mut approval = waiting.approval.clone();
        if !waiting.needs_person && by_person_only {
            // Set since the question was asked.
            approval.context["needs_person"] = NeedsPerson::Setting.reason().into();
            approval.context["dangerous"] = false.into();
        }
        (waiting.needs_person || by_person_only).then_some(approval)
    }

    /// Removes a paused run, so that its question can be answered exactly once.
    ///
    /// # Errors
    /// Returns `APPROVAL_EXPIRED` past the deadline, `WORKFLOW_LOST` for an id that
    /// this process does not know, `WORKFLOW_NOT_FOUND` for anything else.
    pub(crate) fn resume(&self, workflow_id: &str) -> Result<Resumed, ErrorBody> {
        let shown = escape_text(&workflow_id.chars().take(64).collect::<String>());
        let mut runs = self.lock();
        // Removed under the lock: of two simultaneous answers only one finds the run.
        if let Some(entry) = runs.waiting.remove(workflow_id) {
            return Ok(Resumed { run: entry.run, answer: entry.answer });
        }
        if let Some((_, about, why)) = runs.ended.iter().find(|(id, ..)| id == workflow_id) {
            return Err(match why {
                Unanswered::Expired => ErrorBody::new(
                    ErrorCode::ApprovalExpired,
                    format!(
                        "the approval of {about} timed out after {} minutes; the run was ended",
                        EXPIRY.as_secs() / 60
                    ),
                ),
                Unanswered::Evicted => ErrorBody::new(
                    ErrorCode::WorkflowLost,
                    format!(
                        "the run that asked about {about} was ended, because more than {PAUSED_LIMIT} runs were waiting for an answer"
                    ),
                ),
            });
        }
        // Ids are not stored after their runs, so only the form tells a lost run from a wrong id.
        Err(if posted::is_id(workflow_id) {
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
    pub(crate) fn end_all(&self) {
        // Dropping a paused run cancels it.
        let mut runs = self.lock();
        let waiting = std::mem::take(&mut runs.waiting);
        runs.settled.iter().for_each(|settled| settled.stop.cancel());
        drop(runs);
        if let Some((posted, _)) = &self.posted {
            // The process may exit before the tasks that watch them.
            waiting.keys().for_each(|id| posted.remove(id));
        }
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
    getrandom::fill(&mut bits).expect("the kernel provides random bytes");
    bits
}
