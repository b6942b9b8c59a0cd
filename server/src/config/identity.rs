//! The settings for tokens of an identity provider.

use anyhow::{Context as _, bail};
use clap::Args;

/// Settings for tokens. Without an issuer, only API keys are accepted.
#[derive(Debug, Clone, Args)]
pub(crate) struct OauthSettings {
    /// Accept access tokens of this issuer; must equal their `iss` exactly.
    #[arg(long, env = "PML_OAUTH_ISSUER", value_name = "URL")]
    pub oauth_issuer: Option<String>,

    /// The gateway's own address, as in the `aud` of tokens, for example `https://gw.example/mcp`.
    #[arg(long, env = "PML_OAUTH_AUDIENCE", value_name = "URL")]
    pub oauth_audience: Option<String>,

    /// The URL of the issuer's public keys; `https`, except on this machine.
    #[arg(long, env = "PML_OAUTH_JWKS_URL", value_name = "URL")]
    pub oauth_jwks_url: Option<String>,

    /// The `typ` of access tokens.
    #[arg(long, env = "PML_OAUTH_TOKEN_TYPE", default_value = "at+jwt", value_name = "TYPE")]
    pub oauth_token_type: String,

    /// The claim that contains the scope, `org.project`.
    #[arg(long, env = "PML_OAUTH_SCOPE_CLAIM", default_value = "pml_scope", value_name = "CLAIM")]
    pub oauth_scope_claim: String,

    /// The claim that contains the principal.
    #[arg(long, env = "PML_OAUTH_PRINCIPAL_CLAIM", default_value = "sub", value_name = "CLAIM")]
    pub oauth_principal_claim: String,

    /// The claim that contains the rights: `pml:execute`, `pml:read`, `pml:publish`, `pml:admin`.
    #[arg(long, env = "PML_OAUTH_RIGHTS_CLAIM", default_value = "scope", value_name = "CLAIM")]
    pub oauth_rights_claim: String,

    /// The client id under which `pml login --browser` signs in at the issuer; clients read it in the metadata.
    #[arg(long, env = "PML_OAUTH_CLI_CLIENT_ID", value_name = "ID", value_parser = client_id)]
    pub oauth_cli_client_id: Option<String>,

    /// How long cached issuer keys stay valid while the issuer is unreachable.
    #[arg(
        long,
        env = "PML_OAUTH_KEYS_MAX_AGE",
        default_value = "3600",
        value_name = "SECONDS",
        value_parser = clap::value_parser!(u32).range(1..=86_400)
    )]
    pub oauth_keys_max_age: u32,
}

/// Checks that a text can be a client id (RFC 6749, appendix A.1): clients show it.
fn client_id(text: &str) -> Result<String, String> {
    let is_valid =
        (1..=256).contains(&text.len()) && text.bytes().all(|byte| (0x20..=0x7e).contains(&byte));
    is_valid.then(|| text.to_owned()).ok_or_else(|| "not 1 to 256 ASCII characters".to_owned())
}

/// Checks that a URL uses TLS or is on this machine: plain HTTP content can be replaced in transit.
pub(crate) fn address(name: &str, text: &str) -> anyhow::Result<(String, reqwest::Url)> {
    let url: reqwest::Url = text.parse().with_context(|| format!("{name} is not a URL"))?;
    let host = url.host_str().unwrap_or_default();
    let is_loopback = host == "localhost"
        || host.trim_matches(['[', ']']).parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback());
    match url.scheme() {
        "https" => {}
        "http" if is_loopback => {}
        _ => bail!("{name} must be an `https` URL, or `http` on this machine"),
    }
    if !url.username().is_empty() || url.password().is_some() || url.fragment().is_some() {
        // Without the URL, which may contain a password.
        bail!("{name} must not contain a user name, password or fragment");
    }
    // The text too: `Url` adds a slash to a bare origin, and claims are compared exactly.
    Ok((text.to_owned(), url))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address_of(jwks_url: &str) -> anyhow::Result<(String, reqwest::Url)> {
        address("PML_OAUTH_JWKS_URL", jwks_url)
    }

    #[test]
    fn requires_https_except_on_loopback() {
        for url in
            ["https://id.test/keys", "http://127.0.0.1:1/x", "http://[::1]/", "http://localhost/"]
        {
            address_of(url).expect(url);
        }
        for url in [
            "http://id.test/keys",
            "http://127.0.0.1.id.test/",
            "http://localhost.id.test/",
            "ftp://id.test/",
            "file:///etc/passwd",
            "https://user:canary@id.test/",
            "id.test",
            "",
        ] {
            let refused = address_of(url).unwrap_err();
            assert!(!refused.to_string().contains("canary"), "{refused}");
        }
    }
}
