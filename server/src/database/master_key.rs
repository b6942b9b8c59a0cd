//! The sources of the master keys for stored secrets.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Context as _, bail};
use registry::{MasterKey, MasterKeys, Registry, RegistryError};
use zeroize::Zeroizing;

use crate::config::Settings;
use crate::database::Database;

/// The key that a gateway with a private Postgres makes for itself, in its data directory.
const OWN_FILE: &str = "master.key";

/// The most of a file that is read; a key has 44 letters.
const FILE_LIMIT: u64 = 1_024;

/// The permissions of the file that we create: its owner only.
const OWN_MODE: u32 = 0o077;

/// The forbidden permissions of a file that the operator created: the group may read it, as orchestrators mount
/// secrets this way.
const GIVEN_MODE: u32 = 0o027;

/// The values of the variables of master keys.
static VARIABLES: OnceLock<BTreeMap<&str, Zeroizing<String>>> = OnceLock::new();

/// Takes the master keys out of this process's environment, which others of the same user could read.
///
/// Call it first in `main`, before there are threads.
pub(crate) fn take_variables() {
    let take = |name: &'static CStr| {
        let text = sandbox::take_variable(name)?.into_string().unwrap_or_default();
        Some((name.to_str().ok()?, Zeroizing::new(text)))
    };
    let names = [c"PML_MASTER_KEY", c"PML_MASTER_KEY_NEW", c"PML_MASTER_KEY_OLD"];
    VARIABLES.get_or_init(|| names.into_iter().filter_map(take).collect());
}

/// The configured master keys.
#[derive(Debug, Default)]
pub(crate) struct GivenKeys {
    pub(crate) present: Option<MasterKey>,
    pub(crate) new: Option<MasterKey>,
    pub(crate) old: Option<MasterKey>,
}

impl GivenKeys {
    /// Reads them; a key that is wrong in any way is an error and never no key.
    pub(crate) fn read(settings: &Settings) -> anyhow::Result<Self> {
        let files = &settings.master_key;
        Ok(Self {
            present: given("PML_MASTER_KEY", files.master_key_file.as_deref())?,
            new: given("PML_MASTER_KEY_NEW", files.master_key_new_file.as_deref())?,
            old: given("PML_MASTER_KEY_OLD", files.master_key_old_file.as_deref())?,
        })
    }

    /// Adds the key of a private gateway's own file, unless the settings name one.
    pub(crate) fn or_own(
        mut self,
        database: &Database,
        settings: &Settings,
    ) -> anyhow::Result<Self> {
        if self.present.is_none() && database.is_embedded() {
            self.present = read_file(&own_file(settings), OWN_MODE)?;
        }
        Ok(self)
    }

    /// Returns all of them, the one for a new database first.
    pub(crate) fn into_keys(self) -> MasterKeys {
        MasterKeys::new([self.present, self.new, self.old].into_iter().flatten().collect())
    }
}

/// Passes the master keys to a registry.
///
/// Without a master key and with an operator's own database there are no secrets, which their routes report;
/// everything else works.
pub(crate) async fn prepare(
    registry: Registry,
    database: &Database,
    settings: &Settings,
) -> anyhow::Result<Registry> {
    let mut given = GivenKeys::read(settings)?.or_own(database, settings)?;
    if given.present.is_none() && database.is_embedded() {
        let path = own_file(settings);
        given.present = if registry.has_master_key().await? {
            // Another gateway may have made it since we looked; it writes the file first.
            let key = read_file(&path, OWN_MODE)?;
            Some(key.with_context(|| {
                format!(
                    "the master key of the stored secrets is missing: put it back into `{}`, or \
                     set PML_MASTER_KEY",
                    path.display()
                )
            })?)
        } else {
            Some(make_own(&path)?)
        };
    }
    if given.present.is_none() {
        tracing::info!("There is no PML_MASTER_KEY: this gateway cannot store secrets");
    }
    registry.with_master_keys(given.into_keys()).await.map_err(explain)
}

/// Returns the error with the variable to set for a wrong key.
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

/// Returns the path of a private gateway's own master key.
pub(crate) fn own_file(settings: &Settings) -> PathBuf {
    settings.data_dir().join(OWN_FILE)
}

