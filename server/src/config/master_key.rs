//! The settings of the master keys.

use std::path::PathBuf;

use clap::Args;

/// The files of master keys. The keys themselves come from `PML_MASTER_KEY`,
/// `PML_MASTER_KEY_NEW` and `PML_MASTER_KEY_OLD`, and have no flags: every user of
/// the machine sees the flags of every process.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct MasterKeySettings {
    /// The file of the master key for stored secrets, 32 bytes as base64 or hex; or PML_MASTER_KEY.
    ///
    /// Default with a private Postgres: `master.key` in the data directory, created at the first start.
    #[arg(long, env = "PML_MASTER_KEY_FILE", global = true, value_name = "FILE")]
    pub master_key_file: Option<PathBuf>,

    /// The file of the next master key, during a rotation; or PML_MASTER_KEY_NEW.
    #[arg(long, env = "PML_MASTER_KEY_NEW_FILE", global = true, value_name = "FILE")]
    pub master_key_new_file: Option<PathBuf>,

    /// The file of the previous master key, for reading; or PML_MASTER_KEY_OLD.
    #[arg(long, env = "PML_MASTER_KEY_OLD_FILE", global = true, value_name = "FILE")]
    pub master_key_old_file: Option<PathBuf>,
}
