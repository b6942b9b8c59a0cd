//! `pml login` and `pml logout`: the API key of a gateway, or a sign-in, stored for this user.

mod browser;

use std::io::{BufRead as _, IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use protocol::{ErrorCode, escape_text};
use tokio_util::sync::CancellationToken;

use super::hidden;
use super::terminal::{blocking, interrupted, note, say};
use crate::args::{self, Settings};
use crate::config::Config;
use crate::consent::trust::TrustStore;
use crate::error::CliError;
use crate::gateway::cloud::Cloud;
use crate::gateway::keys::{
    self, ApiKey, Gateway, KeyPlace, KeySource, Keyring, Login, RefreshLock, SignIn,
};
use crate::workspace::Workspace;

/// The maximum number of bytes that are read from stdin.
const INPUT_LIMIT: u64 = 8 * 1024;

/// Gets an API key or a sign-in, verifies it with the gateway and stores it.
pub(super) async fn login(
    settings: &Settings,
    options: args::Login,
    stop: &CancellationToken,
) -> Result<ExitCode, CliError> {
    let places = Places::of(settings)?;
    let (login, who) = if options.browser {
        browser::sign_in(&places.gateway, &options, stop).await?
    } else {
        let text = ask(&places.gateway, stop).await?;
        let key = key(&text)?.ok_or_else(|| {
            CliError::cannot_run("no API key was given; nothing was stored")
                .with_hint("Type it, or pass it on stdin: `pml login < key.txt`.")
        })?;
        verified(&places.gateway, key, stop).await?
    };
    places.store(&login, &who, stop).await?;
    if keys::variable().is_some_and(|value| !value.trim().is_empty()) {
        let what = if options.browser { "tokens" } else { "key" };
        note(&format!(
            "warning: `PML_API_KEY` is set and takes precedence over the stored {what}\n"
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns whether no gateway is configured.
///
/// # Errors
/// Returns that the project's or the user's settings cannot be used.
pub(super) fn needs_gateway(settings: &Settings) -> Result<bool, CliError> {
    Ok(chosen(settings)?.0.is_default())
}

/// Returns whether there is an API key or a sign-in for the gateway.
///
/// # Errors
/// Returns that the project's or the user's settings cannot be used.
pub(super) async fn has_key(settings: &Settings) -> Result<bool, CliError> {
    let (gateway, workspace) = gateway(settings)?;
    let keys = KeySource::of_user(&gateway, &workspace.root_paths());
    Ok(keys.map_err(|error| invalid(&error))?.find().await.login.is_some())
}

/// Asks on a terminal for an API key, without echo, verifies it and stores it; returns `false` if none is given.
///
/// # Errors
/// Returns that the gateway does not accept the key; nothing is stored then.
pub(super) async fn from_question(
    settings: &Settings,
    stop: &CancellationToken,
) -> Result<bool, CliError> {
    let places = Places::of(settings)?;
    let question = format!("API key for {} (not shown; Enter for none): ", places.gateway);
    let Some(key) = key(&hidden::ask(&question, stop).await?)? else { return Ok(false) };
    let (login, who) = verified(&places.gateway, key, stop).await?;
    places.store(&login, &who, stop).await?;
    Ok(true)
}

/// A gateway, and where its keys are stored.
struct Places {
    gateway: Gateway,
    keyring: Option<Keyring>,
    file: PathBuf,
}

impl Places {
    /// Checks them first, so that nobody types a key or signs in in vain.
    fn of(settings: &Settings) -> Result<Self, CliError> {
        let (gateway, workspace) = gateway(settings)?;
        let file = file()?;
        keys::check_file(&file).map_err(|error| invalid(&error))?;
        let keyring = Keyring::of_user(&workspace.root_paths()).map_err(|error| invalid(&error))?;
        Ok(Self { gateway, keyring, file })
    }

    /// Stores a verified key or sign-in, and says `who` has logged in.
    async fn store(
        self,
        login: &Login,
        who: &str,
        stop: &CancellationToken,
    ) -> Result<(), CliError> {
        let place = tokio::select! {
            place = store(&self.gateway, login, self.keyring.as_ref(), self.file) => place?,
            () = stop.cancelled() => return Err(interrupted()),
        };
        // Only now: commands must not select a gateway for which nothing was stored.
        if let Some(file) = keys::gateway_file() {
            keys::remember_gateway(&file, &self.gateway).map_err(|error| invalid(&error))?;
        }
        let stored = match login {
            Login::Key(_) => "The key is stored",
            Login::SignIn(_) => "The tokens are stored",
        };
        say(&format!("{who}\n{stored} in {place}. Commands that name no gateway use this one.\n"))
    }
}

fn key(text: &str) -> Result<Option<ApiKey>, CliError> {
    ApiKey::new(text, "stdin").map_err(|error| invalid(&error))
}

/// Verifies an API key with the gateway; also returns what to say about it.
async fn verified(
    gateway: &Gateway,
    key: ApiKey,
    stop: &CancellationToken,
) -> Result<(Login, String), CliError> {
    // With exactly this key: a stored one must not pass the check in its place.
    let login = Login::Key(key);
    let cloud = Cloud::new(gateway.clone(), KeySource::given(gateway, login.clone()))?;
    // A key that the gateway rejects must not replace one that it accepts.
    let own = tokio::select! {
        own = cloud.own_key() => own?,
        () = stop.cancelled() => return Err(interrupted()),
    };
    let who = format!(
        "Logged in to {gateway} as `{}` in `{}`. Rights of the API key: {}.",
        escape_text(&own.principal),
        escape_text(&own.scope),
        escape_text(&own.can.join(", ")),
    );
    Ok((login, who))
}

/// Stores an API key or a sign-in in the keyring if there is one, else in the file; never in both.
async fn store(
    gateway: &Gateway,
    login: &Login,
    keyring: Option<&Keyring>,
    file: PathBuf,
) -> Result<KeyPlace, CliError> {
    // Another process that refreshes an earlier sign-in would write it over this one.
    let _lock = lock(gateway, &file).await?;
    if let Some(keyring) = keyring {
        match keyring.store(gateway, login).await {
            Ok(()) => {
                // In this order: if the deletion fails, there are two keys, but never none.
                keys::delete_login(&file, gateway).map_err(|error| invalid(&error))?;
                return Ok(KeyPlace::Keyring);
            }
            // The old key would take precedence over the new one as soon as the keyring is unlocked.
            Err(error) if keyring.has(gateway).await.unwrap_or(false) => {
                return Err(CliError::cannot_run(format!(
                    "{error}, and it has an older API key for {gateway}; nothing was stored"
                ))
                .with_hint("Unlock the keyring and log in again."));
            }
            Err(error) => {
                let what = match login {
                    Login::Key(_) => "the API key is",
                    Login::SignIn(_) => "the tokens are",
                };
                note(&format!("{error}; {what} stored in the file instead\n"));
            }
        }
    }
    keys::store_login(&file, gateway, login).map_err(|error| invalid(&error))?;
    Ok(KeyPlace::File(file))
}

async fn lock(gateway: &Gateway, file: &Path) -> Result<RefreshLock, CliError> {
    let locked = RefreshLock::acquire(file).await;
    locked.map_err(|error| error.into_body(&gateway.to_string()).into())
}

/// Deletes the gateway's API key or sign-in from wherever it is stored, and revokes the sign-in.
pub(super) async fn logout(
    settings: &Settings,
    stop: &CancellationToken,
) -> Result<ExitCode, CliError> {
    let (gateway, workspace) = gateway(settings)?;
    let keyring = Keyring::of_user(&workspace.root_paths()).map_err(|error| invalid(&error))?;
    let file = file()?;
    let mut sign_ins = sign_ins(&gateway, keyring.as_ref(), &file).await;
    let _lock = match sign_ins.is_empty() {
        true => None,
        false => {
            let lock = tokio::select! {
                lock = lock(&gateway, &file) => lock?,
                () = stop.cancelled() => return Err(interrupted()),
            };
            // Read again: the refresh token may have been exchanged for another one meanwhile.
            sign_ins = self::sign_ins(&gateway, keyring.as_ref(), &file).await;
            Some(lock)
        }
    };
    let was_in_file = keys::delete_login(&file, &gateway).map_err(|error| invalid(&error))?;
    let was_in_keyring = match keyring {
        Some(keyring) => {
            let deleted = tokio::select! {
                deleted = keyring.delete(&gateway) => deleted,
                () = stop.cancelled() => return Err(interrupted()),
            };
            deleted.map_err(|error| CliError::failed(error.to_string()))?
        }
        None => false,
    };
    // Last: if a key cannot be deleted, the next attempt still finds the gateway.
    if let Some(file) = keys::gateway_file() {
        keys::forget_gateway(&file, &gateway).map_err(|error| invalid(&error))?;
    }
    // After the deletion: here, the sign-in is over even if the issuer does not answer.
    if let Some(sign_in) = sign_ins.first() {
        let revoked = tokio::select! {
            revoked = browser::revoke_all(&sign_ins) => revoked,
            () = stop.cancelled() => return Err(interrupted()),
        };
        let end = browser::end_of_access(sign_in);
        say(&format!("The stored sign-in for {gateway} was deleted{revoked}.{end}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let was_there = was_in_file || was_in_keyring;
    say(&if was_there {
        format!(
            "The stored API key for {gateway} was deleted. It stays valid until it is revoked.\n"
        )
    } else {
        format!("No API key was stored for {gateway}.\n")
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the stored sign-ins of a gateway. What cannot be read has none here; deleting reports why.
async fn sign_ins(gateway: &Gateway, keyring: Option<&Keyring>, file: &Path) -> Vec<SignIn> {
    let in_file = keys::from_file(gateway, Some(file)).ok().flatten();
    let in_keyring = match keyring {
        Some(keyring) => keyring.find(gateway).await.ok().flatten(),
        None => None,
    };
    let stored = in_file.into_iter().chain(in_keyring);
    let sign_in = |login| match login {
        Login::SignIn(sign_in) => Some(*sign_in),
        Login::Key(_) => None,
    };
    stored.filter_map(sign_in).collect()
}

/// Finds the gateway, which must be configured, and the workspace.
fn gateway(settings: &Settings) -> Result<(Gateway, Workspace), CliError> {
    let (gateway, workspace) = chosen(settings)?;
    if gateway.is_default() {
        return Err(CliError::cannot_run(
            "no gateway is configured, so it is unknown which one the API key is for",
        )
        .with_hint("Name it: `pml login --url https://pml.acme.example`, or set PML_CLOUD_URL."));
    }
    Ok((gateway, workspace))
}

/// Finds the gateway and the workspace in the same way as every other command.
fn chosen(settings: &Settings) -> Result<(Gateway, Workspace), CliError> {
    let mut workspace =
        Workspace::find(settings.workspace.as_deref()).map_err(|error| invalid(&error))?;
    let store = TrustStore::of_user().map_err(|error| invalid(&error))?;
    let config = Config::open(&mut workspace, &store).map_err(|error| invalid(&error))?;
    let variable = std::env::var(keys::URL_VARIABLE).ok();
    let remembered = keys::remembered_gateway().map_err(|error| invalid(&error))?;
    let gateway = Gateway::choose(
        settings.url.as_deref(),
        variable.as_deref(),
        config.cloud_url.as_deref(),
        remembered.as_deref(),
    )
    .map_err(|error| invalid(&error))?;
    Ok((gateway, workspace))
}

fn file() -> Result<PathBuf, CliError> {
    keys::user_file().ok_or_else(|| {
        CliError::cannot_run("there is no home folder to store an API key in")
            .with_hint("Set HOME.")
    })
}

/// Reads a line: from a terminal without echo, from anything else as it is.
async fn ask(gateway: &Gateway, stop: &CancellationToken) -> Result<String, CliError> {
    if std::io::stdin().is_terminal() {
        return hidden::ask(&format!("API key for {gateway} (not shown): "), stop).await;
    }
    let read = blocking(stop, || {
        let mut line = String::new();
        std::io::stdin().lock().take(INPUT_LIMIT).read_line(&mut line).map(|_| line)
    });
    read.await?.map_err(|error| CliError::cannot_run(format!("cannot read the key: {error}")))
}

fn invalid(error: &dyn std::fmt::Display) -> CliError {
    CliError::from_code(ErrorCode::ConfigInvalid, error.to_string())
}
