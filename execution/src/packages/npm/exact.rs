//! The files from which npm installs exactly what is locked.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::super::Request;
use super::super::locked::{NpmPackage, ONLY, children, parent_and_name};

/// Makes a `package.json` and a `package-lock.json` from which npm installs exactly these packages in these places.
///
/// The lock has no `resolved`, so that npm asks the registry of the user's settings. What depends on what is not known
/// here: each package gets what is in its own folder.
pub(super) fn files(request: &Request, npm: &BTreeMap<String, NpmPackage>) -> (Value, Value) {
    let children = children(npm);
    let needs = |place: &str| {
        let mut needs = [Map::new(), Map::new()];
        for child in children.get(place).into_iter().flatten() {
            let (Some(package), Some((_, name))) = (npm.get(*child), parent_and_name(child)) else {
                continue;
            };
            let version = match &package.alias_of {
                Some(other) => format!("npm:{other}@{}", package.version),
                None => package.version.clone(),
            };
            needs[usize::from(package.is_optional)].insert(name.to_owned(), version.into());
        }
        needs
    };
    let [mut required, optional] = needs("");
    // npm refuses a lock whose version is not in the range.
    let range = request.version.as_ref().filter(|version| is_range(version));
    if let (Some(range), Some(wanted)) = (range, required.get_mut(&request.package)) {
        *wanted = range.clone().into();
    }
    let manifest = json!({
        "name": "pml-server", "private": true,
        "dependencies": required, "optionalDependencies": optional,
    });
    let mut packages = Map::new();
    packages.insert(String::new(), manifest.clone());
    for (place, package) in npm {
        let [required, optional] = needs(place);
        let mut entry = json!({
            "version": package.version, "integrity": package.integrity,
            "dependencies": required, "optionalDependencies": optional,
        });
        if let Some(name) = &package.alias_of {
            entry["name"] = name.clone().into();
        }
        if package.is_optional {
            entry["optional"] = true.into();
        }
        for (name, values) in
            ONLY.iter().zip(&package.only).filter(|(_, values)| !values.is_empty())
        {
            entry[*name] = json!(values);
        }
        packages.insert(place.clone(), entry);
    }
    let lock = json!({ "name": "pml-server", "lockfileVersion": 3, "requires": true, "packages": packages });
    (manifest, lock)
}

/// Returns whether a version is a range, and not a tag.
fn is_range(version: &str) -> bool {
    // Some write a version with a `v`.
    version
        .trim_start_matches('v')
        .starts_with(|c: char| c.is_ascii_digit() || matches!(c, '^' | '~' | '<' | '>' | '=' | '*'))
}
