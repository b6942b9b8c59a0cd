//! Which gateway, and the key for it.

mod store;

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use url::{Host, Url};

pub use store::{forget, keep};

/// The variable that names the gateway.
pub const URL_VARIABLE: &str = "PML_CLOUD_URL";

/// The variable that holds the key.
pub const KEY_VARIABLE: &str = "PML_API_KEY";

/// The gateway when nothing else is said.
pub const DEFAULT_URL: &str = "https://pml.casys.ai";

/// The largest file of keys that is read, in bytes.
const FILE_LIMIT: u64 = 1024 * 1024;

/// The longest key, in bytes.
const KEY_LIMIT: usize = 4_096;

/// Says why there is no gateway or no key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The address cannot be used.
    #[error("`{text}` from {place} cannot be the gateway: {reason}")]
    Url {
        /// The address, without what may be secret in it.
        text: String,
        /// Where it stands.
        place: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// The file of keys must not be used as it is.
    #[error("`{path}` cannot be used: {reason}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong and what to do.
        reason: String,
    },
    /// The key has characters that no key has.
    #[error("the key from {place} is not one: {reason}")]
    Key {
        /// Where it stands.
        place: String,
        /// What is wrong with it; never the key.
        reason: &'static str,
    },
}

/// A gateway's address: checked, and without a trailing slash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gateway {
    url: Url,
    place: &'static str,
}

impl Gateway {
    /// Chooses the gateway: the flag, `PML_CLOUD_URL`, a trusted `.pml.json`,
    /// the default. An empty value counts as none.
    ///
    /// # Errors
    /// Returns [`KeyError::Url`] when the chosen one cannot be used; a wrong
    /// address is never skipped for the next.
    pub fn choose(
        flag: Option<&str>,
        variable: Option<&str>,
        trusted_file: Option<&str>,
    ) -> Result<Self, KeyError> {
        let places = [
            (flag, "the command line"),
            (variable, "`PML_CLOUD_URL`"),
            (trusted_file, "`cloud.url` in `.pml.json`"),
        ];
        let chosen = places.into_iter().find_map(|(text, place)| {
            text.map(str::trim).filter(|text| !text.is_empty()).map(|text| (text, place))
        });
        let (text, place) = chosen.unwrap_or((DEFAULT_URL, "the default"));
        Self::parse(text, place)
    }

    fn parse(text: &str, place: &'static str) -> Result<Self, KeyError> {
        let refused =
            |text: &str, reason: String| KeyError::Url { text: text.to_owned(), place, reason };
        let mut url =
            Url::parse(text).map_err(|error| refused("the address", error.to_string()))?;
        // Checked before the address is shown: it may carry a password.
        if !url.username().is_empty() || url.password().is_some() {
            let reason = "it has a name or password in it; put the key into `PML_API_KEY`";
            return Err(refused("the address", reason.to_owned()));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(refused("the address", "it has a query or a fragment".to_owned()));
        }
        let is_loopback = match url.host() {
            Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
            Some(Host::Ipv4(address)) => IpAddr::V4(address).is_loopback(),
            Some(Host::Ipv6(address)) => IpAddr::V6(address).is_loopback(),
            None => false,
        };
        match url.scheme() {
            "https" => {}
            "http" if is_loopback => {}
            "http" => {
                let reason = "`http` sends the key in the clear; use `https`";
                return Err(refused(text, reason.to_owned()));
            }
            other => {
                return Err(refused(
                    text,
                    format!("`{other}` is not a scheme of the web; use `https`"),
                ));
            }
        }
        let path = url.path().trim_end_matches('/').to_owned();
        url.set_path(&path);
        Ok(Self { url, place })
    }

    /// Returns the address of a path below the gateway's own, for example
    /// `mcp`.
    pub fn join(&self, path: &str) -> Url {
        let mut url = self.url.clone();
        let base = self.url.path().trim_end_matches('/');
        url.set_path(&format!("{base}/{}", path.trim_start_matches('/')));
        url
    }

    /// Returns the origin that keys belong to, for example
    /// `https://pml.casys.ai`.
    pub fn origin(&self) -> String {
        self.url.origin().ascii_serialization()
    }

    /// Returns where the address stands, for people.
    pub fn place(&self) -> &'static str {
        self.place
    }
}

impl fmt::Display for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.url.as_str().trim_end_matches('/'))
    }
}

/// A key; it is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(String);

impl ApiKey {
    /// Reads a key; an empty text is none.
    ///
    /// # Errors
    /// Returns [`KeyError::Key`] for what cannot be one.
    pub fn new(text: &str, place: impl fmt::Display) -> Result<Option<Self>, KeyError> {
        let text = text.trim();
        let refused = |reason| Err(KeyError::Key { place: place.to_string(), reason });
        if text.is_empty() {
            Ok(None)
        } else if text.len() > KEY_LIMIT {
            refused("it is too long")
        } else if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            refused("it has white space or characters that are not ASCII in it")
        } else {
            Ok(Some(Self(text.to_owned())))
        }
    }

    /// Returns the key for the request that it is made for.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey([redacted])")
    }
}

