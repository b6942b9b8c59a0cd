//! The optional fields of an answer. They are omitted by default, because they cost a model tokens.

use serde::{Deserialize, Serialize};

use crate::{CallNote, Envelope, Routing, ToolUse};

/// A part of the answer that `options.include` requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "&'static str", try_from = "String")]
pub enum Include {
    /// Every call, with its side and its time.
    Calls,
    /// The declared tools, with their full names and hashes.
    ToolsUsed,
    /// The analysed plan.
    Dag,
}

impl Include {
    /// All parts.
    pub const ALL: [Self; 3] = [Self::Calls, Self::ToolsUsed, Self::Dag];

    /// Returns its word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Calls => "calls",
            Self::ToolsUsed => "tools_used",
            Self::Dag => "dag",
        }
    }
}

impl From<Include> for &'static str {
    fn from(include: Include) -> Self {
        include.as_str()
    }
}

impl TryFrom<String> for Include {
    type Error = String;

    fn try_from(word: String) -> Result<Self, String> {
        Self::ALL.into_iter().find(|include| include.as_str() == word).ok_or_else(|| {
            let known = Self::ALL.map(|include| format!("`{}`", include.as_str())).join(", ");
            // The caller chose the word, so the message repeats only its beginning.
            let word: String = word.chars().take(64).collect();
            format!("`options.include` has no `{}`; it takes {known}", crate::escape_text(&word))
        })
    }
}

/// Calls of one tool that failed in a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedCalls {
    /// The tool id.
    pub tool: String,
    /// The side that the calls ran on.
    pub routing: Routing,
    /// The capabilities that made them, outermost first; empty for calls of the program itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub through: Vec<String>,
    /// The total number.
    pub count: usize,
}

/// The content of an MCP result's `_meta` about a run, under [`crate::meta_tools::RUN_META`].
///
/// It is for client programs. The model does not read it, so it costs no tokens.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunMeta {
    /// The run's id in logs and traces.
    pub execution_id: String,
    /// The declared tools; absent if the answer has them, or the run failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools_used: Option<Vec<ToolUse>>,
    /// The first calls; absent if the answer has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls: Option<Vec<CallNote>>,
    /// The number of omitted tools and calls.
    #[serde(skip_serializing_if = "is_zero")]
    pub left_out: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// The maximum number of tools, and of calls, in `_meta`.
const META_LIMIT: usize = 50;

/// Truncates a list for `_meta`; returns it with the number of omitted items.
fn first<T>(list: Option<Vec<T>>) -> (Option<Vec<T>>, usize) {
    let count = list.as_ref().map_or(0, Vec::len);
    let mut list = list;
    if let Some(list) = &mut list {
        list.truncate(META_LIMIT);
    }
    (list, count.saturating_sub(META_LIMIT))
}

/// The maximum number of entries for failed calls in an answer.
const FAILED_LIMIT: usize = 20;

fn failed_calls(calls: &[CallNote]) -> Vec<FailedCalls> {
    let mut failed: Vec<FailedCalls> = Vec::new();
    for call in calls.iter().filter(|call| !call.ok) {
        let same = failed.iter().position(|seen| {
            seen.tool == call.tool && seen.through == call.through && seen.routing == call.routing
        });
        match same {
            Some(place) => failed[place].count += 1,
            // Further tools are dropped, but the counts of the listed ones stay complete.
            None if failed.len() == FAILED_LIMIT => {}
            None => failed.push(FailedCalls {
                tool: call.tool.clone(),
                routing: call.routing,
                through: call.through.clone(),
                count: 1,
            }),
        }
    }
    failed
}

impl Envelope {
    /// Removes the fields that were not requested from the answer, and copies the first tools and calls to its
    /// `_meta`. Failed calls remain as a summary.
    #[must_use]
    pub fn with_only(mut self, include: &[Include]) -> Self {
        let mut tools_used = None;
        let run = match &mut self {
            Self::Success(success) => {
                if !include.contains(&Include::ToolsUsed) {
                    tools_used = success.tools_used.take();
                }
                if !include.contains(&Include::Dag) {
                    success.dag = None;
                }
                Some(&mut success.run)
            }
            Self::Error(failed) => failed.run.as_mut(),
            Self::ExecuteLocally(_) | Self::ApprovalRequired(_) => None,
        };
        if let Some(run) = run {
            let calls = run.calls.take_if(|_| !include.contains(&Include::Calls));
            // Before the list is truncated for `_meta`, so that the counts are complete.
            if let Some(calls) = &calls {
                run.failed_calls = failed_calls(calls);
            }
            let (tools_used, tools_cut) = first(tools_used);
            let (calls, calls_cut) = first(calls);
            run.meta = Some(Box::new(RunMeta {
                execution_id: run.execution_id.clone(),
                tools_used,
                calls,
                left_out: tools_cut + calls_cut,
            }));
        }
        self
    }

