//! The analysis, run where it can be killed.

use std::sync::Arc;

use analysis::{Analysis, Limits};
use execution::failure::job_error;
use protocol::{ErrorBody, ErrorCode};
use sandbox::{JobLimits, JobPool, SandboxError};

/// The sealed job that every child of this program can run.
pub(crate) const ANALYSE: sandbox::Job = sandbox::Job { name: "analyse", run: analysis::job };

/// Analyses programs in a killable child.
pub(crate) struct Analyser {
    jobs: JobPool,
}

impl Analyser {
    /// Starts the child.
    ///
    /// # Errors
    /// Returns an error when no sealed child can be started on this machine.
    pub(crate) fn start() -> Result<Self, SandboxError> {
        Ok(Self { jobs: JobPool::new(ANALYSE, JobLimits::default(), 1)? })
    }

    /// Analyses a program.
    ///
    /// # Errors
    /// Returns the error of [`execution::failure::job_error`] when the child gives no answer.
    pub(crate) async fn analyse(&self, source: &str) -> Result<Arc<Analysis>, ErrorBody> {
        // Refused before the text is copied to the child.
        if let Some(refused) = analysis::refuse_too_large(source, &Limits::default()) {
            // Not an error: the refusal is a diagnostic with a position, like those of the child.
            return Ok(Arc::new(refused));
        }
        let answer = self.jobs.run(analysis::Request::new(source).encode()).await;
        let answer = answer.map_err(|failure| job_error(failure, "the analysis of the program"))?;
        analysis::decode(&answer).map(Arc::new).map_err(|error| {
            ErrorBody::new(
                ErrorCode::Internal,
                format!("the analysis returned an invalid answer: {error}"),
            )
        })
    }
}
