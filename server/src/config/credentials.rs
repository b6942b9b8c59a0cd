//! `pml-server scope|keys|secrets …`: tenants, their API keys, and the master keys of their secrets.

use clap::{Args, Subcommand};
use protocol::Scope;
use registry::{Principal, Right};
use uuid::Uuid;

/// The longest lifetime of an API key, in days.
pub(crate) const KEY_DAYS_LIMIT: u16 = 3_650;

/// `pml-server scope …`
#[derive(Debug, Subcommand)]
pub(crate) enum ScopeCommand {
    /// Create a tenant: an organisation's project.
    Create {
        /// `ORG.PROJECT`, for example `acme.web`.
        scope: Scope,
    },
}

/// `pml-server keys …`
#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// Create an API key and print only the key on stdout. It cannot be shown again.
    Create(CreateKey),
    /// List the records of a tenant's API keys, the oldest first. The keys themselves cannot be shown again.
    List {
        /// The tenant, `ORG.PROJECT`.
        #[arg(long)]
        scope: Scope,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Revoke a key on every gateway on this database.
    Revoke {
        /// The tenant, `ORG.PROJECT`.
        #[arg(long)]
        scope: Scope,
        /// The key's id.
        id: Uuid,
    },
    /// Create a key with the same principal, rights and expiry, print it, and expire the old one.
    Rotate {
        /// The tenant, `ORG.PROJECT`.
        #[arg(long)]
        scope: Scope,
        /// The old key's id.
        id: Uuid,
        /// How long the old key stays valid, up to a week.
        #[arg(
            long,
            default_value = "0",
            value_name = "SECONDS",
            value_parser = clap::value_parser!(u32).range(0..=604_800)
        )]
        grace_seconds: u32,
        /// Print JSON, including the key's record.
        #[arg(long)]
        json: bool,
    },
}

/// `pml-server keys create`
#[derive(Debug, Args)]
pub(crate) struct CreateKey {
    /// The tenant that the key acts for, `ORG.PROJECT`.
    #[arg(long)]
    pub scope: Scope,
    /// The rights of the key.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "execute,read",
        value_name = "execute,read,publish,admin",
        value_parser = parse_right
    )]
    pub can: Vec<Right>,
    /// A label.
    #[arg(long, default_value = "", hide_default_value = true)]
    pub name: String,
    /// The principal that acts with the key; `private` entries belong to a principal. Default: the key itself.
    #[arg(long, value_name = "NAME", value_parser = parse_principal)]
    pub principal: Option<Principal>,
    /// The number of days until the key expires. By default it does not expire.
    #[arg(
        long,
        value_name = "DAYS",
        value_parser = clap::value_parser!(u16).range(1..=i64::from(KEY_DAYS_LIMIT))
    )]
    pub expires_in_days: Option<u16>,
    /// Print JSON, including the key's record.
    #[arg(long)]
    pub json: bool,
}

/// `pml-server secrets …`
#[derive(Debug, Subcommand)]
pub(crate) enum SecretsCommand {
    /// Print the names of the master keys and how many data keys each wraps; never a key or a value.
    Status {
        /// Print JSON: `[{"id","current","data_keys","created_at"}]`.
        #[arg(long)]
        json: bool,
    },
    /// Replace PML_MASTER_KEY with PML_MASTER_KEY_NEW; until it completes, every gateway must have both.
    ///
    /// It can be interrupted at any point and run again.
    Rotate {
        /// The number of organisations whose keys are rewrapped in one transaction.
        #[arg(long, default_value = "100", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
        batch: u32,
    },
}

/// Parses a principal, for clap.
pub(super) fn parse_principal(text: &str) -> Result<Principal, String> {
    text.parse().map_err(|error: registry::RegistryError| error.to_string())
}

fn parse_right(text: &str) -> Result<Right, String> {
    text.parse().map_err(|_| "expected execute, read, publish or admin".to_owned())
}
