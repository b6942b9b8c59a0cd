//! Settings that are secrets: from a variable that is removed from the environment, or from a file that only its owner
//! can read. They have no flags, because every user of the machine sees the flags of every process.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::OnceLock;

use anyhow::{Context as _, bail};
use zeroize::Zeroizing;

/// The maximum number of bytes that are read of a file; a master key has 44 characters.
const FILE_LIMIT: u64 = 1_024;

/// The forbidden permissions of the file that the operator created. The group may read it, because orchestrators mount
/// secrets this way.
pub(crate) const GIVEN_FORBIDDEN_MODE: u32 = 0o027;

/// The names of the variables.
const NAMES: [&CStr; 6] = [
    c"PML_MASTER_KEY",
    c"PML_MASTER_KEY_NEW",
    c"PML_MASTER_KEY_OLD",
    c"PML_METRICS_TOKEN",
    // As in `execution::spans::NAMES_OF_SECRETS`.
    c"OTEL_EXPORTER_OTLP_HEADERS",
    c"OTEL_EXPORTER_OTLP_TRACES_HEADERS",
];

/// The values of the variables.
static VARIABLES: OnceLock<BTreeMap<&str, Zeroizing<String>>> = OnceLock::new();

/// Moves the variables out of this process's environment, which other processes of the same user could read.
///
/// Call it at the beginning of `main`, before there are other threads.
pub(crate) fn take_variables() {
    let take = |name: &'static CStr| {
        // A value that is not UTF-8 becomes an empty text, which is refused. To treat the variable as absent would start
        // the gateway without the secret.
        let text = sandbox::take_variable(name)?.into_string().unwrap_or_default();
        Some((name.to_str().ok()?, Zeroizing::new(text)))
    };
    VARIABLES.get_or_init(|| NAMES.into_iter().filter_map(take).collect());
}

/// Returns the names of the variables.
pub(crate) fn names() -> Vec<&'static str> {
    NAMES.iter().filter_map(|name| name.to_str().ok()).collect()
}

/// Returns a variable that [`take_variables`] has taken.
pub(crate) fn taken(variable: &str) -> Option<Zeroizing<String>> {
    VARIABLES.get()?.get(variable).cloned()
}

/// Reads a secret, which messages call `what`, from its variable, or from its file. Returns it with the name of its
/// place.
///
/// # Errors
/// Returns an error when both are set, and when the file cannot be read or others can read it.
pub(crate) fn given(
    variable: &str,
    file: Option<&Path>,
    what: &str,
) -> anyhow::Result<Option<(Zeroizing<String>, String)>> {
    match (VARIABLES.get().and_then(|taken| taken.get(variable)), file) {
        (Some(_), Some(_)) => bail!("set {variable} or {variable}_FILE, not both"),
        (Some(text), None) => Ok(Some((text.clone(), variable.to_owned()))),
        (None, Some(path)) => {
            let text = read_file(path, GIVEN_FORBIDDEN_MODE, what)?;
            let missing = || format!("{variable}_FILE: `{}` does not exist", path.display());
            Ok(Some((text.with_context(missing)?, path.display().to_string())))
        }
        (None, None) => Ok(None),
    }
}

/// Reads a file with a secret; `None` if there is none.
///
/// # Errors
/// Returns an error when the file has one of the forbidden permissions, or cannot be read.
pub(crate) fn read_file(
    path: &Path,
    forbidden: u32,
    what: &str,
) -> anyhow::Result<Option<Zeroizing<String>>> {
    let shown = path.display().to_string();
    // Without the flag, opening a named pipe would wait for its writer. It has no effect on regular files.
    let opened = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("could not read `{shown}`")),
    };
    // Checked on the open file, so that it cannot be swapped after the check.
    let metadata = file.metadata().with_context(|| format!("could not read `{shown}`"))?;
    if !metadata.is_file() {
        bail!("`{shown}` is not a regular file");
    }
    if metadata.mode() & forbidden != 0 {
        bail!("others can read or change the {what} in `{shown}`; run `chmod 600` on it");
    }
    let mut text = Zeroizing::new(String::new());
    file.take(FILE_LIMIT)
        .read_to_string(&mut text)
        .with_context(|| format!("could not read `{shown}`"))?;
    Ok(Some(text))
}
