//! The gateway's command line and settings.

mod identity;
mod rates;
mod tenancy;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use protocol::{Fqdn, Routing, Scope, ToolPattern};
use registry::{Principal, QuotaScope, Right, Window};
use sandbox::PoolConfig;
use uuid::Uuid;

pub use identity::OauthSettings;
pub use rates::{RateLimit, RateSettings};
pub use tenancy::{MembersCommand, OrgsCommand, Place, ProjectsCommand};

use crate::http::keys::DAYS_LIMIT;
use zeroize::Zeroizing;

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
    #[arg(long, env = "PML_LISTEN", default_value = "127.0.0.1:3001", value_name = "ADDR:PORT")]
    pub listen: SocketAddr,

    /// Further host names under which clients reach the gateway.
    ///
    /// Loopback names are always accepted; others are refused, against DNS rebinding.
    #[arg(long, env = "PML_ALLOWED_HOSTS", value_delimiter = ',', value_name = "HOST[:PORT]")]
    pub allowed_hosts: Vec<String>,

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

/// `pml-server scope …`
#[derive(Debug, Subcommand)]
pub enum ScopeCommand {
    /// Make a tenant: an organisation's project.
    Create {
        /// `ORG.PROJECT`, for example `acme.web`.
        scope: Scope,
    },
}

/// `pml-server keys …`
#[derive(Debug, Subcommand)]
pub enum KeysCommand {
    /// Make an API key and print it, alone, on stdout; it is shown this once.
    Create(CreateKey),
    /// List the keys of a tenant, the oldest first; the keys themselves cannot be had again.
    List {
        /// The tenant, `ORG.PROJECT`.
        #[arg(long)]
        scope: Scope,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Refuse a key from now on, on every gateway on this database.
    Revoke {
        /// The tenant, `ORG.PROJECT`.
        #[arg(long)]
        scope: Scope,
        /// The key's id.
        id: Uuid,
    },
    /// Make a key of the same principal, rights and end, print it, and let the old one end.
    Rotate {
        /// The tenant, `ORG.PROJECT`.
        #[arg(long)]
        scope: Scope,
        /// The old key's id.
        id: Uuid,
        /// How long the old key goes on, up to a week.
        #[arg(
            long,
            default_value = "0",
            value_name = "SECONDS",
            value_parser = clap::value_parser!(u32).range(0..=604_800)
        )]
        grace_seconds: u32,
        /// Print JSON, the key's record included.
        #[arg(long)]
        json: bool,
    },
}

/// `pml-server keys create`
#[derive(Debug, Args)]
pub struct CreateKey {
    /// The tenant that the key acts for, `ORG.PROJECT`.
    #[arg(long)]
    pub scope: Scope,
    /// What the key may do.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "execute,read",
        value_name = "execute,read,publish,admin",
        value_parser = parse_right
    )]
    pub can: Vec<Right>,
    /// What its owner calls it.
    #[arg(long, default_value = "", hide_default_value = true)]
    pub name: String,
    /// Who acts with it; `private` entries belong to a principal. Default: the key itself.
    #[arg(long, value_name = "NAME", value_parser = parse_principal)]
    pub principal: Option<Principal>,
    /// After so many days it is refused; without this it does not expire.
    #[arg(
        long,
        value_name = "DAYS",
        value_parser = clap::value_parser!(u16).range(1..=i64::from(DAYS_LIMIT))
    )]
    pub expires_in_days: Option<u16>,
    /// Print JSON, the key's record included.
    #[arg(long)]
    pub json: bool,
}

/// `pml-server routing …`
#[derive(Debug, Subcommand)]
pub enum RoutingCommand {
    /// Print all rules. The most specific one counts: a tool's, its namespace's, then `*`; without any, a tool runs
    /// on the user's machine. An entry of the registry that says where it runs stands above all rules.
    List {
        /// Print JSON: `[{"pattern","routing","origin"}]`.
        #[arg(long)]
        json: bool,
    },
    /// Set a rule; every gateway on this database follows within a second.
    Set {
        /// `NAMESPACE:*`, `NAMESPACE:ACTION` or `*`.
        pattern: ToolPattern,
        /// `client` for the user's machine, `server` for the gateway.
        #[arg(value_parser = parse_routing)]
        routing: Routing,
    },
    /// Take a rule back; what ships with this version for the pattern counts again.
    Unset {
        /// The rule's pattern.
        pattern: ToolPattern,
    },
}

/// `pml-server tools …`
#[derive(Debug, Subcommand)]
pub enum ToolsCommand {
    /// Print what was said of the tools of a scope, and whether they are still what they were then.
    List {
        /// The scope; without it, the public catalog.
        #[arg(long, value_name = "ORG.PROJECT")]
        scope: Option<Scope>,
        /// Print JSON: `[{"fqdn","class","eager","counts"}]`.
        #[arg(long)]
        json: bool,
    },
    /// Say what a tool does, as it is now. When its content changes, this counts no more: look again.
    ///
    /// What an upstream says of itself (`readOnlyHint`) never counts.
    Set {
        /// The tool's FQDN, for example `pml.mcp.tavily.search`; with its short hash only that content.
        fqdn: Fqdn,
        /// Whether it changes anything.
        class: EffectsWord,
        /// A call may be started before the program reaches it; only with `read`.
        #[arg(long)]
        eager: bool,
    },
    /// Take that back; what ships with this version counts again.
    Unset {
        /// The tool's FQDN.
        fqdn: Fqdn,
    },
}

