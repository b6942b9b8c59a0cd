//! What the gateway prints when it is ready.

use std::net::SocketAddr;

use super::{FIRST_SCOPE, FirstKey};
use crate::config::{PublicUrl, Serve, Settings};
use crate::connections::tls::{self, Tls};
use crate::database::Database;

/// What the start screen shows.
pub(super) struct StartScreen<'a> {
    /// The gateway's address.
    pub(super) address: SocketAddr,
    /// The address of the listener for metrics.
    pub(super) metrics: Option<SocketAddr>,
    /// The certificate, if the gateway serves HTTPS.
    pub(super) tls: Option<&'a Tls>,
    pub(super) serve: &'a Serve,
    pub(super) settings: &'a Settings,
}

impl StartScreen<'_> {
    /// Returns its text.
    pub(super) fn text(&self, database: &Database, first_key: Option<&FirstKey>) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{}", self.address);
        let mut out = format!("PML gateway {} on {url}\n", env!("CARGO_PKG_VERSION"));
        if let Some(tls) = self.tls {
            out += &format!(
                "  tls       {}, valid until {}\n",
                tls.files().certificate().display(),
                tls::date(tls.not_after())
            );
        }
        if let Some(metrics) = self.metrics {
            out += &format!("  metrics   http://{metrics}/metrics, without a credential\n");
        }
        if database.is_embedded() {
            let folder = self.settings.data_dir();
            out += &format!("  database  private Postgres in {}\n", folder.display());
        }
        if let Some(key) = first_key {
            out += &format!("  scope     {FIRST_SCOPE}\n  key       in {}\n", key.path.display());
            if let Some(shown) = &key.shown {
                out += &format!("            {shown}   (shown this once)\n");
            }
            // A certificate is for a name.
            let public = self.serve.public_url.as_ref().filter(|_| self.tls.is_some());
            out += &format!(
                "\nNext, in another terminal:\n  \
                 export PML_CLOUD_URL={}\n  \
                 export PML_API_KEY=$(cat {})\n  \
                 echo 'return await mcp.math.eval({{ expression: \"6 * 7\" }})' | pml exec -\n  \
                 pml init        # in a project: writes .mcp.json, which connects its agent to PML\n",
                public.map_or(url.as_str(), PublicUrl::as_str),
                key.path.display()
            );
        }
        out + "\nStop with Ctrl-C.\n"
    }
}
