//! One locked package: a line with its version and its hash. It has one form only.

use std::fmt;

use protocol::escape_text;
use serde::{Deserialize, Serialize};

use super::super::request::is_name;

/// The maximum length of a place, a name, a version or a platform.
pub(super) const TEXT_LIMIT: usize = 400;

/// The folder of packages of npm.
pub(super) const FOLDER: &str = "node_modules/";

/// A package of npm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(in super::super) struct NpmPackage {
    /// Its name in the registry, if its place has another one.
    pub(in super::super) alias_of: Option<String>,
    /// Its version.
    pub(in super::super) version: String,
    /// The SHA-512 hash of its archive, as npm writes it.
    pub(in super::super) integrity: String,
    /// Whether what needs it works without.
    pub(in super::super) is_optional: bool,
    /// The members `os`, `cpu` and `libc` of its `package.json`: where it is installed.
    pub(in super::super) only: [Vec<String>; 3],
}

/// The names of [`NpmPackage::only`].
pub(in super::super) const ONLY: [&str; 3] = ["os", "cpu", "libc"];

/// A package of PyPI.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(in super::super) struct Wheel {
    /// Its version.
    pub(in super::super) version: String,
    /// The SHA-256 hash of its file, as pip writes it.
    pub(in super::super) hash: String,
}

/// Returns the place above one of npm, if there is one, and the name of its package; `None` if it is not a place.
pub(in super::super) fn parent_and_name(place: &str) -> Option<(Option<&str>, &str)> {
    let names: Vec<&str> = place.strip_prefix(FOLDER)?.split("/node_modules/").collect();
    let is_named = |name: &&str| is_npm_name(name);
    if place.len() > TEXT_LIMIT || !names.iter().all(is_named) {
        return None;
    }
    let name = *names.last()?;
    let above = place.len() - name.len() - FOLDER.len();
    let parent = (names.len() > 1).then(|| place[..above].trim_end_matches('/'));
    Some((parent, name))
}

/// Returns whether this is a name of npm, with or without a scope.
fn is_npm_name(name: &str) -> bool {
    let is_name = |name: &str| is_name(name) && name != "node_modules";
    match name.strip_prefix('@') {
        Some(scoped) => {
            scoped.split_once('/').is_some_and(|(scope, name)| is_name(scope) && is_name(name))
        }
        None => is_name(name),
    }
}

/// Returns a name as PEP 503 normalizes it.
pub(in super::super) fn normal_name(name: &str) -> String {
    let parts = name.split(['-', '_', '.']).filter(|part| !part.is_empty());
    parts.map(str::to_ascii_lowercase).collect::<Vec<_>>().join("-")
}

/// Returns whether this is a SHA-512 hash as npm writes it: the only text for its bytes.
fn is_sha512(text: &str) -> bool {
    let Some(hash) = text.strip_prefix("sha512-").and_then(|hash| hash.strip_suffix("==")) else {
        return false;
    };
    // 64 bytes are 86 characters, of which the last has four bits that are zero.
    hash.len() == 86
        && hash.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/'))
        && hash.ends_with(['A', 'Q', 'g', 'w'])
}

/// Returns whether this is a SHA-256 hash as pip writes it.
fn is_sha256(text: &str) -> bool {
    let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    text.strip_prefix("sha256:").is_some_and(|hash| hash.len() == 64 && hash.bytes().all(is_hex))
}

impl fmt::Display for NpmPackage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = &self.alias_of {
            write!(f, "npm:{name}@")?;
        }
        write!(f, "{} {}", self.version, self.integrity)?;
        if self.is_optional {
            write!(f, " optional")?;
        }
        for (name, values) in ONLY.iter().zip(&self.only).filter(|(_, values)| !values.is_empty()) {
            write!(f, " {name}={}", values.join(","))?;
        }
        Ok(())
    }
}

impl From<NpmPackage> for String {
    fn from(package: NpmPackage) -> Self {
        package.to_string()
    }
}

impl TryFrom<String> for NpmPackage {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let invalid = |what: &str| format!("`{}` {what}", escape_text(&text));
        let mut words = text.split(' ').peekable();
        let first = words.next().unwrap_or_default();
        let (alias_of, version) = match first.strip_prefix("npm:") {
            Some(alias) => {
                let (name, version) =
                    alias.rsplit_once('@').ok_or_else(|| invalid("has no version"))?;
                (Some(name.to_owned()), version)
            }
            None => (None, first),
        };
        let integrity = words.next().unwrap_or_default();
        let is_optional = words.next_if_eq(&"optional").is_some();
        let only = ONLY.map(|name| {
            let values = words.next_if(|word| word.starts_with(name))?.strip_prefix(name)?;
            Some(values.strip_prefix('=')?.split(',').map(str::to_owned).collect())
        });
        let package = Self {
            alias_of,
            version: version.to_owned(),
            integrity: integrity.to_owned(),
            is_optional,
            only: only.map(Option::unwrap_or_default),
        };
        package.check().map_err(|what| invalid(&what))?;
        // The only text for a package, so that nothing is read that is not written.
        if package.to_string() != text {
            return Err(invalid("is not a package of npm"));
        }
        Ok(package)
    }
}

impl NpmPackage {
    /// Checks the grammar of its parts.
    pub(in super::super) fn check(&self) -> Result<(), String> {
        if self
            .alias_of
            .as_deref()
            .is_some_and(|name| name.len() > TEXT_LIMIT || !is_npm_name(name))
        {
            return Err("does not have a name of npm".to_owned());
        }
        if self.version.len() > TEXT_LIMIT || semver::Version::parse(&self.version).is_err() {
            return Err("does not have an exact version".to_owned());
        }
        if !is_sha512(&self.integrity) {
            return Err("does not have a SHA-512 hash".to_owned());
        }
        let is_of_value = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '!');
        let is_value = |value: &String| !value.is_empty() && value.chars().all(is_of_value);
        match self.only.iter().flatten().all(is_value) {
            true => Ok(()),
            false => Err("does not say where it is installed".to_owned()),
        }
    }
}

impl fmt::Display for Wheel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.version, self.hash)
    }
}

impl From<Wheel> for String {
    fn from(wheel: Wheel) -> Self {
        wheel.to_string()
    }
}

impl TryFrom<String> for Wheel {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let (version, hash) = text.split_once(' ').unwrap_or((&text, ""));
        let wheel = Self { version: version.to_owned(), hash: hash.to_owned() };
        wheel.check().map_err(|what| format!("`{}` {what}", escape_text(&text)))?;
        Ok(wheel)
    }
}

impl Wheel {
    /// Checks the grammar of its parts.
    pub(in super::super) fn check(&self) -> Result<(), String> {
        let is_of_version =
            |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '!' | '+' | '-' | '_');
        let starts = self.version.starts_with(|c: char| c.is_ascii_alphanumeric());
        if !starts || self.version.len() > TEXT_LIMIT || !self.version.chars().all(is_of_version) {
            return Err("does not have an exact version".to_owned());
        }
        match is_sha256(&self.hash) {
            true => Ok(()),
            false => Err("does not have a SHA-256 hash".to_owned()),
        }
    }
}
