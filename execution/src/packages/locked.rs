//! What a server starts from: exact versions of packages, each with the hash of what is downloaded.
//!
//! It is written to `.pml/mcp.lock`, which can come with a repository. So it has no addresses: where packages are
//! downloaded from is decided by the user's own settings, and what is downloaded must have the hash.

mod changes;
mod entry;

use std::collections::{BTreeMap, BTreeSet};

use protocol::{Integrity, escape_text};
use serde::{Deserialize, Serialize};

pub use self::changes::{ChangeKind, PackageChange};
use self::entry::{FOLDER, TEXT_LIMIT};
pub(super) use self::entry::{NpmPackage, ONLY, Wheel, normal_name, parent_and_name};
use super::request::{Ecosystem, Request, is_name};

/// The maximum number of packages.
const PACKAGES_LIMIT: usize = 2_000;

/// Exact versions of a package and of all that it needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
pub struct LockedPackages {
    /// What was requested. Another request is another set.
    request: String,
    /// Of npm, by their places.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) npm: BTreeMap<String, NpmPackage>,
    /// Of PyPI, by platform and name: platforms have different files, and can need different packages.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) pypi: BTreeMap<String, BTreeMap<String, Wheel>>,
}

/// What is read, before it is checked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Unchecked {
    request: String,
    #[serde(default)]
    npm: BTreeMap<String, NpmPackage>,
    #[serde(default)]
    pypi: BTreeMap<String, BTreeMap<String, Wheel>>,
}

impl TryFrom<Unchecked> for LockedPackages {
    type Error = String;

    fn try_from(Unchecked { request, npm, pypi }: Unchecked) -> Result<Self, String> {
        let packages = Self { request, npm, pypi };
        packages.check()?;
        Ok(packages)
    }
}

impl LockedPackages {
    /// Returns a set of packages of npm.
    pub(super) fn of_npm(
        request: &Request,
        npm: BTreeMap<String, NpmPackage>,
    ) -> Result<Self, String> {
        let packages = Self { request: request.locked_name(), npm, pypi: BTreeMap::new() };
        packages.check()?;
        packages.check_fits(request)?;
        Ok(packages)
    }

    /// Returns a set of packages of PyPI for a platform, with those of other platforms.
    pub(super) fn of_pypi(
        request: &Request,
        platform: &str,
        wheels: BTreeMap<String, Wheel>,
        others: Option<&Self>,
    ) -> Result<Self, String> {
        let mut pypi = others.map(|others| others.pypi.clone()).unwrap_or_default();
        pypi.insert(platform.to_owned(), wheels);
        let packages = Self { request: request.locked_name(), npm: BTreeMap::new(), pypi };
        packages.check()?;
        packages.check_fits(request)?;
        Ok(packages)
    }

    /// Returns the name of what was requested.
    pub fn request(&self) -> &str {
        &self.request
    }

    /// Returns whether it is what was requested by this name.
    pub fn is_for(&self, request: &str) -> bool {
        self.request == request
    }

    /// Returns whether it has all that another set has, which another platform added to.
    pub fn extends(&self, other: &Self) -> bool {
        let has = |(platform, wheels)| self.pypi.get(platform) == Some(wheels);
        self.request == other.request && self.npm == other.npm && other.pypi.iter().all(has)
    }

    /// Returns a hash of the whole set.
    pub fn hash(&self) -> Integrity {
        Integrity::of_json(&serde_json::to_value(self).unwrap_or_default())
    }

    /// Returns the number of packages, on the platform that has the most.
    pub fn count(&self) -> usize {
        let of_platforms = self.pypi.values().map(BTreeMap::len).max();
        self.npm.len() + of_platforms.unwrap_or_default()
    }

