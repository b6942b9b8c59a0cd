//! Names that a reader takes for another one.

use protocol::{RoutingRules, ToolId, ToolPattern};

use crate::tools;

/// Returns the namespace of PML, or of those that it ships rules for, that a tool's looks like and is not.
pub(super) fn of(tool: &ToolId) -> Option<String> {
    let name = tool.namespace();
    let shipped = Vec::from(RoutingRules::shipped()).into_iter();
    let shipped = shipped.filter_map(|(pattern, _)| match pattern {
        ToolPattern::Namespace(name) => Some(name),
        _ => None,
    });
    let known: Vec<String> =
        tools::NAMESPACES.iter().map(|name| (*name).to_owned()).chain(shipped).collect();
    if known.iter().any(|known| known == name) {
        return None;
    }
    known.into_iter().find(|known| skeleton(known) == skeleton(name))
}

/// Returns a name without what a reader overlooks: case, separators, and letters that look alike.
fn skeleton(name: &str) -> String {
    let lower = name.to_lowercase();
    let joined = lower.replace("rn", "m").replace("vv", "w");
    let alike = |c| match c {
        '0' => 'o',
        '1' | 'i' | 'j' => 'l',
        '5' => 's',
        'v' => 'y',
        'q' | '9' => 'g',
        other => other,
    };
    joined.chars().filter(|c| !matches!(c, '-' | '_')).map(alike).collect()
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
