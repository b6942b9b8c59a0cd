//! The versions of what tenants publish, which never change.

use protocol::Integrity;

use crate::RegistryError;
use crate::entries::version::Version;

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

#[cfg(test)]
mod tests {
    use super::*;

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
