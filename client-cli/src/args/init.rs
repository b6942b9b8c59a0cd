//! The arguments of `pml init`.

use clap::{Args, ValueEnum};

/// An agent whose configuration `pml` reads and writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Agent {
    /// Claude Code, and others that read `.mcp.json`.
    ClaudeCode,
    /// Cursor.
    Cursor,
    /// Visual Studio Code.
    #[value(name = "vscode")]
    VsCode,
    /// Codex.
    Codex,
    /// Windsurf.
    Windsurf,
}

/// The arguments of `pml init`.
#[derive(Debug, Args)]
#[command(after_help = "\
The agents that are found: Claude Code (.mcp.json, always), Cursor (.cursor/mcp.json), VS Code (.vscode/mcp.json), Codex
(.codex/config.toml), Windsurf (~/.codeium/windsurf/mcp_config.json, one file for all projects). Each is found by its
folder in the project or in your home folder.

Examples:
  pml init                                  show what would be written, ask, and offer the rest
  pml init --yes                            write the files; no questions
  pml init --agent cursor --agent codex     these agents only
  pml init --yes --import-servers           also bring the agents' own MCP servers under PML")]
pub(crate) struct Init {
    /// Do not prompt; use the defaults.
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Set up this agent, instead of those that are found; repeat it for several.
    #[arg(long = "agent", value_name = "AGENT")]
    pub(crate) agents: Vec<Agent>,
    /// Move the MCP servers in the agents' files of this project to .pml.json; PML starts them from then on.
    #[arg(long)]
    pub(crate) import_servers: bool,
    /// Tell the gateway the tools of the MCP servers of .pml.json, so that you find them through it.
    #[arg(long)]
    pub(crate) sync_tools: bool,
}
