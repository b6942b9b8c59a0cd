//! Which calls of a plan the rules or a policy deny, as far as that is known before the program runs.

use std::fmt::Write as _;
use std::sync::Arc;

use analysis::{Argument, Plan, PlannedTask};
use protocol::{ErrorBody, ErrorCode, escape_text};
use serde_json::{Map, Value, json};

use super::style::{Part, Style};
use crate::app::App;
use crate::capabilities::Target;
use crate::consent::decision::refuse_denied;
use crate::policy::PolicyOfRun;

/// A call that would be refused.
pub(super) struct Denied<'a> {
    task: &'a PlannedTask,
    error: ErrorBody,
}

/// Returns the calls that would be refused. Calls whose arguments are computed are judged by their tool only.
pub(super) fn denied<'a>(app: &App, plan: &'a Plan) -> Vec<Denied<'a>> {
    let permissions = app.permissions();
    let policy = Arc::new(PolicyOfRun::new(Arc::clone(permissions.policy())));
    let refused = |task: &PlannedTask| {
        refuse_denied(&permissions, &task.tool, "").err().or_else(|| {
            // Only what is built into `pml` can be checked without a server.
            if !app.is_local(&task.tool) || app.is_configured(&task.tool) {
                return None;
            }
            let arguments = literal(task)?;
            let checked = app.check_call(&task.tool, &Target::Native, &arguments, &policy);
            checked.err().filter(|error| error.error_code == ErrorCode::PolicyDenied)
        })
    };
    let tasks = plan.tasks.iter();
    tasks.filter_map(|task| Some(Denied { task, error: refused(task)? })).collect()
}

/// Returns the arguments of a call, if all of them are written in the program.
fn literal(task: &PlannedTask) -> Option<Value> {
    let value = |argument: &Argument| match argument {
        Argument::Literal { value } => serde_json::to_value(value).ok(),
        _ => None,
    };
    let members = task.arguments.iter();
    let members = members.map(|(name, argument)| Some((name.clone(), value(argument)?)));
    members.collect::<Option<Map<String, Value>>>().map(Value::Object)
}

/// Returns them for the JSON of a plan.
pub(super) fn to_json(denied: &[Denied<'_>]) -> Value {
    let shown = denied.iter().map(|Denied { task, error }| {
        json!({
            "task": task.id,
            "tool": task.tool,
            "error_code": error.error_code,
            "message": error.message,
        })
    });
    shown.collect()
}

/// Returns them as a part of the text of a plan.
pub(super) fn text(denied: &[Denied<'_>], style: &Style) -> String {
    if denied.is_empty() {
        return String::new();
    }
    let mut out = format!("\n{}\n", style.paint(Part::Warning, "Denied"));
    for Denied { task, error } in denied {
        let _ = writeln!(
            out,
            "  line {}  {}: {}",
            task.line,
            escape_text(task.tool.as_str()),
            escape_text(&error.message)
        );
    }
    out
}