/// `pml-server quotas …`
#[derive(Debug, Subcommand)]
pub enum QuotasCommand {
    /// Print all quotas. A call counts in each that matches it.
    List {
        /// Print JSON: `[{"scope","pattern","calls","window"}]`.
        #[arg(long)]
        json: bool,
    },
    /// Set a quota; every gateway on this database follows within a second.
    Set {
        /// `ORG.PROJECT`, `ORG` for all its projects together, or `*` for each scope by itself.
        scope: QuotaScope,
        /// `NAMESPACE:*`, `NAMESPACE:ACTION` or `*`.
        pattern: ToolPattern,
        /// `N/min`, `N/h` or `N/day`; they come in again over that time. 0 forbids the calls.
        #[arg(value_name = "CALLS", value_parser = parse_quota)]
        calls: (u32, Window),
    },
    /// Take a quota back.
    Unset {
        /// The quota's scope.
        scope: QuotaScope,
        /// The quota's pattern.
        pattern: ToolPattern,
    },
}

fn parse_quota(text: &str) -> Result<(u32, Window), String> {
    let wrong = || "expected a number with `/min`, `/h` or `/day`".to_owned();
    let (calls, window) = text.split_once('/').ok_or_else(wrong)?;
    let window = match window {
        "min" => Window::Minute,
        "h" => Window::Hour,
        "day" => Window::Day,
        _ => return Err(wrong()),
    };
    Ok((calls.parse().map_err(|_| wrong())?, window))
}

/// Whether a tool changes anything, on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum EffectsWord {
    /// It changes nothing.
    Read,
    /// It may change something.
    Write,
}

/// `pml-server catalog …`
#[derive(Debug, Subcommand)]
pub enum CatalogCommand {
    /// Read a registry that speaks the official API into quarantine: all of it, or nothing.
    ///
    /// Nobody sees what is there until it is approved. Safe to repeat; what was approved or rejected stays so.
    Ingest {
        /// The registry's address, for example `https://registry.modelcontextprotocol.io`, or a file with a page
        /// or a list of pages.
        source: String,
    },
    /// List what waits in quarantine, with what to look at.
    List {
        /// Only what is in quarantine, which is the default.
        #[arg(long)]
        quarantined: bool,
        /// What was approved or rejected as well.
        #[arg(long, conflicts_with = "quarantined")]
        all: bool,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Put a server into the public catalog, with the content that is in quarantine now.
    Approve {
        /// Its name there, `DOMAIN/SERVER[@VERSION]`.
        name: String,
        /// The namespace that it gets; default: what stands behind the slash.
        #[arg(long = "as", value_name = "NAMESPACE")]
        namespace: Option<String>,
        /// The hash of the content, where a version was read with several.
        #[arg(long, value_name = "sha256-…")]
        integrity: Option<String>,
    },
    /// Decide against a server; one that was approved is taken out of the catalog.
    Reject {
        /// Its name there, `DOMAIN/SERVER[@VERSION]`.
        name: String,
        /// The hash of the content, where a version was read with several.
        #[arg(long, value_name = "sha256-…")]
        integrity: Option<String>,
    },
}

/// `pml-server secrets …`
#[derive(Debug, Subcommand)]
pub enum SecretsCommand {
    /// Print the master keys by name, and how much is sealed under each; never a key or a value.
    Status {
        /// Print JSON: `[{"id","current","data_keys","created_at"}]`.
        #[arg(long)]
        json: bool,
    },
    /// Put PML_MASTER_KEY_NEW in the place of PML_MASTER_KEY; every gateway must know both meanwhile.
    ///
    /// Safe to stop at any point and to run again.
    Rotate {
        /// How many organisations' keys are wrapped anew in one transaction.
        #[arg(long, default_value = "100", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
        batch: u32,
    },
}

fn parse_routing(text: &str) -> Result<Routing, String> {
    match text {
        "client" | "local" => Ok(Routing::Client),
        "server" | "cloud" => Ok(Routing::Server),
        _ => Err("expected client or server".to_owned()),
    }
}

fn parse_principal(text: &str) -> Result<Principal, String> {
    text.parse().map_err(|error: registry::RegistryError| error.to_string())
}

fn parse_right(text: &str) -> Result<Right, String> {
    text.parse().map_err(|_| "expected execute, read, publish or admin".to_owned())
}

/// A value that never shows itself in logs or debug output, and is wiped from memory at its end.
#[derive(Clone)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Takes a value.
    pub fn new(value: &str) -> Self {
        Self(Zeroizing::new(value.to_owned()))
    }

    /// Returns the value, for the one place that needs it.
    pub fn expose(&self) -> &str {
        &self.0
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

    /// SE-17: a database URL never shows in debug output.
    #[test]
    fn urls_are_redacted() {
        let cli = Cli::parse_from(["pml-server", "--database-url", "postgres://u:canary@h/d"]);
        assert!(!format!("{cli:?}").contains("canary"));
    }
}
