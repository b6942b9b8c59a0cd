//! Names that a reader mistakes for another one: the only rule, for questions and for publishing.
//!
//! Names are ASCII, so their grammar already refuses letters of other scripts. Two names look alike if they are equal
//! after folding what a reader overlooks. A name with an additional letter or word is a different name, however
//! similar.

use crate::{RoutingRules, ToolPattern};

/// Namespaces that nobody may publish in.
pub const RESERVED_NAMESPACES: [&str; 3] = ["pml", "mcp", "proxy"];

/// Returns a name without what a reader overlooks: case, separators, and differences between similar letters.
pub fn skeleton(name: &str) -> String {
    let joined = name.to_ascii_lowercase().replace("rn", "m").replace("vv", "w");
    let alike = |c| match c {
        '0' => 'o',
        '1' | 'i' | 'j' => 'l',
        '5' => 's',
        'v' => 'y',
        'q' | '9' => 'g',
        other => other,
    };
    joined.chars().filter(|c| !matches!(c, '-' | '_' | '.')).map(alike).collect()
}

/// Returns the first of some names that a name looks like and is not.
pub fn among<'a>(name: &str, known: impl IntoIterator<Item = &'a str> + Clone) -> Option<&'a str> {
    if known.clone().into_iter().any(|known| known == name) {
        return None;
    }
    let folded = skeleton(name);
    known.into_iter().find(|known| skeleton(known) == folded)
}

/// Returns the namespace of PML, or of those that it ships rules for, that a namespace looks like and is not.
pub fn of_shipped(namespace: &str) -> Option<String> {
    let shipped = Vec::from(RoutingRules::shipped()).into_iter();
    let shipped = shipped.filter_map(|(pattern, _)| match pattern {
        ToolPattern::Namespace(name) => Some(name),
        _ => None,
    });
    let known: Vec<String> =
        RESERVED_NAMESPACES.iter().map(|name| (*name).to_owned()).chain(shipped).collect();
    among(namespace, known.iter().map(String::as_str)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fqdn;

    /// RG-05: a name that reads like a shipped one is known for it.
    #[test]
    fn what_reads_like_a_shipped_namespace_is_known() {
        for (name, known) in [
            ("pmI", "pml"),
            ("pm1", "pml"),
            ("Pml", "pml"),
            ("p-m-l", "pml"),
            ("PML", "pml"),
            ("rncp", "mcp"),
            ("Proxy", "proxy"),
            ("memorv", "memory"),
            ("rnemory", "memory"),
            ("Memory", "memory"),
            ("filesystern", "filesystem"),
            ("fi1esystem", "filesystem"),
            ("file_system", "filesystem"),
            ("she11", "shell"),
            ("sequentialthinking", "sequential-thinking"),
            ("g1thub", "github"),
            ("vveb", "web"),
        ] {
            assert_eq!(of_shipped(name).unwrap_or_default(), known, "{name}");
        }
    }

    /// Names that are only near are names of their own: what ships is not in anybody's way.
    #[test]
    fn what_is_only_near_is_another_name() {
        for name in [
            "pml",
            "memory",
            "memories",
            "sql",
            "notes",
            "files",
            "pmls",
            "ml",
            "cpm",
            "webs",
            "gitlab",
            "githubs",
            "shells",
            "mem",
            "proxies",
            "postgresql",
            "filesysten",
            "states",
        ] {
            assert_eq!(of_shipped(name), None, "{name}");
        }
    }

    /// What ships does not look like itself, so that none of it stands in the way of another.
    #[test]
    fn shipped_namespaces_are_apart() {
        for (pattern, _) in Vec::from(RoutingRules::shipped()) {
            if let ToolPattern::Namespace(name) = pattern {
                assert_eq!(of_shipped(&name), None, "{name}");
            }
        }
    }

    /// Letters of other scripts never come so far.
    #[test]
    fn names_are_ascii() {
        for name in ["ｐｍｌ", "pмl", "mеmory", "pml\u{200b}", "ｍemory"] {
            Fqdn::server("acme.web".parse().unwrap(), name).expect_err(name);
            format!("acme.{name}").parse::<crate::Scope>().expect_err(name);
        }
    }
}
