//! Names and versions of packages, as npm, PyPI and the registries of OCI images read them.

/// Returns whether a text looks like a version, and not like a range or a tag.
pub fn is_exact(version: &str) -> bool {
    version.starts_with(|c: char| c.is_ascii_digit() || c == 'v')
        && version.chars().all(|c| c.is_ascii_alphanumeric() || ".-+_".contains(c))
        && version.chars().any(|c| c.is_ascii_digit())
        // npm reads `1.x` as a range.
        && !version.ends_with(".x")
}

/// Returns whether a version of a package of this type is immutable.
pub(super) fn is_immutable(kind: &str, version: &str) -> bool {
    let version = version.strip_prefix('v').unwrap_or(version);
    is_exact(version)
        && match kind {
            // npm reads `1.2` as a range.
            "npm" => is_semantic(version) && !is_archive(version),
            // Tags such as `1` and `1.2` usually move to the next release.
            "oci" => {
                let core = version.split(['-', '_', '+']).next().unwrap_or_default();
                is_release(core) && core.split('.').count() >= 3
            }
            _ => is_python_version(version),
        }
}

/// Returns whether a text consists of numbers that are separated by dots.
fn is_release(text: &str) -> bool {
    text.split('.').all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Returns whether a text is a version of semver.org: three numbers, and maybe a pre-release and a build.
fn is_semantic(version: &str) -> bool {
    let parts = |text: &str| {
        text.split('.').all(|part| {
            !part.is_empty()
                && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        })
    };
    let (version, build) = version.split_once('+').unwrap_or((version, "0"));
    let (core, before) = version.split_once('-').unwrap_or((version, "0"));
    is_release(core) && core.split('.').count() == 3 && parts(before) && parts(build)
}

/// Returns whether a text is a version of PEP 440: numbers, and maybe words such as `rc1` and `post2`, and a build.
fn is_python_version(version: &str) -> bool {
    const WORDS: [&str; 12] =
        ["a", "b", "c", "rc", "alpha", "beta", "pre", "preview", "post", "rev", "r", "dev"];
    let public = version.split('+').next().unwrap_or_default();
    let end = public.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(public.len());
    let (release, rest) = public.split_at(end);
    // A dot may also separate a word from the numbers.
    let release =
        if rest.is_empty() { release } else { release.strip_suffix('.').unwrap_or(release) };
    let mut words = rest.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| !word.is_empty());
    is_release(release) && words.all(|word| WORDS.contains(&word.to_ascii_lowercase().as_str()))
}

/// Returns whether a text is the name of an npm package: `name` or `@scope/name`. npm reads `owner/repo` as a repository
/// of GitHub or a folder.
pub(super) fn is_npm_name(text: &str) -> bool {
    let part = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphanumeric())
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    match text.strip_prefix('@') {
        Some(scoped) => {
            scoped.split_once('/').is_some_and(|(scope, name)| part(scope) && part(name))
        }
        None => part(text),
    }
}

/// Returns whether npm reads a name or a version as a file because of its end.
pub(super) fn is_archive(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    let mut ends = text.rsplit('.');
    match (ends.next(), ends.next()) {
        (Some("gz"), Some(end)) => end == "tar",
        (Some(end), Some(_)) => matches!(end, "tgz" | "tar"),
        _ => false,
    }
}
