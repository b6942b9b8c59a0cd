//! The command line of `pml`.

use std::num::NonZeroU64;
use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use protocol::Visibility;

/// Runs agent-written programs on your machine: sealed off, with every tool
/// call under your rules.
#[derive(Debug, Parser)]
#[command(name = "pml", version, max_term_width = 100)]
#[command(after_help = "\
Start here:
  pml init                 write .mcp.json and .pml.json, so that this project's agent finds PML
  pml exec program.ts      run a program; `-` reads it from stdin
  pml plan program.ts      see what a program will and may do, and what leaves your machine
  pml analyze program.ts   see which tools a program calls and where it would run")]
pub struct Cli {
    /// The settings that every command reads.
    #[command(flatten)]
    pub settings: Settings,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The settings that every command reads.
#[derive(Debug, Clone, Args)]
pub struct Settings {
    /// The project's folder; programs' local tools are contained in it.
    ///
    /// Default: PML_WORKSPACE, else the nearest parent with `.git`, `deno.json`,
    /// `package.json` or `.pml.json`, else the current folder.
    #[arg(long, global = true, value_name = "DIR")]
    pub workspace: Option<PathBuf>,

    /// The gateway; also PML_CLOUD_URL and `cloud.url` in a trusted `.pml.json`.
    #[arg(long, global = true, value_name = "URL")]
    pub url: Option<String>,

