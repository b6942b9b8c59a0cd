//! Assertions about envelopes.

use serde_json::Value;

/// Asserts that the program succeeded; returns its result.
#[track_caller]
pub(crate) fn success(envelope: &Value) -> &Value {
    assert_eq!(envelope["status"], "success", "{envelope:#}");
    &envelope["result"]
}

/// Asserts that the run failed with this code; returns the message.
#[track_caller]
pub(crate) fn failure<'a>(envelope: &'a Value, code: &str) -> &'a str {
    assert_eq!(envelope["status"], "error", "{envelope:#}");
    assert_eq!(envelope["error_code"], code, "{envelope:#}");
    assert!(envelope["error_number"].as_u64().is_some_and(|n| n >= 1_000), "{envelope:#}");
    assert!(!envelope["hint"].as_str().unwrap_or_default().is_empty(), "{envelope:#}");
    envelope["message"].as_str().expect("a failure has a message")
}

/// Asserts that the run waits for approval; returns the question.
#[track_caller]
pub(crate) fn question(envelope: &Value) -> &Value {
    assert_eq!(envelope["status"], "approval_required", "{envelope:#}");
    assert_eq!(envelope["approval_required"], true, "{envelope:#}");
    assert!(
        envelope["workflow_id"].as_str().is_some_and(|id| id.starts_with("wl_") && id.len() == 35),
        "{envelope:#}"
    );
    // The agent can approve an ordinary call once, and can always deny.
    let options = match envelope["context"].get("needs_person") {
        None => serde_json::json!(["continue", "abort"]),
        Some(_) => serde_json::json!(["abort"]),
    };
    assert_eq!(envelope["options"], options, "{envelope:#}");
    envelope
}

/// Returns the called tools with the side that each ran on, in order.
#[track_caller]
pub(crate) fn calls(envelope: &Value) -> Vec<(&str, &str)> {
    let calls = envelope["calls"].as_array().unwrap_or_else(|| panic!("no calls: {envelope:#}"));
    calls
        .iter()
        .map(|call| {
            (
                call["tool"].as_str().unwrap_or_default(),
                call["routing"].as_str().unwrap_or_default(),
            )
        })
        .collect()
}
