//! Refreshes a sign-in once, however many processes need it.
//!
//! An issuer that rotates refresh tokens accepts each of them once, and takes a second use for a theft: it ends the
//! sign-in. So one process at a time refreshes, and first reads what another one may have stored.

use std::fs::{DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::Duration;

use chrono::Utc;
use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;
use tokio::time::Instant;

use super::{Gateway, KeyPlace, Keyring, Login, SignIn, from_file, store_login};
use crate::gateway::oauth::OauthError;

/// How long another process is waited for: a little longer than the time limit of its request.
const LOCK_LIMIT: Duration = Duration::from_secs(30);

/// The right to change the sign-ins of this user; released when it is dropped, and by the system if the process dies.
pub(crate) struct RefreshLock(
    #[expect(dead_code, reason = "the lock lasts as long as the file")] File,
);

impl RefreshLock {
    /// Waits for the right. `credentials` is the user's file, whose folder has the lock.
    ///
    /// # Errors
    /// Returns that the lock cannot be used, or that another process holds it for too long.
    pub(crate) async fn acquire(credentials: &Path) -> Result<Self, OauthError> {
        // Not the lock of the folder, which is held for a moment to write: this one is held during a request.
        let path = credentials.with_file_name("sign-in.lock");
        let failed = |reason: &dyn std::fmt::Display| {
            OauthError::Unreachable(format!("`{}` cannot be locked: {reason}", path.display()))
        };
        if let Some(folder) = path.parent() {
            let created = DirBuilder::new().recursive(true).mode(0o700).create(folder);
            created.map_err(|error| failed(&error))?;
        }
        let flags = i32::try_from((OFlags::NOFOLLOW | OFlags::CLOEXEC).bits()).unwrap_or_default();
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(flags)
            .open(&path)
            .map_err(|error| failed(&error))?;
        let deadline = Instant::now() + LOCK_LIMIT;
        loop {
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Self(file)),
                Err(Errno::WOULDBLOCK) if Instant::now() < deadline => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                Err(Errno::WOULDBLOCK) => return Err(failed(&"another `pml` holds the lock")),
                Err(errno) => return Err(failed(&errno)),
            }
        }
    }
}

/// Where a sign-in is stored.
#[derive(Debug, Clone)]
pub(super) struct Home {
    pub(super) gateway: Gateway,
    pub(super) keyring: Option<Keyring>,
    pub(super) place: KeyPlace,
}

/// Returns a sign-in whose access token is not due and not `refused`, the one that the gateway did not accept.
///
/// # Errors
/// Returns [`OauthError::Ended`] if the person has to sign in again.
pub(super) async fn refreshed(
    home: Home,
    known: SignIn,
    refused: Option<String>,
) -> Result<SignIn, OauthError> {
    let Some(file) = super::user_file() else { return known.refreshed().await };
    let _lock = RefreshLock::acquire(&file).await?;
    let stored = match home.read().await {
        Ok(Some(Login::SignIn(stored))) => *stored,
        Ok(_) => {
            let reason = "the sign-in was deleted or replaced by another `pml`";
            return Err(OauthError::Ended(reason.to_owned()));
        }
        // A keyring that was locked meanwhile.
        Err(reason) => return Err(OauthError::Unreachable(reason)),
    };
    let is_refused = |sign_in: &SignIn| refused.as_deref() == Some(sign_in.access_token());
    let now = Utc::now();
    // Another process has refreshed it meanwhile.
    if !stored.is_due(now) && !is_refused(&stored) {
        return Ok(stored);
    }
    match stored.refreshed().await {
        Ok(new) => {
            if let Err(reason) = home.write(&new).await {
                // This process goes on; the next one finds a refresh token that was used.
                tracing::warn!(reason, "The refreshed sign-in cannot be stored");
            }
            Ok(new)
        }
        // Due is not over: without the issuer, the token is used until it expires.
        Err(error @ (OauthError::Unreachable(_) | OauthError::Invalid(_)))
            if !stored.is_over(now) && !is_refused(&stored) =>
        {
            tracing::debug!(%error, "Using the access token for as long as it is valid");
            Ok(stored)
        }
        Err(error) => Err(error),
    }
}

impl Home {
    async fn read(&self) -> Result<Option<Login>, String> {
        match (&self.place, &self.keyring) {
            (KeyPlace::File(path), _) => {
                from_file(&self.gateway, Some(path)).map_err(|error| error.to_string())
            }
            (KeyPlace::Keyring, Some(keyring)) => {
                keyring.find(&self.gateway).await.map_err(|error| error.to_string())
            }
            _ => Ok(None),
        }
    }

    async fn write(&self, new: &SignIn) -> Result<(), String> {
        let login = Login::SignIn(Box::new(new.clone()));
        match (&self.place, &self.keyring) {
            (KeyPlace::File(path), _) => {
                store_login(path, &self.gateway, &login).map_err(|error| error.to_string())
            }
            (KeyPlace::Keyring, Some(keyring)) => {
                keyring.store(&self.gateway, &login).await.map_err(|error| error.to_string())
            }
            _ => Ok(()),
        }
    }
}
