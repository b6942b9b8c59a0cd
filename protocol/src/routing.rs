//! The routing rules, which decide where a tool runs; used by both the gateway and the CLI.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::{ToolId, ToolPattern};

/// The side that runs a tool or a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Routing {
    /// On the user's machine, by `pml`.
    #[serde(alias = "local")]
    Client,
    /// On the gateway.
    #[serde(alias = "cloud")]
    Server,
}

impl Routing {
    /// Returns the word used on the wire and in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }
}

/// The routing rules of a deployment; the most specific pattern wins.
///
/// A tool that no rule matches runs on the client: an unknown tool never runs on a machine that many tenants share.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<(ToolPattern, Routing)>", into = "Vec<(ToolPattern, Routing)>")]
pub struct RoutingRules {
    tools: HashMap<ToolId, Routing>,
    namespaces: HashMap<String, Routing>,
    any: Option<Routing>,
}

/// Namespaces that touch the user's machine.
const CLIENT: &[&str] = &[
    "filesystem",
    "shell",
    "git",
    "web",
    "process",
    "docker",
    "kubernetes",
    "ssh",
    "database",
    "sqlite",
    "postgres",
];

/// Namespaces that the gateway runs.
const SERVER: &[&str] = &[
    "std",
    "memory",
    "tavily",
    "brave_search",
    "exa",
    "github",
    "slack",
    "api",
    "http",
    "fetch",
    "sequential-thinking",
    "context7",
    "magic",
    "json",
    "math",
    "datetime",
    "crypto",
    "collections",
    "validation",
    "format",
    "transform",
    "algo",
    "string",
    "color",
    "geo",
    "resilience",
    "schema",
    "diff",
    "state",
    "plots",
    "pml",
];

impl RoutingRules {
    /// Returns the rules that ship with PML.
    pub fn shipped() -> Self {
        let namespaces = |names: &[&str], routing| {
            names
                .iter()
                .map(|name| (ToolPattern::Namespace((*name).to_owned()), routing))
                .collect::<Vec<_>>()
        };
        namespaces(CLIENT, Routing::Client)
            .into_iter()
            .chain(namespaces(SERVER, Routing::Server))
            .collect()
    }

    /// Returns where a tool runs.
    pub fn route(&self, id: &ToolId) -> Routing {
        self.covering(id).unwrap_or(Routing::Client)
    }

    /// Returns where the rules route a tool; `None` if no rule covers it.
    pub fn covering(&self, id: &ToolId) -> Option<Routing> {
        // Without scope and version, so that no spelling of a tool changes where it runs.
        let tool = self.tools.get(&id.plain());
        tool.or_else(|| self.namespaces.get(id.namespace())).copied().or(self.any)
    }

    /// Returns where a whole program runs: on the server only if every tool does and the program is not dynamic.
    pub fn decide(dynamic: bool, tools: impl IntoIterator<Item = Routing>) -> Routing {
        // `all` holds for a program without tools: nothing binds it to the user's machine.
        if !dynamic && tools.into_iter().all(|routing| routing == Routing::Server) {
            Routing::Server
        } else {
            Routing::Client
        }
    }
}

impl FromIterator<(ToolPattern, Routing)> for RoutingRules {
    fn from_iter<I: IntoIterator<Item = (ToolPattern, Routing)>>(rules: I) -> Self {
        let mut out = Self::default();
        for (pattern, routing) in rules {
            match pattern {
                ToolPattern::Any => out.any = Some(routing),
                ToolPattern::Namespace(namespace) => {
                    out.namespaces.insert(namespace, routing);
                }
                ToolPattern::Tool(tool) => {
                    out.tools.insert(tool, routing);
                }
            }
        }
        out
    }
}

impl From<Vec<(ToolPattern, Routing)>> for RoutingRules {
    fn from(rules: Vec<(ToolPattern, Routing)>) -> Self {
        rules.into_iter().collect()
    }
}

impl From<RoutingRules> for Vec<(ToolPattern, Routing)> {
    /// Returns the rules sorted by pattern, so that equal rules have equal serialized forms.
    fn from(rules: RoutingRules) -> Self {
        let mut out: Self =
            rules.any.map(|routing| (ToolPattern::Any, routing)).into_iter().collect();
        out.extend(rules.namespaces.into_iter().map(|(n, r)| (ToolPattern::Namespace(n), r)));
        out.extend(rules.tools.into_iter().map(|(t, r)| (ToolPattern::Tool(t), r)));
        out.sort_by(|a, b| a.0.cmp(&b.0));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> ToolId {
        text.parse().unwrap()
    }

    #[test]
    fn shipped_rules_route_as_documented() {
        let rules = RoutingRules::shipped();
        for (tool, routing) in [
            ("filesystem:read_file", Routing::Client),
            ("shell:exec", Routing::Client),
            ("json:parse", Routing::Server),
            ("pml:search_tools", Routing::Server),
            ("sequential-thinking:sequentialthinking", Routing::Server),
            ("nobody:knows", Routing::Client),
        ] {
            assert_eq!(rules.route(&id(tool)), routing, "{tool}");
        }
    }

    #[test]
    fn the_most_specific_rule_wins() {
        let rules: RoutingRules =
            [("*", Routing::Server), ("db:*", Routing::Client), ("db:ping", Routing::Server)]
                .into_iter()
                .map(|(p, r)| (p.parse().unwrap(), r))
                .collect();
        assert_eq!(rules.route(&id("x:y")), Routing::Server);
        assert_eq!(rules.route(&id("db:query")), Routing::Client);
        assert_eq!(rules.route(&id("db:ping")), Routing::Server);
    }

    /// AN-12: a program with a client tool, or a dynamic one, never runs on the server.
    #[test]
    fn a_program_runs_on_the_server_only_if_all_its_tools_do() {
        use Routing::{Client, Server};
        for (dynamic, tools, expected) in [
            (false, vec![], Server),
            (false, vec![Server, Server], Server),
            (false, vec![Server, Client], Client),
            (true, vec![Server], Client),
            (true, vec![], Client),
        ] {
            assert_eq!(RoutingRules::decide(dynamic, tools.clone()), expected, "{tools:?}");
        }
    }

    #[test]
    fn accepts_the_older_words() {
        assert_eq!(serde_json::from_str::<Routing>("\"local\"").unwrap(), Routing::Client);
        assert_eq!(serde_json::from_str::<Routing>("\"cloud\"").unwrap(), Routing::Server);
        serde_json::from_str::<Routing>("\"Server\"").unwrap_err();
    }
}
