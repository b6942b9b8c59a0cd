//! The issuer's endpoints for tokens (RFC 6749) and for revocations (RFC 7009). `pml` is a public client: it has no
//! secret of its own.

use protocol::redaction::keys_in_use;
use url::Url;

use super::OauthError;
use super::exchange::{self, Answer};

/// The maximum length of a token in bytes: an access token must fit into a header.
const TOKEN_LIMIT: usize = 8 * 1024;

/// What the issuer granted.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Granted {
    /// The access token.
    pub(crate) access_token: String,
    /// Its lifetime in seconds, if the issuer says so.
    pub(crate) lifetime_s: Option<u64>,
    /// The refresh token, if there is one.
    pub(crate) refresh_token: Option<String>,
    /// The granted scopes, if they differ from the requested ones.
    pub(crate) scope: Option<String>,
}

impl Granted {
    /// Parses the answer of the token endpoint.
    pub(super) fn read(answer: &Answer, url: &Url) -> Result<Self, OauthError> {
        let invalid = |what: &str| OauthError::Invalid(format!("{url} sent {what}"));
        // Before anything can fail, so that no message can show them.
        for token in
            ["access_token", "refresh_token"].into_iter().filter_map(|name| answer.text(name))
        {
            keys_in_use().keep(token);
        }
        if !answer.text("token_type").is_some_and(|kind| kind.eq_ignore_ascii_case("bearer")) {
            return Err(invalid("a token that is not a bearer token"));
        }
        let token = |name: &str| match answer.text(name) {
            None => Ok(None),
            Some(text) if is_token(text) => Ok(Some(text.to_owned())),
            Some(_) => Err(invalid(&format!("an invalid `{name}`"))),
        };
        Ok(Self {
            access_token: token("access_token")?
                .ok_or_else(|| invalid("an answer without an access token"))?,
            lifetime_s: answer.seconds("expires_in"),
            refresh_token: token("refresh_token")?,
            scope: answer.text("scope").map(str::to_owned),
        })
    }
}

/// Returns whether a text can be a token; it becomes a part of a header.
pub(crate) fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= TOKEN_LIMIT
        && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// A request for new tokens.
pub(crate) struct Refresh<'a> {
    /// The endpoint that issued the refresh token; it is sent to no other.
    pub(crate) token_endpoint: &'a Url,
    /// The refresh token.
    pub(crate) refresh_token: &'a str,
    /// The client id.
    pub(crate) client_id: &'a str,
    /// The gateway.
    pub(crate) resource: &'a str,
}

/// Exchanges a refresh token for new tokens.
///
/// # Errors
/// Returns `invalid_grant` as [`OauthError::Refused`] if the refresh token is no longer valid.
pub(crate) async fn refresh(request: Refresh<'_>) -> Result<Granted, OauthError> {
    let url = request.token_endpoint;
    let fields = [
        ("grant_type", "refresh_token"),
        ("refresh_token", request.refresh_token),
        ("client_id", request.client_id),
        ("resource", request.resource),
    ];
    Granted::read(&exchange::post(url, &fields).await?, url)
}

/// Revokes a refresh token, and with it what the issuer has granted.
///
/// # Errors
/// Returns why it may still be valid.
pub(crate) async fn revoke(
    endpoint: &Url,
    refresh_token: &str,
    client_id: &str,
) -> Result<(), OauthError> {
    let fields =
        [("token", refresh_token), ("token_type_hint", "refresh_token"), ("client_id", client_id)];
    exchange::post(endpoint, &fields).await.map(drop)
}
