//! Runs of programs: what they need, where each call goes, the questions on the way, and the end.

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
    /// The project that they belong to.
    pub(crate) app: Arc<App>,
    /// Those that are paused.
    approvals: Arc<Approvals>,
    /// The programs of the last ones.
    finished: Arc<Finished>,
}

impl Runs {
    /// Prepares the runs of a project.
    pub(crate) fn of(app: Arc<App>) -> Self {
        Self { app, approvals: Arc::default(), finished: Arc::default() }
    }

    /// Ends every run, and every child of this process in order.
    pub(crate) async fn shut_down(&self) {
        self.approvals.end_all();
        self.app.shut_down().await;
    }
}
