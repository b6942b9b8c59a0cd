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

/// `pml cleanup`
#[derive(Debug, Args)]
pub(crate) struct Cleanup {
    /// Delete packages that no server has started from for this long.
    #[arg(long, value_name = "DAYS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=3_650))]
    pub(crate) unused_for: u32,
    /// Erase the values of this project's runs that ended this long ago: `30d`, `12h`.
    #[arg(long, value_name = "AGE", value_parser = super::units::age)]
    pub(crate) runs: Option<std::time::Duration>,
    /// Erase the values of the oldest runs while the run store is larger: `500MB`, `2GB`.
    #[arg(long, value_name = "SIZE", value_parser = super::units::size)]
    pub(crate) runs_above: Option<u64>,
    /// Show what would be deleted, and delete nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `pml lock`
#[derive(Debug, Args)]
#[command(
    after_help = "\
Examples:
  pml lock report.ts           write report.ts.lock; commit it
  pml lock report.ts --check   write nothing, and show what changed since then
  pml exec report.ts           runs only as locked, because there is a lock
  pml exec --frozen report.ts  the same, and refuses a program without a lock
  pml lock --update memory     replace the packages of the server `memory` in .pml/mcp.lock by the
                               newest ones that its command allows, after showing the difference
  pml lock --update --dry-run  show the difference for all servers, and change nothing

There are two locks. FILE.lock is of one program; .pml/mcp.lock has, among others, the packages
from which MCP servers start, and only --update is about them. It installs nothing and starts no
server: the next start installs what is locked. If a version that is locked has another hash in
its registry now, it is refused, and nothing is written.

The lock of a program has the hash of the program's normal form: a change of formatting, comments, types or the
names of local variables is no change. For each tool that the program reaches, also through
capabilities, it has where the tool runs, and as far as they are known its full name, version,
hash, start command, and the hash of its description and schemas. What is not known is listed, and
not locked. Nothing runs, and no server is started.

Exit codes of a program: 0 written, or nothing changed; 2 something changed (with --check), there
is no lock to check, the lock is malformed, or the program cannot run or be locked; 3 a rule denies
a tool; 4 the gateway or the sandbox is unavailable.

Exit codes with --update: 0 written, or nothing is newer; 1 something is newer (with --dry-run); 2
no such server, a file is invalid, a version has another hash, or it was not confirmed; 4 the
newest packages are not known, for example because their registry is unreachable.",
    override_usage = "\
pml lock [--check] [--json] FILE
       pml lock --update [NAME] [--dry-run] [--yes] [--json]"
)]
pub(crate) struct Lock {
    /// The program's file. Its lock is FILE.lock, in the same folder.
    #[arg(required_unless_present = "update", conflicts_with = "update")]
    pub(crate) file: Option<PathBuf>,
    /// Write nothing; show the difference between the program's lock and what would run now.
    #[arg(long, conflicts_with = "update")]
    pub(crate) check: bool,
    /// Lock the newest packages of the MCP server NAME in .pml/mcp.lock, or those of all servers.
    #[arg(long, value_name = "NAME", num_args = 0..=1)]
    pub(crate) update: Option<Option<String>>,
    /// With --update: show the difference, and change nothing.
    #[arg(long, requires = "update")]
    pub(crate) dry_run: bool,
    /// With --update: do not ask.
    #[arg(long, short, requires = "update")]
    pub(crate) yes: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}
