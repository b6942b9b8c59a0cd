//! Parses and checks the answers of a gateway.
//!
//! A gateway may be faulty or hostile. Each answer is checked against the request, and each text that a person could
//! see is escaped here, so that no other code has to.

use protocol::{CallNote, Envelope, ErrorBody, ExecutedOn, RunNote, Success, ToolUse, escape_text};
use serde_json::Value;

/// The valid levels of a console line.
const LEVELS: &[&str] = &["log", "info", "warn", "error", "debug"];

/// The maximum length of a run id.
const RUN_ID_LIMIT: usize = 128;

/// Returns the result of a JSON-RPC answer; `None` for JSON that is not JSON-RPC.
///
/// # Errors
/// Returns the message of a JSON-RPC error, or why this is not the answer to request `id`.
pub(super) fn result(answer: &Value, id: u64) -> Result<Option<Value>, String> {
    let is_json_rpc = answer.get("result").is_some() || answer.get("error").is_some();
    if !is_json_rpc {
        return Ok(None);
    }
    if answer.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return Err("not JSON-RPC 2.0".to_owned());
    }
    let message = answer.pointer("/error/message").and_then(Value::as_str);
    // A server that cannot parse a request cannot return its id.
    let may_be_null = message.is_some() && answer.get("id").is_none_or(Value::is_null);
    if !may_be_null && answer.get("id").and_then(Value::as_u64) != Some(id) {
        return Err("the answer to a different request".to_owned());
    }
    if let Some(message) = message {
        return Err(format!("it refused the request: {message}"));
    }
    // The result of an MCP request is always an object.
    Ok(answer.get("result").filter(|result| result.is_object()).cloned())
}

/// Parses the gateway's answer about a program.
///
/// # Errors
/// Returns why the answer is invalid.
pub(super) fn envelope(structured: &Value) -> Result<Envelope, String> {
    let envelope: Envelope = serde_json::from_value(structured.clone())
        .map_err(|error| format!("an envelope that cannot be decoded: {error}"))?;
    Ok(match envelope {
        Envelope::Success(mut success) => {
            check_success(&mut success)?;
            Envelope::Success(success)
        }
        Envelope::Error(mut failed) => {
            clean_error(&mut failed.error);
            failed.run.as_mut().map_or(Ok(()), check_run)?;
            Envelope::Error(failed)
        }
        // The caller checks the delegation against the submitted program.
        Envelope::ExecuteLocally(mut delegation) => {
            delegation.tools_used.iter_mut().for_each(clean_tool);
            Envelope::ExecuteLocally(delegation)
        }
        Envelope::ApprovalRequired(_) => {
            return Err("a question, but only `pml` itself may ask the user".to_owned());
        }
    })
}

fn check_success(success: &mut Success) -> Result<(), String> {
    // `result` stays as it is: it is the program's value, which is escaped only for a terminal.
    success.tools_used.iter_mut().flatten().for_each(clean_tool);
    success.dag.iter_mut().for_each(clean);
    check_run(&mut success.run)
}

fn check_run(run: &mut RunNote) -> Result<(), String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if run.execution_id.len() > RUN_ID_LIMIT || !run.execution_id.chars().all(is_name) {
        return Err("a run without a valid `execution_id`".to_owned());
    }
    if run.executed != ExecutedOn::Server {
        return Err("a claim that this machine ran the program, which it did not".to_owned());
    }
    if !run.duration_ms.is_finite() || run.duration_ms < 0.0 {
        return Err("a run with an impossible `duration_ms`".to_owned());
    }
    for line in &mut run.console {
        // The text is escaped only for a terminal: a pipe gets the program's exact output.
        if !LEVELS.contains(&line.level.as_str()) {
            line.level = "log".to_owned();
        }
    }
    run.warnings.iter_mut().for_each(escape);
    run.calls.iter_mut().flatten().for_each(clean_call);
    for failed in &mut run.failed_calls {
        escape(&mut failed.tool);
        failed.through.iter_mut().for_each(escape);
    }
    Ok(())
}

fn clean_call(call: &mut CallNote) {
    escape(&mut call.tool);
    call.through.iter_mut().for_each(escape);
}

fn clean_tool(tool: &mut ToolUse) {
    escape(&mut tool.id);
    let named = [&mut tool.fqdn, &mut tool.version, &mut tool.lacks_key];
    named.into_iter().flatten().for_each(escape);
    tool.tools.iter_mut().flatten().for_each(escape);
}

