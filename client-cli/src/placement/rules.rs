//! The gateway's routing rules, cached for each workspace, gateway and API key, and fetched again only if they
//! changed.
//!
//! They locate tools that the gateway was never queried about. Only plans use them, and show their age.

use protocol::{Routing, RoutingRules, ToolId};
use serde::{Deserialize, Serialize};

use crate::app::App;
use crate::files::records::{RecordFile, now};

/// The folder among the user's records.
const FOLDER: &str = "rules";
/// The maximum size of a record in bytes.
const RECORD_LIMIT: usize = 4 * 1024 * 1024;

/// Cached rules.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct CachedRules {
    version: u32,
    /// When the gateway last confirmed them, in seconds since 1970.
    at: u64,
    etag: String,
    rules: RoutingRules,
}

impl CachedRules {
    /// Reads the cached rules. Without an API key there are none.
    pub(super) async fn load(app: &App) -> Option<Self> {
        let file = super::record_file(app, FOLDER, RECORD_LIMIT).await?;
        let cached: Self = serde_json::from_slice(&file.read()?).ok()?;
        (cached.version == 1).then_some(cached)
    }

    /// Returns where a tool runs, and the age of that information in seconds.
    pub(super) fn of(&self, id: &ToolId) -> Option<(Routing, u64)> {
        Some((self.rules.covering(id)?, now().saturating_sub(self.at)))
    }

    /// Asks the gateway whether the rules have changed. They are only a cache: if they cannot be read or stored, the
    /// previous ones remain.
    pub(super) async fn refresh(app: &App) {
        let Some(file) = super::record_file(app, FOLDER, RECORD_LIMIT).await else { return };
        if let Err(reason) = Self::fetch_if_changed(app, &file).await {
            tracing::debug!(reason, "Could not store the routing rules");
        }
    }

    async fn fetch_if_changed(app: &App, file: &RecordFile) -> Result<(), String> {
        let cached = Self::load(app).await;
        let cloud = app.cloud().map_err(|error| error.message)?;
        let etag =
            cached.as_ref().map(|cached| cached.etag.as_str()).filter(|etag| !etag.is_empty());
        let read = cloud.routing(etag).await.map_err(|error| error.message)?;
        let updated = match (read, cached) {
            (Some((etag, rules)), _) => Self { version: 1, at: now(), etag, rules },
            // Not modified: only the time of the confirmation changes.
            (None, Some(cached)) => Self { at: now(), ..cached },
            (None, None) => return Ok(()),
        };
        let text = serde_json::to_vec(&updated).map_err(|error| error.to_string())?;
        file.write(&text).map_err(|error| error.to_string())
    }
}
