//! A report as JSON.

use serde_json::{Value, json};

use super::resources::Resources;
use super::{Counts, Report, VERSION, duration, milliseconds, policy_file};
use crate::commands::runs::json::{approvals, call, compared, error, value};
use crate::run_store::reader::Call;

/// Returns a report with all values in full.
pub(super) fn report(report: &Report<'_>) -> Value {
    let (reader, run) = (report.reader, report.run);
    let (began, ended) = (&run.began, run.ended.as_ref());
    let counts = Counts::of(run);
    let mut plan = value(reader, &began.plan);
    if !plan.is_object() {
        // A program that was denied before it was planned.
        plan = json!({ "dag": null });
    }
    plan["code"] = value(reader, &began.code);
    plan["code_hash"] = json!(began.code.hash);
    plan["args"] = value(reader, &began.args);
    plan["args_hash"] = json!(began.args.hash);
    let Resources { certain, possible, not_known, denials } = &report.resources;
    let mut resources = json!(certain);
    resources["possible"] = json!(possible);
    resources["not_known"] = json!(not_known);
    let output = ended.and_then(|ended| ended.output.as_ref());
    json!({
        "report_version": VERSION,
        "generated_at": report.generated_at,
        "verification": { "ok": report.doubt.is_none(), "reason": report.doubt },
        "last_record": report.last.map(|last| json!({ "seq": last.seq, "hash": last.hash })),
        "run": {
            "run_id": began.run,
            "created_at": began.at,
            "completed_at": ended.map(|ended| &ended.at),
            "resumed_at": run.resumed.iter().map(|resumed| &resumed.at).collect::<Vec<_>>(),
            "status": run.status(),
            "mode": began.mode,
            "of": began.of,
            "replay": compared(reader, run),
            "pml": began.pml,
            "total_steps": run.calls.len(),
            "completed_steps": counts.success,
            "denied_steps": counts.denied,
            "failed_steps": counts.error,
            "indeterminate_steps": counts.indeterminate,
            "mocked_steps": counts.mocked,
            "plan_hash": began.plan.hash,
            "policy_hash": began.policy.hash,
            "policy_file": policy_file(report).map(|given| json!({ "name": given.name, "hash": given.hash })),
            "result": output.map(|output| value(reader, output)),
            "result_hash": output.map(|output| output.hash),
            "error": error(ended.and_then(|ended| ended.error.as_ref())),
        },
        "plan": plan,
        "policy": value(reader, &began.policy),
        "steps": run.calls.iter().map(|call| step(report, call)).collect::<Vec<_>>(),
        "approvals": approvals(reader, run),
        "summary": {
            "total_duration_ms": ended.and_then(|ended| milliseconds(&began.at, &ended.at)),
            "resources": resources,
            "denials": denials,
        },
    })
}

fn step(report: &Report<'_>, found: &Call) -> Value {
    let mut step = call(report.reader, found);
    let Call::Made(made) = found else { return step };
    step["duration_ms"] = json!(duration(made));
    let changes = report.run.changes.iter().filter(|changing| changing.call == made.began.call);
    step["changes"] =
        changes.map(|changing| json!({ "at": changing.at, "change": changing.change })).collect();
    step
}