    /// Returns the content of `_meta` about the run, if there is one.
    pub fn meta(&self) -> Option<&RunMeta> {
        match self {
            Self::Success(success) => success.run.meta.as_deref(),
            Self::Error(failed) => failed.run.as_ref()?.meta.as_deref(),
            Self::ExecuteLocally(_) | Self::ApprovalRequired(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{ExecutedOn, RunNote, Success};

    fn ended(calls: Vec<CallNote>) -> Envelope {
        Envelope::Success(Box::new(Success {
            result: json!(2),
            run: RunNote {
                execution_id: "r".to_owned(),
                executed: ExecutedOn::Client,
                duration_ms: 1.234_567,
                console: Vec::new(),
                console_truncated: false,
                warnings: Vec::new(),
                calls: Some(calls),
                failed_calls: Vec::new(),
                meta: None,
            },
            tools_used: Some(Vec::new()),
            dag: Some(json!({ "tasks": [] })),
        }))
    }

    fn call(tool: &str, ok: bool) -> CallNote {
        CallNote {
            tool: tool.to_owned(),
            routing: Routing::Server,
            ok,
            duration_ms: 1.0,
            through: Vec::new(),
        }
    }

    #[test]
    fn an_answer_has_only_the_requested_fields() {
        let envelope = ended(vec![call("a:b", true)]);
        assert_eq!(
            serde_json::to_value(envelope.clone().with_only(&[])).unwrap(),
            json!({ "status": "success", "result": 2, "execution_id": "r", "executed": "client", "duration_ms": 1.23 }),
        );
        for include in Include::ALL {
            let answer = serde_json::to_value(envelope.clone().with_only(&[include])).unwrap();
            for other in Include::ALL {
                assert_eq!(answer.get(other.as_str()).is_some(), other == include, "{answer}");
            }
        }
    }

    #[test]
    fn meta_has_the_first_omitted_tools_and_calls() {
        let short = ended(vec![call("a:b", true)]).with_only(&[]);
        let answer = serde_json::to_value(short.meta()).unwrap();
        assert_eq!((&answer["execution_id"], &answer["tools_used"]), (&json!("r"), &json!([])));
        assert_eq!(answer["calls"][0]["tool"], "a:b");
        assert_eq!(answer.get("left_out"), None);
        let long = ended(vec![call("a:b", true); 51]);
        let answer = serde_json::to_value(long.clone().with_only(&[]).meta()).unwrap();
        assert_eq!(answer["calls"].as_array().unwrap().len(), META_LIMIT);
        assert_eq!(answer["left_out"], 1);
        let answer = serde_json::to_value(long.with_only(&[Include::Calls]).meta()).unwrap();
        assert_eq!((answer.get("calls"), answer.get("left_out")), (None, None));
    }

    #[test]
    fn failed_calls_are_always_summarized() {
        let calls = vec![call("a:b", false), call("a:c", true), call("a:b", false)];
        let answer = serde_json::to_value(ended(calls).with_only(&[])).unwrap();
        assert_eq!(
            answer["failed_calls"],
            json!([{ "tool": "a:b", "routing": "server", "count": 2 }])
        );
        assert_eq!(answer.get("calls"), None);
    }

    #[test]
    fn an_unknown_word_is_refused_with_the_known_ones() {
        let known: Vec<Include> = serde_json::from_value(json!(["dag", "calls"])).unwrap();
        assert_eq!(known, [Include::Dag, Include::Calls]);
        let error = serde_json::from_value::<Vec<Include>>(json!(["hashes"])).unwrap_err();
        assert_eq!(
            error.to_string(),
            "`options.include` has no `hashes`; it takes `calls`, `tools_used`, `dag`"
        );
        assert!(serde_json::from_value::<Vec<Include>>(Value::from("calls")).is_err());
    }
}
