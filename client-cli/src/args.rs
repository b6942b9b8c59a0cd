//! The command line of `pml`.

mod capabilities;
mod init;
mod login;
mod publish;
mod runs;
mod serve;
mod tools;
mod units;

use std::num::NonZeroU64;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub(crate) use self::capabilities::{Add, Run};
pub(crate) use self::init::{Agent, Init};
pub(crate) use self::login::Login;
pub(crate) use self::publish::{Deprecate, Publish, Unpublish};
pub(crate) use self::runs::{
    EraseRun, ExportRun, ListRuns, Replay, Report, ReportFormat, ResumeRun, RunsCommand, ShowRun,
    Verify,
};
pub(crate) use self::serve::Serve;
pub(crate) use self::tools::{Cleanup, List, Lock, Remove, Search, Types};

/// Runs agent-written programs on your machine, in a sandbox, with your permission rules on every tool call.
#[derive(Debug, Parser)]
#[command(name = "pml", version, max_term_width = 100)]
#[command(after_help = "\
Start here:
  pml init                 write .mcp.json and .pml.json, so that this project's agent can use PML
  pml exec program.ts      run a program; `-` reads it from stdin
  pml plan program.ts      see what a program will and may do, and what leaves your machine
  pml analyze program.ts   see which tools a program calls and where it would run

`pml --sandbox-selftest` checks that this machine can seal programs, and nothing else; `pml doctor` checks more.")]
pub(crate) struct Cli {
    /// The settings that every command reads.
    #[command(flatten)]
    pub(crate) settings: Settings,
    /// The command.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The flag that only tests the sandbox.
pub(crate) const SELF_TEST: &str = "--sandbox-selftest";

/// The settings that every command reads.
#[derive(Debug, Clone, Args)]
pub(crate) struct Settings {
    /// The project's folder. File tools cannot leave it.
    ///
    /// Default: PML_WORKSPACE, else the nearest parent with `.git`, `deno.json`,
    /// `package.json` or `.pml.json`, else the current folder.
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,

    /// The gateway; also PML_CLOUD_URL and `cloud.url` in a trusted `.pml.json`.
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) url: Option<String>,

    /// The log level on stderr: `error`, `warn`, `info`, `debug`, `trace`, or per module.
    #[arg(long, env = "PML_LOG", global = true, default_value = "warn", value_name = "FILTER")]
    pub(crate) log: String,
}

