//! `pml-server restore`: restores a backup, through `pg_restore`.
//!
//! Everything that can be refused is refused before anything changes. A private Postgres gets the backup beside its
//! database, and the two swap names at the end. An own one gets it in one transaction, into an empty database.

use std::io::Read as _;
use std::process::Stdio;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use registry::{ClusterOwner, Inspection, MasterKeys, Operator, newest_migration};
use tokio::io::AsyncWriteExt as _;
use tokio::runtime::Runtime;

use super::backup::client::{Connection, outcome};
use super::backup::file::{Manifest, Opened};
use crate::config::{Restore, Settings};
use crate::database::embedded_postgres::EmbeddedPostgres;
use crate::database::master_key::{self, ConfiguredKeys};
use crate::database::programs::{self, Programs};
use crate::database::{Database, programs::OLDEST_MAJOR};

/// The version from which `pg_restore` sets `transaction_timeout`, which older servers do not know.
const SETS_NEW_LIMIT: u32 = 17;

/// What is restored, and with what.
struct Restoration<'a> {
    backup: Opened,
    keys: Arc<MasterKeys>,
    settings: &'a Settings,
    command: &'a Restore,
}

/// Runs the command and returns its output.
///
/// Call it on a thread that lives as long as the database is needed.
pub(super) fn run(
    settings: &Settings,
    command: &Restore,
    runtime: &Runtime,
) -> anyhow::Result<String> {
    let shown = command.file.display();
    let backup = Opened::open(&command.file)
        .with_context(|| format!("`{shown}` cannot be restored; nothing was changed"))?;
    let manifest = &backup.manifest;
    if manifest.migration > newest_migration() {
        bail!(
            "`{shown}` is of migration {}, newer than this program's {}; restore it with `pml-server` {} or newer. \
             Nothing was changed",
            manifest.migration,
            newest_migration(),
            manifest.pml
        );
    }
    let is_embedded = settings.is_private();
    let keys = ConfiguredKeys::read(settings)?.or_own_of(is_embedded, settings)?.into_keys();
    check_keys(manifest, &keys, settings, command)?;
    let restoration = Restoration { backup, keys: Arc::new(keys), settings, command };
    if command.dry_run && is_embedded && !Database::exists(settings) {
        let at_least = restoration.backup.manifest.pg_dump.max(OLDEST_MAJOR);
        programs::find(settings, &["pg_restore", "pg_dump"], at_least)?;
        return Ok(restoration.would());
    }
    match Database::open(settings)? {
        Database::Embedded(postgres) => runtime.block_on(restoration.into_private(&postgres)),
        database @ Database::External { .. } => runtime.block_on(restoration.into_own(&database)),
    }
}

/// Refuses a master key that does not fit. The name of a key is its hash, so the names are compared.
fn check_keys(
    manifest: &Manifest,
    keys: &MasterKeys,
    settings: &Settings,
    command: &Restore,
) -> anyhow::Result<()> {
    let missing: Vec<&str> = manifest
        .master_keys
        .iter()
        .map(String::as_str)
        .filter(|id| keys.get(id).is_none())
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let names = missing.join("`, `");
    let file = match settings.is_private() {
        true => {
            format!(", or copy it to `{}` with mode 0600", master_key::own_file(settings).display())
        }
        false => String::new(),
    };
    if !keys.is_empty() {
        bail!(
            "the master key is wrong: the stored secrets of this backup need `{names}`, which is not configured; set \
             PML_MASTER_KEY to it{file}. Nothing was changed"
        );
    }
    if command.without_master_key {
        return Ok(());
    }
    bail!(
        "the stored secrets of this backup need master key `{names}`, and none is configured; set PML_MASTER_KEY to \
         it{file}, or add --without-master-key to do that later. Nothing was changed"
    )
}

