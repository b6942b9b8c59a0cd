//! The source of a gateway's API key.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::OnceCell;

use super::keyring::{Keyring, KeyringError};
use super::{ApiKey, Gateway, KEY_VARIABLE, KeyError, from_file, from_variable, user_file};

/// The source of an API key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeyPlace {
    /// `PML_API_KEY`.
    Variable,
    /// The keyring of the user's session.
    Keyring,
    /// The user's file of keys.
    File(PathBuf),
    /// The command that tries it.
    Given,
}

impl fmt::Display for KeyPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable => write!(f, "`{KEY_VARIABLE}`"),
            Self::Keyring => f.write_str("the keyring"),
            Self::File(path) => write!(f, "`{}`", path.display()),
            Self::Given => f.write_str("this command"),
        }
    }
}

/// The result of the search for an API key.
#[derive(Debug, Clone, Default)]
pub(crate) struct Found {
    /// The key and its place.
    pub(crate) key: Option<(ApiKey, KeyPlace)>,
    /// Why the keyring could not be queried.
    pub(crate) trouble: Option<KeyringError>,
}

/// The API key of one gateway. The keyring is queried when the key is first needed, because it may be slow.
#[derive(Debug, Clone)]
pub(crate) struct KeySource(Arc<Search>);

#[derive(Debug)]
struct Search {
    gateway: Gateway,
    keyring: Option<Keyring>,
    /// The source to use if the keyring has no key.
    otherwise: Option<(ApiKey, KeyPlace)>,
    found: OnceCell<Found>,
}

impl KeySource {
    /// Creates the source of a key that is known.
    pub(crate) fn given(gateway: &Gateway, key: ApiKey) -> Self {
        Self::new(gateway, None, Some((key, KeyPlace::Given)))
    }

    /// Creates the source for this user: `PML_API_KEY`, the keyring, the file. `root` is the workspace, if there is one.
    ///
    /// # Errors
    /// Returns [`KeyError`] when the variable or the file cannot be used.
    pub(crate) fn of_user(gateway: &Gateway, root: Option<&Path>) -> Result<Self, KeyError> {
        if let Some(key) = from_variable(gateway, super::variable())? {
            return Ok(Self::new(gateway, None, Some((key, KeyPlace::Variable))));
        }
        let file = user_file();
        let kept = from_file(gateway, file.as_deref())?;
        let kept = kept.zip(file.map(KeyPlace::File));
        Ok(Self::new(gateway, Keyring::of_user(root)?, kept))
    }

    fn new(
        gateway: &Gateway,
        keyring: Option<Keyring>,
        otherwise: Option<(ApiKey, KeyPlace)>,
    ) -> Self {
        let found = OnceCell::new();
        Self(Arc::new(Search { gateway: gateway.clone(), keyring, otherwise, found }))
    }

    /// Finds the API key; the result is cached for the life of the process.
    pub(crate) async fn find(&self) -> &Found {
        let Search { gateway, keyring, otherwise, found } = &*self.0;
        let search = async || {
            let mut trouble = None;
            if let Some(keyring) = keyring {
                match keyring.find(gateway).await {
                    Ok(Some(key)) => {
                        return Found { key: Some((key, KeyPlace::Keyring)), trouble };
                    }
                    Ok(None) => {}
                    Err(error) => {
                        tracing::debug!(%error, "Looking for the API key in the file");
                        trouble = Some(error);
                    }
                }
            }
            Found { key: otherwise.clone(), trouble }
        };
        found.get_or_init(search).await
    }

    /// Returns what was found so far; nothing before the first [`find`](Self::find).
    pub(crate) fn known(&self) -> Option<&Found> {
        self.0.found.get()
    }
}
