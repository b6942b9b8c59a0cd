//! Secrets stored on the gateway, `/api/v1/secrets`. Values are only sent, never returned.

use protocol::ErrorBody;
use reqwest::Method;
use serde::Deserialize;
use serde_json::json;

use super::Cloud;

/// A stored secret, as the gateway lists it.
#[derive(Debug, Clone, Deserialize, serde::Serialize)]
pub(crate) struct StoredSecret {
    /// The variable.
    pub(crate) name: String,
    /// `me` or `project`.
    #[serde(rename = "for")]
    pub(crate) owner: String,
    /// Increases with each new value.
    pub(crate) version: i64,
    /// The hosts that may receive it; without hosts, only the hosts of catalog entries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) hosts: Vec<String>,
    /// When it was first stored.
    pub(crate) created_at: String,
    /// When it got its present value.
    pub(crate) updated_at: String,
}

#[derive(Deserialize)]
struct Listed {
    secrets: Vec<StoredSecret>,
}

impl Cloud {
    /// Lists the names of the secrets that the gateway has for the key's holder.
    ///
    /// # Errors
    /// Returns why there is no list.
    pub(crate) async fn secrets(&self) -> Result<Vec<StoredSecret>, ErrorBody> {
        let body = self.api(Method::GET, "api/v1/secrets", None).await?;
        let listed: Listed = serde_json::from_slice(&body)
            .map_err(|error| self.invalid_answer(&error.to_string()))?;
        Ok(listed.secrets)
    }

    /// Stores a secret for the key's principal, or for the whole project, with the hosts that may receive it; returns
    /// the gateway's record of it.
    ///
    /// # Errors
    /// Returns why it was not stored.
    pub(crate) async fn put_secret(
        &self,
        name: &str,
        value: &str,
        owner: &str,
        hosts: &[String],
    ) -> Result<StoredSecret, ErrorBody> {
        let mut body = json!({ "value": value, "for": owner });
        // Older gateways refuse the field, so it is left out without hosts.
        if !hosts.is_empty() {
            body["hosts"] = json!(hosts);
        }
        let stored = self.api(Method::PUT, &format!("api/v1/secrets/{name}"), Some(body)).await?;
        serde_json::from_slice(&stored).map_err(|error| self.invalid_answer(&error.to_string()))
    }

    /// Deletes a secret of the key's holder, or of the project.
    ///
    /// # Errors
    /// Returns why it was not deleted.
    pub(crate) async fn delete_secret(&self, name: &str, owner: &str) -> Result<(), ErrorBody> {
        let path = format!("api/v1/secrets/{name}?for={owner}");
        self.api(Method::DELETE, &path, None).await.map(drop)
    }
}
