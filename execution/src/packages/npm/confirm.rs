//! Compares what npm installed with the lock, which may be of somebody else.

use std::collections::BTreeMap;
use std::path::Path;

use super::super::Request;
use super::super::locked::{NpmPackage, parent_and_name};
use super::Manifest;

/// Checks that what was installed is what the lock calls it, and that something of it needs each package.
pub(super) fn confirm(
    request: &Request,
    npm: &BTreeMap<String, NpmPackage>,
    folder: &Path,
) -> Result<(), String> {
    let mut manifests = BTreeMap::new();
    for (place, package) in npm {
        let shown = protocol::escape_text(place);
        let text = match std::fs::read(folder.join(place).join("package.json")) {
            Ok(text) => text,
            // It is for another platform.
            Err(_) if package.is_optional => continue,
            Err(error) => return Err(format!("`{shown}` is not there: {error}")),
        };
        let manifest: Manifest = serde_json::from_slice(&text)
            .map_err(|error| format!("`{shown}` has an invalid `package.json`: {error}"))?;
        let (_, name) = parent_and_name(place).unwrap_or_default();
        let name = package.alias_of.as_deref().unwrap_or(name);
        // Some write their version with a `v`.
        if manifest.name != name
            || manifest.version.trim_start_matches(['v', '=']) != package.version
        {
            return Err(format!(
                "`{shown}` is {} {}, and not {name} {}",
                protocol::escape_text(&manifest.name),
                protocol::escape_text(&manifest.version),
                package.version
            ));
        }
        manifests.insert(place.as_str(), manifest);
    }
    let mut needed = vec![format!("node_modules/{}", request.package)];
    for (place, manifest) in &manifests {
        let Manifest { dependencies, optional_dependencies, peer_dependencies, .. } = manifest;
        for (name, version) in
            dependencies.iter().chain(optional_dependencies).chain(peer_dependencies)
        {
            let Some(found) = find(npm, place, name) else { continue };
            let version = version.as_str().unwrap_or_default();
            let asked = version.strip_prefix("npm:").map(|asked| match asked.rfind('@') {
                Some(at) if at > 0 => &asked[..at],
                _ => asked,
            });
            let alias = npm.get(&found).and_then(|package| package.alias_of.as_deref());
            // An alias that nothing asks for would put one package in the place of another.
            if alias == asked || (alias.is_none() && asked == Some(name)) {
                needed.push(found);
            }
        }
    }
    // What needs an optional one may be for another platform.
    let is_unknown = |place: &&&str| {
        !npm.get(**place).is_some_and(|package| package.is_optional)
            && !needed.iter().any(|needed| needed == **place)
    };
    match manifests.keys().find(is_unknown) {
        None => Ok(()),
        Some(place) => {
            Err(format!("nothing needs what would be in `{}`", protocol::escape_text(place)))
        }
    }
}

/// Returns the place where Node.js finds a package from another one.
fn find(npm: &BTreeMap<String, NpmPackage>, from: &str, name: &str) -> Option<String> {
    let mut at = Some(from);
    while let Some(place) = at {
        let found = format!("{place}/node_modules/{name}");
        if npm.contains_key(&found) {
            return Some(found);
        }
        at = parent_and_name(place).and_then(|(parent, _)| parent);
    }
    let found = format!("node_modules/{name}");
    npm.contains_key(&found).then_some(found)
}
