//! The gateway's address and where it was configured.

use std::fmt;

use url::Url;

use super::{DEFAULT_PLACE, DEFAULT_URL, KeyError};
use crate::http_client::is_this_machine;
use crate::origin::Origin;

/// Completes an address without a scheme, for the error message: `http` for this machine, else `https`.
fn with_scheme(text: &str) -> String {
    let host = text.split(['/', ':']).next().unwrap_or_default();
    // An IPv6 address contains `:`, so `host` is only a part of it.
    let is_this_machine = host == "localhost"
        || text.starts_with("[::1]")
        || host.parse::<std::net::Ipv4Addr>().is_ok_and(|address| address.is_loopback());
    let scheme = if is_this_machine { "http" } else { "https" };
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
    /// Returns [`KeyError::Url`] for an invalid address; it is never skipped in favour of the next one.
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

    /// Returns the gateway at the origin of a registry.
    ///
    /// # Errors
    /// Returns [`KeyError::Url`] if it is no address of a gateway, which an origin always is.
    pub(crate) fn of_registry(origin: &Origin) -> Result<Self, KeyError> {
        Self::parse(origin.as_str(), "`registries` in `.pml.json`")
    }

    fn parse(text: &str, place: &'static str) -> Result<Self, KeyError> {
        let refused =
            |text: &str, reason: String| KeyError::Url { text: text.to_owned(), place, reason };
        // The parser takes `localhost:3001` for a URL with the scheme `localhost`.
        let may_be_secret = text.contains(['@', '?', '#']);
        if !text.contains("://") && !may_be_secret {
            let reason = format!("it has no scheme; write `{}`", with_scheme(text));
            return Err(refused(text, reason));
        }
        let quotable = if may_be_secret { "" } else { text };
        let mut url = Url::parse(text).map_err(|error| refused(quotable, error.to_string()))?;
        // Checked before the address is shown in an error, because it may contain a password.
        if !url.username().is_empty() || url.password().is_some() {
            let reason = "it contains a user name or password; put the API key into `PML_API_KEY`";
            return Err(refused("", reason.to_owned()));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(refused("", "it contains a query or a fragment; remove it".to_owned()));
        }
        let is_loopback = is_this_machine(&url);
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

    /// Returns the URL of a path beneath the gateway's address, for example `mcp`.
    pub(crate) fn join(&self, path: &str) -> Url {
        let mut url = self.url.clone();
        let base = self.url.path().trim_end_matches('/');
        url.set_path(&format!("{base}/{}", path.trim_start_matches('/')));
        url
    }

    /// Returns the origin that keys belong to, for example `https://pml.casys.ai`.
    pub(crate) fn origin(&self) -> String {
        self.url.origin().ascii_serialization()
    }

    /// Returns whether it is on this machine.
    pub(crate) fn is_this_machine(&self) -> bool {
        is_this_machine(&self.url)
    }

    /// Returns whether it is the default, which the user did not name.
    pub(crate) fn is_default(&self) -> bool {
        // By the source and not by the URL: a user who names the default address has chosen it.
        self.place == DEFAULT_PLACE
    }

    /// Returns the source of the address, for display.
    pub(crate) fn place(&self) -> &'static str {
        self.place
    }
}

impl fmt::Display for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.url.as_str().trim_end_matches('/'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gateway(text: &str) -> Gateway {
        Gateway::choose(Some(text), None, None, None).unwrap()
    }

    #[test]
    fn the_gateway_is_chosen_in_order() {
        let remembered = Some("https://d.test");
        let choose = |flag, variable, file| {
            Gateway::choose(flag, variable, file, remembered).unwrap().to_string()
        };
        let (a, b, c) = (Some("https://a.test"), Some("https://b.test/x/"), Some("https://c.test"));
        assert_eq!(choose(a, b, c), "https://a.test");
        assert_eq!(choose(None, b, c), "https://b.test/x");
        assert_eq!(choose(None, Some(" "), c), "https://c.test");
        assert_eq!(choose(None, None, Some("")), "https://d.test");
        let default = Gateway::choose(None, None, None, None).unwrap();
        assert!(default.to_string() == DEFAULT_URL && default.is_default());
        assert!(!gateway(DEFAULT_URL).is_default(), "it was named");
        Gateway::choose(Some("nonsense"), b, c, remembered).unwrap_err();
        assert_eq!(gateway("https://b.test/x/").join("mcp").as_str(), "https://b.test/x/mcp");
        assert_eq!(
            gateway("http://127.0.0.1:3001").join("/mcp").as_str(),
            "http://127.0.0.1:3001/mcp"
        );
    }

    #[test]
    fn refuses_addresses_that_would_expose_a_key() {
        for text in
            ["http://localhost:3001", "http://127.0.0.9", "http://[::1]:1", "https://x.test:8443/p"]
        {
            gateway(text);
        }
        for text in [
            "http://x.test",
            "http://127.0.0.1.x.test",
            "http://localhost.x.test",
            "http://10.0.0.1",
            "ftp://x.test",
            "javascript:alert(1)",
            "file:///etc/passwd",
            "https://user:canary@x.test",
            "https://x.test/?key=canary",
            "https://x.test/#canary",
            "-flag",
            "",
        ] {
            let chosen = Gateway::choose(Some(text), None, None, None);
            if text.is_empty() {
                assert_eq!(chosen.unwrap().to_string(), DEFAULT_URL);
                continue;
            }
            let message = chosen.unwrap_err().to_string();
            assert!(!message.contains("canary"), "{message}");
        }
    }

    /// The error for an invalid address says what to write.
    #[test]
    fn the_error_for_an_invalid_address_has_a_suggestion() {
        for (text, message) in [
            (
                "127.0.0.1:3001",
                " `127.0.0.1:3001` from the command line cannot be used: it has no scheme; write `http://127.0.0.1:3001`",
            ),
            (
                "localhost:3001",
                " `localhost:3001` from the command line cannot be used: it has no scheme; write `http://localhost:3001`",
            ),
            (
                "pml.acme.test",
                " `pml.acme.test` from the command line cannot be used: it has no scheme; write `https://pml.acme.test`",
            ),
            (
                "http://pml.acme.test",
                " `http://pml.acme.test` from the command line cannot be used: `http` would send the API key unencrypted; use `https`, or `http` to this machine only",
            ),
            (
                "ftp://x.test",
                " `ftp://x.test` from the command line cannot be used: the scheme `ftp` is not supported; use `https`",
            ),
            ("https://", " `https://` from the command line cannot be used: empty host"),
            (
                "https://ana:canary@x.test",
                " from the command line cannot be used: it contains a user name or password; put the API key into `PML_API_KEY`",
            ),
            (
                "x.test?key=canary",
                " from the command line cannot be used: relative URL without a base",
            ),
        ] {
            let error = Gateway::choose(Some(text), None, None, None).unwrap_err().to_string();
            assert_eq!(error, format!("the gateway's URL{message}"));
        }
    }
}
