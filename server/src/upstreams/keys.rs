//! Which secret is sent to an upstream: the one that the caller sent along, else the stored one.

use protocol::{ErrorBody, ErrorCode, Scope};
use registry::{
    KeyHost, Registry, RegistryError, ResolvedTool, SecretName, SecretStamp, SecretUse, Tenant,
};
use serde_json::json;

use crate::config::Secret;
use crate::error::registry_error;
use crate::identity::requester::Requester;

/// The tool and server that need a secret.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Need<'a> {
    /// The tool that is called, or the server.
    pub what: &'a str,
    /// The scope whose entry it is.
    pub scope: &'a Scope,
    /// The host that receives the secret.
    pub url: &'a str,
    /// Its name.
    pub variable: &'a str,
}

impl<'a> Need<'a> {
    /// Returns the requirement of a tool, if its upstream needs a secret.
    pub(crate) fn of_tool(tool: &'a ResolvedTool) -> Option<Self> {
        let variable = tool.env_required.first()?;
        let url = tool.proxy_to.as_deref().unwrap_or_default();
        Some(Self { what: tool.id.as_str(), scope: tool.fqdn.scope(), url, variable })
    }

    fn purpose(&self) -> Result<SecretUse, ErrorBody> {
        let host = KeyHost::of_url(self.url).ok_or_else(|| {
            let what = format!("`{}`: its address is not that of an HTTP server", self.what);
            ErrorBody::new(ErrorCode::ToolUnavailable, what)
        })?;
        // Nobody else writes there: the database refuses it to the role that serves.
        let by_operator = *self.scope == Scope::public();
        Ok(SecretUse { tool: self.what.to_owned(), host, by_operator })
    }
}

/// A key for one use.
#[derive(Debug, Clone)]
pub(crate) struct FoundKey {
    /// The key.
    pub value: Secret,
    /// Which one it is, if it is stored and did not come with the call.
    pub stored: Option<StoredKey>,
}

/// A stored key that went along with a request.
#[derive(Debug, Clone)]
pub(crate) struct StoredKey {
    name: SecretName,
    purpose: SecretUse,
    stamp: SecretStamp,
}

impl StoredKey {
    /// Returns whether the tenant's next request for the same would still get this very key.
    ///
    /// # Errors
    /// Returns an error when the database cannot be read.
    pub(crate) async fn counts(
        &self,
        registry: &Registry,
        tenant: &Tenant,
    ) -> Result<bool, RegistryError> {
        let now = registry.secret_stamp(tenant, &self.name, self.purpose.clone()).await?;
        Ok(now.as_ref() == Some(&self.stamp))
    }
}

/// Finds the key that an upstream needs, for one call. A stored one is
/// recorded as used before it is known here.
///
/// The operator is trusted for entries of the catalog. An entry that a tenant wrote contains both the variable and
/// the address, so it gets a secret only if the secret's owner allowed that host.
///
/// # Errors
/// Returns `API_KEY_REQUIRED` naming the variable if there is none, `KEY_NOT_FOR_HOST` if it may not be sent to the
/// entry's host, and the reason if a stored one cannot be read: then the call must not be made.
pub(crate) async fn find(
    registry: &Registry,
    requester: &Requester,
    need: Need<'_>,
) -> Result<FoundKey, ErrorBody> {
    let purpose = need.purpose()?;
    let sent = requester.keys.get(need.variable).filter(|key| !key.value.expose().is_empty());
    let (value, stored) = match sent {
        Some(key) if purpose.may_have(key.hosts.as_deref()) => (key.value.clone(), None),
        Some(_) => return Err(not_for_host(need, &purpose.host, "was sent with the call")),
        None => {
            let (value, stored) = stored(registry, requester, need, purpose).await?;
            (value, Some(stored))
        }
    };
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
    Ok(FoundKey { value, stored })
}

/// Returns whether a call would find the secret that it needs, as far as possible without decrypting it.
pub(crate) async fn is_there(registry: &Registry, requester: &Requester, need: Need<'_>) -> bool {
    let Ok(purpose) = need.purpose() else { return true };
    if let Some(key) =
        requester.keys.get(need.variable).filter(|key| !key.value.expose().is_empty())
    {
        return purpose.may_have(key.hosts.as_deref());
    }
    let Ok(name) = need.variable.parse() else { return false };
    // If it is unknown now, the call reports it.
    let stamp = registry.secret_stamp(&requester.tenant(), &name, purpose).await;
    stamp.map_or(true, |stamp| stamp.is_some())
}

async fn stored(
    registry: &Registry,
    requester: &Requester,
    need: Need<'_>,
    purpose: SecretUse,
) -> Result<(Secret, StoredKey), ErrorBody> {
    // A secret that cannot be stored does not exist.
    let Ok(name) = need.variable.parse::<SecretName>() else { return Err(missing(need)) };
    let host = purpose.host.clone();
    match registry.use_secret(&requester.tenant(), &name, purpose.clone()).await {
        Ok(Some(used)) => {
            let value = Secret::new(used.value.expose());
            Ok((value, StoredKey { name, purpose, stamp: used.stamp }))
        }
        Ok(None) => Err(missing(need)),
        Err(RegistryError::NotForHost { .. }) => Err(not_for_host(need, &host, "is stored")),
        Err(error) => Err(registry_error(&error)),
    }
}

/// Returns the error for a secret that may not be sent to the host, with both ways to allow it: the message names the
/// host, for the reader to judge.
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
    // In the message, because a program's error carries no hint of its own.
    let message = format!(
        "`{}` needs the secret `{variable}`: store it on the gateway with `pml secrets set {variable} --cloud`, or send the header X-PML-Key-{} with the call",
        need.what,
        variable.replace('_', "-")
    );
    ErrorBody::new(ErrorCode::ApiKeyRequired, message).with_details(json!({ "variable": variable }))
}
