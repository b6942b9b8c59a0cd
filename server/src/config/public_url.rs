//! The address under which clients reach the gateway.

use std::str::FromStr;

use super::identity::address;

/// A base URL without a trailing slash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PublicUrl {
    url: String,
    host: String,
}

impl PublicUrl {
    /// Returns the URL.
    pub(crate) fn as_str(&self) -> &str {
        &self.url
    }

    /// Returns its host, with the port if it has one.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }
}

impl FromStr for PublicUrl {
    type Err = String;

    /// Parses an `https` URL, or an `http` URL of this machine: clients send their keys there.
    fn from_str(text: &str) -> Result<Self, String> {
        let (_, url) = address("PML_PUBLIC_URL", text).map_err(|error| format!("{error:#}"))?;
        // Paths are appended to the URL.
        if url.query().is_some() {
            return Err("PML_PUBLIC_URL must not have a query".to_owned());
        }
        let name = url.host_str().unwrap_or_default();
        // `Url` omits the default port of the scheme, as clients do in `Host`.
        let host = match url.port() {
            Some(port) => format!("{name}:{port}"),
            None => name.to_owned(),
        };
        Ok(Self { url: url.as_str().trim_end_matches('/').to_owned(), host })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_only_https_and_loopback_base_urls() {
        for (text, url, host) in [
            ("https://gw.example", "https://gw.example", "gw.example"),
            ("https://GW.example:443/", "https://gw.example", "gw.example"),
            ("https://gw.example:8443/pml/", "https://gw.example:8443/pml", "gw.example:8443"),
            ("http://127.0.0.1:3001", "http://127.0.0.1:3001", "127.0.0.1:3001"),
        ] {
            let read: PublicUrl = text.parse().unwrap();
            assert_eq!((read.as_str(), read.host()), (url, host));
        }
        for text in [
            "",
            "gw.example",
            "http://gw.example",
            "https://u:p@gw.example",
            "https://gw.example?x=1",
            "ftp://gw.example",
        ] {
            text.parse::<PublicUrl>().expect_err(text);
        }
    }
}
