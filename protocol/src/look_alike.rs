//! Names that a reader can mistake for others. Publishing and questions to the user share this rule.
//!
//! Names are ASCII, so their grammar already refuses letters of other scripts. Two names look alike if their
//! [`skeleton`]s are equal. A name with an additional letter or word does not look alike, however similar it is.

use crate::{RoutingRules, ToolPattern};

/// Namespaces in which publishing is refused.
pub const RESERVED_NAMESPACES: [&str; 3] = ["pml", "mcp", "proxy"];

/// Folds the differences that a reader overlooks: case, separators, and similar letters.
pub fn skeleton(name: &str) -> String {
    // Pairs come first: below, `v` becomes `y`, and dropped separators would form new pairs.
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

/// Returns the first known name that `name` looks like, unless `name` itself is known.
pub fn among<'a>(name: &str, known: impl IntoIterator<Item = &'a str> + Clone) -> Option<&'a str> {
    if known.clone().into_iter().any(|known| known == name) {
        return None;
    }
    let folded = skeleton(name);
    known.into_iter().find(|known| skeleton(known) == folded)
}

/// Returns the reserved namespace, or the namespace with a shipped rule, that a different namespace looks like.
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

    /// RG-05: look-alikes of shipped namespaces are detected.
    #[test]
    fn detects_look_alikes_of_shipped_namespaces() {
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

    /// Merely similar names are not look-alikes, so shipped names do not block others.
    #[test]
    fn accepts_merely_similar_names() {
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

    /// No shipped namespace looks like another one.
    #[test]
    fn shipped_namespaces_do_not_look_alike() {
        for (pattern, _) in Vec::from(RoutingRules::shipped()) {
            if let ToolPattern::Namespace(name) = pattern {
                assert_eq!(of_shipped(&name), None, "{name}");
            }
        }
    }

    /// The grammar of names refuses letters of other scripts.
    #[test]
    fn names_are_ascii() {
        for name in ["ｐｍｌ", "pмl", "mеmory", "pml\u{200b}", "ｍemory"] {
            Fqdn::server("acme.web".parse().unwrap(), name).expect_err(name);
            format!("acme.{name}").parse::<crate::Scope>().expect_err(name);
        }
    }
}
