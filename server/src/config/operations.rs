//! `pml-server check|doctor|backup|restore`: the operator's care of an installation.

use std::path::PathBuf;

use clap::Args;

use super::inspection::Mistake;
use super::{Secret, Serve};

/// `pml-server check` and `pml-server doctor`
#[derive(Debug, Args)]
pub(crate) struct Inspect {
    /// The settings of `serve`, which are checked.
    #[command(flatten)]
    pub serve: Serve,
    /// Print JSON: `{"ok","findings":[{"level","subject","place","message","remedy"}]}`.
    #[arg(long)]
    pub json: bool,
    /// The settings whose values cannot be used; `serve` has their defaults.
    #[arg(skip)]
    pub mistakes: Vec<Mistake>,
}

/// `pml-server backup`
#[derive(Debug, Args)]
pub(crate) struct Backup {
    /// The file to write, readable only by you; `-` for stdout.
    pub file: PathBuf,
    /// Replace an existing file.
    #[arg(long)]
    pub force: bool,
    /// With your own Postgres, its URL with a role that may read every row: a superuser, or one with BYPASSRLS and
    /// pg_read_all_data. Default: PML_MIGRATE_URL.
    #[arg(long, env = "PML_BACKUP_URL", value_name = "URL", hide_env_values = true)]
    pub backup_url: Option<Secret>,
}

/// `pml-server restore`
#[derive(Debug, Args)]
pub(crate) struct Restore {
    /// A file that `pml-server backup` has written.
    pub file: PathBuf,
    /// Delete what the private Postgres has now, once the backup is restored beside it.
    #[arg(long)]
    pub replace: bool,
    /// Restore without a master key: stored secrets cannot be read until every gateway has it.
    #[arg(long)]
    pub without_master_key: bool,
    /// Check the file, the master key and the target, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
}
