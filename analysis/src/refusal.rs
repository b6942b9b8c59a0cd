//! The error body of the answer for a program that cannot run.

use protocol::ErrorBody;
use serde_json::json;

use crate::Analysis;

impl Analysis {
    /// Returns the error that refuses the program, or `None` when it may run.
    ///
    /// `line`, `column` and `code_frame` are those of the first error; `details.diagnostics` lists all diagnostics.
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
