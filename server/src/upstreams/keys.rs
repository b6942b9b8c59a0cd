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

/// What a key is needed for.
#[derive(Debug, Clone, Copy)]
pub struct Need<'a> {
    /// The tool that is called, or the server.
    pub what: &'a str,
    /// Where the key goes.
    pub proxy_to: Option<&'a str>,
    /// What it is called.
    pub variable: &'a str,
}

impl<'a> Need<'a> {
    /// Returns what a tool needs, if its upstream asks for a key.
    pub fn of_tool(tool: &'a ResolvedTool) -> Option<Self> {
        let variable = tool.env_required.first()?;
        Some(Self { what: tool.id.as_str(), proxy_to: tool.proxy_to.as_deref(), variable })
    }
}

/// A key for one use.
#[derive(Debug, Clone)]
pub struct FoundKey {
    /// The key.
    pub value: Secret,
    /// It is one that is stored, not one that came with the call.
    pub is_stored: bool,
}

/// Finds the key that an upstream needs, for one call. A stored one is
/// recorded as used before it is known here.
///
/// # Errors
/// Returns `API_KEY_REQUIRED` naming the variable where there is none, and why a
/// stored one cannot be had: then the call must not be made.
pub async fn find(
    registry: &Registry,
    requester: &Requester,
    need: Need<'_>,
) -> Result<FoundKey, ErrorBody> {
    let sent = requester.keys.get(need.variable).filter(|key| !key.expose().is_empty());
    let (value, is_stored) = match sent {
        Some(key) => (key.clone(), false),
        None => (stored(registry, requester, need).await?, true),
    };
    if !value.expose().bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) {
        return Err(ErrorBody::new(
            ErrorCode::ApiKeyRequired,
            format!(
                "the key `{}` for `{}` has a line break or letters that no HTTP header carries",
                need.variable, need.what
            ),
        )
        .with_details(json!({ "variable": need.variable })));
    }
    Ok(FoundKey { value, is_stored })
}

async fn stored(
    registry: &Registry,
    requester: &Requester,
    need: Need<'_>,
) -> Result<Secret, ErrorBody> {
    // What cannot be stored is not there.
    let Ok(name) = need.variable.parse() else { return Err(missing(need)) };
    let purpose = SecretUse { tool: need.what.to_owned(), host: host(need.proxy_to) };
    match registry.use_secret(&requester.tenant(), &name, purpose).await {
        Ok(Some(value)) => Ok(Secret::new(value.expose())),
        Ok(None) => Err(missing(need)),
        Err(error) => Err(registry_error(&error)),
    }
}

/// Returns the host that a key is sent to.
fn host(proxy_to: Option<&str>) -> String {
    let url = proxy_to.and_then(|url| Url::parse(url).ok());
    let host = url.as_ref().and_then(|url| {
        let host = url.host_str()?;
        Some(url.port().map_or(host.to_owned(), |port| format!("{host}:{port}")))
    });
    host.unwrap_or_default()
}

fn missing(need: Need<'_>) -> ErrorBody {
    let variable = need.variable;
    // In the message, because a program's error carries no hint of its own.
    let message = format!(
        "`{}` needs the key `{variable}`: store it on the gateway with `pml keys set {variable} --cloud`, \
         or send the header X-PML-Key-{} with the call",
        need.what,
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
