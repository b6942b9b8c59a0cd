//! Runs that wait for the person, as MCP tasks: the extension `io.modelcontextprotocol/tasks` (SEP-2663).
//!
//! A client that offers tasks gets a handle instead of the question, and can do other things while the person thinks.
//! It polls `tasks/get` and sends the person's answer with `tasks/update`.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use protocol::{Approval, ContinueRequest};
use rmcp::model::{
    CreateTaskResult, DetailedTask, GetTaskResult, InputRequest, InputResponses, JsonObject, Task,
    TaskPayload, TaskStatus,
};
use serde_json::Value;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::asking;

/// How long a task can be asked about after it was created. One that has not ended by then stays.
const LIFETIME: Duration = Duration::from_secs(60 * 60);

/// The maximum number of ended tasks. Their results may be large.
const ENDED_LIMIT: usize = 64;

/// How often a client should ask.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The tasks of a connection.
#[derive(Default)]
pub(super) struct Tasks(Mutex<HashMap<String, Entry>>);

struct Entry {
    created: DateTime<Utc>,
    updated: DateTime<Utc>,
    /// The number of questions so far.
    questions: usize,
    state: State,
    stop: CancellationToken,
}

enum State {
    Working,
    Asks(Box<Asked>),
    Completed(JsonObject),
    Cancelled,
}

/// A question that waits for its answer.
struct Asked {
    /// Its name, which no other question of the task has.
    key: String,
    approval: Approval,
    answer: oneshot::Sender<Option<ContinueRequest>>,
}

impl State {
    fn has_ended(&self) -> bool {
        matches!(self, Self::Completed(_) | Self::Cancelled)
    }
}

/// A new task.
pub(super) struct Created {
    /// Its id, which cannot be guessed.
    pub(super) id: String,
    /// Is cancelled when the client cancels the task.
    pub(super) stop: CancellationToken,
}

impl Tasks {
    /// Creates a task.
    pub(super) fn create(&self) -> Created {
        let created = Created {
            id: uuid::Uuid::new_v4().simple().to_string(),
            stop: CancellationToken::new(),
        };
        let now = Utc::now();
        let entry = Entry {
            created: now,
            updated: now,
            questions: 0,
            state: State::Working,
            stop: created.stop.clone(),
        };
        let mut tasks = self.lock();
        tasks.insert(created.id.clone(), entry);
        forget_old(&mut tasks, now);
        created
    }

    /// Sets a task's question. Returns the receiver of the answer, which is `None` if the client's answer is no decision.
    pub(super) fn ask(
        &self,
        id: &str,
        approval: Approval,
    ) -> oneshot::Receiver<Option<ContinueRequest>> {
        let (answer, answered) = oneshot::channel();
        self.set(id, |entry| {
            entry.questions += 1;
            let key = format!("approval-{}", entry.questions);
            State::Asks(Box::new(Asked { key, approval, answer }))
        });
        answered
    }

    /// Sets that a task works again.
    pub(super) fn works(&self, id: &str) {
        self.set(id, |_| State::Working);
    }

    /// Ends a task with the result of its call; `None` if it was cancelled.
    pub(super) fn end(&self, id: &str, result: Option<JsonObject>) {
        self.set(id, |_| result.map_or(State::Cancelled, State::Completed));
    }

    fn set(&self, id: &str, state: impl FnOnce(&mut Entry) -> State) {
        if let Some(entry) = self.lock().get_mut(id) {
            entry.state = state(entry);
            entry.updated = Utc::now();
        }
    }

    /// Returns the handle of a task, as the result of the call that became it.
    pub(super) fn handle(&self, id: &str) -> Option<CreateTaskResult> {
        Some(CreateTaskResult::new(task(id, self.lock().get(id)?)))
    }

    /// Returns the state of a task.
    pub(super) fn get(&self, id: &str) -> Option<GetTaskResult> {
        let tasks = self.lock();
        let entry = tasks.get(id)?;
        let payload = match &entry.state {
            State::Working => TaskPayload::Working,
            State::Asks(asked) => {
                let request = InputRequest::Elicitation(asking::elicitation(&asked.approval));
                TaskPayload::InputRequired { input_requests: [(asked.key.clone(), request)].into() }
            }
            State::Completed(result) => TaskPayload::Completed { result: result.clone() },
            State::Cancelled => TaskPayload::Cancelled,
        };
        Some(GetTaskResult::new(DetailedTask::new(task(id, entry), payload)))
    }

    /// Takes the answer to a task's question. Answers to other questions are ignored: they were answered before, or never
    /// asked.
    pub(super) fn update(&self, id: &str, responses: &InputResponses) {
        let mut tasks = self.lock();
        let Some(entry) = tasks.get_mut(id) else { return };
        let State::Asks(asked) = &entry.state else { return };
        let Some(response) = responses.get(&asked.key) else { return };
        let decision = read(&asked.approval, response);
        let State::Asks(asked) = std::mem::replace(&mut entry.state, State::Working) else {
            return;
        };
        entry.updated = Utc::now();
        // Without a receiver, another channel has answered in the meantime.
        let _ = asked.answer.send(decision);
    }

    /// Cancels a task that has not ended.
    pub(super) fn cancel(&self, id: &str) {
        if let Some(entry) = self.lock().get(id).filter(|entry| !entry.state.has_ended()) {
            entry.stop.cancel();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the person's answer; `None` if it is no decision.
fn read(approval: &Approval, response: &Value) -> Option<ContinueRequest> {
    let answer = serde_json::from_value(response.clone()).ok()?;
    asking::decision(approval, &answer)
}

fn task(id: &str, entry: &Entry) -> Task {
    let text = |time: DateTime<Utc>| time.to_rfc3339_opts(SecondsFormat::Millis, true);
    let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let (status, message) = match &entry.state {
        State::Working => (TaskStatus::Working, "The program runs.".to_owned()),
        State::Asks(asked) => {
            let id = &asked.approval.workflow_id;
            let elsewhere = match id.starts_with("wl_") {
                true => format!(" The user can also answer with `pml approve {id}`."),
                false => String::new(),
            };
            (TaskStatus::InputRequired, format!("The run waits for the user.{elsewhere}"))
        }
        State::Completed(_) => (TaskStatus::Completed, "The run has ended.".to_owned()),
        State::Cancelled => {
            let message = "The run was cancelled; `pml runs show` has the calls that it made.";
            (TaskStatus::Cancelled, message.to_owned())
        }
    };
    Task::new(id, status, text(entry.created), text(entry.updated))
        .with_status_message(message)
        .with_ttl_ms(milliseconds(LIFETIME))
        .with_poll_interval_ms(milliseconds(POLL_INTERVAL))
}

/// Removes ended tasks past their lifetime, and the oldest of the others if there are too many.
fn forget_old(tasks: &mut HashMap<String, Entry>, now: DateTime<Utc>) {
    let is_old = |entry: &Entry| (now - entry.created).to_std().is_ok_and(|age| age > LIFETIME);
    tasks.retain(|_, entry| !(entry.state.has_ended() && is_old(entry)));
    let ended = tasks.iter().filter(|(_, entry)| entry.state.has_ended());
    let mut ended: Vec<_> = ended.map(|(id, entry)| (entry.updated, id.clone())).collect();
    ended.sort();
    let surplus = ended.len().saturating_sub(ENDED_LIMIT);
    for (_, id) in &ended[..surplus] {
        tasks.remove(id);
    }
}
