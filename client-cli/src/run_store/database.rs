//! The SQLite file: its place, its form, and the settings of each connection.

use std::fs::File;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use protocol::Integrity;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _, TransactionBehavior};
use rustix::fs::{FlockOperation, Mode, OFlags};

use super::anchor::{Head, lock};
use super::{FILE, StoreError};
use crate::workspace::Workspace;
use crate::workspace::own_folder::OwnFolder;

/// The tables and views of each version, from the first.
const SCHEMAS: &[&str] = &[
    concat!(include_str!("schema/1.sql"), include_str!("schema/all.sql")),
    concat!(include_str!("schema/2.sql"), include_str!("schema/all.sql")),
];
/// The version of the form, in `user_version`.
const VERSION: usize = SCHEMAS.len();
/// `PMLR`, in `application_id`.
const APPLICATION: i64 = 0x504d_4c52;
/// How long to wait for another `pml` that writes.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Opens the folder of the store; `None` if it does not exist.
pub(super) fn open_folder(workspace: &Workspace) -> Result<Option<OwnFolder>, StoreError> {
    OwnFolder::open(workspace)
        .map_err(|errno| StoreError::system(OwnFolder::path(workspace), errno))
}

/// Opens the folder of the store, and creates it if it is missing.
pub(super) fn create_folder(workspace: &Workspace) -> Result<OwnFolder, StoreError> {
    let folder = OwnFolder::create(workspace)
        .map_err(|errno| StoreError::system(OwnFolder::path(workspace), errno))?;
    match folder.ignore(&format!("{FILE}*")) {
        Ok(()) => Ok(folder),
        Err(error) => Err(StoreError::system(folder.path.join(".gitignore"), error)),
    }
}

/// Opens the database for writing. A new file gets its tables.
pub(super) fn open_for_writing(folder: &OwnFolder) -> Result<Connection, StoreError> {
    // Another `pml` may create the database at the same time, and SQLite does not wait when the journal mode is
    // changed. The lock ends with its descriptor.
    lock(&folder.directory).map_err(|errno| StoreError::system(&folder.path, errno))?;
    let opened = open_locked(&folder.path.join(FILE));
    let _ = rustix::fs::flock(&folder.directory, FlockOperation::Unlock);
    opened
}

fn open_locked(path: &Path) -> Result<Connection, StoreError> {
    // SQLite would create it with the permissions of the umask. Its other files get the permissions of this one.
    let flags =
        OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::from_raw_mode(0o600))
        .map_err(|errno| StoreError::system(path, errno))?;
    keep_private(&File::from(file), path)?;
    let mut database = connect(path)?;
    let transaction = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let objects: i64 =
        transaction.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if objects == 0 && version(&transaction)? == (0, 0) {
        create(&transaction)?;
    } else {
        // Before any setting is changed: a file of a newer version stays as it is.
        check(&transaction)?;
        if version(&transaction)?.1 == 1 {
            upgrade(&transaction)?;
        }
    }
    transaction.commit()?;
    database.pragma_update(None, "journal_mode", "WAL")?;
    database.pragma_update(None, "synchronous", "NORMAL")?;
    Ok(database)
}

/// Creates the tables and views of the present version.
fn create(database: &Connection) -> Result<(), rusqlite::Error> {
    database.execute_batch(SCHEMAS[VERSION - 1])?;
    database.pragma_update(None, "user_version", i64::try_from(VERSION).unwrap_or(i64::MAX))?;
    database.pragma_update(None, "application_id", APPLICATION)
}

/// Turns the tables and views of version 1, which computed the two columns of a record, into those of the present one.
fn upgrade(database: &Connection) -> Result<(), rusqlite::Error> {
    // The old table loses its name before the new one gets it. Nothing that names it may be left then.
    database.execute_batch(
        "DROP VIEW runs; DROP VIEW tool_calls; DROP VIEW tool_results; DROP VIEW approvals;
         DROP TRIGGER records_are_not_changed; DROP TRIGGER records_are_not_deleted;
         DROP INDEX records_by_run; DROP INDEX records_by_type;
         ALTER TABLE records RENAME TO records_1",
    )?;
    create(database)?;
    database.execute_batch(
        "INSERT INTO records (seq, body, hash, run_id, type)
            SELECT seq, body, hash, run_id, type FROM records_1 ORDER BY seq;
         DROP TABLE records_1",
    )
}

/// Opens the database for reading; `None` if there is none.
pub(super) fn open_for_reading(folder: &OwnFolder) -> Result<Option<Connection>, StoreError> {
    let path = folder.path.join(FILE);
    let found = match std::fs::symlink_metadata(&path) {
        Ok(found) => found,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(StoreError::system(path, error)),
    };
    // `pml` was stopped, or is at work, between the creation of the file and that of the tables.
    if found.len() == 0 {
        return Ok(None);
    }
    // Opening a FIFO would block.
    if !found.is_file() {
        return Err(StoreError::Unfit("is not a regular file".to_owned()));
    }
    // Not read-only: SQLite needs the lock files of the write-ahead log.
    let database = connect(&path)?;
    database.pragma_update(None, "query_only", true)?;
    Ok(Some(database))
}

