//! `pml-server routing|tools|quotas|catalog …`: what the operator says of tools and servers.

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};
use protocol::{Fqdn, Routing, Scope, ToolPattern};
use registry::{QuotaScope, Window};

/// `pml-server routing …`
#[derive(Debug, Subcommand)]
pub enum RoutingCommand {
    /// Print all rules. The most specific one counts: a tool's, its namespace's, then `*`; without any, a tool runs
    /// on the user's machine. An entry of the registry that says where it runs stands above all rules.
    List {
        /// Print JSON: `[{"pattern","routing","origin"}]`.
        #[arg(long)]
        json: bool,
    },
    /// Set a rule; every gateway on this database follows within a second.
    Set {
        /// `NAMESPACE:*`, `NAMESPACE:ACTION` or `*`.
        pattern: ToolPattern,
        /// `client` for the user's machine, `server` for the gateway.
        #[arg(value_parser = parse_routing)]
        routing: Routing,
    },
    /// Take a rule back; what ships with this version for the pattern counts again.
    Unset {
        /// The rule's pattern.
        pattern: ToolPattern,
    },
}

/// `pml-server tools …`
#[derive(Debug, Subcommand)]
pub enum ToolsCommand {
    /// Print what was said of the tools of a scope, and whether they are still what they were then.
    List {
        /// The scope; without it, the public catalog.
        #[arg(long, value_name = "ORG.PROJECT")]
        scope: Option<Scope>,
        /// Print JSON: `[{"fqdn","class","eager","counts"}]`.
        #[arg(long)]
        json: bool,
    },
    /// Say what a tool does, as it is now. When its content changes, this counts no more: look again.
    ///
    /// What an upstream says of itself (`readOnlyHint`) never counts.
    Set {
        /// The tool's FQDN, for example `pml.mcp.tavily.search`; with its short hash only that content.
        fqdn: Fqdn,
        /// Whether it changes anything.
        class: EffectsWord,
        /// A call may be started before the program reaches it; only with `read`.
        #[arg(long)]
        eager: bool,
    },
    /// Take that back; what ships with this version counts again.
    Unset {
        /// The tool's FQDN.
        fqdn: Fqdn,
    },
}

/// `pml-server quotas …`
#[derive(Debug, Subcommand)]
pub enum QuotasCommand {
    /// Print all quotas. A call counts in each that matches it.
    List {
        /// Print JSON: `[{"scope","pattern","calls","window"}]`.
        #[arg(long)]
        json: bool,
    },
    /// Set a quota; every gateway on this database follows within a second.
    Set {
        /// `ORG.PROJECT`, `ORG` for all its projects together, or `*` for each scope by itself.
        scope: QuotaScope,
        /// `NAMESPACE:*`, `NAMESPACE:ACTION` or `*`.
        pattern: ToolPattern,
        /// `N/min`, `N/h` or `N/day`; they come in again over that time. 0 forbids the calls.
        #[arg(value_name = "CALLS", value_parser = parse_quota)]
        calls: (u32, Window),
    },
    /// Take a quota back.
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
    Ok((calls.parse().map_err(|_| wrong())?, window))
}

/// Whether a tool changes anything, on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum EffectsWord {
    /// It changes nothing.
    Read,
    /// It may change something.
    Write,
}

/// `pml-server catalog …`
#[derive(Debug, Subcommand)]
pub enum CatalogCommand {
    /// Read a registry that speaks the official API into quarantine: all of it, or nothing.
    ///
    /// Nobody sees what is there until it is approved. Safe to repeat; what was approved or rejected stays so.
    Ingest {
        /// The registry's address, for example `https://registry.modelcontextprotocol.io`, or a file with a page
        /// or a list of pages.
        source: String,
    },
    /// List what waits in quarantine, with what to look at.
    List {
        /// Only what is in quarantine, which is the default.
        #[arg(long)]
        quarantined: bool,
        /// What was approved or rejected as well.
        #[arg(long, conflicts_with = "quarantined")]
        all: bool,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Put a server into the public catalog, with the content that is in quarantine now.
    Approve {
        /// Its name there, `DOMAIN/SERVER[@VERSION]`.
        name: String,
        /// The namespace that it gets; default: what stands behind the slash.
        #[arg(long = "as", value_name = "NAMESPACE")]
        namespace: Option<String>,
        /// The hash of the content, where a version was read with several.
        #[arg(long, value_name = "sha256-…")]
        integrity: Option<String>,
        /// A file with its tools, as the server's `tools/list` has them, or as `pml publish --mcp … --dry-run` prints
        /// them; without it programs cannot call any.
        #[arg(long, value_name = "FILE")]
        tools: Option<PathBuf>,
    },
    /// Decide against a server; one that was approved is taken out of the catalog.
    Reject {
        /// Its name there, `DOMAIN/SERVER[@VERSION]`.
        name: String,
        /// The hash of the content, where a version was read with several.
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
