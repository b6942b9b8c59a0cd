//! Addresses that the gateway and its issuer name.

use protocol::escape_text;
use url::Url;

use super::OauthError;
use crate::http_client::is_this_machine;

/// The maximum length of an address in bytes.
const LENGTH_LIMIT: usize = 2_048;

/// The characters of an address next to letters and digits: those of RFC 3986 without the ones that a shell interprets
/// within a word. The command that opens a browser may be a script.
const CHARACTERS: &str = "-._~:/?#[]@&=+,%";

/// Which addresses are acceptable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// `https`.
    Web,
    /// `https`, or `http` on this machine: the gateway itself is there.
    ThisMachine,
}

impl Reach {
    /// Returns that of a gateway. One elsewhere must not direct requests to services of this machine.
    pub(super) fn of(gateway: &Url) -> Self {
        if is_this_machine(gateway) { Self::ThisMachine } else { Self::Web }
    }
}

/// Checks an address; `what` names it in the error.
///
/// # Errors
/// Returns [`OauthError::Invalid`] for any other than a plain `https` address, or an `http` one within `reach`.
pub(super) fn checked(text: &str, what: &str, reach: Reach) -> Result<Url, OauthError> {
    parse(text, reach).map_err(|reason| {
        let start: String = text.chars().take(200).collect();
        OauthError::Invalid(format!("{what} `{}` is refused: {reason}", escape_text(&start)))
    })
}

fn parse(text: &str, reach: Reach) -> Result<Url, String> {
    if text.len() > LENGTH_LIMIT {
        return Err(format!("it is longer than {LENGTH_LIMIT} bytes"));
    }
    // Before parsing: the parser removes tabs and line breaks, and accepts `https:host` and `\`.
    if !text.starts_with("https://") && !text.starts_with("http://") {
        return Err("it must begin with `https://`".to_owned());
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || CHARACTERS.contains(c);
    if let Some(odd) = text.chars().find(|c| !is_plain(*c)) {
        let odd = escape_text(&odd.to_string());
        return Err(format!("it contains the character `{odd}`, which must be percent-encoded"));
    }
    let url = Url::parse(text).map_err(|error| error.to_string())?;
    if url.scheme() != "https" && !(reach == Reach::ThisMachine && is_this_machine(&url)) {
        return Err("`http` is accepted only on this machine, for a gateway on this machine".into());
    }
    if !url.username().is_empty() || url.password().is_some() || url.fragment().is_some() {
        return Err("it contains a user name, a password or a fragment".to_owned());
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CL-11: an address that is opened or requested is a plain web address.
    #[test]
    fn only_plain_web_addresses_are_accepted() {
        for (text, reach) in [
            ("https://id.test", Reach::Web),
            ("https://id.test:8443/device?user_code=ABCD-EFGH&x=%20", Reach::Web),
            ("https://[2001:db8::1]/", Reach::Web),
            ("http://127.0.0.1:1/device", Reach::ThisMachine),
            ("http://localhost/device", Reach::ThisMachine),
        ] {
            let url = checked(text, "it", reach).unwrap();
            assert!(url.as_str().starts_with(text), "{url}");
        }
        for text in [
            "",
            "javascript:alert(1)",
            "JavaScript:alert(1)",
            "file:///etc/passwd",
            "data:text/html,x",
            "https:id.test",
            "https:\\\\id.test",
            " https://id.test",
            "https://id.test ",
            "https://id.test/a b",
            "https://id.test/\n--new-window",
            "https://id.test/\t",
            "https://id.test/\0",
            "https://id.test/\u{1b}[2J",
            "https://id.test/\u{202e}",
            "https://id.test/\u{200b}",
            "https://ïd.test/",
            "https://id.test/$(touch${IFS}x)",
            "https://id.test/`id`",
            "https://id.test/;id",
            "https://id.test/|id",
            "https://id.test/'\"",
            "https://id.test/<x>",
            "https://id.test\\@evil.test/",
            "https://ana@id.test/",
            "https://ana:pass@id.test/",
            "https://id.test/#part",
            "https://",
            "http://id.test/",
            "http://10.0.0.1/",
            "http://127.0.0.1.id.test/",
            "--help",
            "-https://id.test/",
            "$(id)",
        ] {
            let refused = checked(text, "it", Reach::ThisMachine).unwrap_err().to_string();
            assert!(refused.contains("is refused"), "{refused}");
            let shows_itself = |c: char| !c.is_control() && c != '\u{202e}' && c != '\u{200b}';
            assert!(refused.chars().all(shows_itself), "{refused:?}");
        }
        checked(&format!("https://id.test/{}", "x".repeat(LENGTH_LIMIT)), "it", Reach::Web)
            .unwrap_err();
        // A gateway elsewhere names no service of this machine.
        checked("http://127.0.0.1:1/device", "it", Reach::Web).unwrap_err();
    }
}