    /// Returns the version of the package that was requested.
    pub fn version(&self) -> Option<&str> {
        let requested = self.request.split_once(':').map_or("", |(_, requested)| requested);
        let npm = self.npm.iter().find(|(place, _)| {
            let name = place.strip_prefix(FOLDER).unwrap_or_default();
            requested
                .strip_prefix(name)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('@'))
        });
        let end = requested.find(['[', '=', '<', '>', '!', '~']).unwrap_or(requested.len());
        let name = normal_name(&requested[..end]);
        let pypi = || self.pypi.values().find_map(|wheels| wheels.get(&name));
        npm.map(|(_, package)| &*package.version).or_else(|| pypi().map(|wheel| &*wheel.version))
    }

    /// Returns what an update has a lock keep: this set, or the earlier one if that has the same packages of this platform.
    /// Other platforms stay as long as their versions are the same.
    pub fn succeeding(self, before: &Self) -> Self {
        if self.request != before.request || self.pypi.is_empty() {
            return self;
        }
        let is_other = |name: &String, wheel: &Wheel| {
            let others = before.pypi.values().filter_map(|wheels| wheels.get(name));
            others.into_iter().any(|other| other.version != wheel.version)
        };
        if self.pypi.values().flatten().any(|(name, wheel)| is_other(name, wheel)) {
            return self;
        }
        let mut merged = before.clone();
        merged.pypi.extend(self.pypi);
        merged
    }

    /// Checks that it is for this request, and has the package that was requested.
    pub(super) fn check_fits(&self, request: &Request) -> Result<(), String> {
        let name = escape_text(&request.package);
        let missing = || format!("its locked packages do not have `{name}`");
        let other =
            |version: &str| format!("its locked packages have version {version} of `{name}`");
        if !self.is_for(&request.locked_name()) {
            return Err(missing());
        }
        let asked = request.version.as_deref().unwrap_or_default();
        match request.ecosystem {
            Ecosystem::Npm => {
                let package = self.npm.get(&format!("{FOLDER}{}", request.package));
                let package = package.ok_or_else(missing)?;
                // Of npm, a range is compared by npm itself.
                let is_other = semver::Version::parse(asked)
                    .is_ok_and(|asked| asked.to_string() != package.version);
                match (&package.alias_of, is_other) {
                    (None, false) => Ok(()),
                    (Some(_), _) => Err(missing()),
                    (None, true) => Err(other(&package.version)),
                }
            }
            Ecosystem::PyPi => {
                let name = normal_name(request.bare_name());
                let exact =
                    asked.strip_prefix("==").filter(|exact| !exact.contains(['*', ',', '=']));
                for wheels in self.pypi.values() {
                    let wheel = wheels.get(&name).ok_or_else(missing)?;
                    if exact.is_some_and(|exact| !is_same_version(exact, &wheel.version)) {
                        return Err(other(&wheel.version));
                    }
                }
                if self.pypi.is_empty() { Err(missing()) } else { Ok(()) }
            }
        }
    }

    fn check(&self) -> Result<(), String> {
        if self.request.len() > TEXT_LIMIT || self.npm.is_empty() == self.pypi.is_empty() {
            return Err("packages need one of `npm` and `pypi`".to_owned());
        }
        let count = self.npm.len() + self.pypi.values().map(BTreeMap::len).sum::<usize>();
        if count > PACKAGES_LIMIT {
            return Err(format!(
                "a server has {count} packages; at most {PACKAGES_LIMIT} can be locked"
            ));
        }
        for place in self.npm.keys() {
            let (parent, _) = parent_and_name(place)
                .ok_or_else(|| format!("`{}` is not a place of a package", escape_text(place)))?;
            if parent.is_some_and(|parent| !self.npm.contains_key(parent)) {
                return Err(format!("nothing is at the place above `{place}`"));
            }
        }
        for (platform, wheels) in &self.pypi {
            let is_of_platform =
                |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            if platform.is_empty()
                || platform.len() > TEXT_LIMIT
                || !platform.chars().all(is_of_platform)
            {
                return Err(format!("`{}` is not a platform", escape_text(platform)));
            }
            if let Some(name) =
                wheels.keys().find(|name| !is_name(name) || normal_name(name) != **name)
            {
                return Err(format!("`{}` is not a normal name of PyPI", escape_text(name)));
            }
        }
        Ok(())
    }
}

/// Returns whether two versions of PyPI are the same (PEP 440: zeros at the end say nothing).
fn is_same_version(a: &str, b: &str) -> bool {
    let normal = |version: &str| {
        let version = version.to_ascii_lowercase();
        version.trim_start_matches('v').trim_end_matches(".0").replace(['-', '_'], ".")
    };
    let mut both = [normal(a), normal(b)];
    for version in &mut both {
        while let Some(shorter) = version.strip_suffix(".0") {
            *version = shorter.to_owned();
        }
    }
    both[0] == both[1]
}

/// Returns the places in the folder of each place of npm; those that are in none have an empty one.
pub(super) fn children(npm: &BTreeMap<String, NpmPackage>) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut children: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for place in npm.keys() {
        let parent = parent_and_name(place).and_then(|(parent, _)| parent);
        children.entry(parent.unwrap_or_default()).or_default().insert(place);
    }
    children
}

#[cfg(test)]
mod tests;
