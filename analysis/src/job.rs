//! The analysis as a sealed job: encoded request in, encoded result out.

use serde::{Deserialize, Serialize};

use crate::{Analysis, Limits};

/// What the parent process requests.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Request {
    /// The source text.
    pub source: String,
    /// The limits.
    #[serde(default)]
    pub limits: Limits,
}

impl Request {
    /// Requests the analysis of a program with the default limits.
    pub fn new(source: impl Into<String>) -> Self {
        Self { source: source.into(), limits: Limits::default() }
    }

    /// Returns the bytes for [`job`].
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings and numbers always serialize")
    }
}

/// Why the answer of a job could not be decoded.
#[derive(Debug, thiserror::Error)]
pub enum AnalysisError {
    /// The child sent something other than an analysis.
    #[error("cannot decode the result of the analysis: {0}; run the program again")]
    Answer(#[from] serde_json::Error),
}

/// Analyses the program of an encoded [`Request`] and returns the encoded [`Analysis`].
///
/// Both programs register this function as their sealed job. It needs no file,
/// no clock and no environment. For a request that cannot be decoded it returns an
/// empty answer, which [`decode`] rejects.
pub fn job(input: &[u8]) -> Vec<u8> {
    let Ok(request) = serde_json::from_slice::<Request>(input) else {
        return Vec::new();
    };
    let analysis = crate::analyze(&request.source, &request.limits);
    serde_json::to_vec(&analysis).unwrap_or_default()
}

/// Decodes the answer of [`job`].
///
/// # Errors
/// Returns [`AnalysisError`] if the bytes are not an encoded analysis.
pub fn decode(answer: &[u8]) -> Result<Analysis, AnalysisError> {
    Ok(serde_json::from_slice(answer)?)
}
