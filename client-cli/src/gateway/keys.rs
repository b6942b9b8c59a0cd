//! Selects the gateway and finds its API key, or the sign-in that stands in for one.

mod gateway;
mod keyring;
mod refresh;
mod sign_in;
mod source;
mod store;

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use protocol::redaction::keys_in_use;
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

use crate::files;

pub(crate) use gateway::Gateway;
pub(crate) use keyring::Keyring;
pub(crate) use refresh::RefreshLock;
pub(crate) use sign_in::{Login, SignIn};
pub(crate) use source::{KeyPlace, KeySource};
pub(crate) use store::{delete_login, forget_gateway, remember_gateway, store_login};

/// The variable that names the gateway.
pub(crate) const URL_VARIABLE: &str = "PML_CLOUD_URL";

/// The variable that holds the key.
pub(crate) const KEY_VARIABLE: &str = "PML_API_KEY";

/// The default gateway. `PML_API_KEY` is never sent to it.
pub(crate) const DEFAULT_URL: &str = "https://pml.casys.ai";

/// The source of the default, for messages.
const DEFAULT_PLACE: &str = "the default";

/// The maximum size of the credentials file in bytes.
const FILE_LIMIT: u64 = 1024 * 1024;

/// The maximum length of a key in bytes.
const KEY_LIMIT: usize = 4_096;

/// Why there is no gateway or no API key.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeyError {
    /// The URL is invalid or not allowed.
    #[error("the gateway's URL{} from {place} cannot be used: {reason}", quoted(.text))]
    Url {
        /// The URL; empty if it may contain a secret.
        text: String,
        /// The source.
        place: &'static str,
        /// The reason.
        reason: String,
    },
    /// The credentials file is invalid or not private.
    #[error("`{path}` cannot be used: {reason}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason and the remedy.
        reason: String,
    },
    /// A variable has an invalid value.
    #[error("`{name}` is neither `on` nor `off`")]
    Setting {
        /// The variable.
        name: &'static str,
    },
    /// The text cannot be an API key.
    #[error("the API key from {place} is invalid: {reason}")]
    Key {
        /// The source.
        place: String,
        /// The reason; never contains the key.
        reason: &'static str,
    },
}

fn quoted(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(" `{}`", protocol::escape_text(text)) }
}

/// An API key; never displayed.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ApiKey(String);

impl ApiKey {
    /// Parses a key; `None` for an empty text.
    ///
    /// # Errors
    /// Returns [`KeyError::Key`] for a text that cannot be a key.
    pub(crate) fn new(text: &str, place: impl fmt::Display) -> Result<Option<Self>, KeyError> {
        let text = text.trim();
        let refused = |reason| Err(KeyError::Key { place: place.to_string(), reason });
        if text.is_empty() {
            Ok(None)
        } else if text.len() > KEY_LIMIT {
            refused("it is too long")
        } else if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            // The key becomes the value of a header, which a line break would end.
            refused("it contains white space or non-ASCII characters")
        } else {
            // From here on the key is removed from every log line, whichever library writes it.
            keys_in_use().keep(text);
            Ok(Some(Self(text.to_owned())))
        }
    }

    /// Returns the key itself, to authenticate a request.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey([redacted])")
    }
}

/// The value of `PML_API_KEY`.
static VARIABLE: OnceLock<Option<String>> = OnceLock::new();

/// Removes `PML_API_KEY` from this process's environment, which other processes of the user could read.
///
/// Must be called first in `main`, before any thread starts.
pub(crate) fn take_variable() {
    let taken = sandbox::take_variable(c"PML_API_KEY");
    VARIABLE.get_or_init(|| taken.and_then(|text| text.into_string().ok()));
}

/// Returns the value of `PML_API_KEY`, also after it was removed from the environment.
pub(crate) fn variable() -> Option<&'static str> {
    VARIABLE.get_or_init(|| std::env::var(KEY_VARIABLE).ok()).as_deref()
}

/// Returns the path of the user's credentials file, `~/.config/pml/credentials`.
pub(crate) fn user_file() -> Option<PathBuf> {
    files::settings_folder().map(|folder| folder.join("credentials"))
}

/// Returns the path of the file with the gateway of the last login, `~/.config/pml/gateway`.
pub(crate) fn gateway_file() -> Option<PathBuf> {
    user_file().map(|file| file.with_file_name("gateway"))
}

