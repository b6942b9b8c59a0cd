//! The agents that can start `pml stdio`, and the files in which they look for MCP servers.

mod converted;
mod document;
mod file;

use std::path::Path;

use serde_json::{Value, json};

pub(crate) use converted::converted;
pub(crate) use file::{AgentFile, FileError, read, write};

pub(crate) use crate::args::Agent;
use crate::workspace::Workspace;
use document::Syntax;

/// Where an agent's file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Base {
    /// In the project.
    Project,
    /// In the user's home folder, one file for all projects.
    Home,
}

/// An agent's file.
struct Layout {
    base: Base,
    /// The folders that lead to it, outermost first.
    folders: &'static [&'static str],
    name: &'static str,
    syntax: Syntax,
    /// The member that has the servers by name.
    member: &'static str,
    /// Folders of the home folder that exist where the agent is installed; none for one whose file is always written.
    traces: &'static [&'static str],
}

impl Agent {
    /// All of them, in the order in which they are reported.
    pub(crate) const ALL: [Self; 5] =
        [Self::ClaudeCode, Self::Cursor, Self::VsCode, Self::Codex, Self::Windsurf];

    /// Returns its name, as people write it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::ClaudeCode => "Claude Code",
            Self::Cursor => "Cursor",
            Self::VsCode => "VS Code",
            Self::Codex => "Codex",
            Self::Windsurf => "Windsurf",
        }
    }

    /// The places are those in the documentation of each agent.
    fn layout(self) -> Layout {
        let project = |folders, name, syntax, member, traces| Layout {
            base: Base::Project,
            folders,
            name,
            syntax,
            member,
            traces,
        };
        match self {
            Self::ClaudeCode => project(&[], ".mcp.json", Syntax::Json, "mcpServers", &[]),
            Self::Cursor => {
                project(&[".cursor"], "mcp.json", Syntax::Jsonc, "mcpServers", &[".cursor"])
            }
            Self::VsCode => project(
                &[".vscode"],
                "mcp.json",
                Syntax::Jsonc,
                "servers",
                &[".config/Code", ".vscode-server"],
            ),
            Self::Codex => {
                project(&[".codex"], "config.toml", Syntax::Toml, "mcp_servers", &[".codex"])
            }
            Self::Windsurf => Layout {
                base: Base::Home,
                folders: &[".codeium", "windsurf"],
                name: "mcp_config.json",
                syntax: Syntax::Json,
                member: "mcpServers",
                traces: &[".codeium/windsurf"],
            },
        }
    }

    /// Returns its file as it is shown: relative to the project, or below `~`.
    pub(crate) fn shown(self) -> String {
        let layout = self.layout();
        let home = (layout.base == Base::Home).then_some("~").into_iter();
        let parts: Vec<&str> =
            home.chain(layout.folders.iter().copied()).chain([layout.name]).collect();
        parts.join("/")
    }

    /// Returns whether its file is one for all projects.
    pub(crate) fn has_one_file_for_all(self) -> bool {
        self.layout().base == Base::Home
    }

    /// Returns the entry with which it starts `pml stdio` in this project; `None` if the entry needs the project's path, and
    /// that has no form as text.
    pub(crate) fn entry(self, workspace: &Workspace) -> Option<Value> {
        // The agents that replace a variable by the project do not always start servers there.
        let args = match self {
            Self::ClaudeCode | Self::Codex => json!(["stdio"]),
            Self::Cursor | Self::VsCode => json!(["stdio", "--workspace", "${workspaceFolder}"]),
            Self::Windsurf => {
                json!(["stdio", "--workspace", workspace.root().to_str()?])
            }
        };
        Some(match self {
            Self::ClaudeCode | Self::VsCode => {
                json!({ "type": "stdio", "command": "pml", "args": args })
            }
            Self::Cursor | Self::Codex | Self::Windsurf => {
                json!({ "command": "pml", "args": args })
            }
        })
    }

    /// Returns the agents that this project or this user has. The file of Claude Code is always among them: others read it,
    /// too.
    pub(crate) fn found(workspace: &Workspace, home: Option<&Path>) -> Vec<Self> {
        let is_found = |agent: &Self| {
            let layout = agent.layout();
            let in_project = layout.base == Base::Project
                && layout
                    .folders
                    .first()
                    .is_some_and(|folder| workspace.root().join(folder).is_dir());
            let in_home = |home: &Path| layout.traces.iter().any(|trace| home.join(trace).is_dir());
            *agent == Self::ClaudeCode || in_project || home.is_some_and(in_home)
        };
        Self::ALL.into_iter().filter(is_found).collect()
    }
}
