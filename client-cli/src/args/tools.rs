//! The arguments of the commands about tools and servers.

use std::path::PathBuf;

use clap::Args;

/// `pml search`
#[derive(Debug, Args)]
pub(crate) struct Search {
    /// What the tool should do, in words; or a pattern with `*`, or the name of a tool.
    #[arg(required = true)]
    pub(crate) query: Vec<String>,
    /// The maximum number of tools.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=50))]
    pub(crate) limit: u32,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `pml types`
#[derive(Debug, Args)]
pub(crate) struct Types {
    /// Patterns of the tools' names; `*` is any text. Without a pattern, all tools.
    #[arg(value_name = "PATTERN")]
    pub(crate) patterns: Vec<String>,
    /// The file, relative to the workspace; `-` is stdout.
    #[arg(long, short, value_name = "FILE", default_value = "mcp.d.ts")]
    pub(crate) output: PathBuf,
    /// Write nothing, and fail if the file is not up to date.
    #[arg(long)]
    pub(crate) check: bool,
}

/// `pml list`
#[derive(Debug, Args)]
pub(crate) struct List {
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `pml remove`
#[derive(Debug, Args)]
pub(crate) struct Remove {
    /// The server or capability: its full name, the namespace of a server, or `namespace:action`.
    pub(crate) name: String,
    /// Delete the files that the server stored in its own folder, too.
    #[arg(long)]
    pub(crate) clean: bool,
}
