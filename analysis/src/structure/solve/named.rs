//! The tools that a program names, each made from its two names once.

use foldhash::HashMap;
use protocol::ToolId;

use crate::structure::domain::{NameId, Names, written};

/// A tool, by its place among those that the program names.
pub(super) type ToolNumber = u32;

/// Tools by what the program writes.
#[derive(Default)]
pub(super) struct NamedTools {
    numbers: HashMap<(NameId, NameId), Result<ToolNumber, String>>,
    /// Two ways to write a tool are one tool.
    ids: HashMap<ToolId, ToolNumber>,
    tools: Vec<ToolId>,
}

impl NamedTools {
    /// Returns the tool of two names, or why there can be none.
    pub(super) fn number(
        &mut self,
        names: &Names,
        namespace: NameId,
        action: NameId,
    ) -> Result<ToolNumber, &str> {
        let Self { numbers, ids, tools } = self;
        let known = numbers.entry((namespace, action)).or_insert_with(|| {
            let text = |name| written(names.text(name));
            let tool = ToolId::from_call(&text(namespace), &text(action));
            let tool = tool.map_err(|error| error.to_string())?;
            Ok(*ids.entry(tool).or_insert_with_key(|tool| {
                tools.push(tool.clone());
                tools.len() as ToolNumber - 1
            }))
        });
        known.as_ref().copied().map_err(String::as_str)
    }

    pub(super) fn get(&self, number: ToolNumber) -> Option<&ToolId> {
        self.tools.get(number as usize)
    }
}
