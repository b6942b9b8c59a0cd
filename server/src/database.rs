//! Opens the database of a command: the private Postgres or the operator's own.

pub(crate) mod embedded_postgres;
pub(crate) mod master_key;
pub(crate) mod programs;

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use registry::{Operator, Registry, RegistryError};

use self::embedded_postgres::{EmbeddedPostgres, EmbeddedPostgresError};
use crate::config::Settings;

/// The interval of checks whether the private Postgres still runs.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// The database of a command.
pub(crate) enum Database {
    /// The private Postgres in the data directory.
    Embedded(EmbeddedPostgres),
    /// The operator's own database.
    External {
        /// Its URL with the serving role, if the operator has set it.
        app_url: Option<String>,
        /// Its URL with the owner's role, if the operator has set it.
        owner_url: Option<String>,
    },
}

impl Database {
    /// Opens the configured database: the operator's own if one of its URLs is set, else the private one, which is
    /// started unless it already runs.
    ///
    /// Call it on a thread that lives as long as the database is needed.
    ///
    /// # Errors
    /// Returns an error if the private Postgres cannot be started.
    pub(crate) fn open(settings: &Settings) -> anyhow::Result<Self> {
        let [app_url, owner_url] = [&settings.database_url, &settings.migrate_url]
            .map(|url| url.as_ref().map(|url| url.expose().to_owned()));
        // A job that migrates knows only the owner's URL, and must not migrate a new private database instead.
        if app_url.is_some() || owner_url.is_some() {
            return Ok(Self::External { app_url, owner_url });
        }
        let data_dir = settings.data_dir();
        let embedded =
            start_or_attach(&data_dir, settings.pg_bin.as_deref()).with_context(|| {
                format!("could not start the private Postgres in `{}`", data_dir.display())
            })?;
        Ok(Self::Embedded(embedded))
    }

    /// Returns whether the private Postgres of the data directory has been created.
    pub(crate) fn exists(settings: &Settings) -> bool {
        settings.data_dir().join("postgres/data/PG_VERSION").exists()
    }

    /// Returns the URL of the serving role.
    ///
    /// # Errors
    /// Returns an error if only the owner's URL is set.
    pub(crate) fn app_url(&self) -> anyhow::Result<String> {
        match self {
            Self::Embedded(embedded) => Ok(embedded.app_url()),
            Self::External { app_url, .. } => app_url.clone().context(
                "set PML_DATABASE_URL: this runs as `pml_app`, not as the owner of the database in PML_MIGRATE_URL",
            ),
        }
    }

    /// Returns the owner's URL of the operator's own database, if it is set.
    pub(crate) fn configured_owner_url(&self) -> Option<String> {
        match self {
            Self::Embedded(_) => None,
            Self::External { owner_url, .. } => owner_url.clone(),
        }
    }

    /// Connects as the owner, for migrations, the catalog and tenants.
    ///
    /// # Errors
    /// Returns an error if the owner's URL is not set or does not work.
    pub(crate) async fn operator(&self) -> anyhow::Result<Operator> {
        let url = match self {
            Self::Embedded(embedded) => embedded.owner_url(),
            Self::External { owner_url, .. } => owner_url.clone().context(
                "set PML_MIGRATE_URL: this runs as the owner of the database, not as `pml_app`",
            )?,
        };
        Operator::connect(&url).await.map_err(|error| self.explain(error, "PML_MIGRATE_URL"))
    }

    /// Connects as the serving role, with at most `connections` connections.
    ///
    /// # Errors
    /// Returns an error when the database does not answer, or its schema is older than this program's.
    pub(crate) async fn connect(&self, connections: u32) -> anyhow::Result<Registry> {
        let connected = Registry::connect_with(&self.app_url()?, connections).await;
        connected.map_err(|error| self.explain(error, "PML_DATABASE_URL"))
    }

    /// Adds the remedy to a failed connection attempt.
    pub(crate) fn explain(&self, error: RegistryError, variable: &str) -> anyhow::Error {
        match error {
            RegistryError::NoConnection { .. } if !self.is_embedded() => {
                anyhow::anyhow!("{error}; start that Postgres, or correct {variable}")
            }
            // The URL of a private Postgres is not the operator's, so an invalid one is an internal error.
            RegistryError::Invalid(reason) if !self.is_embedded() => {
                // The prefixes are those of the registry and of the driver.
                let reason = reason.trim_start_matches("the database URL: ");
                let reason = reason.trim_start_matches("error with configuration: ");
                anyhow::anyhow!(
                    "{variable} cannot be used: {reason}; write `postgres://ROLE:PASSWORD@HOST:PORT/DATABASE`"
                )
            }
            other => anyhow::Error::new(other).context("could not connect to the database"),
        }
    }

    /// Waits until the private Postgres has exited; forever for the operator's own database.
    pub(crate) async fn ended(&self) {
        match self {
            Self::Embedded(embedded) => {
                // Polled: a process that is only attached has no handle of the database.
                while !embedded.has_exited() {
                    tokio::time::sleep(CHECK_INTERVAL).await;
                }
            }
            Self::External { .. } => std::future::pending().await,
        }
    }

    /// Returns whether this is the gateway's private Postgres.
    pub(crate) fn is_embedded(&self) -> bool {
        matches!(self, Self::Embedded(_))
    }
}

/// Attaches to the private Postgres if it already runs, or starts it.
fn start_or_attach(
    data_dir: &Path,
    bin: Option<&Path>,
) -> Result<EmbeddedPostgres, EmbeddedPostgresError> {
    match EmbeddedPostgres::attach(data_dir)? {
        // Attaching changes nothing in the data directory, so it is tried first.
        Some(running) => Ok(running),
        None => EmbeddedPostgres::start(data_dir, bin),
    }
}
