//! The errors for tools that cannot be called on the gateway.

use protocol::{ErrorBody, ErrorCode};
use registry::{Absence, MissingTool};

/// The command that installs the CLI.
const INSTALL_COMMAND: &str = "cargo install --locked --path client-cli";

/// Returns the error for tools of the user's machine, with the command that installs a client for them.
pub(super) fn needs_package(why: String, client_tools: Vec<String>) -> ErrorBody {
    let mut error = ErrorBody::new(ErrorCode::ClientToolsRequirePackage, why);
    error.client_tools = Some(client_tools);
    error.install_command = Some(INSTALL_COMMAND.to_owned());
    error
}

/// Returns why an id does not resolve, and the alternatives.
pub(crate) fn why_missing(missing: &MissingTool) -> String {
    let id = &missing.id;
    let ids: Vec<String> = missing.suggestions.iter().map(|id| format!("`{id}`")).collect();
    let calls: Vec<String> =
        missing.suggestions.iter().map(|id| format!("`{}(…)`", id.call_form())).collect();
    match (missing.why, ids.is_empty()) {
        (_, true) => format!("`{id}` is not registered"),
        (Absence::Unknown, _) => {
            format!("`{id}` is not registered (did you mean {}?)", ids.join(" or "))
        }
        (Absence::Elsewhere, _) => format!(
            "`{id}` is not in your project, your organisation or the catalog; other organisations have published that name: call it by its full name, {}",
            calls.join(" or ")
        ),
        (Absence::Ambiguous, _) => format!(
            "`{id}` is ambiguous because several projects of your organisation have it: call it by its full name, {}",
            calls.join(" or ")
        ),
        (Absence::Changed, _) => {
            format!("the content of `{id}` has changed; it is now {}", ids.join(" or "))
        }
    }
}
