//! The names of exposed tools on MCP.

use std::collections::{BTreeMap, BTreeSet};

use protocol::{ToolId, meta_tools};

/// The maximum length of a name. Clients put the name of the server before it (`mcp__pml__` in Claude Code), and the
/// models' interfaces accept 64 characters in all.
const LIMIT: usize = 50;

/// Returns the name of a tool: `notes_twice` for `notes:twice`. The grammar of ids has no other characters than MCP's
/// names.
///
/// # Errors
/// Returns why the tool can have no name.
fn name_of(id: &ToolId) -> Result<String, String> {
    let name = format!("{}_{}", id.namespace(), id.action());
    if name.len() > LIMIT {
        return Err(format!("its name `{name}` would have more than {LIMIT} characters"));
    }
    if meta_tools::META_TOOLS.iter().any(|tool| tool.is(&name)) {
        return Err(format!("`{name}` is the name of one of PML's own tools"));
    }
    // `a:_b` would be `a__b`, by which clients call `a:b`.
    if let Ok(other) = ToolId::from_wire(&name)
        && other != id.plain()
    {
        return Err(format!("its name `{name}` already means `{other}`"));
    }
    Ok(name)
}

/// Names tools. Those that cannot have a name of their own are left out, with a warning: no tool is called by the name of
/// another.
pub(super) fn assign<T>(
    tools: Vec<(ToolId, T)>,
    warnings: &mut BTreeSet<String>,
) -> BTreeMap<String, (ToolId, T)> {
    let mut named: BTreeMap<String, Vec<(ToolId, T)>> = BTreeMap::new();
    for (id, tool) in tools {
        match name_of(&id) {
            Ok(name) => named.entry(name).or_default().push((id, tool)),
            Err(reason) => {
                warnings.insert(format!("`{id}` is not offered to agents as a tool: {reason}"));
            }
        }
    }
    let mut unique = BTreeMap::new();
    for (name, mut same) in named {
        match (same.pop(), same.is_empty()) {
            (Some(only), true) => drop(unique.insert(name, only)),
            (last, _) => {
                let ids = same.iter().chain(&last).map(|(id, _)| format!("`{id}`"));
                let ids = ids.collect::<Vec<_>>().join(" and ");
                warnings.insert(format!(
                    "{ids} are not offered to agents as tools: each would be `{name}`; name one of them in `expose_tools`, with its scope if it has one"
                ));
            }
        }
    }
    unique
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_from_ids() {
        let long = format!("notes:{}", "x".repeat(45));
        let fits = format!("notes:{}", "x".repeat(44));
        for (id, expected) in [
            ("notes:twice", Ok("notes_twice")),
            ("acme.core.notes:twice@0.1.0", Ok("notes_twice")),
            ("sequential-thinking:think", Ok("sequential-thinking_think")),
            ("git:git_log", Ok("git_git_log")),
            ("a:b__c", Err("already means `a_b:c`")),
            ("a:_b", Err("already means `a:b`")),
            ("pml:execute", Err("one of PML's own tools")),
            (&fits, Ok(&*format!("notes_{}", "x".repeat(44)))),
            (&long, Err("more than 50 characters")),
        ] {
            let name = name_of(&id.parse().unwrap());
            match expected {
                Ok(expected) => assert_eq!(name.as_deref(), Ok(expected), "{id}"),
                Err(reason) => assert!(name.clone().unwrap_err().contains(reason), "{id} {name:?}"),
            }
        }
    }

    #[test]
    fn equal_names_are_all_left_out() {
        for (ids, expected, warned) in [
            (&["a:b", "c:d"][..], &["a_b", "c_d"][..], None),
            (&["a_b:c", "a:b_c", "d:e"], &["d_e"], Some("`a_b:c` and `a:b_c` are not offered")),
            (
                &["a.b.c:d@1.0.0", "e.f.c:d@1.0.0", "c:d"],
                &[],
                Some("`a.b.c:d@1.0.0` and `e.f.c:d@1.0.0` and `c:d` are not offered"),
            ),
        ] {
            let mut warnings = BTreeSet::new();
            let tools = ids.iter().map(|id| (id.parse().unwrap(), ())).collect();
            let named = assign(tools, &mut warnings);
            assert_eq!(named.keys().collect::<Vec<_>>(), expected, "{ids:?}");
            let warned_of = warnings.iter().map(String::as_str).collect::<String>();
            assert!(warned_of.contains(warned.unwrap_or_default()), "{warned_of}");
            assert_eq!(warnings.len(), usize::from(warned.is_some()));
        }
    }
}