/// The options of `pml upgrade`.
#[derive(Debug, Args)]
pub(crate) struct Upgrade {
    /// Install nothing; say whether there is a newer version.
    #[arg(long)]
    pub(crate) check: bool,
    /// Where releases are: a URL or a folder. Default: where those of this `pml` are.
    #[arg(long, value_name = "URL")]
    pub(crate) from: Option<String>,
    /// The public key of minisign that signs them. Default: those of this `pml`.
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// The commands of `pml`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve MCP on stdin and stdout; agents start this command.
    Stdio,
    /// Serve MCP over HTTP on 127.0.0.1, for clients that do not start programs.
    Serve(Serve),
    /// Run a program and print its result.
    Exec(Exec),
    /// Show what a program will and may do, and what leaves this machine, without running it.
    Plan(Plan),
    /// Show which tools a program calls, without running it; works offline.
    Analyze(Analyze),
    /// Pin a program and every tool that it reaches in FILE.lock; or update the packages of MCP servers in .pml/mcp.lock.
    Lock(Lock),
    /// Publish a program under a name, so that other programs can call it.
    Publish(Publish),
    /// Deprecate a published capability or server, with a message.
    Deprecate(Deprecate),
    /// Yank a version: only requests for exactly `@VERSION` still resolve.
    Yank {
        /// `NAMESPACE.ACTION@VERSION` of a capability, or `NAMESPACE@VERSION` of a server.
        name: String,
    },
    /// Delete a capability `NAMESPACE.ACTION` or a server `NAMESPACE` permanently.
    Unpublish(Unpublish),
    /// Check the sandbox, the gateway, the API key and the project's files.
    Doctor(Doctor),
    /// Set up this project for agents: write their files, `.pml.json` and `.gitignore`.
    Init(Init),
    /// Trust this project's `.pml.json` in its present form, so that its grants take effect.
    Trust {
        /// Do not prompt. Without a terminal, also set PML_TRUST_NONINTERACTIVE=1.
        #[arg(long, short)]
        yes: bool,
    },
    /// Approve a call of a run that waits in an agent's session.
    #[command(after_help = "\
Shows the question and asks on this terminal. A dangerous call (a command, a protected place) is allowed by retyping a
code. Without WORKFLOW: the only question that waits, else a list of them.

Exit codes: 0 answered, or nothing waits; 1 the answer could not be passed on; 2 not answered, no such question,
several of them, or no terminal.")]
    Approve {
        /// The `workflow_id` of the question.
        workflow: Option<String>,
    },
    /// Deny a call of a run that waits in an agent's session, and end the run.
    #[command(after_help = "\
Exit codes: 0 denied, or nothing waits; 1 the answer could not be passed on; 2 no such question, or several.")]
    Deny {
        /// The `workflow_id` of the question. Default: the only question that waits.
        workflow: Option<String>,
    },
    /// Run the program of a recorded run again, with the recorded answers: no tool is called, and nobody is asked.
    #[command(after_help = "\
The program gets the clock, the random numbers and the answers that it had, in the same order. Its result is compared with
the recorded one. Nothing is recorded.

With --program, another program gets them: a test of a change that calls nothing. The first call that differs ends it.

Examples:
  pml replay last
  pml replay last --program report.ts

Exit codes: 0 the result is the recorded one, also if that is an error; 1 it differs, the program leaves the record, or the
record cannot be used; 2 no such run, or the program cannot run; 4 the store cannot be used, or sandboxing does not work.")]
    Replay(Replay),
    /// Report what a recorded run did: its calls, the files, hosts and programs that it used, and what was denied.
    #[command(after_help = "\
Examples:
  pml report                               the last run, on the terminal
  pml report 019a3c --format json          a run as JSON, with all values in full
  pml report --format html -o report.html  a page that verifies its own records

What is not on record, such as what a command or an MCP server did, is listed as not known.

Exit codes: 0 reported, also if `pml runs verify` finds a fault, which the report says; 2 no such run, or the file cannot be
written; 4 the store cannot be read.")]
    Report(Report),
    /// Verify a run that somebody exported with `pml runs export`, against the keys that you trust.
    #[command(after_help = "\
Trusted are the keys that you added with --trust-key, and this machine's own. A file never says which key to trust.

Examples:
  pml verify --trust-key ana.pem     trust a key; get it from its owner
  pml verify run.json                any trusted key
  pml verify run.json --key ana.pem  only this key

Exit codes: 0 signed by a trusted key, and complete; 1 refused, and the reason is named; 2 a file cannot be read.")]
    Verify(Verify),
    /// List, show, export and verify the recorded runs of this project.
    #[command(subcommand)]
    Runs(RunsCommand),
    /// Find tools that programs can call from here: those of this machine and of the gateway.
    #[command(after_help = "\
Examples:
  pml search read a text file      words
  pml search 'git:*'               all tools with such a name; `*` is any text
  pml search filesystem:write_file one tool

The gateway gets the words. A server of `.pml.json` is started for this only if a rule allows a tool of it.

Exit codes: 0 searched, also if nothing was found; 2 an argument or a file is invalid.")]
    Search(Search),
    /// Write the types of the tools that programs can call, so that editors and `tsc` check programs.
    #[command(after_help = "\
Examples:
  pml types                      the types of all tools in reach, in mcp.d.ts
  pml types 'git:*' 'slack:*'    only of these
  pml types --check              fail if mcp.d.ts is not up to date

Name the file in `include` of tsconfig.json, or open it in the editor. A server of `.pml.json` is started for this only
if a rule allows a tool of it.

Exit codes: 0 written, or up to date; 2 the file is not up to date (with --check), cannot be written, or was written by
something else.")]
    Types(Types),
    /// Make a capability an MCP server of its own, which agents start with `pml run`.
    Add(Add),
    /// Serve a capability that was added as an MCP server of its own; agents start this command.
    Run(Run),
    /// List the servers and capabilities of this project, and what each may reach.
    List(List),
    /// Remove a server or capability of the registry from those that may start here.
    #[command(after_help = "\
Examples:
  pml remove memory            the server `memory` of the registry
  pml remove text:shout        a capability
  pml remove memory --clean    and the files that the server stored in its own folder

A server of `.pml.json` is removed by deleting its entry.

Exit codes: 0 removed; 1 there is no such server or capability; 2 a file is invalid.")]
    Remove(Remove),
    /// Delete installed packages that are no longer used, and what interrupted writes left; erase old runs on request.
    #[command(after_help = "\
Examples:
  pml cleanup --dry-run         show what would be deleted
  pml cleanup --unused-for 7    delete packages that no server has started from for a week
  pml cleanup --runs 30d        also erase the values of this project's runs that ended 30 days ago
  pml cleanup --runs-above 500MB

Packages are shared by all your projects; a server that needs a deleted one installs it again. Nothing that runs is
deleted, and neither are approvals, keys and the files that servers stored. Of an erased run, the calls with their tools,
times and hashes stay; see `pml runs erase --help`.

Exit codes: 0 deleted, or nothing to delete; 1 a record of a run was changed; 2 something cannot be deleted; 4 the run store
cannot be used.")]
    Cleanup(Cleanup),
    /// Replace this `pml` by the newest release.
    #[command(after_help = "\
Examples:
  pml upgrade --check           is there a newer version?
  pml upgrade                   install it

The release is verified: its signature by a key that this `pml` was built with, and the hash of the program. An older
release than this one, or than one that was seen before, is refused, and so is one whose statement has expired. What npm,
pip, apt or Homebrew installed, they upgrade.

Exit codes: 0 upgraded, or up to date; 1 there is a newer version (with --check), or this program cannot be replaced; 2 the
release is refused, an argument is invalid, or a package manager owns this program; 4 the release cannot be read.")]
    Upgrade(Upgrade),
    /// Explain what would happen to a call.
    #[command(subcommand)]
    Permissions(PermissionsCommand),
    /// Check the policy of this project: what its calls may touch.
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Verify and store the gateway's API key, from stdin or a prompt without echo; or sign in with a browser.
    Login(Login),
    /// Delete the stored API key or sign-in of the gateway.
    Logout,
    /// Manage secrets for tools, in this project's `.env` or on the gateway.
    #[command(subcommand, visible_alias = "keys")]
    Secrets(SecretsCommand),
    /// Print a completion script for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Write the manual pages of all commands into a folder.
    #[command(after_help = "\
Examples:
  pml man ~/.local/share/man/man1    then `man pml` and `man pml-exec` show them

Files of the same names are replaced.

Exit codes: 0 written; 2 the folder cannot be used.")]
    Man {
        /// The folder. It is created if it is missing.
        folder: PathBuf,
    },
}

