//! The device authorization grant (RFC 8628): the person signs in with any browser, while `pml` waits.

use std::time::Duration;

use protocol::redaction::keys_in_use;
use tokio::time::Instant;
use url::Url;

use super::address;
use super::discovery::{Issuer, OFFLINE};
use super::exchange;
use super::token::Granted;
use super::{OauthError, shown};

/// The interval between two questions if the issuer names none, in seconds (RFC 8628, 3.2), and its bounds.
const INTERVAL_S: u64 = 5;
const INTERVALS_S: std::ops::RangeInclusive<u64> = 1..=60;

/// By how much `slow_down` extends the interval (RFC 8628, 3.5).
const SLOWER: Duration = Duration::from_secs(5);

/// The maximum time that is waited for the person.
const WAIT_LIMIT_S: u64 = 30 * 60;

/// The maximum length of a user code in characters.
const USER_CODE_LIMIT: usize = 64;

/// A sign-in that waits for the person.
pub(crate) struct Device {
    /// The code that the person enters or compares; escaped.
    pub(crate) user_code: String,
    /// The page for the code.
    pub(crate) page: Url,
    /// The page that has the code already, if there is one.
    pub(crate) page_with_code: Option<Url>,
    /// How long the person may take.
    pub(crate) lifetime: Duration,
    code: String,
    interval: Duration,
    deadline: Instant,
}

impl Device {
    /// Requests a code for the person.
    ///
    /// # Errors
    /// Returns why there is none. A page that is not a plain web address is refused.
    pub(crate) async fn start(issuer: &Issuer) -> Result<Self, OauthError> {
        let url = &issuer.device_endpoint;
        // OpenID Connect Core, section 11: `offline_access` is ignored without `prompt=consent`. Other issuers ignore
        // the parameter (RFC 6749, 3.1).
        let is_offline = issuer.scope.split(' ').any(|scope| scope == OFFLINE);
        let answer = exchange::post(
            url,
            &[
                ("client_id", &issuer.client_id),
                ("scope", &issuer.scope),
                ("resource", &issuer.resource),
                ("prompt", if is_offline { "consent" } else { "" }),
            ],
        )
        .await?;
        let invalid = |what: &str| OauthError::Invalid(format!("{url} sent {what}"));
        let code = answer.text("device_code").filter(|code| !code.is_empty());
        let code = code.ok_or_else(|| invalid("no `device_code`"))?;
        // With this code anybody could fetch the tokens.
        keys_in_use().keep(code);
        let user_code = answer.text("user_code").filter(|code| !code.is_empty());
        let user_code = user_code.ok_or_else(|| invalid("no `user_code`"))?;
        if user_code.chars().count() > USER_CODE_LIMIT {
            return Err(invalid("a `user_code` that is too long"));
        }
        let page = |name: &str| {
            answer
                .text(name)
                .map(|text| address::checked(text, &format!("the issuer's `{name}`"), issuer.reach))
        };
        let lifetime = answer.seconds("expires_in").ok_or_else(|| invalid("no `expires_in`"))?;
        let lifetime = Duration::from_secs(lifetime.min(WAIT_LIMIT_S));
        let interval = answer.seconds("interval").unwrap_or(INTERVAL_S);
        Ok(Self {
            user_code: shown(user_code),
            page: page("verification_uri")
                .transpose()?
                .ok_or_else(|| invalid("no `verification_uri`"))?,
            page_with_code: page("verification_uri_complete").transpose()?,
            lifetime,
            code: code.to_owned(),
            interval: Duration::from_secs(interval.clamp(*INTERVALS_S.start(), *INTERVALS_S.end())),
            deadline: Instant::now() + lifetime,
        })
    }

    /// Waits until the person has signed in.
    ///
    /// # Errors
    /// Returns the issuer's refusal: `access_denied` if the person declined, `expired_token` if the time is over.
    pub(crate) async fn wait(mut self, issuer: &Issuer) -> Result<Granted, OauthError> {
        let url = &issuer.token_endpoint;
        loop {
            // Before the first question, too: nobody signs in at once.
            let next = Instant::now() + self.interval;
            if next > self.deadline {
                tokio::time::sleep_until(self.deadline).await;
                return Err(OauthError::refused("expired_token", "nobody has signed in in time"));
            }
            tokio::time::sleep_until(next).await;
            let fields = [
                ("grant_type", "urn:ietf:params:oauth:grant-type:device_code"),
                ("device_code", &self.code),
                ("client_id", &issuer.client_id),
                ("resource", &issuer.resource),
            ];
            match exchange::post(url, &fields).await {
                Ok(answer) => return Granted::read(&answer, url),
                Err(error) if error.is("authorization_pending") => {}
                Err(error) if error.is("slow_down") => self.interval += SLOWER,
                // RFC 8628, 3.5: after a failed connection, ask less often.
                Err(OauthError::Unreachable(reason)) => {
                    tracing::debug!(reason, "Asking the issuer again");
                    self.interval =
                        (self.interval * 2).min(Duration::from_secs(*INTERVALS_S.end()));
                }
                Err(error) => return Err(error),
            }
        }
    }
}