fn clean_error(error: &mut ErrorBody) {
    escape_lines(&mut error.message);
    escape_lines(&mut error.hint);
    clean(&mut error.details);
    error.install_command.iter_mut().for_each(escape);
    error.client_tools.iter_mut().flatten().for_each(escape);
}

/// Escapes every text of a value, and every key.
pub(super) fn clean(value: &mut Value) {
    match value {
        // Line breaks are kept for code frames, which have several lines.
        Value::String(text) => escape_lines(text),
        Value::Array(items) => items.iter_mut().for_each(clean),
        Value::Object(members) => {
            let old = std::mem::take(members);
            members.extend(old.into_iter().map(|(key, mut value)| {
                clean(&mut value);
                (escape_text(&key), value)
            }));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn escape(text: &mut String) {
    *text = escape_text(text);
}

/// Escapes each line of a text; the line breaks are kept.
fn escape_lines(text: &mut String) {
    *text = text.split('\n').map(escape_text).collect::<Vec<_>>().join("\n");
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const EVIL: &str = "a\u{1b}[2J\u{202e}b";

    fn success(run: Value) -> Value {
        let mut answer = json!({
            "status": "success", "result": 1, "execution_id": "x-1", "executed": "server", "duration_ms": 1.0,
        });
        for (key, value) in run.as_object().unwrap() {
            answer[key] = value.clone();
        }
        answer
    }

    /// NX-10: a gateway cannot control the terminal that shows its texts.
    #[test]
    fn every_text_that_is_shown_is_escaped() {
        for answer in [
            success(json!({ "console": [{ "level": EVIL, "text": "x" }] })),
            success(json!({ "warnings": [EVIL] })),
            success(
                json!({ "calls": [{ "tool": EVIL, "routing": "server", "ok": true, "duration_ms": 1, "through": [EVIL] }] }),
            ),
            success(
                json!({ "tools_used": [{ "id": EVIL, "fqdn": EVIL, "version": EVIL, "type": "tool", "routing": "server", "lacks_key": EVIL, "tools": [EVIL] }] }),
            ),
            success(json!({ "dag": { EVIL: [EVIL] } })),
        ] {
            let read = serde_json::to_string(&envelope(&answer).unwrap()).unwrap();
            assert!(!read.contains("\\u001b") && !read.contains('\u{202e}'), "{read}");
        }
        let body = ErrorBody::new(protocol::ErrorCode::Internal, EVIL);
        let mut answer = serde_json::to_value(Envelope::error(body)).unwrap();
        answer["hint"] = json!(EVIL);
        answer["install_command"] = json!(EVIL);
        answer["client_tools"] = json!([EVIL]);
        answer["details"] =
            json!({ "code_frame": format!("one\ntwo{EVIL}"), "origin": { "file": EVIL } });
        let read = serde_json::to_string(&envelope(&answer).unwrap()).unwrap();
        assert!(!read.contains("\\u001b") && !read.contains('\u{202e}'), "{read}");
        assert!(read.contains("one\\ntwo"), "{read}");
    }

    #[test]
    fn an_impossible_run_is_refused() {
        envelope(&success(json!({}))).unwrap();
        for run in [
            json!({ "executed": "client" }),
            json!({ "execution_id": EVIL }),
            json!({ "execution_id": "x".repeat(200) }),
            json!({ "duration_ms": -1 }),
        ] {
            envelope(&success(run.clone())).expect_err(&run.to_string());
        }
    }

    #[test]
    fn refuses_answers_to_other_requests() {
        let ok = json!({ "jsonrpc": "2.0", "id": 7, "result": {} });
        assert_eq!(result(&ok, 7).unwrap(), Some(json!({})));
        for answer in [
            json!({ "jsonrpc": "2.0", "id": 8, "result": {} }),
            json!({ "jsonrpc": "2.0", "id": "7", "result": {} }),
            json!({ "jsonrpc": "2.0", "id": null, "result": {} }),
            json!({ "jsonrpc": "2.0", "result": {} }),
            json!({ "jsonrpc": "1.0", "id": 7, "result": {} }),
            json!({ "id": 7, "result": {} }),
            json!({ "jsonrpc": "2.0", "id": 8, "error": { "code": 1, "message": "x" } }),
        ] {
            result(&answer, 7).expect_err(&answer.to_string());
        }
    }
}
