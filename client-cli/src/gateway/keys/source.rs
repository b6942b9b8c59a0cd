//! The source of a gateway's API key, or of the sign-in that stands in for one.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use chrono::Utc;
use protocol::Integrity;
use tokio::sync::{Mutex, OnceCell};

use super::keyring::{Keyring, KeyringError};
use super::refresh::{Home, refreshed};
use super::{Gateway, KEY_VARIABLE, KeyError, Login, SignIn, from_file, from_variable, user_file};
use crate::gateway::oauth::OauthError;

/// The source of an API key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeyPlace {
    /// `PML_API_KEY`.
    Variable,
    /// The keyring of the user's session.
    Keyring,
    /// The user's credentials file.
    File(PathBuf),
    /// The user, in this command: a key or a sign-in that is being verified.
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
    /// The key or the sign-in, and its place.
    pub(crate) login: Option<(Login, KeyPlace)>,
    /// Why the keyring could not be read.
    pub(crate) keyring_error: Option<KeyringError>,
}

/// The API key or the sign-in of one gateway. The keyring is queried when the key is first needed, because it may be slow.
#[derive(Debug, Clone)]
pub(crate) struct KeySource(Arc<Search>);

#[derive(Debug)]
struct Search {
    gateway: Gateway,
    keyring: Option<Keyring>,
    /// What to use if the keyring has nothing.
    fallback: Option<(Login, KeyPlace)>,
    found: OnceCell<Found>,
    /// The sign-in, as this process refreshed it last.
    current: Mutex<Option<SignIn>>,
}

/// What authenticates a request; never displayed.
pub(crate) struct Bearer {
    text: String,
    is_access_token: bool,
}

impl Bearer {
    /// Returns the key or the access token itself.
    pub(crate) fn expose(&self) -> &str {
        &self.text
    }

    /// Returns whether it is an access token, which can be refreshed.
    pub(crate) fn is_access_token(&self) -> bool {
        self.is_access_token
    }
}

impl KeySource {
    /// Creates a source from a key or a sign-in that is already known.
    pub(crate) fn given(gateway: &Gateway, login: Login) -> Self {
        Self::new(gateway, None, Some((login, KeyPlace::Given)))
    }

    /// Creates the source for this user: `PML_API_KEY`, the keyring, the file. `roots` are the folders of the
    /// workspace.
    ///
    /// # Errors
    /// Returns [`KeyError`] if the variable or the file cannot be used.
    pub(crate) fn of_user(gateway: &Gateway, roots: &[PathBuf]) -> Result<Self, KeyError> {
        if let Some(key) = from_variable(gateway, super::variable())? {
            // Without the keyring, which would otherwise be asked first and may prompt the user.
            return Ok(Self::new(gateway, None, Some((Login::Key(key), KeyPlace::Variable))));
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
        fallback: Option<(Login, KeyPlace)>,
    ) -> Self {
        let (found, current) = (OnceCell::new(), Mutex::default());
        Self(Arc::new(Search { gateway: gateway.clone(), keyring, fallback, found, current }))
    }

    /// Finds the API key or the sign-in; the result is cached for the life of the process. The tokens of a sign-in may
    /// be newer: [`Self::bearer`] returns those.
    pub(crate) async fn find(&self) -> &Found {
        let Search { gateway, keyring, fallback, found, .. } = &*self.0;
        let search = async || {
            let mut keyring_error = None;
            if let Some(keyring) = keyring {
                match keyring.find(gateway).await {
                    Ok(Some(login)) => {
                        return Found { login: Some((login, KeyPlace::Keyring)), keyring_error };
                    }
                    Ok(None) => {}
                    Err(error) => {
                        tracing::debug!(%error, "Looking for the API key in the file");
                        keyring_error = Some(error);
                    }
                }
            }
            Found { login: fallback.clone(), keyring_error }
        };
        // Concurrent requests wait for one search, so a locked keyring prompts only once.
        found.get_or_init(search).await
    }

    /// Returns what authenticates a request: the API key, or the access token of a sign-in, which is refreshed if it is
    /// due, or if it is the `refused` one.
    ///
    /// # Errors
    /// Returns [`OauthError`] if the sign-in cannot be refreshed.
    pub(crate) async fn bearer(
        &self,
        refused: Option<&Bearer>,
    ) -> Result<Option<Bearer>, OauthError> {
        // Boxed: every future that sends a request contains this one.
        let (first, place) = match &Box::pin(self.find()).await.login {
            None => return Ok(None),
            Some((Login::Key(key), _)) => {
                let text = key.expose().to_owned();
                return Ok(Some(Bearer { text, is_access_token: false }));
            }
            Some((Login::SignIn(first), place)) => (first, place),
        };
        let refused = refused.map(|bearer| bearer.text.clone());
        // Concurrent requests wait for one refresh.
        let mut current = self.0.current.lock().await;
        let known = current.as_ref().unwrap_or(first).clone();
        let is_refused = refused.as_deref() == Some(known.access_token());
        // A sign-in that is being verified is new, and not stored yet.
        let is_stored = *place != KeyPlace::Given;
        let new = if is_stored && (known.is_due(Utc::now()) || is_refused) {
            let Search { gateway, keyring, .. } = &*self.0;
            let home =
                Home { gateway: gateway.clone(), keyring: keyring.clone(), place: place.clone() };
            // In a task of its own: a request that is cancelled must not lose the new refresh token.
            let refresh = tokio::spawn(refreshed(home, known, refused));
            refresh.await.map_err(|error| OauthError::Unreachable(error.to_string()))??
        } else {
            known
        };
        let text = new.access_token().to_owned();
        *current = Some(new);
        Ok(Some(Bearer { text, is_access_token: true }))
    }

    /// Returns the sign-in with the tokens that [`Self::bearer`] returned last.
    pub(crate) async fn current(&self) -> Option<SignIn> {
        self.0.current.lock().await.clone()
    }

    /// Returns a hash that separates the cached answers of different principals. A refresh does not change it.
    pub(crate) async fn principal(&self) -> Option<Integrity> {
        let (login, _) = self.find().await.login.as_ref()?;
        Some(match login {
            Login::Key(key) => Integrity::of(key.expose().as_bytes()),
            Login::SignIn(sign_in) => Integrity::of(sign_in.id().as_bytes()),
        })
    }

    /// Returns the result of [`find`](Self::find); `None` before its first call.
    pub(crate) fn known(&self) -> Option<&Found> {
        self.0.found.get()
    }
}
