//! The commands that publish and retire entries of the registry.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use protocol::Visibility;

/// `pml publish`
#[derive(Debug, Args)]
#[command(after_help = "\
Write the program as for `pml exec`: it reads its arguments from `args` and returns its result. Its first comment,
`/** … */`, is its description. A published version is immutable; publishing the same bytes again succeeds.

  pml publish double.ts --name maths.double
  then, in a program:  await mcp.maths.double({ n: 21 })

With --mcp the file describes an MCP server: `name`, `type` (`stdio` or `http`), `description`, and `install`
(`command`, `args`, `env_required`) or `proxy_to` with `env_required`. `pml` starts the server or connects to it, with
secrets from the environment or `.env`, and publishes it with the tools that the server lists.

  pml publish --mcp server.json

Exit codes: 0 published; 1 refused; 2 it cannot run or cannot be a capability; 4 the gateway is unavailable.")]
pub(crate) struct Publish {
    /// The program's file, or with --mcp the server's description; `-` reads stdin.
    pub(crate) file: PathBuf,
    /// The name under which programs call it; with --mcp, its namespace, overriding the one in the file.
    #[arg(long, value_name = "NAMESPACE.ACTION", required_unless_present = "mcp")]
    pub(crate) name: Option<String>,
    /// Publish an MCP server.
    #[arg(long)]
    pub(crate) mcp: bool,
    /// Three numbers, `1.2.0`. Default: 0.1.0, then the next patch.
    #[arg(long, value_name = "VERSION")]
    pub(crate) version: Option<String>,
    /// Visibility. Default: unchanged; `project` on first publish.
    #[arg(long, value_parser = visibility())]
    pub(crate) visibility: Option<Visibility>,
    /// The description. Default: the program's first comment, or the file's description.
    #[arg(long, value_name = "TEXT")]
    pub(crate) description: Option<String>,
    /// Publish nothing; print the request that would be sent.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print the answer as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `pml deprecate`
#[derive(Debug, Args)]
#[command(after_help = "\
A deprecated entry still runs. Everybody who looks it up, or publishes a program that calls it, sees the message.

Examples:
  pml deprecate words.shout 'use words.upper'     all its versions
  pml deprecate notes@0.1.0 'loses notes'         one version of a server
  pml deprecate words.shout --undo                clear the deprecation")]
pub(crate) struct Deprecate {
    /// `NAMESPACE.ACTION` of a capability, or `NAMESPACE` of a server, optionally with `@VERSION`.
    pub(crate) name: String,
    /// The reason, and what to use instead.
    #[arg(required_unless_present = "undo", conflicts_with = "undo")]
    pub(crate) message: Option<String>,
    /// Clear the deprecation.
    #[arg(long)]
    pub(crate) undo: bool,
}

/// `pml unpublish`
#[derive(Debug, Args)]
#[command(after_help = "\
Only the principal who first published it, or an administrator of the project, can delete it. All its versions are
deleted, callers who could see it get 410 GONE, and the name is never reused. To keep a version available on request,
yank it instead.

Exit codes: 0 deleted; 1 refused or not found; 2 there is no terminal to ask on; 4 the gateway is unavailable.")]
pub(crate) struct Unpublish {
    /// `NAMESPACE.ACTION` of a capability, or `NAMESPACE` of a server.
    pub(crate) name: String,
    /// Do not prompt.
    #[arg(long, short)]
    pub(crate) yes: bool,
}

/// Parses a visibility.
fn visibility() -> impl TypedValueParser<Value = Visibility> {
    let help = |visibility| match visibility {
        Visibility::Private => "You",
        Visibility::Project => "Your project",
        Visibility::Org => "Your organisation",
        Visibility::Public => "Everybody",
    };
    // Not a derived `ValueEnum`: the type belongs to `protocol`, which does not depend on clap.
    let words = Visibility::ALL.map(|one| PossibleValue::new(one.as_str()).help(help(one)));
    PossibleValuesParser::new(words).try_map(|word| word.parse())
}
