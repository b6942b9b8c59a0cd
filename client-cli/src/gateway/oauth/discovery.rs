//! Who the gateway's issuer is, and where its endpoints are: RFC 9728, RFC 8414 and OpenID Connect Discovery.

use url::Url;

use super::address::{self, Reach};
use super::exchange::{self, Answer};
use super::{KEY_WORKS, OauthError, shown};

/// The member of the gateway's metadata with the client id of `pml`. RFC 9728, section 2, allows further members.
const CLIENT_ID: &str = "pml_cli_client_id";

/// The maximum length of a client id in bytes.
const CLIENT_ID_LIMIT: usize = 256;

/// The scope with which an issuer returns a refresh token (OpenID Connect Core, section 11).
pub(super) const OFFLINE: &str = "offline_access";

/// The issuer of a gateway, as far as a sign-in needs it.
#[derive(Debug, Clone)]
pub(crate) struct Issuer {
    /// Its identifier.
    pub(crate) name: String,
    /// The gateway, as the audience of tokens (RFC 8707).
    pub(crate) resource: String,
    /// The client id of `pml`.
    pub(crate) client_id: String,
    /// The scopes to request, separated by spaces.
    pub(crate) scope: String,
    /// The endpoint for tokens.
    pub(crate) token_endpoint: Url,
    /// The endpoint for revocations, if it has one.
    pub(crate) revocation_endpoint: Option<Url>,
    /// The endpoint for device codes.
    pub(super) device_endpoint: Url,
    /// Where its addresses may lead.
    pub(super) reach: Reach,
}

/// Finds the issuer of the gateway at `gateway`, whose metadata is at `metadata`. `client_id` overrides the gateway's.
///
/// # Errors
/// Returns [`OauthError::NotConfigured`] if the gateway has no issuer or no client id, or the issuer has no device
/// endpoint; otherwise as the exchange with them.
pub(crate) async fn discover(
    gateway: &Url,
    metadata: &Url,
    client_id: Option<&str>,
) -> Result<Issuer, OauthError> {
    let reach = Reach::of(gateway);
    let shown_gateway = gateway.as_str().trim_end_matches('/');
    let answer = exchange::get(metadata).await?;
    if answer.status == 404 {
        return Err(OauthError::NotConfigured {
            message: format!("the gateway at {shown_gateway} has no issuer to sign in with"),
            hint: format!(
                "The operator of the gateway has to set PML_OAUTH_ISSUER and PML_OAUTH_CLI_CLIENT_ID. {KEY_WORKS}"
            ),
        });
    }
    let at_gateway = |what: String| OauthError::Invalid(format!("{metadata}: {what}"));
    if answer.status != 200 {
        return Err(at_gateway(format!("HTTP status {}", answer.status)));
    }
    let resource = answer.text("resource").unwrap_or_default();
    let resource_url = address::checked(resource, &format!("{metadata}: `resource`"), reach)?;
    // Otherwise the issuer would make a token for another server, which could use it here (RFC 9728, 3.3).
    if resource_url.origin() != gateway.origin() {
        return Err(at_gateway(format!(
            "`resource` is `{}`, which is not {shown_gateway}; PML_OAUTH_AUDIENCE of the gateway, or the URL that you use, is another one",
            shown(resource)
        )));
    }
    let client_id = match client_id.or_else(|| answer.text(CLIENT_ID)) {
        Some(id) => checked_client_id(id)?,
        None => {
            return Err(OauthError::NotConfigured {
                message: format!(
                    "the gateway at {shown_gateway} does not name a client id for `pml`"
                ),
                hint: format!(
                    "The operator of the gateway has to set PML_OAUTH_CLI_CLIENT_ID; or pass `--client-id ID`. {KEY_WORKS}"
                ),
            });
        }
    };
    let Some(name) = answer.texts("authorization_servers").next() else {
        return Err(at_gateway("`authorization_servers` names no issuer".to_owned()));
    };
    let issuer = address::checked(name, &format!("{metadata}: the issuer"), reach)?;
    let scopes: Vec<String> = answer
        .texts("scopes_supported")
        .filter(|scope| is_scope(scope))
        .map(str::to_owned)
        .collect();
    let found = metadata_of(name, &issuer).await?;
    let endpoint = |member: &str| {
        found.text(member).map(|text| address::checked(text, &format!("{name}: `{member}`"), reach))
    };
    let Some(device_endpoint) = endpoint("device_authorization_endpoint").transpose()? else {
        return Err(OauthError::NotConfigured {
            message: format!(
                "the issuer {name} does not offer sign-in on another device (RFC 8628): it has no `device_authorization_endpoint`"
            ),
            hint: format!("The operator of the issuer has to enable it. {KEY_WORKS}"),
        });
    };
    let Some(token_endpoint) = endpoint("token_endpoint").transpose()? else {
        return Err(OauthError::Invalid(format!("the issuer {name} has no `token_endpoint`")));
    };
    let is_offline = found.texts("scopes_supported").any(|scope| scope == OFFLINE);
    let scopes = scopes.iter().map(String::as_str).chain(is_offline.then_some(OFFLINE));
    Ok(Issuer {
        name: name.to_owned(),
        resource: resource.to_owned(),
        client_id,
        scope: scopes.collect::<Vec<_>>().join(" "),
        token_endpoint,
        revocation_endpoint: endpoint("revocation_endpoint").transpose()?,
        device_endpoint,
        reach,
    })
}

