//! Runs the analysis in child processes, which can be killed.

use std::sync::Arc;
use std::time::Instant;

use analysis::{Analysis, Limits};
use execution::failure::job_error;
use moka::future::Cache;
use protocol::{ErrorBody, ErrorCode, Integrity};
use sandbox::{JobFailure, JobLimits, JobPool, PoolStats, SandboxError};

use crate::metrics::{AnalysisEnd, Metrics};

/// The analysis as a sealed job, which a child process of this program can run.
pub(crate) const ANALYSE: sandbox::Job = sandbox::Job { name: "analyse", run: analysis::job };

/// The maximum number of cached analyses.
const CACHED_PROGRAMS: u64 = 4_096;

/// Analyses programs in killable children, and caches the results.
pub(crate) struct Analyser {
    jobs: JobPool,
    cache: Cache<[u8; 32], Arc<Analysis>>,
    metrics: Arc<Metrics>,
}

impl Analyser {
    /// Starts the child processes.
    ///
    /// # Errors
    /// Returns an error when no sealed child can be started on this machine.
    pub(crate) fn start(workers: usize, metrics: Arc<Metrics>) -> Result<Self, SandboxError> {
        Ok(Self {
            jobs: JobPool::new(ANALYSE, JobLimits::default(), workers)?,
            cache: Cache::new(CACHED_PROGRAMS),
            metrics,
        })
    }

    /// Returns the figures of the child processes.
    pub(crate) fn stats(&self) -> PoolStats {
        self.jobs.stats()
    }

    /// Analyses a program. An invalid program is not an error: the analysis contains its diagnostics.
    ///
    /// # Errors
    /// Returns the error of [`execution::failure::job_error`] when the child gives no answer.
    pub(crate) async fn analyse(&self, source: &str) -> Result<Arc<Analysis>, ErrorBody> {
        // A source over the limit is refused here, without sending it to a child.
        if let Some(refused) = analysis::refuse_too_large(source, &Limits::default()) {
            self.metrics.analyses.skipped(AnalysisEnd::TooLarge);
            return Ok(Arc::new(refused));
        }
        // The analysis depends only on the source, so it is shared by all tenants.
        let key = Integrity::of(source.as_bytes()).into_bytes();
        if let Some(found) = self.cache.get(&key).await {
            self.metrics.analyses.skipped(AnalysisEnd::Cached);
            return Ok(found);
        }
        let began = Instant::now();
        let answer = self.jobs.run(analysis::Request::new(source).encode()).await;
        let end = match &answer {
            Ok(_) => AnalysisEnd::Analysed,
            Err(JobFailure::TimedOut | JobFailure::Starved { .. }) => AnalysisEnd::TimedOut,
            Err(_) => AnalysisEnd::Failed,
        };
        self.metrics.analyses.done(end, began.elapsed());
        let answer = answer.map_err(|failure| job_error(failure, "the analysis of the program"))?;
        let analysis = analysis::decode(&answer).map_err(|error| {
            ErrorBody::new(
                ErrorCode::Internal,
                format!("the analysis returned an invalid answer: {error}"),
            )
        })?;
        let analysis = Arc::new(analysis);
        // Failures are not cached: those of a busy machine pass.
        self.cache.insert(key, Arc::clone(&analysis)).await;
        Ok(analysis)
    }
}