/// `pml permissions …`
#[derive(Debug, Subcommand)]
pub(crate) enum PermissionsCommand {
    /// Show whether a call would run, be asked about, be denied or fail, and why. Makes no call.
    #[command(after_help = "\
Examples:
  pml permissions explain shell:exec
  pml permissions explain filesystem:write_file '{\"path\": \"AGENTS.md\", \"content\": \"\"}'

The gateway is asked about a tool that this machine does not know; it gets the tool's name.

Exit codes: 0 explained, whatever the answer is; otherwise the tool was not found, or the arguments are invalid.")]
    Explain {
        /// The tool, as `namespace:action`.
        tool: String,
        /// The arguments of the call, a JSON object. Without them, only the rules are considered.
        arguments: Option<String>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

/// `pml policy …`
#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Check the `policy` of `.pml.json`: test its examples, show what it allows, and point out what has no effect.
    #[command(after_help = "\
Without FILE, the file of the project is checked, whether it is trusted or not. A policy is explained in docs/permissions.md.

Exit codes: 0 valid, with or without findings; 2 invalid, or an example does not hold.")]
    Check {
        /// A file like `.pml.json`, or a policy file (`.yaml`). Default: the file of the project.
        file: Option<PathBuf>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

/// `pml secrets …`
#[derive(Debug, Subcommand)]
pub(crate) enum SecretsCommand {
    /// Store a secret; the value comes from stdin or a prompt without echo.
    Set {
        /// The variable, for example `TAVILY_API_KEY`.
        name: String,
        /// Always refused. Without this argument, clap's error message would repeat the value.
        #[arg(hide = true)]
        value: Option<String>,
        /// Store it on the gateway, for tools that run there.
        #[arg(long)]
        cloud: bool,
        /// Store it for everybody in the project instead of only for you.
        #[arg(long, requires = "cloud")]
        project: bool,
        /// A host that may receive the secret, as `api.tavily.com` or `host:port`; repeatable. Without hosts, only
        /// the hosts of catalog entries receive it.
        #[arg(long, requires = "cloud", value_name = "HOST")]
        host: Vec<String>,
    },
    /// List the names of the stored secrets; never a value.
    List {
        /// List the secrets on the gateway.
        #[arg(long)]
        cloud: bool,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Delete a secret.
    Unset {
        /// The variable.
        name: String,
        /// Delete it from the gateway.
        #[arg(long)]
        cloud: bool,
        /// Delete the project's secret instead of yours.
        #[arg(long, requires = "cloud")]
        project: bool,
    },
}

/// `pml exec`
#[derive(Debug, Args)]
#[command(after_help = "\
If there is a FILE.lock (see `pml lock`), the program runs only as it was locked, and on this
machine.

Exit codes: 0 success; 1 the program failed; 2 it cannot run (syntax, unknown tool, request, not as
locked); 3 not permitted or not approved; 4 the gateway or the sandbox is unavailable.")]
pub(crate) struct Exec {
    /// The program's file, or a plan file (`.yaml`); `-` reads a program from stdin.
    pub(crate) file: PathBuf,
    /// A JSON object that the program reads as `args`.
    #[arg(long, value_name = "JSON")]
    pub(crate) args: Option<String>,
    /// The wall-time limit in milliseconds.
    #[arg(long, value_name = "MS", value_parser = milliseconds)]
    pub(crate) timeout_ms: Option<NonZeroU64>,
    /// Refuse a program that has no FILE.lock, and whatever would have to be added to .pml/mcp.lock.
    #[arg(long)]
    pub(crate) frozen: bool,
    /// Answer calls from the record of a run: its id or the beginning of it, or `last`. Calls that it lacks are made as
    /// usual.
    #[arg(long, value_name = "RUN")]
    pub(crate) mock: Option<String>,
    /// Apply the policy in a YAML file as well: what either policy denies is denied, and the lower limits count.
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// Print the whole answer as JSON and never prompt; a call that needs approval exits with code 3.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Parses a number of milliseconds. If there is a unit, the error suggests the number in milliseconds.
fn milliseconds(text: &str) -> Result<NonZeroU64, String> {
    if let Ok(number) = text.parse::<u64>() {
        return NonZeroU64::new(number).ok_or_else(|| "it must be at least 1".to_owned());
    }
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "ms" => 1,
        "s" => 1_000,
        "m" | "min" => 60_000,
        // An unknown unit: a product of 0 selects the general message below.
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
Exit codes: 0 it can run, even with warnings; 1 it is too large for a diagram; 2 it cannot run.")]
pub(crate) struct Plan {
    /// The program's file, or a plan file (`.yaml`); `-` reads a program from stdin.
    pub(crate) file: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print a diagram of the calls and the data flow between them.
    #[arg(long, value_name = "FORMAT", conflicts_with = "json")]
    pub(crate) graph: Option<GraphFormat>,
    /// Do not ask the gateway where tools run. Without this flag, only the tools' names are sent.
    #[arg(long)]
    pub(crate) offline: bool,
    /// Apply the policy in a YAML file as well, and show which calls it denies.
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
}

/// The format of a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum GraphFormat {
    /// A Mermaid flowchart, for Markdown pages.
    Mermaid,
    /// An SVG picture.
    Svg,
}

/// `pml doctor`
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes: 0 no problem found, even with warnings; 2 a file or setting is invalid; 3 the gateway rejects the API key;
4 programs cannot be sandboxed here, or the gateway that you named is unreachable.")]
pub(crate) struct Doctor {
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print every layer of the sandbox, and every system call that it was tried with.
    #[arg(long, short)]
    pub(crate) verbose: bool,
}

/// `pml analyze`
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 it can run, even with warnings; 2 it cannot.")]
pub(crate) struct Analyze {
    /// The program's file; `-` reads stdin.
    pub(crate) file: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print the program with its imports inlined, as it will run.
    #[arg(long, conflicts_with_all = ["json", "graph"])]
    pub(crate) bundle: bool,
    /// Print a diagram of the calls and the data flow between them.
    #[arg(long, value_name = "FORMAT", conflicts_with = "json")]
    pub(crate) graph: Option<GraphFormat>,
}

#[cfg(test)]
mod tests {
    use super::milliseconds;

    #[test]
    fn refuses_a_time_with_a_unit_and_suggests_milliseconds() {
        assert_eq!(milliseconds("5000").unwrap().get(), 5000);
        for (text, message) in [
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
            assert_eq!(milliseconds(text).unwrap_err(), message, "{text}");
        }
    }
}