/// Reads the gateway of the last login.
///
/// # Errors
/// Returns [`KeyError::File`] for a file that other users could have written.
pub(crate) fn remembered_gateway() -> Result<Option<String>, KeyError> {
    let Some(path) = gateway_file() else { return Ok(None) };
    let text = read_private(&path)?;
    Ok(text.map(|text| String::from_utf8_lossy(&text).trim().to_owned()))
}

/// Returns the key in `PML_API_KEY`, unless the gateway is the default.
///
/// The variable does not name the gateway that the key belongs to, so the key is sent only to a gateway that the user
/// named.
///
/// # Errors
/// Returns [`KeyError::Key`] for a value that cannot be a key.
fn from_variable(gateway: &Gateway, variable: Option<&str>) -> Result<Option<ApiKey>, KeyError> {
    let key = ApiKey::new(variable.unwrap_or(""), format_args!("`{KEY_VARIABLE}`"))?;
    Ok(key.filter(|_| !gateway.is_default()))
}

/// Returns the key or the sign-in in the credentials file for exactly the gateway's origin.
///
/// # Errors
/// Returns [`KeyError`] if the file exists but must not be used, or the value cannot be a key.
pub(crate) fn from_file(gateway: &Gateway, file: Option<&Path>) -> Result<Option<Login>, KeyError> {
    let Some(path) = file else { return Ok(None) };
    let Some(entries) = read_entries(path)? else { return Ok(None) };
    let place = path.display();
    match entries.get(&gateway.origin()) {
        None => Ok(None),
        Some(Entry::Key(text)) => Ok(ApiKey::new(text, format_args!("`{place}`"))?.map(Login::Key)),
        Some(Entry::SignIn(sign_in)) => match sign_in.checked() {
            Some(sign_in) => Ok(Some(Login::SignIn(Box::new(sign_in)))),
            None => Err(KeyError::File {
                path: path.to_owned(),
                reason: "its sign-in is invalid; run `pml logout`".to_owned(),
            }),
        },
    }
}

/// Checks that the credentials file, if there is one, can be changed.
///
/// # Errors
/// Returns [`KeyError::File`] if the file must not be used.
pub(crate) fn check_file(path: &Path) -> Result<(), KeyError> {
    read_entries(path).map(drop)
}

/// What the credentials file has for an origin.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Entry {
    /// An API key.
    Key(String),
    /// A sign-in, as it was written; not checked yet.
    SignIn(Box<SignIn>),
}

fn read_entries(path: &Path) -> Result<Option<BTreeMap<String, Entry>>, KeyError> {
    let Some(text) = read_private(path)? else { return Ok(None) };
    // The parser's message could quote a key, so only the position is reported.
    serde_json::from_slice(&text).map(Some).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        let reason =
            format!("line {line} column {column} is not part of an object of origins and keys");
        KeyError::File { path: path.to_owned(), reason }
    })
}

