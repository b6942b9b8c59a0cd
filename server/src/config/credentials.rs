//! `pml-server scope|keys|secrets …`: tenants, who may act for them, and what seals their secrets.

use clap::{Args, Subcommand};
use protocol::Scope;
use registry::{Principal, Right};
use uuid::Uuid;

use crate::http::keys::DAYS_LIMIT;

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

/// Reads who acts, for clap.
pub(super) fn parse_principal(text: &str) -> Result<Principal, String> {
    text.parse().map_err(|error: registry::RegistryError| error.to_string())
}

fn parse_right(text: &str) -> Result<Right, String> {
    text.parse().map_err(|_| "expected execute, read, publish or admin".to_owned())
}
