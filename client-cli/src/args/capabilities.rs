//! `pml add` and `pml run`.

use clap::Args;

/// `pml add`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  pml add text:shout                the newest version, as the server `shout` in .mcp.json
  pml add text:shout@0.1.0          this version
  pml add acme.core.text:shout --as loud

Shows the program and what it starts, and asks once. The capability and the servers that it needs are stored here, so that
`pml run` works without the gateway and without an API key, unless the program calls tools of the gateway. Its own calls
stay under the rules of this project.

Exit codes: 0 added; 1 the gateway refused, or a server does not start; 2 the name or a file is invalid, or there is no
such capability; 3 not permitted or not confirmed; 4 the gateway is unavailable.")]
pub(crate) struct Add {
    /// The capability: `NAMESPACE:ACTION`, with its organisation and project if needed, optionally with `@VERSION`.
    #[arg(value_name = "NAME[@VERSION]")]
    pub(crate) name: String,
    /// The name of the server in `.mcp.json`. Default: the action.
    #[arg(long = "as", value_name = "SERVER")]
    pub(crate) server: Option<String>,
    /// Do not prompt. Without a terminal, also set PML_TRUST_NONINTERACTIVE=1.
    #[arg(long, short)]
    pub(crate) yes: bool,
}

/// `pml run`
#[derive(Debug, Args)]
#[command(after_help = "\
`pml add` writes this command into .mcp.json; agents start it. The server has the tools `run`, which calls the capability,
and `config`, which describes it. It needs no API key and no gateway, unless the program calls tools of the gateway.

Exit codes: 0 stdin was closed; 2 it was not added here, or a file is invalid; 3 you have not allowed it.")]
pub(crate) struct Run {
    /// The name of the server in `.mcp.json`, or of the capability.
    pub(crate) name: String,
}
