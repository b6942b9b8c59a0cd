//! The gateway's command line and settings.

mod catalog;
mod connections;
mod credentials;
mod identity;
mod public_url;
mod rates;
mod tenancy;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand, ValueEnum};
use protocol::redaction::{UsedKey, keys_in_use};
use sandbox::PoolConfig;
use zeroize::Zeroizing;

pub use catalog::{CatalogCommand, EffectsWord, QuotasCommand, RoutingCommand, ToolsCommand};
pub use connections::ConnectionSettings;
pub use credentials::{CreateKey, KeysCommand, ScopeCommand, SecretsCommand};
pub use identity::OauthSettings;
pub use public_url::PublicUrl;
pub use rates::{RateLimit, RateSettings};
pub use tenancy::{MembersCommand, OrgsCommand, Place, ProjectsCommand};

use crate::master_key::MasterKeySettings;
use crate::turns::Places;

/// PML's gateway and registry: analyses agent-written programs, runs what is
/// the server's and hands the rest to `pml` on the user's machine.
#[derive(Debug, Parser)]
#[command(name = "pml-server", version, max_term_width = 100)]
#[command(after_help = "\
Without PML_DATABASE_URL the gateway brings up a private Postgres of its own in
its data directory, migrates and seeds it, makes the scope `local.default` and a
key, and prints what to do next.

Examples:
  pml-server                                   start on 127.0.0.1:3001
  pml-server --listen 0.0.0.0:3001             start with settings of `serve`
  pml-server keys create --scope local.default make a key, printed alone on stdout
  pml-server scope create acme.web             make a tenant")]
pub struct Cli {
    /// The settings that every command reads.
    #[command(flatten)]
    pub settings: Settings,
    /// Look whether programs can be contained on this machine, print a line for each layer and each forbidden
    /// system call, and end; the exit code is 1 when the sandbox does not hold.
    #[arg(long)]
    pub sandbox_selftest: bool,
    /// What to do; `serve` when nothing is named.
    #[command(subcommand)]
    pub command: Option<Command>,
}

impl Cli {
    /// Reads the command line and the environment of this process; what is wrong is told, and ends it.
    pub fn of_process() -> Self {
        let arguments: Vec<OsString> = std::env::args_os().collect();
        Self::read(&arguments).unwrap_or_else(|error| error.exit())
    }

    /// Reads a command line. Without a command it is one of `serve`, whose flags need not come behind its name.
    fn read(arguments: &[OsString]) -> Result<Self, clap::Error> {
        let parsed = Self::try_parse_from(arguments);
        let may_be_serve = match &parsed {
            Ok(cli) => cli.command.is_none() && !cli.sandbox_selftest,
            Err(error) => error.kind() == ErrorKind::UnknownArgument,
        };
        if !may_be_serve {
            return parsed;
        }
        let (program, rest) = arguments.split_at(1.min(arguments.len()));
        let serve = std::iter::once(OsString::from("serve"));
        let serving = program.iter().cloned().chain(serve).chain(rest.iter().cloned());
        match (Self::try_parse_from(serving), parsed) {
            // Neither knows it: the first names what there is.
            (Err(second), Err(first)) if second.kind() == ErrorKind::UnknownArgument => Err(first),
            (second, _) => second,
        }
    }
}

/// The settings that every command reads.
#[derive(Debug, Clone, Args)]
pub struct Settings {
    /// Where the gateway keeps its private Postgres and its first key.
    ///
    /// Default: `/var/lib/pml` for root, else `$XDG_DATA_HOME/pml`.
    #[arg(long, env = "PML_DATA_DIR", global = true, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,

    /// Use this Postgres, as the role `pml_app`, instead of a private one.
    #[arg(
        long,
        env = "PML_DATABASE_URL",
        global = true,
        value_name = "URL",
        hide_env_values = true
    )]
    pub database_url: Option<Secret>,

    /// How many connections this gateway has to the database, at most.
    #[arg(
        long,
        env = "PML_DATABASE_CONNECTIONS",
        global = true,
        value_name = "N",
        default_value_t = 16,
        value_parser = clap::value_parser!(u32).range(1..=1_000)
    )]
    pub database_connections: u32,

    /// The same database as its owner, for migrations.
    #[arg(
        long,
        env = "PML_MIGRATE_URL",
        global = true,
        value_name = "URL",
        hide_env_values = true
    )]
    pub migrate_url: Option<Secret>,

    /// The folder of `initdb` and `postgres` for the private Postgres.
    #[arg(long, env = "PML_PG_BIN", global = true, value_name = "DIR")]
    pub pg_bin: Option<PathBuf>,

    /// What to log: `error`, `warn`, `info`, `debug`, `trace`, or per module.
    #[arg(long, env = "PML_LOG", global = true, default_value = "info", value_name = "FILTER")]
    pub log: String,

    /// The files of master keys.
    #[command(flatten)]
    pub master_key: MasterKeySettings,
}

