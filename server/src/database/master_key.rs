//! The sources of the master keys for stored secrets.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use registry::{MasterKey, MasterKeys, Registry, RegistryError};

use crate::config::Settings;
use crate::database::Database;
use crate::private_settings;

/// The file of the key that a gateway with a private Postgres creates in its data directory.
const OWN_FILE: &str = "master.key";

/// The words for a key in messages about its file.
const WHAT: &str = "master key";

/// The forbidden permissions of the file that the gateway created: only its owner may access it.
const OWN_FORBIDDEN_MODE: u32 = 0o077;

/// The configured master keys.
#[derive(Debug, Default)]
pub(crate) struct ConfiguredKeys {
    pub(crate) current: Option<MasterKey>,
    pub(crate) new: Option<MasterKey>,
    pub(crate) old: Option<MasterKey>,
}

impl ConfiguredKeys {
    /// Reads the configured keys. An invalid key is an error; it is never treated as absent.
    pub(crate) fn read(settings: &Settings) -> anyhow::Result<Self> {
        let [(_, current), (_, new), (_, old)] = Self::each(settings);
        Ok(Self { current: current?, new: new?, old: old? })
    }

    /// Reads each configured key by itself, and returns it with its variable: the current one, the next one, and the
    /// previous one.
    pub(crate) fn each(
        settings: &Settings,
    ) -> [(&'static str, anyhow::Result<Option<MasterKey>>); 3] {
        let files = &settings.master_key;
        [
            ("PML_MASTER_KEY", &files.master_key_file),
            ("PML_MASTER_KEY_NEW", &files.master_key_new_file),
            ("PML_MASTER_KEY_OLD", &files.master_key_old_file),
        ]
        .map(|(variable, file)| (variable, given(variable, file.as_deref())))
    }

    /// With a private Postgres, adds the key in the data directory, unless the settings contain a key.
    pub(crate) fn or_own(self, database: &Database, settings: &Settings) -> anyhow::Result<Self> {
        self.or_own_of(database.is_embedded(), settings)
    }

    /// As [`Self::or_own`], before the database is opened.
    pub(crate) fn or_own_of(
        mut self,
        is_embedded: bool,
        settings: &Settings,
    ) -> anyhow::Result<Self> {
        // A file from an earlier private Postgres must not become the key of another database.
        if self.current.is_none() && is_embedded {
            self.current = read_file(&own_file(settings), OWN_FORBIDDEN_MODE)?;
        }
        Ok(self)
    }

    /// Returns all keys. The first one is used for a new database.
    pub(crate) fn into_keys(self) -> MasterKeys {
        MasterKeys::new([self.current, self.new, self.old].into_iter().flatten().collect())
    }
}

/// Passes the master keys to a registry. With a private Postgres, creates a master key at the first start.
///
/// With the operator's own database and without a master key, the routes for secrets return `SECRETS_UNAVAILABLE`;
/// everything else works.
pub(crate) async fn prepare(
    registry: Registry,
    database: &Database,
    settings: &Settings,
) -> anyhow::Result<Registry> {
    let mut keys = ConfiguredKeys::read(settings)?.or_own(database, settings)?;
    if keys.current.is_none() && database.is_embedded() {
        let path = own_file(settings);
        keys.current = if registry.has_master_key().await? {
            // Another gateway may have created the key since it was read above. It writes the file before it uses the
            // key, so the file exists now.
            let key = read_file(&path, OWN_FORBIDDEN_MODE)?;
            Some(key.with_context(|| {
                format!(
                    "the master key of the stored secrets is missing: restore `{}`, or \
                     set PML_MASTER_KEY",
                    path.display()
                )
            })?)
        } else {
            Some(create_own(&path)?)
        };
    }
    if keys.current.is_none() {
        tracing::info!("PML_MASTER_KEY is not set: this gateway cannot store secrets");
    }
    registry.with_master_keys(keys.into_keys()).await.map_err(explain)
}

/// Adds to the error for a wrong master key which variable to set.
pub(crate) fn explain(error: RegistryError) -> anyhow::Error {
    let is_wrong = matches!(error, RegistryError::WrongMasterKey { .. });
    let error = anyhow::Error::new(error);
    if is_wrong {
        error.context(
            "the master key is wrong; set PML_MASTER_KEY to the key that the secrets were stored with, or PML_MASTER_KEY_OLD during a rotation",
        )
    } else {
        error
    }
}

/// Checks the key in the data directory, if there is one.
///
/// # Errors
/// Returns an error when it is invalid or others can read it.
pub(crate) fn check_own(settings: &Settings) -> anyhow::Result<()> {
    read_file(&own_file(settings), OWN_FORBIDDEN_MODE).map(drop)
}

/// Returns the path of the master key in the data directory.
pub(crate) fn own_file(settings: &Settings) -> PathBuf {
    settings.data_dir().join(OWN_FILE)
}

/// Atomically replaces the master key in the data directory.
pub(crate) fn replace_own(path: &Path, key: &MasterKey) -> anyhow::Result<()> {
    let temporary = write_temporary(path, key)?;
    let replaced = fs::rename(&temporary, path).and_then(|()| sync_folder_of(path));
    replaced.with_context(|| format!("could not write the master key to `{}`", path.display()))
}

/// Writes the new name of a file to disk. Otherwise, a crash could lose the file although its content is on disk.
pub(crate) fn sync_folder_of(path: &Path) -> std::io::Result<()> {
    match path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        Some(folder) => File::open(folder)?.sync_all(),
        None => File::open(".")?.sync_all(),
    }
}

