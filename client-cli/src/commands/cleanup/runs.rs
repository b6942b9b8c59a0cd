//! The part of `pml cleanup` about recorded runs: the values of old ones are erased.

use serde_json::{Value, json};

use crate::args::Cleanup;
use crate::consent::trust::TrustStore;
use crate::error::CliError;
use crate::run_store::{Erasing, RunStore};
use crate::workspace::Workspace;

/// What was erased, or would be.
#[derive(Debug, Default)]
pub(super) struct Cleaned {
    /// The runs, in the order of their starts.
    pub(super) runs: Vec<String>,
    /// The size of the store before and after, in bytes; after a trial run, an estimate.
    pub(super) bytes: (u64, u64),
    /// The number of runs without an end, whose values stay.
    pub(super) unfinished: usize,
}

/// Erases the values of runs that have ended long ago, and those of the oldest runs while the store is too large.
///
/// # Errors
/// Returns why the store cannot be used.
pub(super) fn clean(
    workspace: &Workspace,
    options: &Cleanup,
    now: chrono::DateTime<chrono::Utc>,
) -> Result<Option<Cleaned>, CliError> {
    if options.runs.is_none() && options.runs_above.is_none() {
        return Ok(None);
    }
    let records = TrustStore::of_user().map_err(|error| CliError::cannot_run(error.to_string()))?;
    let size = || RunStore::size(workspace);
    let before = size()?;
    let mut cleaned = Cleaned { bytes: (before, before), ..Cleaned::default() };
    let Some(reader) = RunStore::reader(workspace)? else { return Ok(Some(cleaned)) };
    let (mut runs, unfinished) = reader.kept_runs()?;
    cleaned.unfinished = unfinished;
    let mut sizes = Vec::new();
    for (run, _) in &runs {
        sizes.push(reader.size_of(run)?);
    }
    drop(reader);
    // A run is old if its end is; a time that cannot be read is not.
    let is_old = |at: &str| {
        let limit = options.runs.and_then(|age| chrono::Duration::from_std(age).ok());
        let at = chrono::DateTime::parse_from_rfc3339(at).ok();
        limit.zip(at).is_some_and(|(limit, at)| now - at.to_utc() >= limit)
    };
    let mut round: Vec<(String, u64)> = Vec::new();
    let mut kept: Vec<(String, u64)> = Vec::new();
    for ((run, at), size) in runs.drain(..).zip(sizes) {
        if is_old(&at) { round.push((run, size)) } else { kept.push((run, size)) }
    }
    kept.reverse();
    loop {
        if let Some(limit) = options.runs_above {
            let freed: u64 = round.iter().map(|(_, size)| size).sum();
            let mut left = cleaned.bytes.1.saturating_sub(freed);
            while left > limit
                && let Some((run, size)) = kept.pop()
            {
                left = left.saturating_sub(size);
                round.push((run, size));
            }
        }
        if round.is_empty() {
            return Ok(Some(cleaned));
        }
        let what = round.iter().map(|(run, _)| Erasing { run: run.clone(), call: None });
        let freed: u64 = round.iter().map(|(_, size)| size).sum();
        if options.dry_run {
            cleaned.bytes.1 = cleaned.bytes.1.saturating_sub(freed);
        } else {
            RunStore::erase(workspace, records.folder(), &what.collect::<Vec<_>>())?;
            cleaned.bytes.1 = size()?;
        }
        cleaned.runs.extend(round.drain(..).map(|(run, _)| run));
        // Values that other runs have as well were not freed, so further runs may have to go.
        if options.dry_run {
            return Ok(Some(cleaned));
        }
    }
}

impl Cleaned {
    /// Returns it as JSON.
    pub(super) fn to_json(&self) -> Value {
        json!({
            "erased": self.runs,
            "bytes_before": self.bytes.0,
            "bytes_after": self.bytes.1,
            "unfinished": self.unfinished,
        })
    }
}
