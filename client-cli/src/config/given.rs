//! Reads a policy file, which a command was given.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use protocol::escape_text;

use super::ConfigError;
use crate::files::strict_yaml::Fault;
use crate::policy::GivenPolicy;
use crate::workspace::Workspace;

/// The maximum size of a file, in bytes, as for `.pml.json`.
const FILE_LIMIT: u64 = 1024 * 1024;

/// Reads a policy file.
///
/// # Errors
/// Returns [`ConfigError`] if it cannot be read, with the line and the column if it is not valid.
pub(crate) fn given_policy(workspace: &Workspace, file: &Path) -> Result<GivenPolicy, ConfigError> {
    let shown = escape_text(&file.to_string_lossy());
    let unusable = |reason: String| ConfigError::Unusable { file: shown.clone(), reason };
    let real = file.canonicalize().map_err(|error| unusable(error.to_string()))?;
    let mut content = Vec::new();
    let opened = std::fs::File::open(&real).map_err(|error| unusable(error.to_string()))?;
    let read = opened.take(FILE_LIMIT + 1).read_to_end(&mut content);
    read.map_err(|error| unusable(error.to_string()))?;
    if content.len() as u64 > FILE_LIMIT {
        return Err(unusable("it is larger than 1 MiB".to_owned()));
    }
    let text = String::from_utf8(content).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        unusable(format!("it is not UTF-8 text: byte {at} is not valid"))
    })?;
    // A command may be called in any folder, and the record of a run outlives it.
    let name = real.strip_prefix(workspace.root()).unwrap_or(&real);
    let name = name.to_string_lossy().into_owned();
    GivenPolicy::parse(name, &text).map_err(|Fault { message, place }| match place {
        None => unusable(message),
        Some((line, column)) => {
            let number = |number| usize::try_from(number).unwrap_or(usize::MAX);
            let (line, column) = (number(line), number(column));
            ConfigError::Invalid { file: shown.clone(), line, column, reason: message }
        }
    })
}

/// Reads the policy file that a run was given, by its name in the record.
///
/// # Errors
/// As [`given_policy`].
pub(crate) fn given_named(workspace: &Workspace, name: &str) -> Result<GivenPolicy, ConfigError> {
    // An absolute name stays as it is.
    given_policy(workspace, &PathBuf::from(workspace.root()).join(name))
}