    /// What to log to stderr: `error`, `warn`, `info`, `debug`, `trace`, or per module.
    #[arg(long, env = "PML_LOG", global = true, default_value = "warn", value_name = "FILTER")]
    pub log: String,
}

/// What `pml` can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve MCP on stdin and stdout; this is what agents start.
    Stdio,
    /// Run a program and print its result.
    Exec(Exec),
    /// Show what a program will and may do, and what leaves this machine, without running it.
    Plan(Plan),
    /// Show which tools a program calls, without running it; works offline.
    Analyze(Analyze),
    /// Publish a program under a name, so that other programs can call it.
    Publish(Publish),
    /// Say of what was published that it should not be used any more, and why.
    Deprecate(Deprecate),
    /// Yank a version: only requests for exactly `@VERSION` still resolve.
    Yank {
        /// `NAMESPACE.ACTION@VERSION` of a capability, or `NAMESPACE@VERSION` of a server.
        name: String,
    },
    /// Delete what was published, for good: a capability `NAMESPACE.ACTION`, or a server `NAMESPACE`.
    Unpublish(Unpublish),
    /// Look whether programs can be contained here, and at the gateway, the key and the project's files.
    Doctor(Doctor),
    /// Connect this project: write `.mcp.json`, `.pml.json` and `.gitignore`.
    Init {
        /// Ask nothing; take the defaults.
        #[arg(long, short)]
        yes: bool,
    },
    /// Let this project's `.pml.json`, as it is now, grant what it says.
    Trust {
        /// Ask nothing. Without a terminal PML_TRUST_NONINTERACTIVE=1 is needed too.
        #[arg(long, short)]
        yes: bool,
    },
    /// Keep the key for the gateway: asked for without showing it, or read from stdin; tried first.
    Login,
    /// Forget the key that is kept for the gateway.
    Logout,
    /// Keep your keys for tools: in this project's `.env`, or on the gateway.
    #[command(subcommand)]
    Keys(KeysCommand),
    /// Print a completion script for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

/// `pml keys …`
#[derive(Debug, Subcommand)]
pub enum KeysCommand {
    /// Set a key; the value comes from stdin, or is asked for and not shown.
    Set {
        /// The variable, for example `TAVILY_API_KEY`.
        name: String,
        /// A value, which is refused here: without this it would be repeated in the error.
        #[arg(hide = true)]
        value: Option<String>,
        /// Store it on the gateway, for tools that run there.
        #[arg(long)]
        cloud: bool,
        /// For everybody in the project, and not only for you.
        #[arg(long, requires = "cloud")]
        project: bool,
        /// A host that it may go to, as `api.tavily.com` or `host:port`; may be repeated. Without any it goes only
        /// where entries of the public catalog lead.
        #[arg(long, requires = "cloud", value_name = "HOST")]
        host: Vec<String>,
    },
    /// List the names of the keys that are set; never a value.
    List {
        /// Those on the gateway.
        #[arg(long)]
        cloud: bool,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Take a key away.
    Unset {
        /// The variable.
        name: String,
        /// From the gateway.
        #[arg(long)]
        cloud: bool,
        /// The project's, and not yours.
        #[arg(long, requires = "cloud")]
        project: bool,
    },
}

/// `pml exec`
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes: 0 done; 1 the program failed; 2 it cannot run (syntax, unknown tool,
request); 3 not permitted or not approved; 4 the gateway or the sandbox is not there.")]
pub struct Exec {
    /// The program's file; `-` reads stdin.
    pub file: PathBuf,
    /// A JSON object that the program sees as `args`.
    #[arg(long, value_name = "JSON")]
    pub args: Option<String>,
    /// Wall time in milliseconds.
    #[arg(long, value_name = "MS", value_parser = milliseconds)]
    pub timeout_ms: Option<NonZeroU64>,
    /// Print the whole answer as JSON, and never ask: what needs approval ends with exit code 3.
    #[arg(long)]
    pub json: bool,
}

/// Reads a number of milliseconds; of a number with a unit it says what to write.
fn milliseconds(text: &str) -> Result<NonZeroU64, String> {
    if let Ok(number) = text.parse::<u64>() {
        return NonZeroU64::new(number).ok_or_else(|| "it must be at least 1".to_owned());
    }
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "ms" => 1,
        "s" => 1_000,
        "m" | "min" => 60_000,
        _ => 0,
    };
    match digits.parse::<u64>().ok().and_then(|number| number.checked_mul(factor)) {
        Some(number) if number > 0 => {
            Err(format!("write it in milliseconds, without a unit: {number}"))
        }
        _ => Err("write a whole number of milliseconds, for example 5000".to_owned()),
    }
}

/// `pml plan`
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes: 0 it can run, warnings included; 1 it is too large for a picture; 2 it cannot run.")]
pub struct Plan {
    /// The program's file; `-` reads stdin.
    pub file: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Print a picture of the calls and of what flows between them.
    #[arg(long, value_name = "FORMAT", conflicts_with = "json")]
    pub graph: Option<GraphFormat>,
    /// Do not ask the gateway where tools run. It is asked by their names only.
    #[arg(long)]
    pub offline: bool,
}

/// How a graph is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum GraphFormat {
    /// A Mermaid flowchart, as Markdown pages show it.
    Mermaid,
    /// An SVG picture.
    Svg,
}

/// `pml publish`
#[derive(Debug, Args)]
#[command(after_help = "\
The program is one as `pml exec` runs: `args` in, `return` out. Its first comment, `/** … */`, says
what it does. A published version never changes; the same bytes again are no error.

  pml publish double.ts --name maths.double
  then, in a program:  await mcp.maths.double({ n: 21 })

With --mcp the file describes an MCP server: `name`, `type` (`stdio` or `http`), `description`, and `install`
(`command`, `args`, `env_required`) or `proxy_to` with `env_required`. The server is started or asked, with keys from
the environment or `.env`, and published with the tools that it lists.

  pml publish --mcp server.json

Exit codes: 0 published; 1 refused; 2 it cannot run or cannot be a capability; 4 the gateway is not there.")]
pub struct Publish {
    /// The program's file, or with --mcp the server's description; `-` reads stdin.
    pub file: PathBuf,
    /// How programs will call it; with --mcp its namespace, in place of the one in the file.
    #[arg(long, value_name = "NAMESPACE.ACTION", required_unless_present = "mcp")]
    pub name: Option<String>,
    /// Publish an MCP server.
    #[arg(long)]
    pub mcp: bool,
    /// Three numbers, `1.2.0`. Default: 0.1.0, then the next patch.
    #[arg(long, value_name = "VERSION")]
    pub version: Option<String>,
    /// Who may know of it. Default: as before, and first the project.
    #[arg(long, value_parser = visibility())]
    pub visibility: Option<Visibility>,
    /// What it does. Default: what its first comment, or the file, says.
    #[arg(long, value_name = "TEXT")]
    pub description: Option<String>,
    /// Publish nothing; print what would be sent.
    #[arg(long)]
    pub dry_run: bool,
    /// Print the answer as JSON.
    #[arg(long)]
    pub json: bool,
}

