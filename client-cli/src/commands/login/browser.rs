//! `pml login --browser`: the person signs in at the gateway's issuer (RFC 8628).

use std::io::IsTerminal as _;

use protocol::escape_text;
use tokio_util::sync::CancellationToken;

use crate::args;
use crate::browser::Browser;
use crate::commands::terminal::{note, unless_stopped};
use crate::error::CliError;
use crate::gateway::cloud::Cloud;
use crate::gateway::keys::{Gateway, KeySource, Login, SignIn};
use crate::gateway::oauth::{self, Device, Issuer, OauthError};

/// Where the gateway's metadata is, beneath its address (RFC 9728).
const METADATA: &str = ".well-known/oauth-protected-resource";

/// Shows the person where to sign in, waits until that is done, and verifies the tokens with the gateway; also returns
/// what to say about it.
pub(super) async fn sign_in(
    gateway: &Gateway,
    options: &args::Login,
    stop: &CancellationToken,
) -> Result<(Login, String), CliError> {
    let failed = |error: OauthError| CliError::from(error.into_body(&gateway.to_string()));
    let client_id = options.client_id.as_deref();
    let waits = async {
        let issuer = oauth::discover(&gateway.join(""), &gateway.join(METADATA), client_id).await?;
        let device = Device::start(&issuer).await?;
        Ok((issuer, device))
    };
    let (issuer, device) = unless_stopped(stop, async { waits.await.map_err(failed) }).await?;
    show(gateway, &issuer, &device, options.no_open);
    let granted = device.wait(&issuer);
    let granted = unless_stopped(stop, async { granted.await.map_err(failed) }).await?;
    let rights = granted.scope.clone().unwrap_or_else(|| issuer.scope.clone());
    let sign_in = SignIn::new(&issuer, granted);
    let login = Login::SignIn(Box::new(sign_in.clone()));
    let cloud = Cloud::new(gateway.clone(), KeySource::given(gateway, login.clone()))?;
    // Tokens that the gateway rejects must not replace a key that it accepts.
    if let Err(error) = unless_stopped(stop, cloud.accepts_token()).await {
        // Nobody will use them, so a failure to revoke them leaves nothing that is known anywhere.
        let _ = sign_in.revoke().await;
        return Err(error);
    }
    let mut who = format!(
        "Signed in to {gateway} through {}. Granted: {}.",
        issuer.name,
        escape_text(&rights)
    );
    if !sign_in.is_refreshed() {
        who += " The issuer gave no refresh token.";
        who += &end_of_access(&sign_in);
    }
    Ok((login, who))
}

/// Shows where to sign in, and opens that page if a person sits at this terminal.
fn show(gateway: &Gateway, issuer: &Issuer, device: &Device, no_open: bool) {
    let minutes = device.lifetime.as_secs().div_ceil(60);
    note(&format!(
        "To sign in to {gateway} through {}, open this page and enter the code:\n\n  {}\n  {}\n\n",
        issuer.name, device.page, device.user_code
    ));
    // Without a terminal, nobody may see the code that the page must show, too.
    let is_shown = std::io::stdout().is_terminal() && std::io::stderr().is_terminal();
    let browser = Browser::of_environment();
    if let Some(command) = browser.command().filter(|_| is_shown && !no_open) {
        let page = device.page_with_code.as_ref().unwrap_or(&device.page);
        match command.open(page.as_str()) {
            Ok(()) => note("Your browser shows it. Check that it shows the same code. "),
            Err(error) => note(&format!("Your browser cannot be started: {error}. ")),
        }
    }
    note(&format!("Waiting for up to {minutes} min; Ctrl-C stops.\n"));
}

/// Revokes sign-ins; returns what to add to the sentence about their deletion.
pub(super) async fn revoke_all(sign_ins: &[SignIn]) -> &'static str {
    let mut is_revoked = true;
    for sign_in in sign_ins {
        match sign_in.revoke().await {
            Ok(revoked) => is_revoked &= revoked,
            Err(error) => {
                note(&format!(
                    "warning: {} did not revoke the refresh token, which may still be valid: {error}\n",
                    sign_in.issuer
                ));
                is_revoked = false;
            }
        }
    }
    if is_revoked { ", and its refresh token was revoked" } else { "" }
}

/// Returns the sentence that says until when the access token is valid; the gateway does not learn of a revocation.
pub(super) fn end_of_access(sign_in: &SignIn) -> String {
    sign_in.expires_at.map_or_else(String::new, |end| {
        format!(" The access token is valid until {}.", end.format("%Y-%m-%d %H:%M:%S UTC"))
    })
}
