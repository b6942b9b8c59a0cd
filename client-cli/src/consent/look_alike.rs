//! Names that a reader could mistake for a known one.

use protocol::{ToolId, look_alike};

use crate::tools;

/// Returns the known namespace that a tool's namespace resembles without being it: one of PML's own, or one in the
/// shipped routing table.
pub(super) fn of(tool: &ToolId) -> Option<String> {
    let name = tool.namespace();
    if tools::is_native(name) {
        return None;
    }
    let native = look_alike::among(name, tools::namespaces());
    native.map(str::to_owned).or_else(|| look_alike::of_shipped(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn look_alikes_of_known_names_are_detected() {
        let other = |text: &str| of(&text.parse().unwrap());
        for (name, known) in [
            ("pmI:x", "pml"),
            ("memorv:x", "memory"),
            ("fi1esystem:x", "filesystem"),
            ("filesystern:x", "filesystem"),
            ("she11:x", "shell"),
            ("sequentialthinking:x", "sequential-thinking"),
        ] {
            assert_eq!(other(name).as_deref(), Some(known), "{name}");
        }
        for name in ["pml:x", "memory:x", "notes:x", "files:x"] {
            assert_eq!(other(name), None, "{name}");
        }
    }
}
