//! Why the run store cannot be used.

use std::path::PathBuf;

use protocol::{ErrorBody, ErrorCode};

/// Why the run store cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    /// SQLite reported an error.
    #[error("cannot use the run store `.pml/runs.db`: {0}")]
    Database(#[from] rusqlite::Error),
    /// The system reported an error.
    #[error("cannot use the run store: `{path}`: {source}", path = path.display())]
    System {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// It is not a run store, or a newer `pml` wrote it.
    #[error(
        "`.pml/runs.db` {0}; close `pml` and move `runs.db`, `runs.db-wal`, `runs.db-shm` and `contents` away, and `pml` creates a new store"
    )]
    Unfit(String),
    /// A record that was to be changed is not what `pml` wrote.
    #[error(
        "record {0} of the run store was changed, so nothing was erased; see `pml runs verify`"
    )]
    Changed(i64),
    /// A run that gets values of another one has not ended.
    #[error(
        "nothing was erased: the mock {0}, which has the same values, is still running; wait for its end, or stop it"
    )]
    CopyRuns(String),
    /// The file of a value was deleted after it was written, and before its record was.
    #[error("a large value was erased by another `pml` while it was being recorded")]
    ValueGone,
    /// The run whose values the record has was erased after they were read.
    #[error("values of the run {0} were erased by another `pml` in the meantime")]
    SourceErased(String),
    /// The files of the database may still have what was erased.
    #[error(
        "the values were erased, but the files of the run store may still contain them: {0}; repeat the command"
    )]
    NotSwept(String),
    /// Somebody deleted or replaced it while it was open.
    #[error("the run store `.pml/runs.db` was deleted or replaced while it was in use")]
    Gone,
    /// The thread that writes has ended.
    #[error("the run store is closed")]
    Closed,
}

impl StoreError {
    /// Returns the error for a failed operation on a file.
    pub(super) fn system(path: impl Into<PathBuf>, source: impl Into<std::io::Error>) -> Self {
        Self::System { path: path.into(), source: source.into() }
    }

    /// Returns the error for an agent.
    pub(crate) fn body(&self) -> ErrorBody {
        let code = match self {
            Self::Changed(_) | Self::CopyRuns(_) => ErrorCode::Conflict,
            _ => ErrorCode::RunStoreUnavailable,
        };
        ErrorBody::new(code, self.to_string())
    }
}
