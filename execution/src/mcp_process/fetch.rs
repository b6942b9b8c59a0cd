//! Programs that download a package before they run it: `npx` and `uvx`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Retry delays for npm, so that it gives up before the time limit of the start. Its defaults are 10 s and 60 s.
const NPM_RETRY_DELAYS: &[(&str, &str)] =
    &[("npm_config_fetch_retry_mintimeout", "1000"), ("npm_config_fetch_retry_maxtimeout", "4000")];

/// The messages of npm and uv for an unreachable registry.
const UNREACHABLE: &[&str] = &[
    "ECONNREFUSED",
    "ENOTFOUND",
    "EAI_AGAIN",
    "ETIMEDOUT",
    "ECONNRESET",
    "ENETUNREACH",
    "EHOSTUNREACH",
    "ENOTCACHED",
    "ERR_SOCKET_TIMEOUT",
    "dns error",
    "tcp connect error",
    "error sending request",
    "Connection refused",
];

/// The messages of npm and uv for an unknown package or version.
const UNKNOWN: &[&str] = &["code E404", "code ETARGET", "was not found in the package registry"];

/// Returns whether a program downloads what it runs.
pub(super) fn fetches(program: &Path) -> bool {
    name(program) == "npx" || name(program) == "uvx"
}

fn name(program: &Path) -> &str {
    // The name on the `PATH`, and not that of a link's target: `npx` usually links to `npx-cli.js`.
    program.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

/// Makes npm report an unreachable registry quickly, unless the user has configured its retry delays.
pub(super) fn shorten_retries(
    program: &Path,
    variables: &BTreeMap<String, String>,
    command: &mut Command,
) {
    if name(program) != "npx" {
        return;
    }
    // npm ignores the case of its variables.
    let unset = NPM_RETRY_DELAYS
        .iter()
        .filter(|(name, _)| !variables.keys().any(|known| known.eq_ignore_ascii_case(name)));
    command.envs(unset.copied());
}

/// Returns why the package of a server could not be downloaded, according to the stderr of the program.
pub(super) fn reason(program: &Path, stderr: &str) -> Option<String> {
    let (name, registry, show) = match name(program) {
        "npx" => ("npx", "npm registry", "`npm config get registry` shows its URL"),
        "uvx" => ("uvx", "Python package index", "UV_DEFAULT_INDEX or uv.toml sets its URL"),
        _ => return None,
    };
    let contains = |words: &[&str]| words.iter().any(|word| stderr.contains(word));
    if contains(UNREACHABLE) {
        return Some(format!(
            "`{name}` could not fetch it, because the {registry} cannot be reached; check the network and any proxy ({show}). Cached packages start without it"
        ));
    }
    contains(UNKNOWN).then(|| {
        format!(
            "`{name}` could not fetch it, because the {registry} has no such package or version"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_taken_from_stderr() {
        let reason = |program: &str, stderr: &str| reason(Path::new(program), stderr);
        let npm = "npm error code ENOTFOUND\nnpm error network request to https://r.test failed";
        assert!(reason("/usr/bin/npx", npm).unwrap().contains("npm registry cannot be reached"));
        let unknown = "npm error code E404\nnpm error 404 Not Found - GET https://r.test/x";
        assert!(reason("/usr/bin/npx", unknown).unwrap().contains("no such package"));
        let uv =
            "error: Failed to fetch: `https://pypi.org/simple/x/`\n  Caused by: dns error: failed";
        assert!(reason("/opt/uvx", uv).unwrap().contains("`uvx` could not fetch it"));
        assert_eq!(reason("/usr/bin/npx", "SyntaxError: x"), None);
        assert_eq!(reason("/usr/bin/node", npm), None);
    }
}