/// What `pml-server` can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the gateway (the default).
    Serve(Box<Serve>),
    /// Bring the database's schema up to date.
    Migrate,
    /// Write the shipped catalog into the database; safe to repeat.
    Seed,
    /// Make tenants.
    #[command(subcommand)]
    Scope(ScopeCommand),
    /// List and delete organisations.
    #[command(subcommand)]
    Orgs(OrgsCommand),
    /// List, make and delete projects.
    #[command(subcommand)]
    Projects(ProjectsCommand),
    /// Say who is what in an organisation, or in one project of it.
    #[command(subcommand)]
    Members(MembersCommand),
    /// Make, list, rotate and revoke API keys.
    #[command(subcommand)]
    Keys(KeysCommand),
    /// Say which tools run on the gateway and which on the user's machine.
    #[command(subcommand)]
    Routing(RoutingCommand),
    /// Say which tools change nothing, and which of those may run early.
    #[command(subcommand)]
    Tools(ToolsCommand),
    /// Say how often tools may be called on the gateway.
    #[command(subcommand)]
    Quotas(QuotasCommand),
    /// Read another MCP registry, and decide what of it comes into the public catalog.
    #[command(subcommand)]
    Catalog(CatalogCommand),
    /// Look after the master keys that seal stored secrets.
    #[command(subcommand)]
    Secrets(SecretsCommand),
    /// List the HTTP routes and what each needs.
    Routes {
        /// Print JSON: `[{"method","path","auth"}]`.
        #[arg(long)]
        json: bool,
    },
}

/// Settings of `serve`.
#[derive(Debug, Clone, Args)]
pub struct Serve {
    /// The address to listen on; port 0 takes a free one.
    #[arg(long, env = "PML_LISTEN", default_value = "127.0.0.1:3001", value_name = "ADDR:PORT", value_parser = listen_address)]
    pub listen: SocketAddr,

    /// Further host names under which clients reach the gateway.
    ///
    /// Loopback names are always accepted; others are refused, against DNS rebinding.
    #[arg(long, env = "PML_ALLOWED_HOSTS", value_delimiter = ',', value_name = "HOST[:PORT]")]
    pub allowed_hosts: Vec<String>,

    /// The address under which clients reach the gateway, for example `https://gw.example`.
    ///
    /// The registry tells it as the address of servers behind HTTP. Default: the `Host` of a request, if it is a name
    /// of this gateway.
    #[arg(long, env = "PML_PUBLIC_URL", value_name = "URL")]
    pub public_url: Option<PublicUrl>,

    /// Browser origins that may call the gateway, for example `https://console.example`.
    #[arg(long, env = "PML_ALLOWED_ORIGINS", value_delimiter = ',', value_name = "ORIGIN")]
    pub allowed_origins: Vec<String>,

    /// Whether public entries can be read without a key.
    #[arg(long, env = "PML_ANONYMOUS_READ", default_value = "on", value_name = "on|off")]
    pub anonymous_read: Switch,

    /// Warm sandboxes that wait for programs.
    #[arg(long, env = "PML_SANDBOX_WARM", value_name = "N")]
    pub sandbox_warm: Option<usize>,

    /// Programs of one tenant that run at the same time; those of all tenants together are at most 64.
    #[arg(
        long,
        env = "PML_TENANT_PROGRAMS",
        default_value = "32",
        value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..)
    )]
    pub tenant_programs: u16,

    /// Programs of one tenant that may wait for their turn; further ones are answered with `BUSY`.
    #[arg(long, env = "PML_TENANT_WAITING", default_value = "64", value_name = "N")]
    pub tenant_waiting: u16,

    /// Whether the sandboxes of several programs may find everything at the same addresses.
    ///
    /// `shared` forks up to 256 of them of one process that has never seen a program; `strict` starts one
    /// for each, which costs several times the CPU.
    #[arg(long, env = "PML_ISOLATION", default_value = "shared", value_name = "shared|strict")]
    pub isolation: Isolation,

    /// Hosts of MCP servers that may be called although their addresses are private, as they stand in URLs.
    ///
    /// Others are connected to at public addresses only, whatever their names say.
    #[arg(long, env = "PML_UPSTREAM_PRIVATE_HOSTS", value_delimiter = ',', value_name = "HOST")]
    pub upstream_private_hosts: Vec<String>,

    /// Tokens of an identity provider.
    #[command(flatten)]
    pub oauth: OauthSettings,

    /// How many requests may come.
    #[command(flatten)]
    pub rates: RateSettings,

    /// How many connections there may be.
    #[command(flatten)]
    pub connections: ConnectionSettings,
}