/// Reads a file that only the user can read and write.
fn read_private(path: &Path) -> Result<Option<Vec<u8>>, KeyError> {
    let refused = |reason: String| KeyError::File { path: path.to_owned(), reason };
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(fd) => File::from(fd),
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => return Ok(None),
        Err(rustix::io::Errno::LOOP) => {
            return Err(refused(
                "it is a symbolic link; replace it with a regular file".to_owned(),
            ));
        }
        Err(errno) => return Err(refused(errno.to_string())),
    };
    // Checked on the open file, so that it cannot be replaced after the check.
    let metadata = file.metadata().map_err(|error| refused(error.to_string()))?;
    if !metadata.is_file() {
        return Err(refused("it is not a regular file".to_owned()));
    }
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(refused("it belongs to another user".to_owned()));
    }
    if metadata.mode() & 0o077 != 0 {
        return Err(refused(
            "others can read it; run `chmod 600` on it and replace its keys".to_owned(),
        ));
    }
    // Anybody who can write to the folder can replace the file.
    let folder = path.parent().unwrap_or(Path::new("."));
    let folder = std::fs::metadata(folder).map_err(|error| refused(error.to_string()))?;
    if folder.mode() & 0o022 != 0 {
        return Err(refused("others can write its folder; run `chmod 700` on that".to_owned()));
    }
    let mut text = Vec::new();
    file.take(FILE_LIMIT).read_to_end(&mut text).map_err(|error| refused(error.to_string()))?;
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// Finds a key as on a machine without a keyring.
    fn find(
        gateway: &Gateway,
        variable: Option<&str>,
        file: Option<&Path>,
    ) -> Result<Option<ApiKey>, KeyError> {
        match from_variable(gateway, variable)? {
            Some(key) => Ok(Some(key)),
            None => Ok(from_file(gateway, file)?.map(|login| match login {
                Login::Key(key) => key,
                Login::SignIn(_) => panic!("not an API key"),
            })),
        }
    }

    fn gateway(text: &str) -> Gateway {
        Gateway::choose(Some(text), None, None, None).unwrap()
    }

    /// `PML_API_KEY` may belong to any gateway, so it is sent only to one that the user named.
    #[test]
    fn the_variable_is_not_sent_to_the_default_gateway() {
        let keys = Keys::new(r#"{"https://pml.casys.ai": "kept"}"#, 0o600);
        let found = |gateway: &Gateway| {
            let key = find(gateway, Some("key-env"), Some(&keys.path())).unwrap();
            key.map(|key| key.expose().to_owned())
        };
        let default = Gateway::choose(None, None, None, None).unwrap();
        assert_eq!(found(&default).as_deref(), Some("kept"), "`pml login --url` named it");
        assert_eq!(found(&gateway(DEFAULT_URL)).as_deref(), Some("key-env"));
        let empty = Keys::new("{}", 0o600);
        assert_eq!(find(&default, Some("key-env"), Some(&empty.path())).unwrap(), None);
    }

    struct Keys(tempfile::TempDir);

    impl Keys {
        fn new(content: &str, mode: u32) -> Self {
            let keys = Self(tempfile::tempdir().unwrap());
            std::fs::write(keys.path(), content).unwrap();
            std::fs::set_permissions(keys.path(), PermissionsExt::from_mode(mode)).unwrap();
            keys
        }

        fn path(&self) -> PathBuf {
            self.0.path().join("credentials")
        }

        fn find(&self, url: &str, variable: Option<&str>) -> Result<Option<ApiKey>, KeyError> {
            find(&gateway(url), variable, Some(&self.path()))
        }
    }

    #[test]
    fn a_key_is_sent_to_its_own_origin_only() {
        let keys =
            Keys::new(r#"{"https://a.test": "key-a", "http://127.0.0.1:3001": "key-l"}"#, 0o600);
        let found = |url| keys.find(url, None).unwrap().map(|key| key.expose().to_owned());
        assert_eq!(found("https://a.test/below").as_deref(), Some("key-a"));
        assert_eq!(found("http://127.0.0.1:3001").as_deref(), Some("key-l"));
        for url in [
            "https://b.test",
            "https://a.test:8443",
            "https://a.test.b.test",
            "http://127.0.0.1:3002",
        ] {
            assert_eq!(found(url), None, "{url}");
        }
        let named = keys.find("https://a.test", Some("key-env")).unwrap().unwrap();
        assert_eq!(
            (named.expose(), format!("{named:?}").as_str()),
            ("key-env", "ApiKey([redacted])")
        );
        assert_eq!(keys.find("https://a.test", Some("")).unwrap().unwrap().expose(), "key-a");
        keys.find("https://a.test", Some("a\nb")).unwrap_err();
        assert_eq!(
            find(&gateway("https://a.test"), None, Some(Path::new("/nonexistent/x"))).unwrap(),
            None
        );
    }

    /// CL-12: a file that others can read, and a symbolic link, are errors; the file is not skipped.
    #[test]
    fn a_file_that_others_can_read_is_refused() {
        let content = r#"{"https://a.test": "canary"}"#;
        for mode in [0o640, 0o604, 0o660, 0o666] {
            Keys::new(content, mode).find("https://a.test", None).unwrap_err();
        }
        Keys::new(content, 0o400).find("https://a.test", None).unwrap().unwrap();
        let keys = Keys::new(content, 0o600);
        std::fs::rename(keys.path(), keys.0.path().join("real")).unwrap();
        std::os::unix::fs::symlink("real", keys.path()).unwrap();
        keys.find("https://a.test", None).unwrap_err();
        for broken in ["{\"https://a.test\": canary}", "[]", "{\"a\": {\"canary\": 1}}", ""] {
            let error = Keys::new(broken, 0o600).find("https://a.test", None).unwrap_err();
            assert!(!error.to_string().contains("canary"), "{error}");
        }
        let open = Keys::new(content, 0o600);
        std::fs::set_permissions(open.0.path(), PermissionsExt::from_mode(0o777)).unwrap();
        open.find("https://a.test", None).unwrap_err();
    }
}
