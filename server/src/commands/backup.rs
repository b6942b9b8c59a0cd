//! `pml-server backup`: writes the whole database to one file, through `pg_dump`.

pub(super) mod client;
pub(super) mod file;

use std::fs::{self, File, OpenOptions};
use std::io::{IsTerminal as _, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use chrono::Utc;
use registry::{Inspection, MasterKeys, RegistryError};
use tokio::io::AsyncReadExt as _;
use tokio::signal::unix::{SignalKind, signal};

use self::client::Connection;
use self::file::{Manifest, Writer};
use crate::config::{Backup, Settings};
use crate::database::master_key::sync_folder_of;
use crate::database::{Database, programs};

/// What to create, if the role cannot read every row.
const ROLE: &str = "as a superuser: `create role pml_backup login password '…' bypassrls; \
    grant pg_read_all_data to pml_backup`, then set PML_BACKUP_URL to the same database with that role";

/// Runs the command.
pub(super) async fn run(
    database: &Database,
    settings: &Settings,
    command: &Backup,
) -> anyhow::Result<()> {
    let is_stdout = command.file.as_os_str() == "-";
    if is_stdout && std::io::stdout().is_terminal() {
        bail!("a backup is not text; redirect the output to a file");
    }
    let folder_of = || format!("cannot write to `{}`", command.file.display());
    if !is_stdout && !command.force && fs::symlink_metadata(&command.file).is_ok() {
        bail!(
            "`{}` exists; name another file, or add --force to replace it",
            command.file.display()
        );
    }
    let (url, variable) = match database {
        Database::Embedded(embedded) => (embedded.backup_url(), "PML_DATABASE_URL"),
        Database::External { owner_url, .. } => match (&command.backup_url, owner_url) {
            (Some(url), _) => (url.expose().to_owned(), "PML_BACKUP_URL"),
            (None, Some(url)) => (url.clone(), "PML_MIGRATE_URL"),
            (None, None) => bail!("set PML_BACKUP_URL: `pml_app` cannot read every row; {ROLE}"),
        },
    };
    let connected = Inspection::connect(&url).await;
    let inspection = connected.map_err(|error| database.explain(error, variable))?;
    let created_at = Utc::now();
    let state = inspection.state().await.context("cannot read the state of the database")?;
    let Some(owner) = state.owner.clone() else {
        bail!("the database has no tables yet; start the gateway, or run `pml-server migrate`");
    };
    if !state.bypasses_policies {
        bail!(
            "the role `{}` of {variable} cannot read every row, because row-level security binds it; {ROLE}",
            state.role
        );
    }
    let tools = programs::find(settings, &["pg_dump", "pg_restore"], state.major)?;
    let manifest = Manifest {
        pml: env!("CARGO_PKG_VERSION").to_owned(),
        migration: state.schema.newest,
        created_at,
        postgres: state.major,
        pg_dump: tools.major,
        owner,
        master_keys: master_keys(&inspection).await?,
    };
    let connection = Connection::new(&url, database.is_embedded())?;
    let mut dump = connection.command(&tools, "pg_dump");
    dump.args(["--format=custom", "--no-password", "--lock-wait-timeout=60s"]);
    let dump = Dump { command: dump, manifest: &manifest, inspection: &inspection };
    if is_stdout {
        dump.write(&mut std::io::stdout().lock()).await?;
    } else {
        let (mut out, target) = Target::create(&command.file).with_context(folder_of)?;
        dump.write(&mut out).await?;
        out.sync_all().with_context(folder_of)?;
        target.keep(command.force).with_context(folder_of)?;
    }
    inspection.close().await;
    let place = match is_stdout {
        true => "stdout".to_owned(),
        false => format!("`{}`", command.file.display()),
    };
    let keys = match manifest.master_keys.as_slice() {
        [] => "It has no stored secrets.".to_owned(),
        keys => format!(
            "Its stored secrets need master key `{}`, which is not in it: back it up separately.",
            keys.join("`, `")
        ),
    };
    // On stderr: stdout may be the backup.
    let text = format!("Wrote a backup of migration {} to {place}. {keys}\n", manifest.migration);
    std::io::stderr().write_all(text.as_bytes()).context("could not write to stderr")
}

/// Returns the names of the master keys that a database needs.
async fn master_keys(inspection: &Inspection) -> anyhow::Result<Vec<String>> {
    match inspection.try_master_keys(&Arc::new(MasterKeys::default())).await {
        Ok(fit) => Ok(fit.stored),
        // The schema is from before there were stored secrets.
        Err(RegistryError::NotMigrated) => Ok(Vec::new()),
        Err(error) => Err(error).context("cannot read the names of the master keys"),
    }
}

/// A dump that has not begun.
struct Dump<'a> {
    command: std::process::Command,
    manifest: &'a Manifest,
    inspection: &'a Inspection,
}

