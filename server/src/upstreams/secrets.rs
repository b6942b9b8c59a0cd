//! Selects the secret for an upstream: the one that the caller sent with the request, else the stored one.

use protocol::{ErrorBody, ErrorCode, Scope};
use registry::{
    KeyHost, Registry, RegistryError, ResolvedTool, SecretName, SecretStamp, SecretUse, Tenant,
};
use serde_json::json;

use crate::config::Secret;
use crate::error::registry_error;
use crate::identity::requester::Requester;

/// A tool or server that needs a secret.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Need<'a> {
    /// The tool that is called, or the server.
    pub what: &'a str,
    /// The scope of its entry.
    pub scope: &'a Scope,
    /// What receives the secret.
    pub receiver: Receiver<'a>,
    /// The secret's name.
    pub variable: &'a str,
}

/// What receives a secret.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Receiver<'a> {
    /// An HTTP server at this address.
    Url(&'a str),
    /// A process on this gateway that can connect to these hosts only.
    Process(&'a [String]),
}

impl<'a> Need<'a> {
    /// Returns the secrets that a tool needs.
    pub(crate) fn all_of_tool(tool: &'a ResolvedTool) -> impl Iterator<Item = Self> {
        let (receiver, count) = match &tool.install {
            Some(install) => (Receiver::Process(&install.network), usize::MAX),
            // Only the first: a request has one header `Authorization`. `purpose` refuses the empty address of an entry
            // without an upstream.
            None => (Receiver::Url(tool.proxy_to.as_deref().unwrap_or_default()), 1),
        };
        let (what, scope) = (tool.id.as_str(), tool.fqdn.scope());
        let needed = tool.env_required.iter().take(count);
        needed.map(move |variable| Self { what, scope, receiver, variable })
    }

    fn purpose(&self) -> Result<SecretUse, ErrorBody> {
        let (host, wrong) = match self.receiver {
            Receiver::Url(url) => (KeyHost::of_url(url), "its address is not an HTTP URL"),
            // It can connect nowhere, so the secret stays on this machine.
            Receiver::Process([]) => ("localhost".parse().ok(), ""),
            Receiver::Process([host]) => {
                (host.parse().ok(), "it needs a secret and has no exact host")
            }
            Receiver::Process(_) => (None, "it needs a secret and connects to several hosts"),
        };
        let host = host.ok_or_else(|| {
            ErrorBody::new(ErrorCode::ToolUnavailable, format!("`{}`: {wrong}", self.what))
        })?;
        // Only the operator can write there: the database denies it to the role of a serving gateway.
        let by_operator = *self.scope == Scope::public();
        Ok(SecretUse { tool: self.what.to_owned(), host, by_operator })
    }
}

/// A secret for one use.
#[derive(Debug, Clone)]
pub(crate) struct FoundSecret {
    /// The value.
    pub value: Secret,
    /// Identifies it, if it is a stored one.
    pub stored: Option<StoredSecret>,
}

/// A stored secret that was sent with a request.
#[derive(Debug, Clone)]
pub(crate) struct StoredSecret {
    name: SecretName,
    purpose: SecretUse,
    stamp: SecretStamp,
}

impl StoredSecret {
    /// Returns whether the tenant's next request for the same purpose would still get the same value.
    ///
    /// # Errors
    /// Returns an error when the database cannot be read.
    pub(crate) async fn is_current(
        &self,
        registry: &Registry,
        tenant: &Tenant,
    ) -> Result<bool, RegistryError> {
        let now = registry.secret_stamp(tenant, &self.name, self.purpose.clone()).await?;
        Ok(now.as_ref() == Some(&self.stamp))
    }
}

/// Finds the secret that an upstream needs, for one call. The use of a stored one is recorded before the registry
/// returns the value.
///
/// Entries of the catalog are trusted, because the operator wrote them. A tenant chooses both the variable and the
/// address of its entries, so these get a secret only if the secret's owner allowed the host.
///
/// # Errors
/// Returns `API_KEY_REQUIRED` with the variable if there is no secret, `KEY_NOT_FOR_HOST` if the secret may not be sent
/// to the entry's host, and the reason if a stored one cannot be read: then the call must not be made.
pub(crate) async fn find(
    registry: &Registry,
    requester: &Requester,
    need: Need<'_>,
) -> Result<FoundSecret, ErrorBody> {
    let purpose = need.purpose()?;
    // An empty header counts as absent, so that the stored secret is used.
    let sent = requester.secrets.get(need.variable).filter(|sent| !sent.value.expose().is_empty());
    let (value, stored) = match sent {
        Some(sent) if purpose.may_have(sent.hosts.as_deref()) => (sent.value.clone(), None),
        // Without a fallback to the stored secret, which is not the one that the caller chose.
        Some(_) => return Err(not_for_host(need, &purpose.host, "was sent with the call")),
        None => {
            let (value, stored) = stored(registry, requester, need, purpose).await?;
            (value, Some(stored))
        }
    };
    // Checked here, because a header with a line break could inject another header.
    if !value.expose().bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) {
        return Err(ErrorBody::new(
            ErrorCode::ApiKeyRequired,
            format!(
                "the secret `{}` for `{}` contains a line break or characters that are not allowed in an HTTP header",
                need.variable, need.what
            ),
        )
        .with_details(json!({ "variable": need.variable })));
    }
    Ok(FoundSecret { value, stored })
}

