//! Choice of the version to publish. Published versions are immutable.

use protocol::Integrity;

use crate::RegistryError;
use crate::entries::version::Version;

/// A published version.
pub(crate) struct Existing {
    pub(crate) version: Version,
    /// Its stored content.
    pub(crate) content: String,
    pub(crate) integrity: Integrity,
}

/// The result of choosing a version.
pub(crate) enum Chosen<'e, T> {
    /// The identical version is already published.
    Known(&'e Existing),
    /// This version is to be written, with this stored form.
    New(Version, T),
}

/// Decides which version to publish: the one that is given, or else the next patch version.
///
/// `existing` is sorted highest first. `stored` builds the stored form of a version, and `content` returns the content
/// of a stored form; two versions are identical if their contents are.
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
            // Publishing the current content again does not create a new version.
            // A content includes its version, so the new one is built as if it had the last
            // version.
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

    /// Calls `choose` with contents that contain their version, as stored ones do.
    fn chosen(existing: &[Existing], named: Option<&str>, text: &str) -> Result<String, String> {
        let named = named.map(|version| version.parse().unwrap());
        let stored = |version| Ok(format!("{text} {version}"));
        match choose(existing, named, "it", stored, String::as_str) {
            Ok(Chosen::Known(known)) => Ok(format!("known {}", known.version)),
            Ok(Chosen::New(version, _)) => Ok(format!("new {version}")),
            Err(error) => Err(error.to_string()),
        }
    }

    /// RG-03: a published version never changes.
    #[test]
    fn never_overwrites_a_version() {
        let known = [existing("0.2.0", "b 0.2.0"), existing("0.1.7", "a 0.1.7")];
        let ok = |text: &str| Ok(text.to_owned());
        assert_eq!(chosen(&[], None, "a"), ok("new 0.1.0"));
        assert_eq!(chosen(&known, None, "b"), ok("known 0.2.0"));
        assert_eq!(
            chosen(&known, None, "a"),
            ok("new 0.2.1"),
            "the content of an older version is published as a new version"
        );
        assert_eq!(chosen(&known, Some("0.1.7"), "a"), ok("known 0.1.7"));
        assert_eq!(chosen(&known, Some("0.1.8"), "a"), ok("new 0.1.8"));
        chosen(&known, Some("0.1.7"), "b").expect_err("different content");
    }

    #[test]
    fn refuses_a_patch_number_above_the_largest() {
        let known = [existing("0.1.999999999", "a 0.1.999999999")];
        assert_eq!(chosen(&known, None, "a").unwrap(), "known 0.1.999999999");
        assert!(chosen(&known, None, "b").expect_err("no next").contains("set a version"));
        assert_eq!(chosen(&known, Some("0.2.0"), "b").unwrap(), "new 0.2.0");
    }
}
