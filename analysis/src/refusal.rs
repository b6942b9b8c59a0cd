//! Why a program cannot run, in the words of the answer envelope.

use protocol::ErrorBody;
use serde_json::json;

use crate::Analysis;

impl Analysis {
    /// Returns the error that refuses the program, or `None` when it may run.
    ///
    /// Its place is that of the first error; `details.diagnostics` has them all.
    pub fn error_body(&self) -> Option<ErrorBody> {
        let first = self.first_error()?;
        let details = json!({
            "line": first.line,
            "column": first.column,
            "code_frame": first.code_frame(),
            "diagnostics": self.diagnostics,
        });
        Some(ErrorBody::new(first.error_code(), first.message.clone()).with_details(details))
    }
}
