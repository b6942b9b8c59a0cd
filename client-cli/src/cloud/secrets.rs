//! `/api/v1/secrets` of the gateway: values go there, names come back.

use protocol::{ErrorBody, ErrorCode};
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Cloud;

/// A stored secret, as the gateway lists it.
#[derive(Debug, Clone, Deserialize, serde::Serialize)]
pub struct StoredSecret {
    /// The variable.
    pub name: String,
    /// `me` or `project`.
    #[serde(rename = "for")]
    pub owner: String,
    /// Rises with each new value.
    pub version: i64,
    /// When it was first stored.
    pub created_at: String,
    /// When it got its present value.
    pub updated_at: String,
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
    pub async fn secrets(&self) -> Result<Vec<StoredSecret>, ErrorBody> {
        let body = self.api(Method::GET, "api/v1/secrets", None).await?;
        let listed: Listed =
            serde_json::from_slice(&body).map_err(|error| self.nonsense(&error.to_string()))?;
        Ok(listed.secrets)
    }

    /// Stores a secret for the key's holder, or for the whole project.
    ///
    /// # Errors
    /// Returns why it was not stored.
    pub async fn put_secret(&self, name: &str, value: &str, owner: &str) -> Result<(), ErrorBody> {
        let body = json!({ "value": value, "for": owner });
        self.api(Method::PUT, &format!("api/v1/secrets/{name}"), Some(body)).await.map(drop)
    }

    /// Deletes a secret of the key's holder, or of the project.
    ///
    /// # Errors
    /// Returns why it was not deleted.
    pub async fn delete_secret(&self, name: &str, owner: &str) -> Result<(), ErrorBody> {
        let path = format!("api/v1/secrets/{name}?for={owner}");
        self.api(Method::DELETE, &path, None).await.map(drop)
    }

    async fn api(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<Vec<u8>, ErrorBody> {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let mut url = self.gateway.join(path);
        url.set_query((!query.is_empty()).then_some(query));
        let mut request = self.http.request(method, url);
        if let Some(body) = body {
            request = request.json(&body);
        }
        if let Some(key) = &self.key {
            request = request.bearer_auth(key.expose());
        }
        let response = request.send().await.map_err(|error| self.unreachable(&error))?;
        let status = response.status();
        let body = self.read(response).await?;
        if status.is_success() {
            return Ok(body);
        }
        if status.as_u16() == 401 {
            return Err(self.unauthorized());
        }
        let problem: Value = serde_json::from_slice(&body).unwrap_or_default();
        let code = problem.get("code").and_then(Value::as_str).and_then(|code| code.parse().ok());
        match (code, problem.get("detail").and_then(Value::as_str)) {
            (Some(code), Some(detail)) => {
                let code: ErrorCode = code;
                let detail = protocol::escape_text(detail);
                Err(ErrorBody::new(code, format!("the gateway at {}: {detail}", self.gateway)))
            }
            _ => Err(self.nonsense(&format!("HTTP status {status}"))),
        }
    }
}
