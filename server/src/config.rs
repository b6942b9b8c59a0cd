//! The gateway's command line and settings.

mod catalog;
mod connections;
mod credentials;
mod identity;
mod inspection;
mod master_key;
mod metrics;
mod operations;
mod public_url;
mod rates;
mod records;
mod releases;
mod settings;
mod stdio;
mod tenancy;
mod tls;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand, ValueEnum};
use protocol::redaction::{UsedKey, keys_in_use};
use zeroize::Zeroizing;

pub(crate) use catalog::{
    CatalogCommand, EffectsWord, QuotasCommand, RoutingCommand, RoutingTarget, ToolsCommand,
};
pub(crate) use connections::ConnectionSettings;
pub(crate) use credentials::{
    CreateKey, KEY_DAYS_LIMIT, KeysCommand, ScopeCommand, SecretsCommand,
};
pub(crate) use identity::OauthSettings;
pub(crate) use identity::address;
pub(crate) use inspection::{Place as SettingPlace, unknown_variables};
pub(crate) use master_key::MasterKeySettings;
pub(crate) use metrics::MetricsSettings;
pub(crate) use operations::{Backup, Inspect, Restore};
pub(crate) use public_url::PublicUrl;
pub(crate) use rates::{RateLimit, RateSettings};
pub(crate) use records::RecordSettings;
pub(crate) use releases::ReleaseSettings;
pub(crate) use settings::Settings;
pub(crate) use stdio::{StdioCommand, StdioSettings};
pub(crate) use tenancy::{MembersCommand, OrgsCommand, Place, ProjectsCommand};
pub(crate) use tls::TlsSettings;

/// PML's gateway and registry: analyses agent-written programs, runs server programs, and delegates the others to
/// `pml` on the user's machine.
#[derive(Debug, Parser)]
#[command(name = "pml-server", version, max_term_width = 100)]
#[command(after_help = "\
Without PML_DATABASE_URL the gateway starts a private Postgres in its data
directory, migrates and seeds it, creates the scope `local.default` and an API
key, and prints the next steps.

Examples:
  pml-server                                   start on 127.0.0.1:3001
  pml-server --listen 0.0.0.0:3001             start with flags of `serve`
  pml-server keys create --scope local.default create an API key, the only output on stdout
  pml-server scope create acme.web             create a tenant")]
pub(crate) struct Cli {
    /// The settings that every command reads.
    #[command(flatten)]
    pub settings: Settings,
    /// Test the sandbox on this machine: print a line for each layer and each forbidden system call, and exit, with
    /// code 1 if the sandbox fails.
    #[arg(long)]
    pub sandbox_selftest: bool,
    /// The command; `serve` by default.
    #[command(subcommand)]
    pub command: Option<Command>,
}

impl Cli {
    /// Parses the command line and the environment of this process; prints an error and exits if they are invalid.
    pub(crate) fn of_process() -> Self {
        let arguments: Vec<OsString> = std::env::args_os().collect();
        let inspected = inspection::read(&arguments, |name| std::env::var_os(name));
        inspected.unwrap_or_else(|| Self::read(&arguments)).unwrap_or_else(|error| error.exit())
    }

    /// Parses a command line. The command defaults to `serve`, whose flags are then accepted without its name.
    fn read(arguments: &[OsString]) -> Result<Self, clap::Error> {
        let parsed = Self::try_parse_from(arguments);
        // A flag of `serve` without its name is an unknown argument for the first parse.
        let may_be_serve = match &parsed {
            Ok(cli) => cli.command.is_none() && !cli.sandbox_selftest,
            Err(error) => error.kind() == ErrorKind::UnknownArgument,
        };
        if !may_be_serve {
            return parsed;
        }
        // The list of arguments may be empty, without even the name of the program.
        let (program, rest) = arguments.split_at(1.min(arguments.len()));
        let serve = std::iter::once(OsString::from("serve"));
        let serving = program.iter().cloned().chain(serve).chain(rest.iter().cloned());
        match (Self::try_parse_from(serving), parsed) {
            // Neither accepts it: the first error names the alternatives.
            (Err(second), Err(first)) if second.kind() == ErrorKind::UnknownArgument => Err(first),
            (second, _) => second,
        }
    }
}

