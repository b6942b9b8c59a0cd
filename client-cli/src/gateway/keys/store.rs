//! Writes the user's credentials file.

use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use execution::files::atomic::{self, Existing};
use rustix::fs::{FlockOperation, Mode, OFlags};

use super::{Entry, Gateway, KeyError, Login, read_entries, read_private};

/// Stores the API key or the sign-in for a gateway's origin, replacing an earlier one.
///
/// # Errors
/// Returns [`KeyError::File`] if the existing file must not be used, or the new one cannot be written.
pub(crate) fn store_login(path: &Path, gateway: &Gateway, login: &Login) -> Result<(), KeyError> {
    let entry = match login {
        Login::Key(key) => Entry::Key(key.expose().to_owned()),
        Login::SignIn(sign_in) => Entry::SignIn(sign_in.clone()),
    };
    change(path, |entries| entries.insert(gateway.origin(), entry).is_none()).map(drop)
}

/// Deletes the key or the sign-in for a gateway's origin; returns whether there was one.
///
/// # Errors
/// As [`store_login`].
pub(crate) fn delete_login(path: &Path, gateway: &Gateway) -> Result<bool, KeyError> {
    // `change` would create a missing file.
    if read_entries(path)?.is_none() {
        return Ok(false);
    }
    change(path, |entries| entries.remove(&gateway.origin()).is_some())
}

/// Stores the gateway, for commands that name none.
///
/// # Errors
/// Returns [`KeyError::File`] when it cannot be written.
pub(crate) fn remember_gateway(path: &Path, gateway: &Gateway) -> Result<(), KeyError> {
    write(path, |_| Ok(format!("{gateway}\n"))).map(drop)
}

/// Forgets the gateway of the last login, if it is this one.
///
/// # Errors
/// Returns [`KeyError::File`] when the file cannot be read or removed.
pub(crate) fn forget_gateway(path: &Path, gateway: &Gateway) -> Result<(), KeyError> {
    let stored = read_private(path)?.map(|text| String::from_utf8_lossy(&text).trim().to_owned());
    if stored != Some(gateway.to_string()) {
        return Ok(());
    }
    std::fs::remove_file(path)
        .map_err(|error| KeyError::File { path: path.to_owned(), reason: error.to_string() })
}

/// Reads, changes and writes the file under a lock, so that concurrent changes are not lost.
fn change<T>(
    path: &Path,
    edit: impl FnOnce(&mut BTreeMap<String, Entry>) -> T,
) -> Result<T, KeyError> {
    let mut out = None;
    write(path, |path| {
        // A file that must not be used is an error, and is not overwritten.
        let mut entries = read_entries(path)?.unwrap_or_default();
        out = Some(edit(&mut entries));
        let text = serde_json::to_string_pretty(&entries);
        text.map(|text| text + "\n")
            .map_err(|error| KeyError::File { path: path.to_owned(), reason: error.to_string() })
    })?;
    Ok(out.expect("`make` was called by `write`"))
}

/// Writes a file that only its owner can access. `make` returns the text, while the folder is locked.
fn write(
    path: &Path,
    make: impl FnOnce(&Path) -> Result<String, KeyError>,
) -> Result<(), KeyError> {
    let refused = |reason: &dyn std::fmt::Display| KeyError::File {
        path: path.to_owned(),
        reason: reason.to_string(),
    };
    let (Some(folder), Some(name)) =
        (path.parent(), path.file_name().and_then(|name| name.to_str()))
    else {
        return Err(refused(&"it has no folder"));
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|error| refused(&error))?;
    // The folder is locked, because each write replaces the file by a new one, for which a lock on
    // the old one has no effect.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(folder, flags, Mode::empty()).map_err(|error| refused(&error))?;
    // Held until the file is in place; the system releases the lock if the process dies.
    rustix::fs::flock(&opened, FlockOperation::LockExclusive).map_err(|error| refused(&error))?;
    let text = make(path)?;
    let mode = Some(Mode::from_raw_mode(0o600));
    atomic::write_durably(&opened, name, text.as_bytes(), mode, Existing::Replaced)
        .map_err(|error| refused(&error))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::gateway::keys::{ApiKey, from_file};

    fn gateway(url: &str) -> Gateway {
        Gateway::choose(Some(url), None, None, None).unwrap()
    }

    fn key(text: &str) -> Login {
        Login::Key(ApiKey::new(text, "a test").unwrap().unwrap())
    }

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn keys_are_stored_by_origin_for_their_owner_only() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("config/pml/credentials");
        let (a, b) = (gateway("https://a.test/below"), gateway("http://127.0.0.1:3001"));
        assert!(!delete_login(&path, &a).unwrap());
        store_login(&path, &a, &key("first")).unwrap();
        store_login(&path, &b, &key("other")).unwrap();
        store_login(&path, &a, &key("second")).unwrap();
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        let found = |gateway: &Gateway| from_file(gateway, Some(&path)).unwrap();
        assert_eq!(found(&a), Some(key("second")));
        assert_eq!(found(&gateway("https://a.test")), Some(key("second")));
        assert_eq!(found(&b), Some(key("other")));
        assert!(delete_login(&path, &a).unwrap() && !delete_login(&path, &a).unwrap());
        assert_eq!((found(&a), found(&b)), (None, Some(key("other"))));
        assert_eq!(mode(&path), 0o600);
    }

    /// CL-12: a file that must not be read is not overwritten either.
    #[test]
    fn a_file_that_others_can_read_is_left_unchanged() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("credentials");
        std::fs::write(&path, r#"{"https://a.test":"canary"}"#).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
        store_login(&path, &gateway("https://b.test"), &key("k")).unwrap_err();
        delete_login(&path, &gateway("https://a.test")).unwrap_err();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), r#"{"https://a.test":"canary"}"#);
    }

    /// Concurrent writers lose no key.
    #[test]
    fn concurrent_writers_lose_no_key() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("credentials");
        std::thread::scope(|scope| {
            for number in 0..8 {
                let path = &path;
                scope.spawn(move || {
                    store_login(path, &gateway(&format!("https://{number}.test")), &key("k"))
                        .unwrap();
                });
            }
        });
        assert_eq!(read_entries(&path).unwrap().unwrap().len(), 8);
    }
}
