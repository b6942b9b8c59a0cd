//! The analysis as a sealed job: bytes in, bytes out.

use serde::{Deserialize, Serialize};

use crate::{Analysis, Limits};

/// What the parent process asks.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Request {
    /// The source text.
    pub source: String,
    /// The limits.
    #[serde(default)]
    pub limits: Limits,
}

impl Request {
    /// Asks for the analysis of a program within the default limits.
    pub fn new(source: impl Into<String>) -> Self {
        Self { source: source.into(), limits: Limits::default() }
    }

    /// Returns the bytes for [`job`].
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings and numbers always serialize")
    }
}

/// Says why a job's answer could not be read.
#[derive(Debug, thiserror::Error)]
pub enum AnalysisError {
    /// The child sent something else than an analysis.
    #[error("the analysis answered with something that cannot be read: {0}; run the program again")]
    Answer(#[from] serde_json::Error),
}

/// Analyses the program of an encoded [`Request`] and returns the encoded [`Analysis`].
///
/// Both programs register this function as their sealed job. It needs no file,
/// no clock and no environment. A request that cannot be read gives an empty
/// answer, which [`decode`] refuses.
pub fn job(input: &[u8]) -> Vec<u8> {
    let Ok(request) = serde_json::from_slice::<Request>(input) else {
        return Vec::new();
    };
    let analysis = crate::analyze(&request.source, &request.limits);
    serde_json::to_vec(&analysis).unwrap_or_default()
}

/// Reads the answer of [`job`].
///
/// # Errors
/// Returns [`AnalysisError`] when the bytes are no analysis.
pub fn decode(answer: &[u8]) -> Result<Analysis, AnalysisError> {
    Ok(serde_json::from_slice(answer)?)
}
