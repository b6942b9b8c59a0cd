//! The source of a gateway's API key.

use std::fmt;
use std::path::PathBuf;
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
    /// The user's credentials file.
    File(PathBuf),
    /// The user, in this command: a key that is being verified.
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
    /// Why the keyring could not be read.
    pub(crate) keyring_error: Option<KeyringError>,
}

/// The API key of one gateway. The keyring is queried when the key is first needed, because it may be slow.
#[derive(Debug, Clone)]
pub(crate) struct KeySource(Arc<Search>);

#[derive(Debug)]
struct Search {
    gateway: Gateway,
    keyring: Option<Keyring>,
    /// The key to use if the keyring has none.
    fallback: Option<(ApiKey, KeyPlace)>,
    found: OnceCell<Found>,
}

impl KeySource {
    /// Creates a source from a key that is already known.
    pub(crate) fn given(gateway: &Gateway, key: ApiKey) -> Self {
        Self::new(gateway, None, Some((key, KeyPlace::Given)))
    }

    /// Creates the source for this user: `PML_API_KEY`, the keyring, the file. `roots` are the folders of the
    /// workspace.
    ///
    /// # Errors
    /// Returns [`KeyError`] if the variable or the file cannot be used.
    pub(crate) fn of_user(gateway: &Gateway, roots: &[PathBuf]) -> Result<Self, KeyError> {
        if let Some(key) = from_variable(gateway, super::variable())? {
            // Without the keyring, which would otherwise be asked first and may prompt the user.
            return Ok(Self::new(gateway, None, Some((key, KeyPlace::Variable))));
        }
        Self::stored(gateway, roots)
    }

    /// Creates the source of the key that this user has stored for exactly the gateway's origin: the keyring, the file.
    /// `PML_API_KEY` does not say whose it is, so it is only for the gateway that the user has chosen.
    ///
    /// # Errors
    /// Returns [`KeyError`] if the file cannot be used.
    pub(crate) fn stored(gateway: &Gateway, roots: &[PathBuf]) -> Result<Self, KeyError> {
        let file = user_file();
        // Read now, so that an invalid file is an error even if the keyring has a key.
        let stored = from_file(gateway, file.as_deref())?;
        let stored = stored.zip(file.map(KeyPlace::File));
        Ok(Self::new(gateway, Keyring::of_user(roots)?, stored))
    }

    fn new(
        gateway: &Gateway,
        keyring: Option<Keyring>,
        fallback: Option<(ApiKey, KeyPlace)>,
    ) -> Self {
        let found = OnceCell::new();
        Self(Arc::new(Search { gateway: gateway.clone(), keyring, fallback, found }))
    }

    /// Finds the API key; the result is cached for the life of the process.
    pub(crate) async fn find(&self) -> &Found {
        let Search { gateway, keyring, fallback, found } = &*self.0;
        let search = async || {
            let mut keyring_error = None;
            if let Some(keyring) = keyring {
                match keyring.find(gateway).await {
                    Ok(Some(key)) => {
                        return Found { key: Some((key, KeyPlace::Keyring)), keyring_error };
                    }
                    Ok(None) => {}
                    Err(error) => {
                        tracing::debug!(%error, "Looking for the API key in the file");
                        keyring_error = Some(error);
                    }
                }
            }
            Found { key: fallback.clone(), keyring_error }
        };
        // Concurrent requests wait for one search, so a locked keyring prompts only once.
        found.get_or_init(search).await
    }

    /// Returns the result of [`find`](Self::find); `None` before its first call.
    pub(crate) fn known(&self) -> Option<&Found> {
        self.0.found.get()
    }
}
