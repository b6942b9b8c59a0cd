//! The part of a policy about web addresses.

use execution::host_pattern::HostPattern;
use url::Url;

use super::Source;

/// The maximum number of redirects that a policy may allow, and the number without a setting.
pub(super) const REDIRECTS_LIMIT: u32 = 10;
pub(super) const REDIRECTS: u32 = 5;

/// The web addresses that may be opened.
#[derive(Debug, Clone, Default)]
pub(super) struct Web {
    pub(super) allow: Vec<HostPattern>,
    pub(super) deny: Vec<HostPattern>,
    /// Hosts that may have private addresses; they are allowed as well.
    pub(super) private: Vec<HostPattern>,
    pub(super) max_bytes: Option<u64>,
    pub(super) timeout_ms: Option<u64>,
    pub(super) max_redirects: Option<u32>,
}

impl Web {
    /// Checks an address.
    pub(super) fn allows(&self, source: &Source, url: &Url) -> Result<(), String> {
        let host = protocol::escape_text(url.host_str().unwrap_or_default());
        if let Some(pattern) = self.deny.iter().find(|pattern| pattern.denies(url)) {
            return Err(format!("{} has `{pattern}`", source.named("web.deny")));
        }
        match self.allow.iter().chain(&self.private).any(|pattern| pattern.covers(url)) {
            true => Ok(()),
            false => {
                let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
                Err(format!("{} has no pattern for `{host}{port}`", source.named("web.allow")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> HostPattern {
        HostPattern::new(text).unwrap_or_else(|error| panic!("{error}"))
    }

    /// NP-02: what each pattern covers as `allow` and as `deny`.
    #[test]
    fn hosts_match_exactly() {
        let both = |text: &str, url: &str| {
            let (pattern, url) = (pattern(text), Url::parse(url).unwrap());
            (pattern.covers(&url), pattern.denies(&url))
        };
        for (text, url, covers, denies) in [
            ("example.com", "https://example.com/", true, true),
            ("example.com", "http://example.com/", true, true),
            ("example.com", "https://EXAMPLE.com./x", true, true),
            ("Example.COM.", "https://example.com/", true, true),
            ("example.com", "https://example.com:443/", true, true),
            ("example.com", "https://example.com:80/", false, true),
            ("example.com", "https://example.com:8443/", false, true),
            ("example.com:8443", "https://example.com:8443/", true, true),
            ("example.com:8443", "https://example.com/", false, false),
            ("example.com:443", "https://example.com/", true, true),
            ("example.com:443", "http://example.com/", false, false),
            ("example.com", "https://evil-example.com/", false, false),
            ("example.com", "https://example.com.evil.test/", false, false),
            ("example.com", "https://evil.test/example.com", false, false),
            ("example.com", "https://evil.test/?example.com", false, false),
            ("example.com", "https://evil.test#example.com", false, false),
            ("example.com", "https://example.com@evil.test/", false, false),
            ("example.com", "https://example.com\\@evil.test/", true, true),
            ("example.com", "https://a.example.com/", false, true),
            ("*.example.com", "https://a.example.com/", true, true),
            ("*.example.com", "https://a.b.example.com./", true, true),
            ("*.example.com", "https://example.com/", false, false),
            ("*.example.com", "https://xexample.com/", false, false),
            ("*.example.com", "https://.example.com/", true, true),
            ("*.example.com:1", "https://a.example.com:1/", true, true),
            ("*.com", "https://com/", false, false),
            ("*", "https://anything.test/", true, true),
            ("*", "https://anything.test:1/", false, true),
            ("*:1", "https://anything.test:1/", true, true),
            ("*", "http://127.0.0.1/", true, true),
            ("bücher.example", "https://xn--bcher-kva.example/", true, true),
            ("xn--bcher-kva.example", "https://BÜCHER.example/", true, true),
            ("example.com", "https://еxample.com/", false, false),
            ("example.com", "https://ｅxample.com/", true, true),
            ("127.0.0.1", "http://2130706433/", true, true),
            ("127.0.0.1", "http://0x7f.1/", true, true),
            ("127.0.0.1", "http://[::ffff:7f00:1]/", true, true),
            ("0x7f000001", "http://127.0.0.1/", true, true),
            ("127.0.0.1", "http://127.0.0.2/", false, false),
            ("[::1]", "http://[0:0::1]/", true, true),
            ("[::1]:8080", "http://[::1]:8080/", true, true),
            ("*.0.0.1.example", "http://127.0.0.1/", false, false),
        ] {
            assert_eq!(both(text, url), (covers, denies), "{text} {url}");
        }
    }

    #[test]
    fn what_is_no_host_is_refused() {
        for text in [
            "",
            "*.",
            ".",
            "*.*.com",
            "a*.com",
            "*com",
            "https://example.com",
            "example.com/x",
            "user@example.com",
            "example.com:",
            "example.com:0",
            "example.com:65536",
            "example.com:x",
            "::1",
            "*.127.0.0.1",
            "a b",
            "%",
            "example.com:1:2",
            "*.[::1]",
        ] {
            HostPattern::new(text).expect_err(text);
        }
        assert_eq!(pattern("*.Example.com:1").to_string(), "*.example.com:1");
        assert_eq!(pattern("[::1]").one().unwrap(), "[::1]");
        assert_eq!(pattern("*.x").one(), None);
    }
}