/// Returns whether a call would find the secret that it needs, as far as this can be known without decrypting it.
pub(crate) async fn is_available(
    registry: &Registry,
    requester: &Requester,
    need: Need<'_>,
) -> bool {
    // The call fails for another reason, which it reports itself.
    let Ok(purpose) = need.purpose() else { return true };
    if let Some(sent) =
        requester.secrets.get(need.variable).filter(|sent| !sent.value.expose().is_empty())
    {
        return purpose.may_have(sent.hosts.as_deref());
    }
    let Ok(name) = need.variable.parse() else { return false };
    // If the database cannot answer now, the call itself will report it.
    let stamp = registry.secret_stamp(&requester.tenant(), &name, purpose).await;
    stamp.map_or(true, |stamp| stamp.is_some())
}

async fn stored(
    registry: &Registry,
    requester: &Requester,
    need: Need<'_>,
    purpose: SecretUse,
) -> Result<(Secret, StoredSecret), ErrorBody> {
    // A name that no secret can have: nothing is stored under it.
    let Ok(name) = need.variable.parse::<SecretName>() else { return Err(missing(need)) };
    let host = purpose.host.clone();
    match registry.use_secret(&requester.tenant(), &name, purpose.clone()).await {
        Ok(Some(used)) => {
            // As a `Secret`, the value is removed from log lines from here on.
            let value = Secret::new(used.value.expose());
            Ok((value, StoredSecret { name, purpose, stamp: used.stamp }))
        }
        Ok(None) => Err(missing(need)),
        Err(RegistryError::NotForHost { .. }) => Err(not_for_host(need, &host, "is stored")),
        Err(error) => Err(registry_error(&error)),
    }
}

/// Returns the error for a secret that may not be sent to the host, with both ways to allow it. The message contains
/// the host, so that the user can decide.
fn not_for_host(need: Need<'_>, host: &KeyHost, how: &str) -> ErrorBody {
    let variable = need.variable;
    let message = format!(
        "`{}` would send the secret `{variable}`, which {how}, to `{host}`, but that host is not allowed for it. If it may receive the secret, run `pml secrets set {variable} --cloud --host {host}`, or send the header X-PML-Host-{}: {host}",
        need.what,
        variable.replace('_', "-")
    );
    ErrorBody::new(ErrorCode::KeyNotForHost, message)
        .with_details(json!({ "variable": variable, "host": host }))
}

fn missing(need: Need<'_>) -> ErrorBody {
    let variable = need.variable;
    // The remedy is in the message, because errors within programs have no hint.
    let message = format!(
        "`{}` needs the secret `{variable}`: store it on the gateway with `pml secrets set {variable} --cloud`, or send the header X-PML-Key-{} with the call",
        need.what,
        variable.replace('_', "-")
    );
    ErrorBody::new(ErrorCode::ApiKeyRequired, message).with_details(json!({ "variable": variable }))
}