/// Returns the user's file of keys, `~/.config/pml/credentials`.
pub fn user_file() -> Option<PathBuf> {
    let configured = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
    let home = || std::env::home_dir().map(|home| home.join(".config"));
    configured
        .filter(|path| path.is_absolute())
        .or_else(home)
        .map(|path| path.join("pml/credentials"))
}

/// Finds the key for a gateway: `PML_API_KEY`, else the entry of exactly this
/// origin in the file. No key is no error: local programs work without.
///
/// # Errors
/// Returns [`KeyError`] when the file is there and must not be used, or the
/// key cannot be one.
pub fn find(
    gateway: &Gateway,
    variable: Option<&str>,
    file: Option<&Path>,
) -> Result<Option<ApiKey>, KeyError> {
    if let Some(key) = ApiKey::new(variable.unwrap_or(""), format_args!("`{KEY_VARIABLE}`"))? {
        return Ok(Some(key));
    }
    let Some(path) = file else { return Ok(None) };
    let Some(keys) = read_keys(path)? else { return Ok(None) };
    let place = path.display();
    keys.get(&gateway.origin())
        .map_or(Ok(None), |text| ApiKey::new(text, format_args!("`{place}`")))
}

fn read_keys(path: &Path) -> Result<Option<BTreeMap<String, String>>, KeyError> {
    let refused = |reason: String| KeyError::File { path: path.to_owned(), reason };
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(fd) => File::from(fd),
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => return Ok(None),
        Err(rustix::io::Errno::LOOP) => {
            return Err(refused("it is a symbolic link; put the file itself there".to_owned()));
        }
        Err(errno) => return Err(refused(errno.to_string())),
    };
    // Asked of the open file, so that nobody can swap it after the check.
    let facts = file.metadata().map_err(|error| refused(error.to_string()))?;
    if !facts.is_file() {
        return Err(refused("it is not a regular file".to_owned()));
    }
    if facts.uid() != rustix::process::geteuid().as_raw() {
        return Err(refused("it belongs to another user".to_owned()));
    }
    if facts.mode() & 0o077 != 0 {
        return Err(refused(
            "others can read it; run `chmod 600` on it and replace its keys".to_owned(),
        ));
    }
    let folder = path.parent().unwrap_or(Path::new("."));
    let folder = std::fs::metadata(folder).map_err(|error| refused(error.to_string()))?;
    if folder.mode() & 0o022 != 0 {
        return Err(refused("others can write its folder; run `chmod 700` on that".to_owned()));
    }
    let mut text = Vec::new();
    file.take(FILE_LIMIT).read_to_end(&mut text).map_err(|error| refused(error.to_string()))?;
    // The parser's message could quote a key, so only the place is told.
    serde_json::from_slice(&text).map(Some).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        refused(format!("line {line} column {column} is not part of an object of origins and keys"))
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn gateway(text: &str) -> Gateway {
        Gateway::choose(Some(text), None, None).unwrap()
    }

    #[test]
    fn the_gateway_is_chosen_in_order() {
        let choose =
            |flag, variable, file| Gateway::choose(flag, variable, file).unwrap().to_string();
        let (a, b, c) = (Some("https://a.test"), Some("https://b.test/x/"), Some("https://c.test"));
        assert_eq!(choose(a, b, c), "https://a.test");
        assert_eq!(choose(None, b, c), "https://b.test/x");
        assert_eq!(choose(None, Some(" "), c), "https://c.test");
        assert_eq!(choose(None, None, None), DEFAULT_URL);
        Gateway::choose(Some("nonsense"), b, c).unwrap_err();
        assert_eq!(gateway("https://b.test/x/").join("mcp").as_str(), "https://b.test/x/mcp");
        assert_eq!(
            gateway("http://127.0.0.1:3001").join("/mcp").as_str(),
            "http://127.0.0.1:3001/mcp"
        );
    }

    #[test]
    fn only_addresses_that_keep_a_key_safe_are_taken() {
        for text in
            ["http://localhost:3001", "http://127.0.0.9", "http://[::1]:1", "https://x.test:8443/p"]
        {
            gateway(text);
        }
        for text in [
            "http://x.test",
            "http://127.0.0.1.x.test",
            "http://localhost.x.test",
            "http://10.0.0.1",
            "ftp://x.test",
            "javascript:alert(1)",
            "file:///etc/passwd",
            "https://user:canary@x.test",
            "https://x.test/?key=canary",
            "https://x.test/#canary",
            "-flag",
            "",
        ] {
            let chosen = Gateway::choose(Some(text), None, None);
            if text.is_empty() {
                assert_eq!(chosen.unwrap().to_string(), DEFAULT_URL);
                continue;
            }
            let message = chosen.unwrap_err().to_string();
            assert!(!message.contains("canary"), "{message}");
        }
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
    fn a_key_goes_to_its_own_origin_only() {
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

    /// CL-12: a file that others can read, a link, a FIFO: refused, never read past.
    #[test]
    fn a_file_that_others_can_reach_is_refused() {
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
