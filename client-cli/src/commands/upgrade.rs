//! `pml upgrade`: replaces this program by the newest release.

use std::process::ExitCode;

use protocol::{ErrorCode, escape_text};
use serde_json::json;

use super::terminal::{note, say};
use crate::args::Upgrade;
use crate::consent::trust::TrustStore;
use crate::error::CliError;
use crate::release::{
    Installation, Manifest, Owner, ReleaseError, ReplaceError, Seen, Trusted, own_version, owner_of,
};

/// The exit code of `--check` if there is a newer version.
const NEWER: u8 = 1;

/// Upgrades this program, or says whether there is a newer version.
///
/// # Errors
/// Returns why not. This program is as it was then.
pub(super) async fn upgrade(options: &Upgrade) -> Result<ExitCode, CliError> {
    let program = std::env::current_exe()
        .and_then(|path| path.canonicalize())
        .map_err(|error| CliError::failed(format!("cannot find this program: {error}")))?;
    let owner = owner_of(&program);
    let trusted = Trusted::new(options.from.as_deref(), options.key.as_deref()).map_err(refused)?;
    let manifest = trusted.manifest().await.map_err(refused)?;
    let records = TrustStore::of_user().map_err(|error| CliError::failed(error.to_string()))?;
    let seen = Seen::of(records.folder());
    seen.check(&manifest, chrono::Utc::now()).map_err(refused)?;
    let is_newer = manifest.version > own_version();
    let (own, newest) = (env!("CARGO_PKG_VERSION"), manifest.shown());
    if options.check || !is_newer {
        seen.remember(&manifest).map_err(not_remembered)?;
        let then = owner.as_ref().map_or("pml upgrade", |owner| owner.command);
        report(options, is_newer, own, &newest, then)?;
        let is_behind = options.check && is_newer;
        return Ok(if is_behind { ExitCode::from(NEWER) } else { ExitCode::SUCCESS });
    }
    if let Some(Owner { name, command }) = owner {
        let message = format!("`{}` was installed by {name}, which upgrades it", program.display());
        return Err(CliError::cannot_run(message).with_hint(format!("Run `{command}`.")));
    }
    // First: a release of this machine may only be missing.
    let file = manifest.program("pml").map_err(refused)?;
    let mut installation = Installation::open(&program).map_err(not_replaced)?;
    note(&format!("Downloading pml {newest} …\n"));
    let mut unpacker = installation.unpack(file.unpacked_bytes());
    trusted.source().file(&manifest, file, |part| unpacker.take(part)).await.map_err(refused)?;
    unpacker.finish().map_err(|reason| {
        refused(ReleaseError::Refused(format!("its file cannot be unpacked: {reason}")))
    })?;
    install(installation, &manifest).await?;
    // Only now: a version that does not work here must not hinder the next one, or a repetition.
    seen.remember(&manifest).map_err(not_remembered)?;
    if options.json {
        say(&format!("{}\n", json!({ "from": own, "to": newest, "upgraded": true })))?;
    } else {
        say(&format!(
            "Upgraded pml {own} to {newest}. Agents use it when they start `pml` again.\n"
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn install(installation: Installation, manifest: &Manifest) -> Result<(), CliError> {
    let version = manifest.shown();
    let done = tokio::task::spawn_blocking(move || installation.finish(&version)).await;
    done.map_err(|error| CliError::failed(error.to_string()))?.map_err(not_replaced)
}

fn report(
    options: &Upgrade,
    is_newer: bool,
    own: &str,
    newest: &str,
    then: &str,
) -> Result<(), CliError> {
    if options.json {
        return say(&format!(
            "{}\n",
            json!({ "from": own, "to": newest, "newer": is_newer, "upgraded": false })
        ));
    }
    say(&match is_newer {
        true => format!("pml {newest} is available, and this is {own}; `{then}` installs it\n"),
        false => format!("pml {own} is up to date\n"),
    })
}

fn refused(error: ReleaseError) -> CliError {
    let text = escape_text(&error.to_string());
    match error {
        ReleaseError::NotARelease(_) => CliError::cannot_run(text)
            .with_hint("Name both: `--from URL` and `--key KEY`, or install a release."),
        ReleaseError::Key(_) => CliError::cannot_run(text)
            .with_hint("Write the second line of the `.pub` file; it begins with `RW`."),
        ReleaseError::Unreadable { .. } => CliError::unavailable(text),
        ReleaseError::Signature(_) | ReleaseError::Manifest(_) | ReleaseError::Refused(_) => {
            CliError::from_code(ErrorCode::IntegrityMismatch, text)
                .with_hint("This `pml` was not changed.")
        }
    }
}

fn not_replaced(error: ReplaceError) -> CliError {
    let text = escape_text(&error.to_string());
    let hint = match error {
        ReplaceError::Write { .. } => {
            "Run it as a user who may write there, or install `pml` into a folder of yours."
        }
        ReplaceError::Busy(_) => "Wait until it has ended.",
        ReplaceError::Broken(_) => "This `pml` was not changed.",
    };
    CliError::failed(text).with_hint(hint)
}

fn not_remembered(error: std::io::Error) -> CliError {
    CliError::failed(format!("cannot store which release was seen: {error}"))
}