/// The commands of `pml-server`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the gateway (the default).
    Serve(Box<Serve>),
    /// Check all settings without starting anything: flags, variables and files.
    ///
    /// Reports every invalid setting at once, combinations that are dangerous or without effect, and unknown
    /// variables. Takes the flags of `serve`. Exit codes: 0 nothing is wrong, perhaps with warnings; 1 the gateway
    /// would not start with these settings; 2 wrong usage.
    Check(Box<Inspect>),
    /// Check the settings, and what can be measured on this machine: the sandbox, the database, the master key, clocks,
    /// limits, the disk, the issuer and the address.
    ///
    /// Changes nothing. Takes the flags of `serve`. Exit codes: 0 nothing has failed, perhaps with warnings; 1
    /// something has failed; 2 wrong usage.
    Doctor(Box<Inspect>),
    /// Write the whole database to one file, consistently, while gateways serve.
    ///
    /// The master key is not in it: back it up separately. Uses `pg_dump`.
    Backup(Backup),
    /// Restore a backup into an empty database, and migrate it to this version.
    ///
    /// With a private Postgres, stop the gateway first. A restore that fails changes nothing. Uses `pg_restore`.
    Restore(Restore),
    /// Migrate the database's schema to this version.
    Migrate,
    /// Write the entries that ship with PML to the catalog; repeatable.
    Seed,
    /// Create tenants.
    #[command(subcommand)]
    Scope(ScopeCommand),
    /// List and delete organisations.
    #[command(subcommand)]
    Orgs(OrgsCommand),
    /// List, create and delete projects.
    #[command(subcommand)]
    Projects(ProjectsCommand),
    /// Manage the members of an organisation and of its projects.
    #[command(subcommand)]
    Members(MembersCommand),
    /// Create, list, rotate and revoke API keys.
    #[command(subcommand)]
    Keys(KeysCommand),
    /// Manage the rules that decide which tools run on the gateway and which on the user's machine.
    #[command(subcommand)]
    Routing(RoutingCommand),
    /// Mark tools as read-only, and read-only tools as eager.
    #[command(subcommand)]
    Tools(ToolsCommand),
    /// Limit how often tools are called on the gateway.
    #[command(subcommand)]
    Quotas(QuotasCommand),
    /// Import servers from another MCP registry, and approve them for the catalog.
    #[command(subcommand)]
    Catalog(CatalogCommand),
    /// Install the `stdio` servers that run on this gateway.
    #[command(subcommand)]
    Stdio(StdioCommand),
    /// Manage the master keys that encrypt stored secrets.
    #[command(subcommand)]
    Secrets(SecretsCommand),
    /// List the HTTP routes and the rights that each needs.
    Routes {
        /// Print JSON: `[{"method","path","auth"}]`.
        #[arg(long)]
        json: bool,
    },
    /// Print a completion script for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Write the manual pages of all commands into a folder.
    #[command(after_help = "\
Examples:
  pml-server man /usr/local/share/man/man1    then `man pml-server` shows it

Files of the same names are replaced.")]
    Man {
        /// The folder. It is created if it is missing.
        folder: PathBuf,
    },
}

/// Settings of `serve`.
#[derive(Debug, Clone, Args)]
pub(crate) struct Serve {
    /// The address to listen on; port 0 selects a free port.
    #[arg(long, env = "PML_LISTEN", default_value = "127.0.0.1:3001", value_name = "ADDR:PORT", value_parser = listen_address)]
    pub listen: SocketAddr,

