//! `GET /install.sh`: the script that installs `pml` from the operator's releases.

use std::sync::Arc;

use axum::Extension;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use data_encoding::HEXLOWER;
use protocol::ErrorCode;
use sha2::{Digest as _, Sha256};

use super::openapi::Problem;
use super::registry::reader_has;
use crate::config::ReleaseSettings;
use crate::error::ApiError;

/// The script without its address and its keys, which `deploy/release.sh` fills in in the same way.
const TEMPLATE: &str = include_str!("../../../deploy/install.sh");

/// What `GET /install.sh` answers.
#[derive(Debug)]
pub(crate) enum InstallScript {
    /// The script with the operator's address and keys.
    Served {
        /// The script.
        text: String,
        /// Its `ETag`.
        etag: String,
    },
    /// The setting that is missing.
    Missing(&'static str),
}

impl InstallScript {
    /// Fills in the operator's address and keys.
    pub(crate) fn new(settings: &ReleaseSettings) -> Self {
        let Some(url) = settings.url() else { return Self::Missing("PML_RELEASES_URL") };
        let Some(keys) = settings.keys() else { return Self::Missing("PML_RELEASES_KEYS") };
        // Both are checked when they are parsed: neither can end the script's string.
        let text = TEMPLATE.replace("@URL@", url.as_str()).replace("@KEYS@", keys.as_str());
        let etag = format!("\"{}\"", HEXLOWER.encode(&Sha256::digest(&text)));
        Self::Served { text, etag }
    }
}

/// Serves the script that installs `pml` from the operator's releases; 404 if the operator has not named them.
#[utoipa::path(get, path = "/install.sh", tag = "operation",
    params(("If-None-Match" = Option<String>, Header, description = "The reader's cached `ETag`")),
    responses(
    (status = 200, description = "A script for `sh`", body = String, content_type = "text/x-shellscript"),
    (status = 304, description = "The reader's copy is current"),
    (status = 404, description = "The operator has not set where releases are", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn get_script(
    Extension(script): Extension<Arc<InstallScript>>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let (text, etag) = match &*script {
        InstallScript::Served { text, etag } => (text, etag),
        InstallScript::Missing(setting) => {
            let detail = format!("this gateway has no install script: {setting} is not set");
            return Err(ApiError::new(ErrorCode::NotFound, detail).with_member(
                "hint",
                "Ask the operator to set PML_RELEASES_URL and PML_RELEASES_KEYS, or install with a package manager: docs/install.md.",
            ));
        }
    };
    let mut response = match reader_has(&headers, etag) {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => ([(header::CONTENT_TYPE, "text/x-shellscript; charset=utf-8")], text.clone())
            .into_response(),
    };
    if let Ok(etag) = HeaderValue::from_str(etag) {
        response.headers_mut().insert(header::ETAG, etag);
    }
    let cached = HeaderValue::from_static("public, max-age=300");
    response.headers_mut().insert(header::CACHE_CONTROL, cached);
    Ok(response)
}