/// Begins to read the state that the database has while `look` runs: nobody can write in the meantime, and what is
/// written later is not seen.
pub(super) fn begin_reading<T>(
    database: &Connection,
    folder: &Path,
    look: impl FnOnce() -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let other = connect(&folder.join(FILE))?;
    other.execute_batch("BEGIN IMMEDIATE")?;
    // The state is that of the first statement after `BEGIN`.
    database.execute_batch("BEGIN")?;
    database.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
    let seen = look()?;
    other.execute_batch("ROLLBACK")?;
    Ok(seen)
}

fn connect(path: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NOFOLLOW
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let database = Connection::open_with_flags(path, flags)?;
    database.busy_timeout(BUSY_TIMEOUT)?;
    // The file may come from somebody else: nothing in it may run, and its internal tables cannot be written. The
    // triggers are for other programs; a foreign one could suppress a record.
    database.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    database.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false)?;
    database.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    database.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    database.pragma_update(None, "cell_size_check", true)?;
    Ok(database)
}

/// Removes the access of others.
fn keep_private(file: &File, path: &Path) -> Result<(), StoreError> {
    let failed = |error| StoreError::system(path, error);
    let found = file.metadata().map_err(failed)?;
    if !found.is_file() {
        return Err(StoreError::Unfit("is not a regular file".to_owned()));
    }
    if found.permissions().mode() & 0o777 != 0o600 {
        file.set_permissions(std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
    }
    Ok(())
}

fn version(database: &Connection) -> Result<(i64, i64), rusqlite::Error> {
    let of = |name| database.pragma_query_value(None, name, |row| row.get(0));
    Ok((of("application_id")?, of("user_version")?))
}

/// Returns the tables and views that the file must have: those of its version.
fn schema(database: &Connection) -> Result<&'static str, StoreError> {
    let unfit = |what: String| Err(StoreError::Unfit(what));
    let (application, version) = version(database)?;
    if application != APPLICATION || version < 1 {
        return unfit("is not a run store".to_owned());
    }
    match usize::try_from(version).ok().and_then(|version| SCHEMAS.get(version - 1)) {
        Some(schema) => Ok(schema),
        None => unfit(format!("was written by a newer `pml` (version {version} of its form)")),
    }
}

/// Checks that the file is a run store with exactly the tables, views and triggers of its version.
pub(super) fn check(database: &Connection) -> Result<(), StoreError> {
    let expected = Connection::open_in_memory()?;
    expected.execute_batch(schema(database)?)?;
    let (found, expected) = (objects(database)?, objects(&expected)?);
    let differs = |name: &String| found.get(name) != expected.get(name);
    match found.keys().chain(expected.keys()).find(|name| differs(name)) {
        Some(name) => Err(StoreError::Unfit(format!("was altered: {name} differs"))),
        None => Ok(()),
    }
}

/// Checks that the records are in a plain table: a view or a column computed by somebody else's expression could return
/// anything.
pub(super) fn check_table(database: &Connection) -> Result<(), StoreError> {
    let expected = Connection::open_in_memory()?;
    // Whatever is wrong with the version is reported after the records.
    expected.execute_batch(schema(database).unwrap_or(SCHEMAS[VERSION - 1]))?;
    let table = "table records";
    match objects(database)?.get(table) == objects(&expected)?.get(table) {
        true => Ok(()),
        false => Err(StoreError::Unfit("is not a run store, or its table was altered".to_owned())),
    }
}

/// Returns the tables, views, triggers and indexes, by type and name, with their text.
fn objects(
    database: &Connection,
) -> Result<std::collections::BTreeMap<String, Option<String>>, rusqlite::Error> {
    // Without the tables of `ANALYZE`. Everything else counts, whatever its name.
    let mut statement = database.prepare(
        "SELECT type || ' ' || name, sql FROM sqlite_schema
         WHERE NOT (type = 'table' AND name IN ('sqlite_stat1', 'sqlite_stat4'))",
    )?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    rows.collect()
}

/// Returns the end of the chain; `None` if the store is empty.
pub(super) fn head(database: &Connection) -> Result<Option<Head>, rusqlite::Error> {
    let mut last = database.prepare_cached(
        "SELECT seq, hash, (SELECT body ->> '$.store' FROM records WHERE seq = 1)
         FROM records ORDER BY seq DESC LIMIT 1",
    )?;
    let read = |row: &rusqlite::Row<'_>| {
        let store: Option<String> = row.get(2)?;
        let hash = Integrity::from_bytes(row.get(1)?);
        Ok(Head { seq: row.get(0)?, hash, store: store.unwrap_or_default() })
    };
    last.query_row([], read).optional()
}
