//! Why a path beneath the workspace cannot be used.

use rustix::io::Errno;

/// Why a path beneath the workspace cannot be used.
///
/// The messages contain the path as the program wrote it, and reveal nothing about a file outside.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PathError {
    /// The path leads outside.
    #[error("`{path}` is outside the workspace: {reason}")]
    Outside {
        /// The path, escaped for display.
        path: String,
        /// How it leads outside.
        reason: &'static str,
    },
    /// The path is a protected place that programs may not access, or not without approval.
    #[error("`{path}` is protected: {reason}")]
    Protected {
        /// The path, escaped for display.
        path: String,
        /// Why, as the rest of the sentence.
        reason: &'static str,
    },
    /// The policy does not allow the access.
    #[error("the policy does not allow `{path}`: {reason}")]
    Denied {
        /// The path, escaped for display.
        path: String,
        /// Which part of the policy.
        reason: String,
    },
    /// The path leads elsewhere than when the user allowed the call.
    #[error("`{path}` no longer leads to the file that was approved")]
    Diverted {
        /// The path, escaped for display.
        path: String,
    },
    /// The file has a different type than the tool needs.
    #[error("`{path}` is {found}, not {wanted}")]
    Kind {
        /// The path, escaped for display.
        path: String,
        /// The kind of the file.
        found: &'static str,
        /// The file or folder that the tool works on.
        wanted: &'static str,
    },
    /// The kernel has no `openat2`.
    #[error("this system cannot restrict paths to the workspace: `openat2` is not available")]
    Unsupported,
    /// Any other error of the system.
    #[error("`{path}`: {}", describe(*.errno))]
    System {
        /// The path, escaped for display.
        path: String,
        /// The system's error.
        errno: Errno,
    },
}

impl PathError {
    /// Returns whether the path does not exist.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, Self::System { errno: Errno::NOENT, .. })
    }

    /// Returns whether the process or the system is out of descriptors or memory. Nothing is known about the path then.
    pub(crate) fn is_exhausted(&self) -> bool {
        matches!(self, Self::System { errno: Errno::MFILE | Errno::NFILE | Errno::NOMEM, .. })
    }
}

/// Returns a path escaped and shortened for a message.
pub(crate) fn shown(path: &str) -> String {
    // Shortened before it is escaped, so that no escape sequence is cut in half.
    let mut out: String = path.chars().take(512).flat_map(char::escape_debug).collect();
    if path.chars().nth(512).is_some() {
        out.push('…');
    }
    // `escape_debug` also escapes quotes, which cannot mislead between backticks.
    out.replace("\\'", "'").replace("\\\"", "\"")
}

fn describe(errno: Errno) -> String {
    match errno {
        Errno::NOENT => "no such file or directory".to_owned(),
        Errno::ACCESS | Errno::PERM => "permission denied".to_owned(),
        Errno::NOTDIR => "a part of the path is not a directory".to_owned(),
        Errno::NAMETOOLONG => "the name is too long".to_owned(),
        Errno::LOOP => "too many symbolic links".to_owned(),
        Errno::NOSPC => "no space left on the device".to_owned(),
        other => other.to_string(),
    }
}