/// `pml deprecate`
#[derive(Debug, Args)]
#[command(after_help = "\
Who looks it up, or publishes what calls it, reads the message. It runs as before.

Examples:
  pml deprecate words.shout 'use words.upper'     all its versions
  pml deprecate notes@0.1.0 'loses notes'         one version of a server
  pml deprecate words.shout --undo                it may be used again")]
pub struct Deprecate {
    /// `NAMESPACE.ACTION` of a capability, or `NAMESPACE` of a server, and perhaps `@VERSION`.
    pub name: String,
    /// Why, and what to use.
    #[arg(required_unless_present = "undo", conflicts_with = "undo")]
    pub message: Option<String>,
    /// Take it back.
    #[arg(long)]
    pub undo: bool,
}

/// `pml unpublish`
#[derive(Debug, Args)]
#[command(after_help = "\
Whoever published it first deletes it, or an administrator of the project. All its versions go, those who could see it
are told so, and nobody ever gets the name again. To keep a version for those who name it, yank it instead.

Exit codes: 0 deleted; 1 refused or not there; 2 nobody can be asked; 4 the gateway is not there.")]
pub struct Unpublish {
    /// `NAMESPACE.ACTION` of a capability, or `NAMESPACE` of a server.
    pub name: String,
    /// Ask nothing.
    #[arg(long, short)]
    pub yes: bool,
}

/// Reads who may know of what is published.
fn visibility() -> impl TypedValueParser<Value = Visibility> {
    let told = |visibility| match visibility {
        Visibility::Private => "You",
        Visibility::Project => "Your project",
        Visibility::Org => "Your organisation",
        Visibility::Public => "Everybody",
    };
    let words = Visibility::ALL.map(|one| PossibleValue::new(one.as_str()).help(told(one)));
    PossibleValuesParser::new(words).try_map(|word| word.parse())
}

/// `pml doctor`
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes: 0 nothing is wrong, warnings included; 2 a file or setting cannot be used; 3 the gateway does not take
the key; 4 programs cannot be contained here, or the gateway that you named cannot be reached.")]
pub struct Doctor {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `pml analyze`
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 it can run, warnings included; 2 it cannot.")]
pub struct Analyze {
    /// The program's file; `-` reads stdin.
    pub file: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Print the program as the one text that runs, with the files that it imports.
    #[arg(long, conflicts_with_all = ["json", "graph"])]
    pub bundle: bool,
    /// Print a picture of the calls and of what flows between them.
    #[arg(long, value_name = "FORMAT", conflicts_with = "json")]
    pub graph: Option<GraphFormat>,
}

#[cfg(test)]
mod tests {
    use super::milliseconds;

    #[test]
    fn a_time_with_a_unit_is_told_without_it() {
        assert_eq!(milliseconds("5000").unwrap().get(), 5000);
        for (text, told) in [
            ("5s", "write it in milliseconds, without a unit: 5000"),
            ("250ms", "write it in milliseconds, without a unit: 250"),
            ("2m", "write it in milliseconds, without a unit: 120000"),
            ("0", "it must be at least 1"),
            ("0s", "write a whole number of milliseconds, for example 5000"),
            ("1.5", "write a whole number of milliseconds, for example 5000"),
            ("-1", "write a whole number of milliseconds, for example 5000"),
            ("", "write a whole number of milliseconds, for example 5000"),
            ("99999999999999999999s", "write a whole number of milliseconds, for example 5000"),
        ] {
            assert_eq!(milliseconds(text).unwrap_err(), told, "{text}");
        }
    }
}
