//! What a dry run answers: the plan of a program, without running it.

use analysis::Place;
use protocol::{DryRun, DryTask, Envelope, ExecutedOn, Routing, RunNote, Side, Success, ToolId};
use serde_json::json;
use uuid::Uuid;

use super::plan::Plan;
use crate::execution::capabilities::{self, Named};

/// Answers with the plan.
pub(super) fn dry_run(plan: Plan) -> Envelope {
    let place = |id: &ToolId| {
        let used = plan.tools_used.iter().find(|used| used.id == id.as_str());
        let side = used.map_or(Side::Unknown, |used| used.routing.into());
        let named = Named { base: plan.base.clone(), id: id.clone() };
        // The errors are recursion and nesting, for which `plan` has already refused the program.
        let below = capabilities::below(&named, &plan.reach).unwrap_or_default();
        let runs_on_server = |named: &Named| {
            // What is unknown counts as the server, so that the plan hides no egress.
            plan.reach.get(named).is_none_or(|tool| tool.routing == Routing::Server)
        };
        Place {
            side,
            sends_within: side == Side::Client && below.iter().any(runs_on_server),
            well_known: true,
        }
    };
    let summary = analysis::plan_with(&plan.analysis, plan.routing.into(), place);
    let tasks = summary.tasks.into_iter().map(|task| DryTask {
        id: task.id,
        tool: task.tool,
        side: task.side,
        sends_within: task.sends_within,
        sends_to: None,
        line: task.line,
    });
    let dry_run = DryRun {
        dry_run: true,
        routing: plan.routing,
        dynamic: plan.analysis.dynamic,
        scope: Some(plan.scope.clone()),
        client_tools: plan.client_tools(),
        tasks: tasks.collect(),
        order: summary.order,
        text_goes_to: None,
        egress: summary.egress,
        args_egress: summary.args_egress,
        diagnostics: json!(plan.analysis.diagnostics),
    };
    let result = json!(dry_run);
    let dag = plan.dag();
    Envelope::Success(Box::new(Success {
        result,
        run: RunNote {
            // The answer must have an id. Nothing is recorded under it: nothing ran.
            execution_id: Uuid::now_v7().to_string(),
            executed: ExecutedOn::Server,
            duration_ms: 0.0,
            console: Vec::new(),
            console_truncated: false,
            warnings: plan.warnings,
            calls: Some(Vec::new()),
            failed_calls: Vec::new(),
            meta: None,
        },
        dag: Some(dag),
        tools_used: Some(plan.tools_used),
    }))
}
