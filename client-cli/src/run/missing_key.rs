//! A key that a program certainly needs and that is not set: it is named before anything runs.

use std::collections::HashMap;
use std::sync::Arc;

use analysis::Analysis;
use protocol::{ErrorBody, ErrorCode, ToolId};
use serde_json::Value;

use crate::app::App;
use crate::capabilities::Target;
use crate::policy::PolicyOfRun;

/// Checks that no tool lacks a key without which the program cannot succeed. Other calls are checked when they are made.
///
/// # Errors
/// Returns `API_KEY_REQUIRED`, as the call would.
pub(super) fn check(
    app: &App,
    analysis: &Analysis,
    targets: &HashMap<ToolId, Target>,
) -> Result<(), ErrorBody> {
    let policy = Arc::new(PolicyOfRun::new(Arc::clone(app.permissions().policy())));
    for id in analysis.needed_tools() {
        let checked = match targets.get(id) {
            None | Some(Target::Native) => Ok(()),
            Some(Target::Capability(inner)) => check(app, &inner.analysis, &inner.targets),
            // Only the arguments of native tools are checked.
            Some(target) => app.check_call(id, target, &Value::Null, &policy).map(drop),
        };
        if let Err(error) = checked
            && error.error_code == ErrorCode::ApiKeyRequired
        {
            return Err(error);
        }
    }
    Ok(())
}