impl Dump<'_> {
    /// Runs `pg_dump`, which reads one snapshot of the database, and writes the whole file.
    async fn write(self, out: &mut impl Write) -> anyhow::Result<()> {
        let failed = "could not write the backup";
        let Self { command, manifest, inspection } = self;
        let (mut hash, lines) = Writer::begin(manifest)?;
        out.write_all(&lines).context(failed)?;
        let mut command = tokio::process::Command::from(command);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn().context("could not run `pg_dump`")?;
        let mut dumped = child.stdout.take().context("`pg_dump` has no output")?;
        let ended = client::outcome(child, "pg_dump");
        let mut ended = std::pin::pin!(ended);
        let (mut terminated, mut interrupted) =
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let mut buffer = vec![0; 256 * 1024];
        let mut result = None;
        loop {
            // `pg_dump` may end before its output is read.
            let read = tokio::select! {
                read = dumped.read(&mut buffer) => read.context(failed)?,
                outcome = &mut ended, if result.is_none() => { result = Some(outcome); continue }
                _ = terminated.recv() => bail!("the backup was interrupted"),
                _ = interrupted.recv() => bail!("the backup was interrupted"),
            };
            if read == 0 {
                break;
            }
            let part = buffer.get(..read).unwrap_or_default();
            hash.add(part);
            out.write_all(part).context(failed)?;
        }
        match result {
            Some(outcome) => outcome?,
            None => ended.await?,
        }
        // The dump is of one moment in between, so if both are equal, they are also those of the dump.
        let after = inspection.state().await.context("cannot read the state of the database")?;
        let is_same = after.schema.newest == manifest.migration;
        if !is_same || master_keys(inspection).await? != manifest.master_keys {
            bail!("the schema or the master keys changed during the backup; run it again");
        }
        out.write_all(hash.end().as_bytes()).and_then(|()| out.flush()).context(failed)
    }
}

/// A file that appears under its name when it is complete. Otherwise, nothing remains of it.
struct Target {
    path: PathBuf,
    temporary: PathBuf,
}

impl Target {
    fn create(path: &Path) -> std::io::Result<(File, Self)> {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".new.{}", std::process::id()));
        let temporary = path.with_file_name(name);
        let mut options = OpenOptions::new();
        // Of an earlier process with this id; a link would be followed to another file.
        let _ = fs::remove_file(&temporary);
        let file = options.write(true).create_new(true).mode(0o600).open(&temporary)?;
        Ok((file, Self { path: path.to_owned(), temporary }))
    }

    fn keep(self, force: bool) -> std::io::Result<()> {
        if force {
            fs::rename(&self.temporary, &self.path)?;
        } else {
            // Unlike a rename, a link never replaces a file that has appeared in the meantime.
            fs::hard_link(&self.temporary, &self.path)?;
        }
        sync_folder_of(&self.path)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // Renamed, if the backup is complete.
        let _ = fs::remove_file(&self.temporary);
    }
}