/// Reads the address to listen on; `localhost` is 127.0.0.1.
fn listen_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    if let Some(port) = text.strip_prefix("localhost:").and_then(|port| port.parse().ok()) {
        return Ok(SocketAddr::from(([127, 0, 0, 1], port)));
    }
    let of_all = text.trim_start_matches([':', '*']);
    Err(match of_all.parse::<u16>() {
        Ok(port) => format!(
            "write ADDRESS:PORT: `127.0.0.1:{port}` for this machine alone, `0.0.0.0:{port}` for every network"
        ),
        Err(_) => "write ADDRESS:PORT with an IP address of this machine, for example `127.0.0.1:3001`; `localhost` is the only accepted name".to_owned(),
    })
}

impl Serve {
    /// Returns how many sandboxes there are, and of what kind.
    pub fn pool(&self) -> PoolConfig {
        let default = PoolConfig::default();
        PoolConfig {
            warm: self.sandbox_warm.unwrap_or(default.warm),
            forks: if self.isolation == Isolation::Strict { 1 } else { default.forks },
            make_way: true,
            ..default
        }
    }
}

impl Serve {
    /// Returns how many programs a tenant may have.
    pub fn places(&self) -> Places {
        Places { running: self.tenant_programs.into(), waiting: self.tenant_waiting.into() }
    }
}

/// How far apart programs are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Isolation {
    /// Forks of one zygote.
    Shared,
    /// A zygote for each program.
    Strict,
}

/// A setting that is on or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// Enabled.
    On,
    /// Disabled.
    Off,
}

/// A value that never shows itself in logs or debug output, and is wiped from memory at its end.
///
/// While there is one, what the process logs is written without its value, also where a library quotes it.
#[derive(Clone)]
pub struct Secret(Arc<(Zeroizing<String>, UsedKey)>);

impl Secret {
    /// Takes a value.
    pub fn new(value: &str) -> Self {
        Self(Arc::new((Zeroizing::new(value.to_owned()), keys_in_use().hold(value))))
    }

    /// Returns the value, for the one place that needs it.
    pub fn expose(&self) -> &str {
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

impl Settings {
    /// Returns the data directory: the given one or the default of this user.
    ///
    /// Root's default is outside `/root`, because the private Postgres runs as
    /// another user, which must be able to reach it.
    pub fn data_dir(&self) -> PathBuf {
        if let Some(dir) = &self.data_dir {
            return dir.clone();
        }
        if rustix::process::geteuid().is_root() {
            return PathBuf::from("/var/lib/pml");
        }
        let base = std::env::var_os("XDG_DATA_HOME")
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
            .or_else(|| {
                std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/share"))
            })
            .unwrap_or_else(|| PathBuf::from("."));
        base.join("pml")
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
    fn an_address_to_listen_on_is_told_as_it_is_written() {
        assert_eq!(listen_address("localhost:3001").unwrap().to_string(), "127.0.0.1:3001");
        assert_eq!(listen_address("[::1]:0").unwrap().to_string(), "[::1]:0");
        for (text, told) in [
            (
                "3001",
                "write ADDRESS:PORT: `127.0.0.1:3001` for this machine alone, `0.0.0.0:3001` for every network",
            ),
            (
                ":3001",
                "write ADDRESS:PORT: `127.0.0.1:3001` for this machine alone, `0.0.0.0:3001` for every network",
            ),
            (
                "gw.acme.example:3001",
                "write ADDRESS:PORT with an IP address of this machine, for example `127.0.0.1:3001`; `localhost` is the only accepted name",
            ),
        ] {
            assert_eq!(listen_address(text).unwrap_err(), told, "{text}");
        }
    }

    /// `pml-server --listen …` is what people try first.
    #[test]
    fn flags_of_serve_need_not_name_it() {
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
        let told = |arguments: &[&str]| read(arguments).unwrap_err().to_string();
        assert!(told(&["--listen", "7"]).contains("write ADDRESS:PORT"));
        assert!(told(&["migrate", "--listen", "127.0.0.1:7"]).contains("--listen"));
        assert!(told(&["--listn", "127.0.0.1:7"]).contains("--listn"));
    }

    /// SE-17: a database URL never shows in debug output.
    #[test]
    fn urls_are_redacted() {
        let cli = Cli::parse_from(["pml-server", "--database-url", "postgres://u:canary@h/d"]);
        assert!(!format!("{cli:?}").contains("canary"));
    }
}
