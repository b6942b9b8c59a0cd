//! What a tool does, according to a table of known names.

use protocol::ToolId;
use serde::{Deserialize, Serialize};

/// What a tool does to the world.
///
/// A table lists the names of known tools. All others are [`Calls`](Self::Calls);
/// an unknown tool is never assumed to be harmless.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// Reads stored data: files, history, notes.
    Reads,
    /// Changes stored data.
    Writes,
    /// Starts a program.
    Runs,
    /// Sends something to an outside service, or changes something there.
    Sends,
    /// Queries an outside service: the query leaves the machine.
    Asks,
    /// Unknown: may do anything.
    Calls,
    /// Computes from its arguments alone, or reads the clock.
    Computes,
}

impl Effect {
    /// The effects in the order in which they are shown.
    pub const ALL: &'static [Self] = &[
        Self::Reads,
        Self::Writes,
        Self::Runs,
        Self::Sends,
        Self::Asks,
        Self::Calls,
        Self::Computes,
    ];

    /// Returns the word for it: `reads`, `writes` …
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reads => "reads",
            Self::Writes => "writes",
            Self::Runs => "runs",
            Self::Sends => "sends",
            Self::Asks => "asks",
            Self::Calls => "calls",
            Self::Computes => "computes",
        }
    }

    /// Returns the effect of a tool with this name.
    pub fn of(tool: &ToolId) -> Self {
        let known = TABLE.iter().find(|(namespace, _)| *namespace == tool.namespace());
        let Some((_, rules)) = known else { return Self::Calls };
        rules
            .iter()
            .find(|(names, _)| names.iter().any(|name| matches(name, tool.action())))
            .map_or(Self::Calls, |(_, effect)| *effect)
    }
}

/// Compares an action with a name of the table; `x*` matches all that start with `x`.
fn matches(name: &str, action: &str) -> bool {
    match name.strip_suffix('*') {
        Some(start) => action.starts_with(start),
        None => name == action,
    }
}

