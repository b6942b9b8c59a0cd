//! The result of a dry run, whose types plans share.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Routing, Scope, ToolId};

/// Where a tool or a program runs, as far as that is known in advance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// On the user's machine.
    Client,
    /// On the gateway.
    Server,
    /// Unknown. Data that reaches it is treated as leaving the machine.
    Unknown,
}

impl Side {
    /// Returns the word used on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
            Self::Unknown => "unknown",
        }
    }

    /// Returns where a whole program runs, as [`RoutingRules::decide`](crate::RoutingRules::decide)
    /// would once everything is known.
    pub fn decide(dynamic: bool, tools: impl IntoIterator<Item = Self>) -> Self {
        let mut decided = if dynamic { Self::Client } else { Self::Server };
        for side in tools {
            match side {
                // One client tool keeps the whole program on the client, whatever the others are.
                Self::Client => return Self::Client,
                // A dynamic program stays on the client whatever the unknown tool turns out to be.
                Self::Unknown if decided == Self::Server => decided = Self::Unknown,
                Self::Unknown | Self::Server => {}
            }
        }
        decided
    }
}

impl From<Routing> for Side {
    fn from(routing: Routing) -> Self {
        match routing {
            Routing::Client => Self::Client,
            Routing::Server => Self::Server,
        }
    }
}

/// The result of a dry run: what would happen, without running anything.
///
/// Readers ignore unknown fields and accept missing ones: a gateway of another version may send less.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DryRun {
    /// Always true.
    pub dry_run: bool,
    /// The side that would run the program itself.
    pub routing: Routing,
    /// Whether the program is dynamic, so that the lists below may be incomplete.
    #[serde(default)]
    pub dynamic: bool,
    /// The caller's own scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<Scope>,
    /// The tools that would run on the user's machine.
    #[serde(default)]
    pub client_tools: Vec<String>,
    /// The calls in the text.
    #[serde(default)]
    pub tasks: Vec<DryTask>,
    /// The order in which they happen.
    #[serde(default)]
    pub order: Vec<Step>,
    /// The gateway that receives the text of the program for analysis; set by the user's machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text_goes_to: Option<String>,
    /// The results that leave the user's machine, or decide whether something leaves it.
    #[serde(default)]
    pub egress: Vec<Egress>,
    /// For a program that runs there: the parts of `args` that leave it, or decide whether something leaves it.
    #[serde(default)]
    pub args_egress: Vec<ArgsEgress>,
    /// The analysis's warnings.
    #[serde(default)]
    pub diagnostics: Value,
}

/// A call in the text of a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DryTask {
    /// The name within the program: `t1`, `t2` …
    pub id: String,
    /// The tool.
    pub tool: ToolId,
    /// The side that would run it.
    pub side: Side,
    /// Whether it would run on the user's machine while its arguments may be sent elsewhere.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sends_within: bool,
    /// The address of a server that is called from the user's machine, which receives the tool's arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sends_to: Option<String>,
    /// The line of the call, from 1.
    pub line: u32,
}

/// The result of a tool that may be on the user's machine and reaches one that may not be: it flows into the arguments,
/// or decides whether or how often the tool is called.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Egress {
    /// The task whose result it is.
    pub from: String,
    /// The task that it reaches.
    pub to: String,
    /// The first eight tasks on a shortest path between the two; empty when the result itself is in the arguments, or
    /// decides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub via: Vec<String>,
    /// Whether every path includes a decision, so that the result never reaches the task as data.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub decides: bool,
}

/// The parts of `args` that reach a tool that may not be on the user's machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArgsEgress {
    /// The task that they reach.
    pub to: String,
    /// The parts whose value, or a value computed from it, is passed: `args.x`; `args` if it may be any part.
    pub parameters: Vec<String>,
    /// The parts that only decide whether or how often the tool is called: `args.x`; `args` if it may be any part.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub decides: Vec<String>,
}

/// One step of a program. On every path through the program, and within one iteration of a loop, the calls of a step
/// start after those of the previous steps have ended, except where `until` or `any_time` says otherwise.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The tasks that the step starts.
    pub tasks: Vec<String>,
    /// Whether calls of this step can run concurrently.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub together: bool,
    /// The program does not wait for this step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unawaited: Option<Unawaited>,
    /// The time of the calls is unknown: they may happen at any time of the run, also before this step.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub any_time: bool,
    /// For each loop that ends with this step, innermost first: the number of its first step, from 1.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repeats_from: Vec<u32>,
}

/// Until when a step that is not awaited may still run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unawaited {
    /// The last step, from 1, that it may overlap; absent if it may run until the program ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_unknown_tool_leaves_the_side_unknown_unless_a_client_tool_decides() {
        use Side::{Client, Server, Unknown};
        for (dynamic, tools, expected) in [
            (false, vec![], Server),
            (false, vec![Server, Unknown], Unknown),
            (false, vec![Unknown, Client, Server], Client),
            (true, vec![Server], Client),
            (true, vec![Unknown], Client),
        ] {
            assert_eq!(Side::decide(dynamic, tools.clone()), expected, "{tools:?}");
        }
    }

    /// A gateway of another version may omit optional fields.
    #[test]
    fn reads_a_dry_run_without_optional_fields() {
        let read: DryRun =
            serde_json::from_value(json!({ "dry_run": true, "routing": "client" })).unwrap();
        assert_eq!((read.routing, read.order.len()), (Routing::Client, 0));
        serde_json::from_value::<DryRun>(json!({ "dry_run": true })).unwrap_err();
    }
}
