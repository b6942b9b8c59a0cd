//! The parts of a structure, in their wire form.

use indexmap::IndexMap;
use protocol::ToolId;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

/// The tasks, decisions, loops, forks and joins of a program.
///
/// The nodes are a flat list in evaluation order, linked by `parent`, so that
/// deeply nested programs are not deeply nested JSON. Decisions and loops without
/// tasks are omitted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StaticStructure {
    /// The nodes; a parent comes before its children.
    pub nodes: Vec<Node>,
}

impl StaticStructure {
    /// Returns the tasks in evaluation order.
    pub fn tasks(&self) -> impl Iterator<Item = &Task> {
        self.nodes.iter().filter_map(|node| match &node.kind {
            NodeKind::Task(task) | NodeKind::Capability(task) => Some(task),
            _ => None,
        })
    }

    /// Turns the tasks whose tool is a capability into capability nodes.
    ///
    /// A program calls tools and capabilities in the same way; only the registry can
    /// distinguish them.
    pub fn mark_capabilities(&mut self, is_capability: impl Fn(&ToolId) -> bool) {
        for node in &mut self.nodes {
            match &node.kind {
                NodeKind::Task(task) if is_capability(&task.tool) => {
                    node.kind = NodeKind::Capability(task.clone());
                }
                _ => {}
            }
        }
    }
}

/// One part of a structure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// The number of the node, from 0; also its index in the list.
    pub id: u32,
    /// The node that encloses this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<u32>,
    /// The part of the parent that contains this node: `then`, `else`, `case 1`,
    /// `default`, `test`, `body`, `catch`, `finally`, or the member of a fork.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The kind of the node.
    #[serde(flatten)]
    pub kind: NodeKind,
}

/// The kind of a node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum NodeKind {
    /// A call of a tool.
    Task(Task),
    /// A call of a tool that the registry knows to be a capability.
    Capability(Task),
    /// A branch: `if`, `?:`, `&&`, `||`, `??`, `switch`, `try`.
    Decision {
        /// The test, as written, shortened.
        test: String,
        /// The tasks whose results decide.
        depends_on: Vec<String>,
    },
    /// A repetition: a loop, or a callback of `map` and similar methods.
    Loop {
        /// What is iterated or tested, as written, shortened.
        over: String,
        /// The tasks whose results decide how often.
        depends_on: Vec<String>,
    },
    /// The start of calls that are in flight together.
    Fork {
        /// `all`, `allSettled`, `race` or `any`.
        how: String,
    },
    /// The place where a fork's members are awaited.
    Join {
        /// The node of the fork.
        fork: u32,
    },
}

/// A call of a tool, at one place in the program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// The name within the program: `t1`, `t2` … in evaluation order.
    pub task: String,
    /// The tool.
    pub tool: ToolId,
    /// The line of the call, from 1.
    pub line: u32,
    /// The column of the call in code points, from 1.
    pub column: u32,
    /// Whether a run may skip the call.
    pub conditional: bool,
    /// Whether a run may make the call any number of times, including never.
    pub repeats: bool,
    /// The arguments by name; `*` is an argument that is not an object literal, or the
    /// spread part of one.
    pub arguments: IndexMap<String, Argument>,
    /// The earlier tasks that this one depends on: their results flow into the
    /// arguments, or decide whether the call is made. Dependencies on the previous
    /// iteration of a loop are omitted.
    pub depends_on: Vec<String>,
    /// The tasks whose results decide whether or how often the call is made: by a
    /// branch or a loop around it, or by an early exit before it. Later tasks are
    /// included only if no loop around the call lists them.
    #[serde(default)]
    pub decided_by: Vec<String>,
    /// The fields of `args` that decide this, in whole or in part: `args.x`, or `args` if any part may.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub decided_by_args: Vec<String>,
    /// All tasks whose results flow into the arguments as data, in evaluation order.
    /// In a loop this includes later tasks, and the task itself, whose results come
    /// from an earlier iteration.
    #[serde(default)]
    pub data_from: Vec<String>,
    /// Whether `args`, the input of the program, flows into the arguments as data.
    #[serde(default, skip_serializing_if = "is_false")]
    pub from_args: bool,
}

/// Where an argument comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Argument {
    /// A value written in the program.
    Literal {
        /// The value.
        value: Json,
    },
    /// A part of another task's result.
    Reference {
        /// The task.
        task: String,
        /// The path from its result to the part.
        path: Vec<PathStep>,
    },
    /// A part of `args`, the input of the program.
    Parameter {
        /// The path from `args` to the part.
        path: Vec<PathStep>,
    },
    /// An object that is not entirely literal.
    Object {
        /// The fields, in order; `*` is the part that is spread into it.
        fields: IndexMap<String, Argument>,
    },
    /// An array that is not entirely literal.
    Array {
        /// The items, in order.
        items: Vec<Argument>,
    },
    /// A computed value.
    Expression {
        /// The expression, as written, shortened.
        source: String,
        /// The tasks whose results flow into it.
        depends_on: Vec<String>,
        /// The fields of `args` that flow into it, in whole or in part: `args.x`, or
        /// `args` if any part may. Empty if the input does not flow into it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        from_args: Vec<String>,
    },
}

impl Argument {
    /// Returns whether `args` flows into it or a part of it.
    pub fn is_from_args(&self) -> bool {
        match self {
            Self::Literal { .. } | Self::Reference { .. } => false,
            Self::Parameter { .. } => true,
            Self::Object { fields } => fields.values().any(Self::is_from_args),
            Self::Array { items } => items.iter().any(Self::is_from_args),
            Self::Expression { from_args, .. } => !from_args.is_empty(),
        }
    }
}

fn is_false(value: &bool) -> bool {
    !value
}

/// One step from a value to a part of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum PathStep {
    /// The item at an index.
    Index(u32),
    /// The field with a name.
    Field(String),
}

impl PathStep {
    /// Returns the step for a key: an index if the key is formatted like one.
    pub(crate) fn of(key: &str) -> Self {
        match key.parse::<u32>() {
            Ok(index) if index.to_string() == key => Self::Index(index),
            _ => Self::Field(key.into()),
        }
    }
}

/// Returns a part of `args` as a program writes it.
pub(crate) fn parameter(path: &[PathStep]) -> String {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
    let is_name =
        |name: &str| name.chars().all(is_part) && !name.starts_with(|c: char| c.is_ascii_digit());
    let mut out = "args".to_owned();
    for step in path {
        match step {
            PathStep::Index(index) => out += &format!("[{index}]"),
            PathStep::Field(name) if is_name(name) => {
                out.push('.');
                out += name;
            }
            PathStep::Field(name) => out += &format!("[{name:?}]"),
        }
    }
    out
}