/// Replaces the own key by another one, whole or not at all.
pub(crate) fn replace_own(path: &Path, key: &MasterKey) -> anyhow::Result<()> {
    let temporary = write_beside(path, key)?;
    fs::rename(&temporary, path)
        .with_context(|| format!("could not write the master key to `{}`", path.display()))
}

fn make_own(path: &Path) -> anyhow::Result<MasterKey> {
    let key = MasterKey::generate()?;
    let temporary = write_beside(path, &key)?;
    // Unlike a rename, a link never replaces the key that another gateway has just made.
    let linked = fs::hard_link(&temporary, path);
    let _ = fs::remove_file(&temporary);
    match linked {
        Ok(()) => Ok(key),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            read_file(path, OWN_MODE)?.context("the master key has disappeared")
        }
        Err(error) => Err(error)
            .with_context(|| format!("could not write the master key to `{}`", path.display())),
    }
}

fn write_beside(path: &Path, key: &MasterKey) -> anyhow::Result<PathBuf> {
    let temporary = path.with_extension(format!("new.{}", std::process::id()));
    let write = || {
        let _ = fs::remove_file(&temporary);
        let mut options = fs::OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(&temporary)?;
        file.write_all(key.expose().as_bytes())?;
        file.write_all(b"\n")?;
        file.sync_all()
    };
    write().with_context(|| format!("could not write `{}`", temporary.display()))?;
    Ok(temporary)
}

/// Reads a key from its variable, or from its file.
fn given(variable: &str, file: Option<&Path>) -> anyhow::Result<Option<MasterKey>> {
    match (VARIABLES.get().and_then(|taken| taken.get(variable)), file) {
        (Some(_), Some(_)) => bail!("set {variable} or {variable}_FILE, not both"),
        (Some(text), None) => parse(text, variable).map(Some),
        (None, Some(path)) => {
            let key = read_file(path, GIVEN_MODE)?;
            let missing = || format!("{variable}_FILE: there is no `{}`", path.display());
            key.with_context(missing).map(Some)
        }
        (None, None) => Ok(None),
    }
}

fn read_file(path: &Path, forbidden: u32) -> anyhow::Result<Option<MasterKey>> {
    let shown = path.display().to_string();
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("could not read `{shown}`")),
    };
    // Checked on the open file, so that nobody can swap it after the check.
    let facts = file.metadata().with_context(|| format!("could not read `{shown}`"))?;
    if !facts.is_file() {
        bail!("`{shown}` is not a regular file");
    }
    if facts.mode() & forbidden != 0 {
        bail!("others can read or change the master key in `{shown}`; run `chmod 600` on it");
    }
    let mut text = Zeroizing::new(String::new());
    file.take(FILE_LIMIT)
        .read_to_string(&mut text)
        .with_context(|| format!("could not read `{shown}`"))?;
    parse(&text, &shown).map(Some)
}

fn parse(text: &str, place: &str) -> anyhow::Result<MasterKey> {
    text.parse().with_context(|| {
        format!("{place} is not a master key; `openssl rand -base64 32` creates one")
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(OWN_FILE);
        assert!(read_file(&path, OWN_MODE).unwrap().is_none());
        let made = make_own(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        // Another gateway that starts now takes what is there.
        assert_eq!(make_own(&path).unwrap().id(), made.id());
        assert_eq!(read_file(&path, OWN_MODE).unwrap().unwrap().id(), made.id());
        for (mode, own, given) in
            [(0o640, false, true), (0o644, false, false), (0o620, false, false)]
        {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(read_file(&path, OWN_MODE).is_ok(), own, "{mode:o}");
            assert_eq!(read_file(&path, GIVEN_MODE).is_ok(), given, "{mode:o}");
        }
        let other = MasterKey::generate().unwrap();
        replace_own(&path, &other).unwrap();
        assert_eq!(read_file(&path, OWN_MODE).unwrap().unwrap().id(), other.id());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left behind");
    }

    #[test]
    fn a_wrong_key_is_told_without_it() {
        for text in ["", "changeme", "Q2FuYXJ5Q2FuYXJ5"] {
            let told = format!("{:#}", parse(text, "PML_MASTER_KEY").unwrap_err());
            assert!(told.contains("openssl rand") && !told.contains("Canary"), "{told}");
            assert!(text.is_empty() || !told.contains(text), "{told}");
        }
    }
}
