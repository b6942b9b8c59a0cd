//! Runs of programs: preparation, the execution of each call, questions to the user, and the result.

mod allowed_calls;
mod approvals;
mod changed_tools;
mod consult;
pub(crate) mod create;
mod earlier_answers;
pub(crate) mod execute;
pub(crate) mod explain;
mod finished;
mod identical_calls;
pub(crate) mod journal;
mod local_execution;
mod local_run;
mod locked_schemas;
mod missing_key;
pub(crate) mod mock;
mod paused;
mod permission;
mod planned;
pub(crate) mod posted;
pub(crate) mod prepare;
pub(crate) mod progress;
mod recorder;
pub(crate) mod replay;
pub(crate) mod resolver;
pub(crate) mod resume;
mod router;

use std::sync::Arc;

use protocol::Envelope;
use tokio_util::sync::CancellationToken;

use self::approvals::Approvals;
use self::finished::Finished;
use crate::app::App;
use crate::consent::program_lock::LockFile;

/// The runs of one process.
pub(crate) struct Runs {
    /// The project.
    pub(crate) app: Arc<App>,
    /// The paused runs.
    approvals: Arc<Approvals>,
    /// The programs of the last finished runs.
    finished: Arc<Finished>,
    /// Whether somebody can answer questions.
    can_ask: bool,
    /// What the programs of these runs are locked to.
    lock: Option<Arc<LockFile>>,
    /// Whether programs need only what is stored here, so that the gateway is not asked.
    without_gateway: bool,
}

impl Runs {
    /// Creates an empty set of runs for a project.
    pub(crate) fn of(app: Arc<App>) -> Self {
        Self {
            app,
            approvals: Arc::default(),
            finished: Arc::default(),
            can_ask: true,
            lock: None,
            without_gateway: false,
        }
    }

    /// The same, if nobody can answer questions: a program starts if it may get by without a call that asks.
    pub(crate) fn unattended(app: Arc<App>) -> Self {
        Self { can_ask: false, ..Self::of(app) }
    }

    /// Creates an empty set of runs whose questions can also be answered from a terminal or on a page.
    pub(crate) fn with_posted_questions(app: Arc<App>) -> Self {
        let approvals = Approvals::posted(app.records(), app.workspace());
        Self { approvals, ..Self::of(app) }
    }

    /// The same, for programs that need only what is stored here: the gateway is not asked.
    #[must_use]
    pub(crate) fn without_gateway(self) -> Self {
        Self { without_gateway: true, ..self }
    }

    /// The same, if a program may only run as it was locked. It runs on this machine, wherever its tools are: else the
    /// gateway would resolve them once more.
    #[must_use]
    pub(crate) fn locked_to(self, lock: Option<LockFile>) -> Self {
        Self { lock: lock.map(Arc::new), ..self }
    }

    /// Waits until a question was answered by another channel, and returns the outcome; `None` if it only ended.
    pub(crate) async fn answered_elsewhere(
        &self,
        workflow_id: &str,
        cancel: &CancellationToken,
    ) -> Option<Envelope> {
        self.approvals.closed(workflow_id).await;
        self.approvals.settled(workflow_id, cancel).await
    }

    /// Has the browser open the page of a question that waits; returns whether it was started.
    pub(crate) async fn open_page(&self, workflow_id: &str) -> bool {
        self.approvals.open_page(workflow_id).await
    }

    /// Ends a paused run, if its question is still open.
    pub(crate) fn abandon(&self, workflow_id: &str) {
        // Dropping a paused run cancels it.
        drop(self.approvals.resume(workflow_id));
    }

    /// Ends every paused run, then stops the local MCP servers.
    pub(crate) async fn shut_down(&self) {
        self.approvals.end_all();
        self.app.shut_down().await;
    }
}