    /// Additional host names under which clients reach the gateway.
    ///
    /// Loopback names are always accepted. All other names are refused, as a protection against DNS rebinding.
    #[arg(long, env = "PML_ALLOWED_HOSTS", value_delimiter = ',', value_name = "HOST[:PORT]")]
    pub allowed_hosts: Vec<String>,

    /// The URL under which clients reach the gateway, for example `https://gw.example`.
    ///
    /// The registry publishes it as the address of HTTP servers. Default: the `Host` of a request, if it is a name of
    /// this gateway.
    #[arg(long, env = "PML_PUBLIC_URL", value_name = "URL")]
    pub public_url: Option<PublicUrl>,

    /// Browser origins that may call the gateway, for example `https://console.example`.
    #[arg(long, env = "PML_ALLOWED_ORIGINS", value_delimiter = ',', value_name = "ORIGIN")]
    pub allowed_origins: Vec<String>,

    /// Whether public entries can be read without an API key.
    #[arg(long, env = "PML_ANONYMOUS_READ", default_value = "on", value_name = "on|off")]
    pub anonymous_read: Switch,

    /// The number of idle sandboxes kept ready for programs.
    #[arg(long, env = "PML_SANDBOX_WARM", value_name = "N")]
    pub sandbox_warm: Option<usize>,

    /// The maximum number of concurrent programs of one tenant. The maximum for all tenants together is 64.
    #[arg(
        long,
        env = "PML_TENANT_PROGRAMS",
        default_value = "32",
        value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..)
    )]
    pub tenant_programs: u16,

    /// The maximum number of queued programs of one tenant; further ones get `BUSY`.
    #[arg(long, env = "PML_TENANT_WAITING", default_value = "64", value_name = "N")]
    pub tenant_waiting: u16,

    /// Whether several programs may run with the same address space layout.
    ///
    /// `shared` forks up to 256 sandboxes from one process that has never seen a program. `strict` starts a process
    /// for each program, which costs several times the CPU.
    #[arg(long, env = "PML_ISOLATION", default_value = "shared", value_name = "shared|strict")]
    pub isolation: Isolation,

    /// Hosts of MCP servers that may be called at private addresses, written as in their URLs.
    ///
    /// The gateway connects to all other hosts only at public addresses.
    #[arg(long, env = "PML_UPSTREAM_PRIVATE_HOSTS", value_delimiter = ',', value_name = "HOST")]
    pub upstream_private_hosts: Vec<String>,

    /// Tokens of an identity provider.
    #[command(flatten)]
    pub oauth: OauthSettings,

    /// The rate limits.
    #[command(flatten)]
    pub rates: RateSettings,

    /// TLS.
    #[command(flatten)]
    pub tls: TlsSettings,

    /// The connection limits.
    #[command(flatten)]
    pub connections: ConnectionSettings,

    /// The processes of `stdio` servers.
    #[command(flatten)]
    pub stdio: StdioSettings,

    /// How long records are kept.
    #[command(flatten)]
    pub records: RecordSettings,

    /// The releases that the install script installs.
    #[command(flatten)]
    pub releases: ReleaseSettings,

    /// The metrics.
    #[command(flatten)]
    pub metrics: MetricsSettings,
}

impl Serve {
    /// Returns the host names of the gateway, in addition to loopback names.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = String> {
        // Clients that are directed to the public address must be accepted.
        let public = self.public_url.as_ref().map(PublicUrl::host);
        let allowed = self.allowed_hosts.iter().map(|host| host.trim());
        allowed.chain(public).map(str::to_ascii_lowercase)
    }
}

/// Parses the address to listen on; `localhost` is 127.0.0.1.
fn listen_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    if let Some(port) = text.strip_prefix("localhost:").and_then(|port| port.parse().ok()) {
        return Ok(SocketAddr::from(([127, 0, 0, 1], port)));
    }
    // `:3001`, `*:3001` and `3001` are common spellings of "port 3001 on every address".
    let port_only = text.trim_start_matches([':', '*']);
    Err(match port_only.parse::<u16>() {
        Ok(port) => format!(
            "write ADDRESS:PORT: `127.0.0.1:{port}` for this machine only, `0.0.0.0:{port}` for all networks"
        ),
        Err(_) => "write ADDRESS:PORT with an IP address of this machine, for example `127.0.0.1:3001`; `localhost` is the only accepted name".to_owned(),
    })
}

