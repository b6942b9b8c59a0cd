//! The task graph: which tasks depend on which.

use foldhash::HashMap;
use indexmap::IndexMap;
use protocol::ToolId;
use serde::{Deserialize, Serialize};

use crate::structure::{Argument, StaticStructure};

/// The tasks of a program and what each depends on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Dag {
    /// The tasks in evaluation order; a task depends on earlier ones only.
    pub tasks: Vec<DagTask>,
}

/// One task of a [`Dag`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DagTask {
    /// The name within the program: `t1`, `t2` …
    pub id: String,
    /// The tool.
    pub tool: ToolId,
    /// The tasks whose results it needs, or which decide whether it runs.
    pub depends_on: Vec<String>,
    /// 0, or one more than the highest layer that it depends on. Tasks of one
    /// layer do not depend on each other.
    pub layer: u32,
    /// Whether a run may skip the task.
    pub conditional: bool,
    /// Whether a run may execute the task any number of times, including never.
    pub repeats: bool,
    /// The arguments by name.
    pub arguments: IndexMap<String, Argument>,
}

impl Dag {
    /// Builds the graph of a structure.
    pub fn of(structure: &StaticStructure) -> Self {
        let mut layers: HashMap<&str, u32> = HashMap::default();
        let tasks = structure
            .tasks()
            .map(|task| {
                let layer = task
                    .depends_on
                    .iter()
                    .filter_map(|id| layers.get(id.as_str()))
                    .map(|layer| layer + 1)
                    .max()
                    .unwrap_or(0);
                layers.insert(&task.task, layer);
                DagTask {
                    id: task.task.clone(),
                    tool: task.tool.clone(),
                    depends_on: task.depends_on.clone(),
                    layer,
                    conditional: task.conditional,
                    repeats: task.repeats,
                    arguments: task.arguments.clone(),
                }
            })
            .collect();
        Self { tasks }
    }
}
