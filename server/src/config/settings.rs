//! The settings that every command reads.

use std::path::PathBuf;

use clap::Args;

use super::{MasterKeySettings, Secret};

/// Settings of every command.
#[derive(Debug, Clone, Args)]
pub(crate) struct Settings {
    /// The folder of the gateway's private Postgres and its first API key.
    ///
    /// Default: `/var/lib/pml` for root, else `$XDG_DATA_HOME/pml`.
    #[arg(long, env = "PML_DATA_DIR", global = true, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,

    /// The URL of your own Postgres, with the role `pml_app`, instead of a private one.
    #[arg(
        long,
        env = "PML_DATABASE_URL",
        global = true,
        value_name = "URL",
        hide_env_values = true
    )]
    pub database_url: Option<Secret>,

    /// The maximum number of database connections of this gateway.
    #[arg(
        long,
        env = "PML_DATABASE_CONNECTIONS",
        global = true,
        value_name = "N",
        default_value_t = 16,
        value_parser = clap::value_parser!(u32).range(1..=1_000)
    )]
    pub database_connections: u32,

    /// The URL of the same database, with the owner's role, for migrations.
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

    /// The folder of `stdio` servers that run on this gateway: what is installed, and what the servers remember.
    ///
    /// Default: `stdio` in the data directory.
    #[arg(long, env = "PML_STDIO_DIR", global = true, value_name = "DIR")]
    pub stdio_dir: Option<PathBuf>,

    /// The log level: `error`, `warn`, `info`, `debug`, `trace`, or per module.
    #[arg(long, env = "PML_LOG", global = true, default_value = "info", value_name = "FILTER")]
    pub log: String,

    /// The files of master keys.
    #[command(flatten)]
    pub master_key: MasterKeySettings,
}

impl Settings {
    /// Returns whether the database is the private Postgres.
    pub(crate) fn is_private(&self) -> bool {
        self.database_url.is_none() && self.migrate_url.is_none()
    }

    /// Returns the folder of `stdio` servers.
    pub(crate) fn stdio_dir(&self) -> PathBuf {
        let folder = self.stdio_dir.clone().unwrap_or_else(|| self.data_dir().join("stdio"));
        // Servers have another working directory.
        std::path::absolute(&folder).unwrap_or(folder)
    }

    /// Returns the data directory: the given one or the default of this user.
    ///
    /// Root's default is outside `/root`, because the private Postgres runs as
    /// another user, which must be able to reach it.
    pub(crate) fn data_dir(&self) -> PathBuf {
        if let Some(dir) = &self.data_dir {
            return dir.clone();
        }
        if rustix::process::geteuid().is_root() {
            return PathBuf::from("/var/lib/pml");
        }
        let base = std::env::var_os("XDG_DATA_HOME")
            .map(PathBuf::from)
            // The XDG specification declares relative paths invalid.
            .filter(|path| path.is_absolute())
            .or_else(|| {
                std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/share"))
            })
            .unwrap_or_else(|| PathBuf::from("."));
        base.join("pml")
    }
}
