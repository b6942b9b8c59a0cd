//! The part of OAuth 2.0 that a sign-in needs: who the gateway's issuer is, the device authorization grant (RFC 8628),
//! and refreshing and revoking its tokens.
//!
//! Every address comes from the gateway or its issuer and is checked before it is used. No answer is trusted to be
//! small, fast, or harmless to show.

mod address;
mod device;
mod discovery;
mod exchange;
mod token;

use protocol::{ErrorBody, ErrorCode, escape_text};

pub(crate) use self::device::Device;
pub(crate) use self::discovery::{Issuer, discover};
pub(crate) use self::token::{Granted, Refresh, is_token, refresh, revoke};

/// The end of a hint when a person cannot sign in with a browser.
const KEY_WORKS: &str = "`pml login` with an API key works.";

/// Why a sign-in, a refresh or a revocation failed. No message contains a token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OauthError {
    /// A setting is missing, on the side that the hint names.
    #[error("{message}")]
    NotConfigured {
        /// What is missing.
        message: String,
        /// Who has to set it.
        hint: String,
    },
    /// A server is unreachable or does not answer in time.
    #[error("{0}")]
    Unreachable(String),
    /// A server answered something invalid.
    #[error("{0}")]
    Invalid(String),
    /// The issuer refused the request with this error code (RFC 6749, 5.2).
    #[error("the issuer refused{}", refusal(.code, .description))]
    Refused {
        /// The error code, for example `invalid_grant`.
        code: String,
        /// The issuer's explanation; may be empty.
        description: String,
    },
    /// The person has to sign in again.
    #[error("{0}")]
    Ended(String),
}

fn refusal(code: &str, description: &str) -> String {
    let colon = if description.is_empty() { "" } else { ": " };
    format!(" (`{code}`){colon}{description}")
}

impl OauthError {
    /// Creates the error for a refusal; the texts are the issuer's.
    fn refused(code: &str, description: &str) -> Self {
        Self::Refused { code: shown(code), description: shown(description) }
    }

    /// Returns whether the issuer refused with this error code.
    pub(crate) fn is(&self, wanted: &str) -> bool {
        matches!(self, Self::Refused { code, .. } if code == wanted)
    }

    /// Returns the error in the form of all commands and runs; `gateway` is the one that the sign-in is for.
    pub(crate) fn into_body(self, gateway: &str) -> ErrorBody {
        let again = || format!("Run `pml login --browser --url {gateway}`.");
        let (code, hint) = match &self {
            Self::NotConfigured { hint, .. } => (ErrorCode::ConfigInvalid, hint.clone()),
            Self::Unreachable(_) | Self::Invalid(_) => (
                ErrorCode::IdentityUnavailable,
                format!("Retry later, or ask the operator of the gateway. {KEY_WORKS}"),
            ),
            Self::Refused { .. } => (ErrorCode::Unauthorized, format!("{} {KEY_WORKS}", again())),
            Self::Ended(_) => (ErrorCode::Unauthorized, again()),
        };
        let mut body = ErrorBody::new(code, self.to_string());
        body.hint = hint;
        body
    }
}

/// Returns a text of a server for display: escaped and short.
fn shown(text: &str) -> String {
    escape_text(&text.chars().take(200).collect::<String>())
}