impl Restoration<'_> {
    /// Restores beside the database of a private Postgres, and then takes its place.
    async fn into_private(self, postgres: &EmbeddedPostgres) -> anyhow::Result<String> {
        let dir = self.settings.data_dir();
        let dir = dir.display();
        if !postgres.is_owner() {
            bail!(
                "a gateway or another command uses the private Postgres in `{dir}`; stop it first. Nothing was changed"
            );
        }
        let served = Inspection::connect(&postgres.owner_url()).await?;
        let state = served.state().await?;
        served.close().await;
        if !state.is_empty && !self.command.replace {
            bail!(
                "the private Postgres in `{dir}` is not empty; set PML_DATA_DIR to another folder, or add --replace to \
                 delete what it has. Nothing was changed"
            );
        }
        self.check_version(state.major)?;
        let programs = self.programs(state.major)?;
        if self.command.dry_run {
            return Ok(self.would());
        }
        let cluster = ClusterOwner::connect(&postgres.superuser_url()).await?;
        // What an earlier restore has left after it took effect.
        cluster.drop_replaced().await?;
        cluster.create_restored().await.context("could not create a database")?;
        let url = postgres.restored_url(ClusterOwner::RESTORED);
        let filled = async {
            self.fill(&Connection::new(&url, true)?, &programs).await?;
            self.finish(&url).await
        };
        if let Err(error) = filled.await {
            // Otherwise, the next restore does that.
            let _ = cluster.drop_restored().await;
            return Err(error.context("the backup was not restored, and nothing was changed"));
        }
        cluster.swap().await.context(
            "the backup was not restored, and nothing was changed: disconnect everybody from the private Postgres",
        )?;
        cluster
            .drop_replaced()
            .await
            .context("the backup was restored, but the replaced database is still there")?;
        cluster.close().await;
        Ok(self.done())
    }

    /// Restores into the empty database of the operator, in one transaction.
    async fn into_own(self, database: &Database) -> anyhow::Result<String> {
        if self.command.replace {
            bail!(
                "--replace is for the private Postgres only: create an empty database, restore into it, and set \
                 PML_DATABASE_URL and PML_MIGRATE_URL to it. Nothing was changed"
            );
        }
        let url = database.configured_owner_url().context(
            "set PML_MIGRATE_URL: this runs as the owner of the database, not as `pml_app`",
        )?;
        let connected = Inspection::connect(&url).await;
        let inspection = connected.map_err(|error| database.explain(error, "PML_MIGRATE_URL"))?;
        let state = inspection.state().await?;
        inspection.close().await;
        let owner = &self.backup.manifest.owner;
        if !state.is_empty {
            bail!(
                "the database of PML_MIGRATE_URL is not empty; create an empty one (`create database … owner {owner}`) \
                 and set PML_DATABASE_URL and PML_MIGRATE_URL to it. Nothing was changed"
            );
        }
        if state.role != *owner {
            bail!(
                "the tables of this backup belong to the role `{owner}`, but PML_MIGRATE_URL has `{}`; connect as \
                 `{owner}`. Nothing was changed",
                state.role
            );
        }
        if state.serving_role_is_bound != Some(true) {
            bail!(
                "the role `pml_app` does not exist on this server, or bypasses row-level security; as a superuser: \
                 `create role pml_app login password '…' nosuperuser nobypassrls`. Nothing was changed"
            );
        }
        self.check_version(state.major)?;
        let programs = self.programs(state.major)?;
        if self.command.dry_run {
            return Ok(self.would());
        }
        let filled = self.fill(&Connection::new(&url, false)?, &programs).await;
        filled.context("the backup was not restored, and nothing was changed")?;
        self.finish(&url).await.context(
            "the backup was restored, but the database cannot be served yet; correct this and run `pml-server migrate`, or restore into another empty database",
        )?;
        Ok(self.done())
    }

    fn check_version(&self, major: u32) -> anyhow::Result<()> {
        let from = self.backup.manifest.postgres;
        if major < from {
            bail!(
                "the backup is from Postgres {from}, newer than this server's {major}; restore it on Postgres {from} or newer. Nothing was changed"
            );
        }
        Ok(())
    }

    fn programs(&self, server: u32) -> anyhow::Result<Programs> {
        let at_least = server.max(self.backup.manifest.pg_dump);
        let found = programs::find(self.settings, &["pg_restore", "pg_dump"], at_least)?;
        if server < SETS_NEW_LIMIT && found.major >= SETS_NEW_LIMIT {
            bail!(
                "`pg_restore` {} in `{}` cannot restore into Postgres {server}, because it uses settings that this \
                 server does not know; install version {server} (Debian: `apt install postgresql-client-{server}`) and \
                 set PML_PG_BIN. Nothing was changed",
                found.major,
                found.dir.display()
            );
        }
        Ok(found)
    }

    /// Runs `pg_restore` in one transaction, as the owner: roles, rights and row-level security come with the dump.
    async fn fill(&self, connection: &Connection, programs: &Programs) -> anyhow::Result<()> {
        let mut command = connection.command(programs, "pg_restore");
        command.args(["--single-transaction", "--exit-on-error", "--no-password"]);
        let mut command = tokio::process::Command::from(command);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn().context("could not run `pg_restore`")?;
        let mut input = child.stdin.take().context("`pg_restore` has no input")?;
        let mut dump = self.backup.dump()?;
        let feed = async move {
            let mut buffer = vec![0; 256 * 1024];
            loop {
                let read = dump.read(&mut buffer)?;
                if read == 0 {
                    return input.shutdown().await;
                }
                input.write_all(buffer.get(..read).unwrap_or_default()).await?;
            }
        };
        let (fed, ended) = tokio::join!(feed, outcome(child, "pg_restore"));
        ended?;
        match fed {
            // It may close its input as soon as it has what it needs.
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
                Err(error).context("could not read the backup")
            }
            _ => Ok(()),
        }
    }

    /// Migrates what was restored, and checks that it can be served.
    async fn finish(&self, owner_url: &str) -> anyhow::Result<()> {
        let operator = Operator::connect(owner_url).await?;
        operator.migrate().await.context("could not run the migrations")?;
        operator.close().await;
        let inspection = Inspection::connect(owner_url).await?;
        let state = inspection.state().await?;
        let fit = inspection.try_master_keys(&self.keys).await?;
        inspection.close().await;
        if !state.schema.missing.is_empty() || !state.schema.unknown.is_empty() {
            bail!("its migrations are not those of this program");
        }
        if !state.unprotected.is_empty() {
            bail!("row-level security is not forced on {}", state.unprotected.join(", "));
        }
        let may_be_missing = self.keys.is_empty() && self.command.without_master_key;
        if !fit.missing.is_empty() && !may_be_missing {
            bail!(
                "the master key does not decrypt what `{}` has encrypted",
                fit.missing.join("`, `")
            );
        }
        Ok(())
    }

    fn describe(&self) -> String {
        let Manifest { pml, migration, created_at, .. } = &self.backup.manifest;
        let at = super::table::when(*created_at);
        format!("the backup of {at} (pml-server {pml}, migration {migration})")
    }

    fn would(&self) -> String {
        format!("{} can be restored; nothing was changed.\n", capitalized(&self.describe()))
    }

    fn done(&self) -> String {
        format!(
            "Restored {}; the schema is at migration {}. Next: start the gateway. API keys of the backup are valid, \
             later ones are not.\n",
            self.describe(),
            newest_migration()
        )
    }
}

fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}
