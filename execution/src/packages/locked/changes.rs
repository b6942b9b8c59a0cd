//! What differs between two sets of locked packages.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::LockedPackages;
use super::entry::{FOLDER, NpmPackage, Wheel};

/// How many changes a summary names.
const SUMMARIZED: usize = 30;

/// A difference of one package.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PackageChange {
    /// Its name; for one of npm that is in the folder of another one, with that.
    pub package: String,
    /// The platform of a package of PyPI.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub platform: Option<String>,
    /// What differs.
    pub change: ChangeKind,
    /// The version before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The version now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

/// What differs of a package.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// It was not there before.
    Added,
    /// It is no longer there.
    Removed,
    /// It has another version.
    Version,
    /// It has the same version and another hash: somebody replaced what was published.
    Hash,
    /// It has the same version and hash, and is needed by others or on other systems.
    Conditions,
}

/// What is compared of a package.
struct Listed<'a> {
    /// The version; of an alias, with the name of the package that it stands for.
    version: String,
    hash: &'a str,
    whole: String,
}

impl LockedPackages {
    /// Returns what differs from an earlier set, sorted by place.
    pub fn changes(&self, before: &Self) -> Vec<PackageChange> {
        let (was, now) = (before.listed(), self.listed());
        let mut changes = Vec::new();
        for (place, package) in &now {
            let known = was.get(place);
            let kind = match known {
                None => ChangeKind::Added,
                Some(known) if known.version != package.version => ChangeKind::Version,
                Some(known) if known.hash != package.hash => ChangeKind::Hash,
                Some(known) if known.whole != package.whole => ChangeKind::Conditions,
                Some(_) => continue,
            };
            changes.push(place.change(kind, known, Some(package)));
        }
        let gone = was.iter().filter(|(place, _)| !now.contains_key(*place));
        changes.extend(
            gone.map(|(place, known)| place.change(ChangeKind::Removed, Some(known), None)),
        );
        changes
    }

    /// Describes what differs from an earlier set in one line; `None` if nothing does.
    pub fn changes_since(&self, before: &Self) -> Option<String> {
        let lines: Vec<String> = self.changes(before).iter().map(ToString::to_string).collect();
        let more = lines.len().saturating_sub(SUMMARIZED);
        let mut shown = lines[..lines.len() - more].join("; ");
        if more > 0 {
            shown += &format!("; and {more} more");
        }
        (!lines.is_empty()).then_some(shown)
    }

    /// Returns each package with what is known of it.
    fn listed(&self) -> BTreeMap<Place<'_>, Listed<'_>> {
        let npm = self.npm.iter().map(|(place, package)| {
            let NpmPackage { alias_of, version, integrity, .. } = package;
            let version = match alias_of {
                Some(name) => format!("npm:{name}@{version}"),
                None => version.clone(),
            };
            let listed = Listed { version, hash: integrity, whole: package.to_string() };
            (Place { platform: None, name: place }, listed)
        });
        let pypi = self.pypi.iter().flat_map(|(platform, wheels)| {
            wheels.iter().map(move |(name, wheel)| {
                let Wheel { version, hash } = wheel;
                let listed = Listed { version: version.clone(), hash, whole: wheel.to_string() };
                (Place { platform: Some(platform), name }, listed)
            })
        });
        npm.chain(pypi).collect()
    }
}

/// Where a package is.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Place<'a> {
    platform: Option<&'a str>,
    name: &'a str,
}

impl Place<'_> {
    fn change(
        &self,
        change: ChangeKind,
        before: Option<&Listed<'_>>,
        now: Option<&Listed<'_>>,
    ) -> PackageChange {
        let version = |listed: &Listed<'_>| listed.version.clone();
        PackageChange {
            package: self.name.strip_prefix(FOLDER).unwrap_or(self.name).to_owned(),
            platform: self.platform.map(str::to_owned),
            change,
            from: before.map(version),
            to: now.map(version),
        }
    }
}

impl fmt::Display for PackageChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What is in a lock has no characters that have to be escaped.
        let name = match &self.platform {
            None => format!("`{}`", self.package),
            Some(platform) => format!("`{}` on {platform}", self.package),
        };
        let from = self.from.as_deref().unwrap_or_default();
        let to = self.to.as_deref().unwrap_or_default();
        match self.change {
            ChangeKind::Added => write!(f, "new: {name} {to}"),
            ChangeKind::Removed => write!(f, "no longer: {name}"),
            ChangeKind::Version => write!(f, "{name}: was {from}, now {to}"),
            ChangeKind::Hash => write!(f, "{name} {to}: other hash"),
            ChangeKind::Conditions => write!(f, "{name} {to}: needed under other conditions"),
        }
    }
}