fn create_own(path: &Path) -> anyhow::Result<MasterKey> {
    let key = MasterKey::generate()?;
    let temporary = write_temporary(path, &key)?;
    // Unlike a rename, a link never replaces a key that another gateway has just created.
    let linked = fs::hard_link(&temporary, path);
    // If this fails, the key has a second name, which only its owner can read either.
    let _ = fs::remove_file(&temporary);
    let failed = || format!("could not write the master key to `{}`", path.display());
    let key = match linked {
        Ok(()) => key,
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            read_file(path, OWN_FORBIDDEN_MODE)?.context("the master key has disappeared")?
        }
        Err(error) => return Err(error).with_context(failed),
    };
    sync_folder_of(path).with_context(failed)?;
    Ok(key)
}

/// Writes a key to a temporary file in the folder of `path`, so that it can be renamed or linked.
fn write_temporary(path: &Path, key: &MasterKey) -> anyhow::Result<PathBuf> {
    let temporary = path.with_extension(format!("new.{}", std::process::id()));
    let write = || {
        // A crash may have left it, and process ids are reused. Usually there is none, and
        // `create_new` reports a file that cannot be removed.
        let _ = fs::remove_file(&temporary);
        let mut options = fs::OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(&temporary)?;
        file.write_all(key.expose().as_bytes())?;
        file.write_all(b"\n")?;
        // On disk before it is used: secrets that are sealed under a lost key are lost, too.
        file.sync_all()
    };
    write().with_context(|| format!("could not write `{}`", temporary.display()))?;
    Ok(temporary)
}

/// Reads a key from its variable, or from its file.
fn given(variable: &str, file: Option<&Path>) -> anyhow::Result<Option<MasterKey>> {
    let given = private_settings::given(variable, file, WHAT)?;
    given.map(|(text, place)| parse(&text, &place)).transpose()
}

fn read_file(path: &Path, forbidden: u32) -> anyhow::Result<Option<MasterKey>> {
    let text = private_settings::read_file(path, forbidden, WHAT)?;
    text.map(|text| parse(&text, &path.display().to_string())).transpose()
}

fn parse(text: &str, place: &str) -> anyhow::Result<MasterKey> {
    text.parse().with_context(|| {
        format!("{place} is not a master key; `openssl rand -base64 32` creates one")
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use super::*;
    use crate::private_settings::GIVEN_FORBIDDEN_MODE;

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(OWN_FILE);
        assert!(read_file(&path, OWN_FORBIDDEN_MODE).unwrap().is_none());
        let created = create_own(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        // Another gateway that starts now uses the existing key.
        assert_eq!(create_own(&path).unwrap().id(), created.id());
        assert_eq!(read_file(&path, OWN_FORBIDDEN_MODE).unwrap().unwrap().id(), created.id());
        for (mode, own, given) in
            [(0o640, false, true), (0o644, false, false), (0o620, false, false)]
        {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(read_file(&path, OWN_FORBIDDEN_MODE).is_ok(), own, "{mode:o}");
            assert_eq!(read_file(&path, GIVEN_FORBIDDEN_MODE).is_ok(), given, "{mode:o}");
        }
        let other = MasterKey::generate().unwrap();
        replace_own(&path, &other).unwrap();
        assert_eq!(read_file(&path, OWN_FORBIDDEN_MODE).unwrap().unwrap().id(), other.id());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left behind");
    }

    #[test]
    fn only_regular_files_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        for path in [&pipe, folder.path()] {
            let failure = read_file(path, OWN_FORBIDDEN_MODE).unwrap_err();
            assert!(failure.to_string().contains("is not a regular file"), "{failure:#}");
        }
    }

    #[test]
    fn the_error_for_an_invalid_key_does_not_contain_it() {
        for text in ["", "changeme", "Q2FuYXJ5Q2FuYXJ5"] {
            let message = format!("{:#}", parse(text, "PML_MASTER_KEY").unwrap_err());
            assert!(message.contains("openssl rand") && !message.contains("Canary"), "{message}");
            assert!(text.is_empty() || !message.contains(text), "{message}");
        }
    }
}
