//! Runs of programs: preparation, the execution of each call, questions to the user, and the result.

mod approvals;
mod consult;
pub(crate) mod create;
pub(crate) mod execute;
mod finished;
mod local_run;
mod paused;
mod prepare;
pub(crate) mod progress;
mod resolver;
pub(crate) mod resume;
mod router;

use std::sync::Arc;

use self::approvals::Approvals;
use self::finished::Finished;
use crate::app::App;

/// The runs of one process.
pub(crate) struct Runs {
    /// The project.
    pub(crate) app: Arc<App>,
    /// The paused runs.
    approvals: Arc<Approvals>,
    /// The programs of the last finished runs.
    finished: Arc<Finished>,
}

impl Runs {
    /// Creates an empty set of runs for a project.
    pub(crate) fn of(app: Arc<App>) -> Self {
        Self { app, approvals: Arc::default(), finished: Arc::default() }
    }

    /// Ends every paused run, then stops the local MCP servers.
    pub(crate) async fn shut_down(&self) {
        self.approvals.end_all();
        self.app.shut_down().await;
    }
}