/// Reads the issuer's metadata from the first place that has it.
async fn metadata_of(name: &str, issuer: &Url) -> Result<Answer, OauthError> {
    let mut last = String::new();
    for url in places(issuer) {
        let answer = exchange::get(&url).await?;
        if answer.status != 200 {
            last = format!("{url} answered HTTP status {}", answer.status);
            continue;
        }
        // A server must not pass for another issuer (RFC 8414, 3.3); compared as text, without normalization.
        let claimed = answer.text("issuer").unwrap_or_default();
        if claimed != name {
            return Err(OauthError::Invalid(format!(
                "{url} is the metadata of the issuer `{}`, and not of `{name}`",
                shown(claimed)
            )));
        }
        return Ok(answer);
    }
    Err(OauthError::Invalid(format!("the issuer {name} has no metadata: {last}")))
}

/// Returns where the metadata of an issuer may be: RFC 8414, section 3.1, and OpenID Connect Discovery, section 4.
fn places(issuer: &Url) -> Vec<Url> {
    let path = issuer.path().trim_end_matches('/');
    let at = |path: String| {
        let mut url = issuer.clone();
        url.set_query(None);
        url.set_path(&path);
        url
    };
    vec![
        at(format!("/.well-known/oauth-authorization-server{path}")),
        at(format!("{path}/.well-known/openid-configuration")),
    ]
}

fn checked_client_id(id: &str) -> Result<String, OauthError> {
    // RFC 6749, appendix A.1.
    let is_valid = !id.is_empty()
        && id.len() <= CLIENT_ID_LIMIT
        && id.bytes().all(|byte| (0x20..=0x7e).contains(&byte));
    match is_valid {
        true => Ok(id.to_owned()),
        false => Err(OauthError::Invalid(format!("`{}` is not a client id", shown(id)))),
    }
}

/// Returns whether a text is one scope (RFC 6749, appendix A.4).
fn is_scope(text: &str) -> bool {
    let is_allowed = |byte: u8| matches!(byte, 0x21 | 0x23..=0x5b | 0x5d..=0x7e);
    !text.is_empty() && text.bytes().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_searched_in_the_standard_places() {
        let places = |issuer: &str| {
            let found = super::places(&issuer.parse().unwrap());
            found.iter().map(|url| url.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(
            places("https://id.test"),
            [
                "https://id.test/.well-known/oauth-authorization-server",
                "https://id.test/.well-known/openid-configuration"
            ]
        );
        assert_eq!(
            places("https://id.test/realms/acme"),
            [
                "https://id.test/.well-known/oauth-authorization-server/realms/acme",
                "https://id.test/realms/acme/.well-known/openid-configuration"
            ]
        );
    }

    #[test]
    fn odd_client_ids_and_scopes_are_refused() {
        assert_eq!(checked_client_id("pml cli").unwrap(), "pml cli");
        for id in ["", "a\nb", "ä", &"x".repeat(CLIENT_ID_LIMIT + 1)] {
            checked_client_id(id).unwrap_err();
        }
        assert!(is_scope("pml:execute") && !is_scope("a b") && !is_scope("") && !is_scope("\""));
    }
}
