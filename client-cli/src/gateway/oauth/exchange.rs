//! One request to the gateway or its issuer, with an answer of limited size and time.

use std::time::Duration;

use reqwest::RequestBuilder;
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use serde_json::{Map, Value};
use url::Url;
use url::form_urlencoded::Serializer;

use super::OauthError;
use crate::http_client::{self, Credential};

/// The time limit of a request.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The maximum size of an answer in bytes. Metadata has a few KiB.
const ANSWER_LIMIT: usize = 256 * 1024;

/// A complete answer.
pub(super) struct Answer {
    /// The HTTP status.
    pub(super) status: u16,
    /// The members of the JSON object; empty if the body is not one.
    pub(super) members: Map<String, Value>,
}

impl Answer {
    /// Returns a member that is a text.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.members.get(name)?.as_str()
    }

    /// Returns the texts of a member that is a list.
    pub(super) fn texts(&self, name: &str) -> impl Iterator<Item = &str> {
        let items = self.members.get(name).and_then(Value::as_array).map(Vec::as_slice);
        items.unwrap_or_default().iter().filter_map(Value::as_str)
    }

    /// Returns a member that is a number of seconds; a fraction is dropped.
    pub(super) fn seconds(&self, name: &str) -> Option<u64> {
        let value = self.members.get(name)?;
        // Some issuers send a fraction, or a text.
        let number =
            value.as_f64().or_else(|| value.as_str().and_then(|text| text.parse().ok()))?;
        (number.is_finite() && number >= 0.0).then_some(number as u64)
    }
}

/// Reads a document.
///
/// # Errors
/// Returns [`OauthError::Unreachable`] without an answer, and [`OauthError::Invalid`] for one that is too large.
pub(super) async fn get(url: &Url) -> Result<Answer, OauthError> {
    send(client(url)?.get(url.clone()), url).await
}

/// Posts a form; fields without a value are left out.
///
/// # Errors
/// As [`get`], and [`OauthError::Refused`] for an answer with an error code.
pub(super) async fn post(url: &Url, fields: &[(&str, &str)]) -> Result<Answer, OauthError> {
    let request = client(url)?
        .post(url.clone())
        .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
        .body(encoded(fields));
    let answer = send(request, url).await?;
    if (200..300).contains(&answer.status) {
        return Ok(answer);
    }
    match answer.text("error") {
        Some(code) => {
            Err(OauthError::refused(code, answer.text("error_description").unwrap_or_default()))
        }
        None => Err(OauthError::Invalid(format!("{url} answered HTTP status {}", answer.status))),
    }
}

fn encoded(fields: &[(&str, &str)]) -> String {
    let mut form = Serializer::new(String::new());
    form.extend_pairs(fields.iter().filter(|(_, value)| !value.is_empty()));
    form.finish()
}

fn client(url: &Url) -> Result<reqwest::Client, OauthError> {
    // A client for each request: they are few, and its rules depend on the address.
    let client = http_client::builder(url, Credential::Sent).map_err(|error| error.to_string());
    let client = client
        .and_then(|builder| builder.timeout(TIMEOUT).build().map_err(|error| error.to_string()));
    client.map_err(|error| OauthError::Unreachable(format!("{url} cannot be used: {error}")))
}

async fn send(request: RequestBuilder, url: &Url) -> Result<Answer, OauthError> {
    let unreachable = |error: reqwest::Error| {
        if error.is_timeout() {
            return OauthError::Unreachable(format!("{url} did not answer in time"));
        }
        // The outermost error only says that the request failed; the innermost one has the cause.
        let mut source: &dyn std::error::Error = &error;
        while let Some(inner) = source.source() {
            source = inner;
        }
        OauthError::Unreachable(format!("{url} cannot be reached: {source}"))
    };
    let request = request.header(ACCEPT, "application/json");
    let mut response = request.send().await.map_err(unreachable)?;
    let status = response.status().as_u16();
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
        if body.len() + chunk.len() > ANSWER_LIMIT {
            return Err(OauthError::Invalid(format!(
                "{url} sent an answer of more than {} KiB",
                ANSWER_LIMIT / 1024
            )));
        }
        body.extend_from_slice(&chunk);
    }
    let members = serde_json::from_slice(&body).unwrap_or_default();
    Ok(Answer { status, members })
}