/// The names of a namespace's actions and their effects; the first match applies.
type Rules = &'static [(&'static [&'static str], Effect)];

/// Names of services may be matched by prefix; every other action of such a
/// service gets the worst effect that the service can have. Names of tools that
/// read or compute are listed in full.
const TABLE: &[(&str, Rules)] = &[
    (
        "filesystem",
        &[
            (
                &[
                    "read_file",
                    "read_text_file",
                    "read_media_file",
                    "read_multiple_files",
                    "list_directory",
                    "list_directory_with_sizes",
                    "directory_tree",
                    "search_files",
                    "get_file_info",
                    "list_allowed_directories",
                ],
                Effect::Reads,
            ),
            (&["write_file", "edit_file", "create_directory", "move_file"], Effect::Writes),
        ],
    ),
    (
        "git",
        &[
            (
                &[
                    "git_status",
                    "git_diff_unstaged",
                    "git_diff_staged",
                    "git_diff",
                    "git_log",
                    "git_show",
                    "git_branch",
                ],
                Effect::Reads,
            ),
            (
                &[
                    "git_commit",
                    "git_add",
                    "git_reset",
                    "git_create_branch",
                    "git_checkout",
                    "git_init",
                ],
                Effect::Writes,
            ),
        ],
    ),
    ("shell", &[(&["exec"], Effect::Runs)]),
    (
        "sqlite",
        &[
            (&["read_query", "list_tables", "describe_table"], Effect::Reads),
            (&["write_query", "create_table", "append_insight"], Effect::Writes),
        ],
    ),
    (
        "memory",
        &[
            (&["read_graph", "search_nodes", "open_nodes"], Effect::Reads),
            (
                &[
                    "create_entities",
                    "create_relations",
                    "add_observations",
                    "delete_entities",
                    "delete_observations",
                    "delete_relations",
                ],
                Effect::Writes,
            ),
        ],
    ),
    ("slack", &[(ASKING, Effect::Asks), (&["*"], Effect::Sends)]),
    ("github", &[(ASKING, Effect::Asks), (&["*"], Effect::Sends)]),
    ("web", &[(&["get", "head"], Effect::Asks), (&["*"], Effect::Sends)]),
    ("http", &[(&["get", "head"], Effect::Asks), (&["*"], Effect::Sends)]),
    ("api", &[(&["get", "head"], Effect::Asks), (&["*"], Effect::Sends)]),
    ("fetch", &[(&["fetch"], Effect::Asks), (&["*"], Effect::Sends)]),
    ("tavily", &[(&["*"], Effect::Asks)]),
    ("brave_search", &[(&["*"], Effect::Asks)]),
    ("exa", &[(&["*"], Effect::Asks)]),
    ("context7", &[(&["*"], Effect::Asks)]),
    ("pml", &[(&["search_tools"], Effect::Asks)]),
    (
        "json",
        &[(&["parse", "stringify", "query", "get", "merge", "diff", "patch"], Effect::Computes)],
    ),
    ("math", &[(&["eval", "stats", "round"], Effect::Computes)]),
    ("datetime", &[(&["now", "parse", "format", "add", "diff"], Effect::Computes)]),
    ("crypto", &[(&["hash", "hmac", "encode", "uuid", "random_bytes"], Effect::Computes)]),
    (
        "string",
        &[(
            &[
                "upper", "lower", "trim", "split", "join", "length", "template", "match", "test",
                "replace", "case", "slugify", "pad", "truncate",
            ],
            Effect::Computes,
        )],
    ),
    (
        "collections",
        &[(
            &[
                "sort",
                "unique",
                "chunk",
                "flatten",
                "zip",
                "range",
                "intersect",
                "difference",
                "union",
                "pick",
                "omit",
                "pluck",
                "filter",
                "group_by",
                "count_by",
                "key_by",
                "sum_by",
            ],
            Effect::Computes,
        )],
    ),
    ("time", &[(&["get_current_time", "convert_time"], Effect::Computes)]),
    ("sequential-thinking", &[(&["sequentialthinking"], Effect::Computes)]),
];

/// How services name actions that only query, with and without the prefix of the service.
const ASKING: &[&str] =
    &["get_*", "list_*", "search_*", "slack_get_*", "slack_list_*", "slack_search_*"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_names_have_their_effect() {
        for (tool, effect) in [
            ("filesystem:read_text_file", Effect::Reads),
            ("filesystem:move_file", Effect::Writes),
            ("git:git_log", Effect::Reads),
            ("git:git_checkout", Effect::Writes),
            ("shell:exec", Effect::Runs),
            ("memory:search_nodes", Effect::Reads),
            ("memory:delete_entities", Effect::Writes),
            ("slack:post_message", Effect::Sends),
            ("slack:slack_get_users", Effect::Asks),
            ("github:list_issues", Effect::Asks),
            ("github:create_issue", Effect::Sends),
            ("http:get", Effect::Asks),
            ("http:post", Effect::Sends),
            ("web:get", Effect::Asks),
            ("tavily:search", Effect::Asks),
            ("json:parse", Effect::Computes),
        ] {
            assert_eq!(Effect::of(&tool.parse().unwrap()), effect, "{tool}");
        }
    }

    /// A name that merely resembles a known one is not assumed to be harmless.
    #[test]
    fn unknown_tools_are_never_harmless() {
        for tool in [
            "filesystem:read_everything",
            "filesystem:Read_file",
            "git:git_push",
            "shell:list",
            "json:read_file",
            "notes:get",
            "database:query",
            "docker:list",
            "memory:get",
        ] {
            assert_eq!(Effect::of(&tool.parse().unwrap()), Effect::Calls, "{tool}");
        }
        for tool in ["github:merge", "slack:getaway", "http:options", "fetch:read"] {
            assert_eq!(Effect::of(&tool.parse().unwrap()), Effect::Sends, "{tool}");
        }
    }

    #[test]
    fn names_are_unique() {
        let mut seen = std::collections::BTreeSet::new();
        for (namespace, rules) in TABLE {
            assert!(seen.insert((*namespace).to_owned()), "{namespace}");
            for name in rules.iter().flat_map(|(names, _)| *names) {
                assert!(seen.insert(format!("{namespace}:{name}")), "{namespace}:{name}");
            }
        }
    }
}
