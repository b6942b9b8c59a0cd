//! The versions of what tenants publish, which never change.

use std::fmt;
use std::str::FromStr;

use protocol::Integrity;

use crate::{RegistryError, Remark};

/// The largest number in a version.
const LARGEST: u32 = 999_999_999;

/// The version of a capability or a server: major, minor and patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    major: u32,
    minor: u32,
    patch: u32,
}

impl Version {
    /// The default first version.
    pub const FIRST: Self = Self { major: 0, minor: 1, patch: 0 };

    fn next_patch(self) -> Option<Self> {
        (self.patch < LARGEST).then(|| Self { patch: self.patch + 1, ..self })
    }
}

impl FromStr for Version {
    type Err = RegistryError;

    fn from_str(text: &str) -> Result<Self, RegistryError> {
        let number = |part: &str| {
            let plain = part.bytes().all(|byte| byte.is_ascii_digit())
                && (1..=9).contains(&part.len())
                && (part == "0" || !part.starts_with('0'));
            plain.then(|| part.parse().ok()).flatten()
        };
        let parts: Option<Vec<u32>> = text.split('.').map(number).collect();
        match parts.as_deref() {
            Some(&[major, minor, patch]) => Ok(Self { major, minor, patch }),
            _ => Err(RegistryError::Invalid(format!(
                "`{}` is not a version; write three numbers, for example `1.2.0`",
                text.escape_debug()
            ))),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// A version that is there already.
pub(crate) struct Existing {
    pub(crate) version: Version,
    /// Its content, as it is stored.
    pub(crate) content: String,
    pub(crate) integrity: Integrity,
}

/// The result of choosing a version.
pub(crate) enum Chosen<'e, T> {
    /// The very same is there.
    Known(&'e Existing),
    /// This version is to be written, and what.
    New(Version, T),
}

/// Decides which version is published: the one that is named, else the next patch.
///
/// `existing` has the highest first, `stored` makes what a version would be stored as, and `content` finds its content
/// in that, which decides whether two are the same.
///
/// # Errors
/// Returns [`RegistryError::Conflict`] when the version exists with different content, and [`RegistryError::Invalid`]
/// when none is given and there is no next patch.
pub(crate) fn choose<'e, T>(
    existing: &'e [Existing],
    named: Option<Version>,
    what: &str,
    stored: impl Fn(Version) -> Result<T, RegistryError>,
    content: impl Fn(&T) -> &str,
) -> Result<Chosen<'e, T>, RegistryError> {
    let version = match (named, existing.first()) {
        (Some(version), _) => version,
        (None, None) => Version::FIRST,
        (None, Some(last)) => {
            // The same once more is what is there.
            if content(&stored(last.version)?) == last.content {
                return Ok(Chosen::Known(last));
            }
            last.version.next_patch().ok_or_else(|| {
                let last = last.version;
                RegistryError::Invalid(format!(
                    "there is no next patch after {last}; set a version"
                ))
            })?
        }
    };
    let new = stored(version)?;
    match existing.iter().find(|existing| existing.version == version) {
        None => Ok(Chosen::New(version, new)),
        Some(same) if same.content == content(&new) => Ok(Chosen::Known(same)),
        Some(_) => Err(RegistryError::Conflict(format!(
            "version {version} of {what} is already published with different content"
        ))),
    }
}

impl Remark {
    /// Returns the verb for the audit log, the message to set, and whether the version is yanked.
    pub(crate) fn parts(&self) -> (&'static str, Option<&str>, bool) {
        match self {
            Self::Deprecated(why) => ("deprecate", Some(why.as_str()), false),
            Self::NotDeprecated => ("undeprecate", None, false),
            Self::Yanked => ("yank", None, true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_three_plain_numbers() {
        for text in ["0.1.0", "1.2.3", "999999999.0.10"] {
            assert_eq!(text.parse::<Version>().unwrap().to_string(), text);
        }
        assert!("0.10.0".parse::<Version>().unwrap() > "0.9.9".parse().unwrap());
        for text in [
            "",
            "1",
            "1.2",
            "1.2.3.4",
            "01.2.3",
            "1.2.x",
            "-1.2.3",
            "+1.2.3",
            "1.2.3-rc1",
            "1..2",
            "9999999999.0.0",
        ] {
            text.parse::<Version>().expect_err(text);
        }
    }

    fn existing(version: &str, content: &str) -> Existing {
        let integrity = Integrity::of(content.as_bytes());
        Existing { version: version.parse().unwrap(), content: content.to_owned(), integrity }
    }

    /// Chooses among contents that say their version, as stored ones do.
    fn chosen(existing: &[Existing], named: Option<&str>, text: &str) -> Result<String, String> {
        let named = named.map(|version| version.parse().unwrap());
        let stored = |version| Ok(format!("{text} {version}"));
        match choose(existing, named, "it", stored, String::as_str) {
            Ok(Chosen::Known(known)) => Ok(format!("known {}", known.version)),
            Ok(Chosen::New(version, _)) => Ok(format!("new {version}")),
            Err(error) => Err(error.to_string()),
        }
    }

    /// RG-03: what was published once never changes.
    #[test]
    fn a_version_is_chosen_once() {
        let known = [existing("0.2.0", "b 0.2.0"), existing("0.1.7", "a 0.1.7")];
        let ok = |text: &str| Ok(text.to_owned());
        assert_eq!(chosen(&[], None, "a"), ok("new 0.1.0"));
        assert_eq!(chosen(&known, None, "b"), ok("known 0.2.0"));
        assert_eq!(chosen(&known, None, "a"), ok("new 0.2.1"), "an old one once more is a new one");
        assert_eq!(chosen(&known, Some("0.1.7"), "a"), ok("known 0.1.7"));
        assert_eq!(chosen(&known, Some("0.1.8"), "a"), ok("new 0.1.8"));
        chosen(&known, Some("0.1.7"), "b").expect_err("another content");
    }

    #[test]
    fn after_the_last_patch_there_is_none() {
        let known = [existing("0.1.999999999", "a 0.1.999999999")];
        assert_eq!(chosen(&known, None, "a").unwrap(), "known 0.1.999999999");
        assert!(chosen(&known, None, "b").expect_err("no next").contains("set a version"));
        assert_eq!(chosen(&known, Some("0.2.0"), "b").unwrap(), "new 0.2.0");
    }
}
