//! Which key goes to an upstream: what the caller sent along, else what is stored.

use std::collections::HashMap;

use axum::http::HeaderMap;
use protocol::{ErrorBody, ErrorCode};
use registry::{Registry, ResolvedTool, SecretUse};
use reqwest::Url;
use serde_json::json;

use crate::auth::Requester;
use crate::config::Secret;
use crate::error::registry_error;

/// The prefix of headers that carry a caller's own keys, `X-PML-Key-TAVILY-API-KEY`.
const KEY_HEADER_PREFIX: &str = "x-pml-key-";

/// The keys that a caller sent along for upstreams; used once, never stored.
#[derive(Debug, Clone, Default)]
pub struct CallerKeys(HashMap<String, Secret>);

impl CallerKeys {
    /// Reads the keys from a request's headers.
    pub fn from_headers(headers: &HeaderMap) -> Self {
        let keys = headers.iter().filter_map(|(name, value)| {
            let name = name.as_str().strip_prefix(KEY_HEADER_PREFIX)?;
            let value = value.to_str().ok()?.parse().ok()?;
            Some((name.to_ascii_uppercase().replace('-', "_"), value))
        });
        Self(keys.collect())
    }

    fn get(&self, variable: &str) -> Option<&Secret> {
        self.0.get(variable)
    }
}

/// Finds the key that a tool's upstream needs, for one call. A stored one is
/// recorded as used before it is known here.
///
/// # Errors
/// Returns `API_KEY_REQUIRED` naming the variable where there is none, and why a
/// stored one cannot be had: then the call must not be made.
pub async fn find(
    registry: &Registry,
    requester: &Requester,
    tool: &ResolvedTool,
) -> Result<Option<Secret>, ErrorBody> {
    let Some(variable) = tool.env_required.first() else { return Ok(None) };
    let sent = requester.keys.get(variable).filter(|key| !key.expose().is_empty());
    let key = match sent {
        Some(key) => key.clone(),
        None => stored(registry, requester, tool, variable).await?,
    };
    if !key.expose().bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) {
        return Err(ErrorBody::new(
            ErrorCode::ApiKeyRequired,
            format!(
                "the key `{variable}` for tool `{}` has a line break or letters that no HTTP header carries",
                tool.id
            ),
        )
        .with_details(json!({ "variable": variable })));
    }
    Ok(Some(key))
}

async fn stored(
    registry: &Registry,
    requester: &Requester,
    tool: &ResolvedTool,
    variable: &str,
) -> Result<Secret, ErrorBody> {
    // What cannot be stored is not there.
    let Ok(name) = variable.parse() else { return Err(missing(tool, variable)) };
    let purpose = SecretUse { tool: tool.id.to_string(), host: host(tool) };
    match registry.use_secret(&requester.tenant(), &name, purpose).await {
        Ok(Some(value)) => Ok(Secret::new(value.expose())),
        Ok(None) => Err(missing(tool, variable)),
        Err(error) => Err(registry_error(&error)),
    }
}

/// Returns the host that a key for a tool is sent to.
fn host(tool: &ResolvedTool) -> String {
    let url = tool.proxy_to.as_deref().and_then(|url| Url::parse(url).ok());
    let host = url.as_ref().and_then(|url| {
        let host = url.host_str()?;
        Some(url.port().map_or(host.to_owned(), |port| format!("{host}:{port}")))
    });
    host.unwrap_or_default()
}

fn missing(tool: &ResolvedTool, variable: &str) -> ErrorBody {
    // In the message, because a program's error carries no hint of its own.
    let message = format!(
        "tool `{}` needs the key `{variable}`: store it on the gateway with `pml keys set {variable} --cloud`, \
         or send the header X-PML-Key-{} with the call",
        tool.id,
        variable.replace('_', "-")
    );
    ErrorBody::new(ErrorCode::ApiKeyRequired, message).with_details(json!({ "variable": variable }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_from_their_headers_and_stay_hidden() {
        let mut headers = HeaderMap::new();
        headers.insert("x-pml-key-tavily-api-key", "canary".parse().unwrap());
        headers.insert("x-api-key", "other".parse().unwrap());
        let keys = CallerKeys::from_headers(&headers);
        assert_eq!(keys.get("TAVILY_API_KEY").unwrap().expose(), "canary");
        assert!(keys.get("API_KEY").is_none());
        assert!(!format!("{keys:?}").contains("canary"));
    }
}