/// The isolation between programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Isolation {
    /// Forks of one zygote.
    Shared,
    /// A zygote for each program.
    Strict,
}

/// A setting that is on or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    /// Enabled.
    On,
    /// Disabled.
    Off,
}

/// A value that never appears in logs or debug output, and is wiped from memory when it is dropped.
///
/// While it exists, its value is removed from all log lines of the process, even where a library quotes it.
#[derive(Clone)]
pub(crate) struct Secret(Arc<(Zeroizing<String>, UsedKey)>);

impl Secret {
    /// Takes a value.
    pub(crate) fn new(value: &str) -> Self {
        // Clones share one copy, so that the value is wiped with the last of them.
        Self(Arc::new((Zeroizing::new(value.to_owned()), keys_in_use().hold(value))))
    }

    /// Returns the value, for the only code that needs it.
    pub(crate) fn expose(&self) -> &str {
        &self.0.0
    }
}

impl std::str::FromStr for Secret {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self::new(text))
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[redacted]")
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn an_invalid_listen_address_is_refused_with_the_expected_form() {
        assert_eq!(listen_address("localhost:3001").unwrap().to_string(), "127.0.0.1:3001");
        assert_eq!(listen_address("[::1]:0").unwrap().to_string(), "[::1]:0");
        for (text, message) in [
            (
                "3001",
                "write ADDRESS:PORT: `127.0.0.1:3001` for this machine only, `0.0.0.0:3001` for all networks",
            ),
            (
                ":3001",
                "write ADDRESS:PORT: `127.0.0.1:3001` for this machine only, `0.0.0.0:3001` for all networks",
            ),
            (
                "gw.acme.example:3001",
                "write ADDRESS:PORT with an IP address of this machine, for example `127.0.0.1:3001`; `localhost` is the only accepted name",
            ),
        ] {
            assert_eq!(listen_address(text).unwrap_err(), message, "{text}");
        }
    }

    /// `pml-server --listen …` is what people try first.
    #[test]
    fn accepts_flags_of_serve_without_its_name() {
        let read = |arguments: &[&str]| {
            let all = std::iter::once("pml-server").chain(arguments.iter().copied());
            Cli::read(&all.map(OsString::from).collect::<Vec<_>>())
        };
        let port = |arguments: &[&str]| match read(arguments).unwrap().command {
            Some(Command::Serve(serve)) => serve.listen.port(),
            other => panic!("{other:?}"),
        };
        assert_eq!(port(&["--listen", "127.0.0.1:7"]), 7);
        assert_eq!(port(&["--data-dir", "/d", "--listen=127.0.0.1:7"]), 7);
        assert_eq!(port(&["serve", "--listen", "127.0.0.1:7"]), 7);
        assert_eq!(port(&[]), 3001);
        assert!(matches!(read(&["migrate"]).unwrap().command, Some(Command::Migrate)));
        assert!(read(&["--sandbox-selftest"]).unwrap().command.is_none());
        let message = |arguments: &[&str]| read(arguments).unwrap_err().to_string();
        assert!(message(&["--listen", "7"]).contains("write ADDRESS:PORT"));
        assert!(message(&["migrate", "--listen", "127.0.0.1:7"]).contains("--listen"));
        assert!(message(&["--listn", "127.0.0.1:7"]).contains("--listn"));
    }

    /// SE-17: a database URL never shows in debug output.
    #[test]
    fn urls_are_redacted() {
        let cli = Cli::parse_from(["pml-server", "--database-url", "postgres://u:canary@h/d"]);
        assert!(!format!("{cli:?}").contains("canary"));
    }
}
