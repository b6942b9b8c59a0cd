//! The JSON form of runs. The names are those of the store's views.

use serde_json::{Value, json};

use crate::run_store::Verified;
use crate::run_store::reader::{Call, Reader, Run};
use crate::run_store::record::{Content, Failure, ValuesErased};

/// Returns a run without its values.
pub(super) fn summary(run: &Run) -> Value {
    json!({
        "run_id": run.began.run,
        "created_at": run.began.at,
        "completed_at": run.ended.as_ref().map(|ended| &ended.at),
        "mode": run.began.mode,
        "of": run.began.of,
        "status": run.status(),
        "total_steps": run.calls.len(),
        "denied_steps": run.calls.iter().filter(|call| matches!(call, Call::Refused(_))).count(),
        "tools": run.tools(),
        "error": error(run.ended.as_ref().and_then(|ended| ended.error.as_ref())),
    })
}

/// Returns a run with everything that is recorded.
pub(super) fn run(reader: &Reader, run: &Run) -> Value {
    let mut shown = summary(run);
    let calls: Vec<Value> = run.calls.iter().map(|call| self::call(reader, call)).collect();
    shown["pml"] = json!(run.began.pml);
    shown["code"] = value(reader, &run.began.code);
    shown["args"] = value(reader, &run.began.args);
    shown["plan"] = value(reader, &run.began.plan);
    shown["plan_hash"] = json!(run.began.plan.hash);
    shown["policy"] = value(reader, &run.began.policy);
    shown["policy_hash"] = json!(run.began.policy.hash);
    shown["calls"] = json!(calls);
    shown["approvals"] = approvals(reader, run);
    shown["replay"] = compared(reader, run);
    shown["resumed_at"] = run.resumed.iter().map(|resumed| json!(resumed.at)).collect();
    shown["erasures"] = run.erasures.iter().map(erasure).collect();
    let changes = run.changes.iter();
    shown["changes"] = changes
        .map(|changed| json!({ "call": changed.call, "at": changed.at, "change": changed.change }))
        .collect();
    if let Some(output) = run.ended.as_ref().and_then(|ended| ended.output.as_ref()) {
        shown["result"] = value(reader, output);
    }
    shown
}

/// Returns how a replay compares with the run that it replays; `null` for another run.
pub(super) fn compared(reader: &Reader, run: &Run) -> Value {
    let Some(compared) = &run.compared else { return Value::Null };
    let left = compared.left.as_ref().map(|left| {
        let arguments = left.args.as_ref().map(|args| value(reader, args));
        json!({ "call": left.call, "tool": left.tool, "arguments": arguments })
    });
    let changed = compared.changed.iter().map(|input| {
        json!({
            "what": input.what,
            "tool": input.tool,
            "error_code": input.code,
            "recorded": input.recorded,
            "now": input.now,
        })
    });
    json!({
        "calls": compared.answered,
        "matches": compared.matches,
        "left": left,
        "changed": changed.collect::<Vec<_>>(),
    })
}

/// Returns the questions that were answered.
pub(super) fn approvals(reader: &Reader, run: &Run) -> Value {
    let approvals = run.approvals.iter().map(|approval| {
        json!({
            "tool": approval.tool,
            "arguments": value(reader, &approval.args),
            "count": approval.count,
            "reason": approval.reason,
            "answer": approval.answer,
            "answered_by": approval.by,
            "shown_hash": approval.shown_hash,
            "asked_at": approval.asked_at,
            "answered_at": approval.at,
        })
    });
    approvals.collect()
}

/// Returns an erasure.
pub(in crate::commands) fn erasure(erasure: &ValuesErased) -> Value {
    let ValuesErased { at, run, call, records } = erasure;
    let records: Vec<i64> = records.iter().map(|record| record.seq).collect();
    json!({ "at": at, "run_id": run, "call": call, "records": records })
}

/// Returns a call with everything that is recorded.
pub(super) fn call(reader: &Reader, call: &Call) -> Value {
    match call {
        Call::Made(made) => json!({
            "call": made.began.call,
            "tool": made.began.tool,
            "routing": made.began.routing,
            "decision": made.began.decision,
            "status": call.status(),
            "arguments": value(reader, &made.began.args),
            "input_hash": made.began.args.hash,
            "output": made.ended.as_ref().and_then(|ended| ended.output.as_ref()).map(|output| value(reader, output)),
            "output_hash": made.ended.as_ref().and_then(|ended| ended.output.as_ref()).map(|output| output.hash),
            "error": error(made.ended.as_ref().and_then(|ended| ended.error.as_ref())),
            "refused_connections": made.ended.as_ref().and_then(|ended| ended.refused_connections.as_ref()),
            "started_at": made.began.at,
            "repeated_at": made.repeated.iter().map(|repetition| &repetition.at).collect::<Vec<_>>(),
            "ended_at": made.ended.as_ref().map(|ended| &ended.at),
        }),
        Call::Mocked(mocked) => json!({
            "call": mocked.call,
            "tool": mocked.tool,
            "routing": mocked.routing,
            "status": call.status(),
            "mocked_from": { "run_id": mocked.of, "call": mocked.of_call },
            "arguments": value(reader, &mocked.args),
            "input_hash": mocked.args.hash,
            "output": mocked.output.as_ref().map(|output| value(reader, output)),
            "output_hash": mocked.output.as_ref().map(|output| output.hash),
            "error": error(mocked.error.as_ref()),
            "started_at": mocked.at,
            "ended_at": mocked.at,
        }),
        Call::Refused(refused) => json!({
            "call": refused.call,
            "tool": refused.tool,
            "status": call.status(),
            "arguments": value(reader, &refused.args),
            "input_hash": refused.args.hash,
            "error": error(Some(&refused.error)),
            "started_at": refused.at,
        }),
    }
}

/// Returns an error; `null` without one.
pub(super) fn error(failure: Option<&Failure>) -> Value {
    failure.map_or(Value::Null, |failure| json!(failure))
}

/// Returns a value; if it was erased, or its file is missing or was changed, an object that says so.
pub(super) fn value(reader: &Reader, content: &Content) -> Value {
    let text = reader.content(content);
    let parsed = text.and_then(|text| serde_json::from_str(&text).ok());
    let name = if content.erased { "erased" } else { "missing" };
    parsed.unwrap_or_else(|| json!({ name: content.hash, "bytes": content.bytes }))
}

/// Returns the result of a verification.
pub(super) fn verified(verified: Option<&Verified>) -> Value {
    let Some(verified) = verified else { return json!({ "ok": true, "records": 0, "runs": 0 }) };
    let faults = verified.faults.iter();
    let faults = faults.map(|fault| json!({ "record": fault.seq, "reason": fault.reason }));
    json!({
        "ok": verified.faults.is_empty(),
        "records": verified.records,
        "runs": verified.runs,
        "is_end_known": verified.is_end_known,
        "faults": faults.collect::<Vec<_>>(),
        "erasures": verified.erasures.iter().map(erasure).collect::<Vec<_>>(),
        "earlier_stores": verified.earlier,
    })
}
