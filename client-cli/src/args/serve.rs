//! `pml serve`.

use clap::Args;

/// `pml serve`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  pml serve             at http://127.0.0.1:3003/mcp
  pml serve --port 0    on any free port, which it prints

A client sends the token in `.pml/serve-token`. It is created at the first start and stays the same, until the file is
deleted. For Claude Code, in the project:

  claude mcp add --transport http pml http://127.0.0.1:3003/mcp \\
    --header \"Authorization: Bearer $(cat .pml/serve-token)\"

Whoever has the token can run programs here, under the rules of this project. Questions are asked as in `pml stdio`: by
the client, on a page, or with `pml approve`. Ctrl-C ends it, and every server that it started.

Exit codes: 0 ended by a signal; 2 a file is invalid; 4 the port is in use.")]
pub(crate) struct Serve {
    /// The port on 127.0.0.1; 0 for any free one. Default: `server.port` in a trusted `.pml.json`, else 3003.
    #[arg(long)]
    pub(crate) port: Option<u16>,
    /// Print the address as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}
