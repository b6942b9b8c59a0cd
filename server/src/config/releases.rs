//! The settings of `GET /install.sh`: where releases of the programs are, and whose signatures the script trusts.

use std::str::FromStr;

use clap::Args;
use data_encoding::BASE64;

use super::identity::address;

/// The settings of the install script. A gateway of a release has the address and the keys of that release as defaults.
#[derive(Debug, Clone, Args)]
pub(crate) struct ReleaseSettings {
    /// The address of a folder that `deploy/release.sh` made, for `GET /install.sh`.
    ///
    /// Default: the address that this gateway was built with, if it was built as a release.
    #[arg(long, env = "PML_RELEASES_URL", value_name = "URL")]
    pub releases_url: Option<ReleasesUrl>,

    /// The public keys of minisign that the install script trusts, separated by spaces.
    ///
    /// Default: the keys that this gateway was built with, if it was built as a release.
    #[arg(long, env = "PML_RELEASES_KEYS", value_name = "KEYS")]
    pub releases_keys: Option<ReleasesKeys>,
}

impl ReleaseSettings {
    /// Returns where releases are: the setting, else what this gateway was built with.
    pub(crate) fn url(&self) -> Option<ReleasesUrl> {
        self.releases_url.clone().or_else(|| built_with(option_env!("PML_RELEASE_URL")))
    }

    /// Returns whose signatures to trust: the setting, else what this gateway was built with.
    pub(crate) fn keys(&self) -> Option<ReleasesKeys> {
        self.releases_keys.clone().or_else(|| built_with(option_env!("PML_RELEASE_KEYS")))
    }
}

/// Parses a value of the build. The release script also builds without one, and from folders, which nobody can download.
fn built_with<T: FromStr>(value: Option<&str>) -> Option<T> {
    value.and_then(|value| value.parse().ok())
}

/// The address of the releases, without a trailing slash. It has no character that would end a string of the shell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReleasesUrl(String);

impl ReleasesUrl {
    /// Returns the URL.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ReleasesUrl {
    type Err = String;

    /// Parses what the script accepts: an `https` URL, or an `http` URL of this machine with a port.
    fn from_str(text: &str) -> Result<Self, String> {
        let (_, url) = address("PML_RELEASES_URL", text).map_err(|error| format!("{error:#}"))?;
        let is_local = matches!(url.host_str(), Some("127.0.0.1" | "localhost"));
        if url.scheme() == "http" && !(is_local && url.port().is_some()) {
            return Err("over `http`, write `http://127.0.0.1:PORT`".to_owned());
        }
        let url = url.as_str().trim_end_matches('/');
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b":/._~%-".contains(&byte);
        match url.bytes().all(is_plain) {
            true => Ok(Self(url.to_owned())),
            // The script has the address in quotes and appends paths to it, and `curl` expands brackets.
            false => Err(
                "besides letters and digits, it may contain only `:`, `/`, `.`, `_`, `~`, `%` and `-`"
                    .to_owned(),
            ),
        }
    }
}

/// Public keys of minisign, separated by single spaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReleasesKeys(String);

impl ReleasesKeys {
    /// Returns the keys.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ReleasesKeys {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // The algorithm, the id of the key and the key: the form of minisign.
        let is_key = |word: &&str| {
            BASE64
                .decode(word.as_bytes())
                .is_ok_and(|key| key.len() == 42 && key.starts_with(b"Ed"))
        };
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        match !words.is_empty() && words.iter().all(is_key) {
            true => Ok(Self(words.join(" "))),
            false => Err(
                "write the last line of minisign's file with the public key; separate several by spaces"
                    .to_owned(),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "RWRwbWwtdGVzdAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f";

    #[test]
    fn the_address_cannot_leave_its_quotes() {
        for (text, expected) in [
            ("https://releases.acme.example", "https://releases.acme.example"),
            ("https://releases.acme.example/pml/", "https://releases.acme.example/pml"),
            ("http://127.0.0.1:8080/a", "http://127.0.0.1:8080/a"),
            // The parser encodes what a path cannot have.
            ("https://a.example/x y\"`", "https://a.example/x%20y%22%60"),
        ] {
            assert_eq!(text.parse::<ReleasesUrl>().unwrap().as_str(), expected);
        }
        for text in [
            "",
            "releases.acme.example",
            "http://releases.acme.example",
            "http://localhost/a",
            "http://[::1]:80/",
            "https://[2001:db8::1]:8443/a",
            "https://a.example/[1-9]",
            "https://a.example/';id;'",
            "https://a.example/$(id)",
            "https://a.example/a|b&c",
            "https://a.example/?x=1",
            "https://a.example/#x",
            "https://u:p@a.example/",
            "file:///srv",
        ] {
            text.parse::<ReleasesUrl>().expect_err(text);
        }
    }

    #[test]
    fn keys_are_those_of_minisign() {
        let two = format!(" {KEY}\n{KEY} ");
        assert_eq!(KEY.parse::<ReleasesKeys>().unwrap().as_str(), KEY);
        assert_eq!(two.parse::<ReleasesKeys>().unwrap().as_str(), format!("{KEY} {KEY}"));
        let other = KEY.replacen("RWR", "SWR", 1);
        for text in
            ["", " ", "RWQx", &KEY[..55], &other, &format!("{KEY} '"), &format!("{KEY},{KEY}")]
        {
            text.parse::<ReleasesKeys>().expect_err(text);
        }
    }
}
