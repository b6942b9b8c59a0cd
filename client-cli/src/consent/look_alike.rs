//! Names that a reader takes for another one.

use protocol::{ToolId, look_alike};

use crate::tools;

/// Returns the namespace of PML, or of those that it ships rules for, that a tool's looks like and is not.
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
    fn look_alikes_of_known_names_are_told() {
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
