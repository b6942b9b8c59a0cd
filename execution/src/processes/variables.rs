//! The variables of child processes: which ones every child receives, and which ones nobody may set.

use protocol::redaction::keys_in_use;

/// Variables that every child receives: the user's folders and language, and the network configuration of the machine.
const PASSED: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TMPDIR",
    "TERM",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
    "XDG_STATE_HOME",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "PIP_INDEX_URL",
    "PIP_EXTRA_INDEX_URL",
    "PIP_CERT",
    "PIP_CONFIG_FILE",
    "UV_INDEX_URL",
    "UV_DEFAULT_INDEX",
    "UV_CACHE_DIR",
    "npm_config_registry",
    "npm_config_cafile",
    "npm_config_cache",
    "npm_config_userconfig",
    "npm_config_proxy",
    "npm_config_https_proxy",
    "npm_config_noproxy",
    "npm_config_strict_ssl",
    "NPM_CONFIG_REGISTRY",
    "NPM_CONFIG_CAFILE",
    "NPM_CONFIG_CACHE",
    "NPM_CONFIG_USERCONFIG",
];

/// Variables that change what a program loads or runs. An entry that sets one would run other code than it shows.
const REFUSED: &[&str] = &[
    "PATH",
    "ENV",
    "BASH_ENV",
    "SHELLOPTS",
    "BASHOPTS",
    "PROMPT_COMMAND",
    "PS4",
    "IFS",
    "CDPATH",
    "GCONV_PATH",
    "GLIBC_TUNABLES",
    "LOCPATH",
    "NODE_OPTIONS",
    "NODE_PATH",
    "NODE_REPL_EXTERNAL_MODULE",
    "PERL5OPT",
    "PERL5LIB",
    "PERL5DB",
    "RUBYOPT",
    "RUBYLIB",
    "JAVA_TOOL_OPTIONS",
    "_JAVA_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "CLASSPATH",
    "ELECTRON_RUN_AS_NODE",
    "DENO_DIR",
    "EDITOR",
    "VISUAL",
    "PAGER",
    "BROWSER",
    "NPM_CONFIG_NODE_OPTIONS",
    "NPM_CONFIG_SCRIPT_SHELL",
    "NPM_CONFIG_SHELL",
    "NPM_CONFIG_PREFIX",
    "NPM_CONFIG_GLOBALCONFIG",
    "NPM_CONFIG_USERCONFIG",
    "NPM_CONFIG_GIT",
];

/// Prefixes of such variables.
const REFUSED_PREFIXES: &[&str] =
    &["LD_", "DYLD_", "GIT_", "PYTHON", "BASH_FUNC_", "PML_", "CORECLR_", "DOTNET_STARTUP"];

/// Why a variable is not passed to a child.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnvironmentError {
    /// The variable changes what a program loads.
    #[error("the variable `{name}` would change what the program loads; remove it from the entry")]
    Refused {
        /// The variable.
        name: String,
    },
    /// The name or the value is invalid.
    #[error("`{name}` is not a valid name of a variable, or its value contains a NUL byte")]
    Malformed {
        /// The name, escaped for display.
        name: String,
    },
    /// A header cannot carry its value.
    #[error("the value of the header `{name}` contains invalid characters")]
    Header {
        /// The header.
        name: String,
    },
    /// The variable is `pml`'s own.
    #[error("the variable `{name}` belongs to `pml` and is not passed to servers")]
    Own {
        /// The variable.
        name: String,
    },
    /// The user has not set it.
    #[error(
        "the variable `{name}` is not set; store it with `pml secrets set {name}`, or set it in the environment"
    )]
    Missing {
        /// The variable.
        name: String,
    },
}

/// Returns whether every child receives this variable, spelled exactly so.
pub fn is_base(name: &str) -> bool {
    PASSED.contains(&name) || name.starts_with("LC_")
}

/// Returns whether every child receives a variable of this name. Some of these decide what a confined program can reach.
pub fn is_passed(name: &str) -> bool {
    name.starts_with("LC_") || PASSED.iter().any(|passed| passed.eq_ignore_ascii_case(name))
}

/// Parts of the names of variables whose values are secrets. Others, such as a port or a path, would remove unrelated
/// text from records.
const SECRET_NAMES: &[&str] = &["KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL"];

/// Removes the value of a variable from logs and records from now on, if it is a secret: a server may return it.
pub fn keep_out_of_records(name: &str, value: &str) {
    if is_secret_name(name) {
        keys_in_use().keep(value);
    }
}

/// Returns whether the value of a variable of this name is a secret.
pub fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    SECRET_NAMES.iter().any(|part| name.contains(part))
}

/// Refuses a variable that an entry may not set.
///
/// # Errors
/// Returns [`EnvironmentError::Refused`] or [`EnvironmentError::Malformed`].
pub fn check_variable(name: &str, value: &str) -> Result<(), EnvironmentError> {
    let is_name = !name.is_empty()
        && name.len() <= 256
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if !is_name || value.contains('\0') {
        return Err(EnvironmentError::Malformed { name: name.escape_debug().to_string() });
    }
    // npm ignores the case of its variables, so `npm_config_script_shell` is refused too.
    let upper = name.to_ascii_uppercase();
    if REFUSED.contains(&upper.as_str()) || REFUSED_PREFIXES.iter().any(|p| upper.starts_with(p)) {
        return Err(EnvironmentError::Refused { name: name.to_owned() });
    }
    Ok(())
}
