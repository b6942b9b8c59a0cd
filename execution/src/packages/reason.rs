//! Why a package manager failed.

/// The number of bytes at the end of a package manager's output that an error quotes.
const QUOTED: usize = 1_500;

/// What package managers print if their registry cannot be reached.
const UNREACHABLE: &[&str] = &[
    "ECONNREFUSED",
    "ECONNRESET",
    "EAI_AGAIN",
    "EHOSTUNREACH",
    "ENETUNREACH",
    "ENOTFOUND",
    "ERR_SOCKET_TIMEOUT",
    "ETIMEDOUT",
    "Failed to establish a new connection",
    "Connection refused",
    "Temporary failure in name resolution",
    "ConnectTimeoutError",
];

/// What they print if it has no such package or version, or none that can be installed here.
const UNKNOWN: &[&str] =
    &["code E404", "code ETARGET", "No matching distribution found", "is not in this registry"];

/// What they print if a download does not have the hash that the registry lists.
const CHANGED: &[&str] = &["EINTEGRITY", "DO NOT MATCH THE HASHES"];

/// What npm prints if a locked version is not in the requested range, which only `npm ci` compares.
const OUTSIDE: &[&str] = &["does not satisfy"];

/// What is locked is not what is requested.
pub(super) const NOT_IN_RANGE: &str = "`.pml/mcp.lock` has a version of it that the server's command does not allow; `pml lock --update` locks one that it allows";

/// Returns why a package manager failed, from what it printed.
pub(super) fn reason(program: &str, said: &str) -> String {
    let contains = |words: &[&str]| words.iter().any(|word| said.contains(word));
    if contains(CHANGED) {
        return "what its registry sent does not have the hash that it lists, or that `.pml/mcp.lock` has".to_owned();
    }
    if contains(OUTSIDE) {
        return NOT_IN_RANGE.to_owned();
    }
    if contains(UNREACHABLE) {
        return "its registry cannot be reached; check the network, and the registry and proxy in your settings of npm or pip".to_owned();
    }
    if contains(UNKNOWN) {
        return "its registry has no such package or version for this machine".to_owned();
    }
    let from = said.len().saturating_sub(QUOTED);
    let from = (from..said.len()).find(|at| said.is_char_boundary(*at)).unwrap_or(said.len());
    format!("`{program}` failed: {}", &said[from..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_what_the_package_manager_printed() {
        let npm = "npm error code ENOTFOUND\nnpm error network request to https://r.test failed";
        assert!(reason("npm", npm).contains("registry cannot be reached"));
        let pip = "ERROR: No matching distribution found for none-such==9";
        assert!(reason("python3", pip).contains("no such package or version"));
        let range = "npm error code EUSAGE\nnpm error Invalid: lock file's a@1.0.0 does not satisfy a@2.0.0";
        assert_eq!(reason("npm", range), NOT_IN_RANGE);
        let long = format!("{}é the end", "é".repeat(2_000));
        let quoted = reason("npm", &long);
        assert!(quoted.ends_with("the end") && quoted.len() < 2_000, "{quoted}");
        assert_eq!(reason("npm", ""), "`npm` failed: ");
    }
}
