//! Which gateway, and who named it.

use std::fmt;

use url::Url;

use super::{DEFAULT_PLACE, DEFAULT_URL, KeyError};
use crate::http_client::is_here;

/// Returns the address that was probably meant: `http` to this machine, else `https`.
fn with_scheme(text: &str) -> String {
    let host = text.split(['/', ':']).next().unwrap_or_default();
    let is_here = host == "localhost"
        || text.starts_with("[::1]")
        || host.parse::<std::net::Ipv4Addr>().is_ok_and(|address| address.is_loopback());
    let scheme = if is_here { "http" } else { "https" };
    protocol::escape_text(&format!("{scheme}://{text}"))
}

/// A gateway's address: checked, and without a trailing slash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Gateway {
    url: Url,
    place: &'static str,
}

impl Gateway {
    /// Selects the gateway: the flag, `PML_CLOUD_URL`, a trusted `.pml.json`, the one of the last `pml login`, the
    /// default. An empty value is treated as absent.
    ///
    /// # Errors
    /// Returns [`KeyError::Url`] when the chosen one cannot be used; a wrong
    /// address is never skipped for the next.
    pub(crate) fn choose(
        flag: Option<&str>,
        variable: Option<&str>,
        trusted_file: Option<&str>,
        remembered: Option<&str>,
    ) -> Result<Self, KeyError> {
        let places = [
            (flag, "the command line"),
            (variable, "`PML_CLOUD_URL`"),
            (trusted_file, "`cloud.url` in `.pml.json`"),
            (remembered, "the last `pml login`"),
        ];
        let chosen = places.into_iter().find_map(|(text, place)| {
            text.map(str::trim).filter(|text| !text.is_empty()).map(|text| (text, place))
        });
        let (text, place) = chosen.unwrap_or((DEFAULT_URL, DEFAULT_PLACE));
        Self::parse(text, place)
    }

    fn parse(text: &str, place: &'static str) -> Result<Self, KeyError> {
        let refused =
            |text: &str, reason: String| KeyError::Url { text: text.to_owned(), place, reason };
        // A port behind a name looks like a scheme to the parser: `localhost:3001`.
        let may_be_secret = text.contains(['@', '?', '#']);
        if !text.contains("://") && !may_be_secret {
            let reason = format!("it has no scheme; write `{}`", with_scheme(text));
            return Err(refused(text, reason));
        }
        let shown = if may_be_secret { "" } else { text };
        let mut url = Url::parse(text).map_err(|error| refused(shown, error.to_string()))?;
        // Checked before the address is shown: it may carry a password.
        if !url.username().is_empty() || url.password().is_some() {
            let reason = "it contains a user name or password; put the API key into `PML_API_KEY`";
            return Err(refused("", reason.to_owned()));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(refused("", "it contains a query or a fragment; remove it".to_owned()));
        }
        let is_loopback = is_here(&url);
        match url.scheme() {
            "https" => {}
            "http" if is_loopback => {}
            "http" => {
                let reason = "`http` would send the API key unencrypted; use `https`, or `http` to this machine only";
                return Err(refused(text, reason.to_owned()));
            }
            other => {
                return Err(refused(
                    text,
                    format!("the scheme `{other}` is not supported; use `https`"),
                ));
            }
        }
        let path = url.path().trim_end_matches('/').to_owned();
        url.set_path(&path);
        Ok(Self { url, place })
    }

    /// Returns the address of a path below the gateway's own, for example
    /// `mcp`.
    pub(crate) fn join(&self, path: &str) -> Url {
        let mut url = self.url.clone();
        let base = self.url.path().trim_end_matches('/');
        url.set_path(&format!("{base}/{}", path.trim_start_matches('/')));
        url
    }

    /// Returns the origin that keys belong to, for example
    /// `https://pml.casys.ai`.
    pub(crate) fn origin(&self) -> String {
        self.url.origin().ascii_serialization()
    }

    /// Returns whether it is on this machine.
    pub(crate) fn is_here(&self) -> bool {
        is_here(&self.url)
    }

    /// Returns whether it is the default, which nobody named.
    pub(crate) fn is_default(&self) -> bool {
        self.place == DEFAULT_PLACE
    }

    /// Returns the source of the address, for people.
    pub(crate) fn place(&self) -> &'static str {
        self.place
    }
}

impl fmt::Display for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.url.as_str().trim_end_matches('/'))
    }
}
