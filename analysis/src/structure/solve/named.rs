//! The tools that a program names. The id of each pair of namespace and action is parsed once.

use foldhash::HashMap;
use protocol::ToolId;

use crate::structure::domain::{NameId, Names, written};

/// A tool's index in [`NamedTools`].
pub(super) type ToolNumber = u32;

/// The tool ids, found by the names that the program writes.
#[derive(Default)]
pub(super) struct NamedTools {
    /// The parsed pairs: a tool, or why it cannot exist.
    numbers: HashMap<(NameId, NameId), Result<ToolNumber, String>>,
    /// The numbers of the tools. Two spellings may mean the same tool.
    ids: HashMap<ToolId, ToolNumber>,
    /// The tools by number.
    tools: Vec<ToolId>,
}

impl NamedTools {
    /// Returns the tool of a namespace and an action, or why it cannot exist.
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

    /// Returns a tool by its number.
    pub(super) fn get(&self, number: ToolNumber) -> Option<&ToolId> {
        self.tools.get(number as usize)
    }
}
