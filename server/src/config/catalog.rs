//! `pml-server routing|tools|quotas|catalog …`: the operator's settings for tools and servers.

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};
use protocol::{Fqdn, Routing, Scope, ToolPattern};
use registry::{QuotaScope, Window};

/// `pml-server routing …`
#[derive(Debug, Subcommand)]
pub(crate) enum RoutingCommand {
    /// Print all rules. The most specific one applies: the tool's, its namespace's, then `*`. Without a rule, a tool
    /// runs on the user's machine. The routing in a registry entry overrides all rules.
    List {
        /// Print JSON: `[{"pattern","routing","origin"}]`.
        #[arg(long)]
        json: bool,
    },
    /// Set a rule, or where a `stdio` server of the catalog runs; every gateway on this database applies it within a
    /// second.
    Set {
        /// `NAMESPACE:*`, `NAMESPACE:ACTION`, `*`, or the name of a server, such as `pml.mcp.memory`.
        #[arg(value_name = "PATTERN")]
        target: RoutingTarget,
        /// `client` for the user's machine, `server` for the gateway.
        #[arg(value_parser = parse_routing)]
        routing: Routing,
    },
    /// Delete a rule, or what you set for a server; what ships with this version applies again.
    Unset {
        /// The rule's pattern, or the server.
        #[arg(value_name = "PATTERN")]
        target: RoutingTarget,
    },
}

/// What `pml-server routing` routes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RoutingTarget {
    /// The tools of a pattern.
    Pattern(ToolPattern),
    /// A server of the catalog.
    Server(Fqdn),
}

impl std::str::FromStr for RoutingTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // No pattern other than `*` has no colon.
        if text.contains([':', '*']) {
            return text.parse().map(Self::Pattern).map_err(|error| format!("{error}"));
        }
        text.parse().map(Self::Server).map_err(|error| format!("{error}"))
    }
}

/// `pml-server tools …`
#[derive(Debug, Subcommand)]
pub(crate) enum ToolsCommand {
    /// Print the marks on the tools of a scope, and whether the tools have changed since.
    List {
        /// The scope; by default, the catalog.
        #[arg(long, value_name = "ORG.PROJECT")]
        scope: Option<Scope>,
        /// Print JSON: `[{"fqdn","class","eager","counts"}]`.
        #[arg(long)]
        json: bool,
    },
    /// Mark a tool as read or write, for its current content. When the content changes, the mark no longer applies.
    ///
    /// An upstream's own hints (`readOnlyHint`) are never used.
    Set {
        /// The tool's FQDN, for example `pml.mcp.tavily.search`. With its short hash, only that content is marked.
        fqdn: Fqdn,
        /// Whether the tool changes anything.
        class: EffectsWord,
        /// Allow calls to start before the program reaches them; only with `read`.
        #[arg(long)]
        eager: bool,
    },
    /// Remove the mark; the mark that ships with this version applies again.
    Unset {
        /// The tool's FQDN.
        fqdn: Fqdn,
    },
}

/// `pml-server quotas …`
#[derive(Debug, Subcommand)]
pub(crate) enum QuotasCommand {
    /// Print all quotas. A call counts against every quota that matches it.
    List {
        /// Print JSON: `[{"scope","pattern","calls","window"}]`.
        #[arg(long)]
        json: bool,
    },
    /// Set a quota; every gateway on this database applies it within a second.
    Set {
        /// `ORG.PROJECT`, `ORG` for all its projects together, or `*` for each scope separately.
        scope: QuotaScope,
        /// `NAMESPACE:*`, `NAMESPACE:ACTION` or `*`.
        pattern: ToolPattern,
        /// `N/min`, `N/h` or `N/day`, refilled over that time. 0 forbids the calls.
        #[arg(value_name = "CALLS", value_parser = parse_quota)]
        calls: (u32, Window),
    },
    /// Delete a quota.
    Unset {
        /// The quota's scope.
        scope: QuotaScope,
        /// The quota's pattern.
        pattern: ToolPattern,
    },
}

fn parse_quota(text: &str) -> Result<(u32, Window), String> {
    let wrong = || "expected a number with `/min`, `/h` or `/day`".to_owned();
    let (calls, window) = text.split_once('/').ok_or_else(wrong)?;
    let window = match window {
        "min" => Window::Minute,
        "h" => Window::Hour,
        "day" => Window::Day,
        _ => return Err(wrong()),
    };
    // Unlike in a rate limit, 0 is valid: it forbids the calls.
    Ok((calls.parse().map_err(|_| wrong())?, window))
}

/// Whether a tool changes anything, on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum EffectsWord {
    /// It changes nothing.
    Read,
    /// It may change something.
    Write,
}

/// `pml-server catalog …`
#[derive(Debug, Subcommand)]
pub(crate) enum CatalogCommand {
    /// Import a registry that implements the official API into quarantine: all of it, or nothing.
    ///
    /// A quarantined server is invisible until it is approved. Repeatable; earlier approvals and rejections are kept.
    Ingest {
        /// The registry's URL, for example `https://registry.modelcontextprotocol.io`, or a file with a page or a
        /// list of pages.
        source: String,
    },
    /// List quarantined servers, with their flags.
    List {
        /// Only quarantined servers, which is the default.
        #[arg(long)]
        quarantined: bool,
        /// Approved and rejected servers as well.
        #[arg(long, conflicts_with = "quarantined")]
        all: bool,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Approve a server for the catalog, with its quarantined content.
    Approve {
        /// Its name in the other registry, `DOMAIN/SERVER[@VERSION]`.
        name: String,
        /// The namespace to assign. Default: the part of the name after the slash.
        #[arg(long = "as", value_name = "NAMESPACE")]
        namespace: Option<String>,
        /// The hash of the content; needed if a version was imported with different contents.
        #[arg(long, value_name = "sha256-…")]
        integrity: Option<String>,
        /// A file with its tools, in the form of the server's `tools/list` or of `pml publish --mcp … --dry-run`.
        /// Without it, programs cannot call any of its tools.
        #[arg(long, value_name = "FILE")]
        tools: Option<PathBuf>,
    },
    /// Reject a server; an approved one is removed from the catalog.
    Reject {
        /// Its name in the other registry, `DOMAIN/SERVER[@VERSION]`.
        name: String,
        /// The hash of the content; needed if a version was imported with different contents.
        #[arg(long, value_name = "sha256-…")]
        integrity: Option<String>,
    },
}

fn parse_routing(text: &str) -> Result<Routing, String> {
    match text {
        "client" | "local" => Ok(Routing::Client),
        "server" | "cloud" => Ok(Routing::Server),
        _ => Err("expected client or server".to_owned()),
    }
}
