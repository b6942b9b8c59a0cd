//! `pml cleanup`: deletes what earlier runs left and nothing uses any more.

mod runs;

use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use execution::files::{atomic, stat_name};
use execution::packages::{self, Unused};
use protocol::escape_text;
use rustix::fs::{AtFlags, FileType};
use serde_json::{Value, json};

use self::runs::Cleaned;
use super::terminal::say;
use crate::app::PACKAGES;
use crate::args::{Cleanup, Settings};
use crate::error::CliError;
use crate::files::{records, records_folder, settings_folder};
use crate::workspace::Workspace;
use crate::workspace::own_folder::OwnFolder;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A write takes milliseconds, so a temporary file that is older was left by a killed process.
const WRITE: Duration = Duration::from_secs(10 * 60);

/// Deletes unused packages and temporary files, erases the values of old runs if that is asked for, and says which.
///
/// # Errors
/// Returns what cannot be read or deleted.
pub(super) fn cleanup(settings: &Settings, options: &Cleanup) -> Result<ExitCode, CliError> {
    let refused = |error: &dyn std::fmt::Display| CliError::cannot_run(error.to_string());
    let workspace =
        Workspace::find(settings.workspace.as_deref()).map_err(|error| refused(&error))?;
    let now = SystemTime::now();
    let mut unused = Vec::new();
    if let Some(records) = records_folder() {
        let folder = records.join(PACKAGES);
        let age = DAY * options.unused_for;
        unused = packages::clean(&folder, age, now, options.dry_run).map_err(|error| {
            CliError::cannot_run(format!("cannot clean up `{}`: {error}", folder.display()))
        })?;
    }
    let mut temporary = 0;
    let shown = workspace.root().display().to_string();
    temporary += clean_folder(workspace.directory(), &shown, now, options.dry_run)?;
    if let Some(own) = OwnFolder::open(&workspace).map_err(|error| refused(&error))? {
        let shown = own.path.display().to_string();
        temporary += clean_folder(&own.directory, &shown, now, options.dry_run)?;
    }
    for folder in [records_folder(), settings_folder()].into_iter().flatten() {
        match std::fs::File::open(&folder) {
            Ok(opened) => {
                let shown = folder.display().to_string();
                temporary += clean_folder(&opened, &shown, now, options.dry_run)?;
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(refused(&format!("`{}`: {error}", folder.display()))),
        }
    }
    let cleaned = runs::clean(&workspace, options, chrono::Utc::now())?;
    say(&match options.json {
        true => {
            let mut report = json_of(&unused, temporary, options.dry_run);
            if let Some(cleaned) = &cleaned {
                report["runs"] = cleaned.to_json();
            }
            format!("{report:#}\n")
        }
        false => {
            let runs = cleaned.as_ref().map(|cleaned| text_of_runs(cleaned, options.dry_run));
            text_of(&unused, temporary, now, options) + &runs.unwrap_or_default()
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Deletes the temporary files of killed writes in a folder; returns their number.
fn clean_folder(
    folder: impl AsFd,
    shown: &str,
    now: SystemTime,
    is_trial: bool,
) -> Result<usize, CliError> {
    let failed = |errno| CliError::cannot_run(format!("cannot clean up `{shown}`: {errno}"));
    let mut deleted = 0;
    for entry in rustix::fs::Dir::read_from(&folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let Some(name) = entry.file_name().to_str().ok().filter(|name| atomic::is_temporary(name))
        else {
            continue;
        };
        // Another process may end its write in between.
        let Ok(stat) = stat_name(&folder, name) else { continue };
        let written = Duration::from_secs(u64::try_from(stat.st_mtime).unwrap_or_default());
        let age = now.duration_since(SystemTime::UNIX_EPOCH + written).unwrap_or_default();
        if !FileType::from_raw_mode(stat.st_mode).is_file() || age < WRITE {
            continue;
        }
        if !is_trial {
            rustix::fs::unlinkat(&folder, name, AtFlags::empty()).map_err(failed)?;
        }
        deleted += 1;
    }
    Ok(deleted)
}

fn json_of(unused: &[Unused], temporary: usize, is_trial: bool) -> Value {
    let seconds = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).ok();
    let packages = unused.iter().map(|one| {
        json!({
            "package": one.package,
            "last_use": seconds(one.last_use).map(|since| since.as_secs()),
            "bytes": one.bytes,
        })
    });
    json!({
        "packages": packages.collect::<Vec<_>>(),
        "temporary_files": temporary,
        "dry_run": is_trial,
    })
}

fn text_of(unused: &[Unused], temporary: usize, now: SystemTime, options: &Cleanup) -> String {
    let (done, would) = match options.dry_run {
        true => ("Would delete", "would free"),
        false => ("Deleted", "freed"),
    };
    let mut text = String::new();
    for one in unused {
        let age = records::age(now.duration_since(one.last_use).unwrap_or_default().as_secs());
        text += &match &one.package {
            Some(package) => format!(
                "{done} {} ({}, last used {age} ago)\n",
                escape_text(package),
                megabytes(one.bytes)
            ),
            None => format!("{done} an installation that did not end ({})\n", megabytes(one.bytes)),
        };
    }
    if temporary > 0 {
        text += &format!(
            "{done} {temporary} temporary file{} of interrupted writes\n",
            if temporary == 1 { "" } else { "s" }
        );
    }
    if text.is_empty() {
        return format!(
            "Nothing to delete: every installed package is in use, or was used within {} day{}\n",
            options.unused_for,
            if options.unused_for == 1 { "" } else { "s" }
        );
    }
    let bytes = unused.iter().map(|one| one.bytes).sum();
    format!("{text}This {would} {}\n", megabytes(bytes))
}

fn text_of_runs(cleaned: &Cleaned, is_trial: bool) -> String {
    let Cleaned { runs, bytes: (before, after), unfinished } = cleaned;
    let mut text = String::new();
    for run in runs {
        let done = if is_trial { "Would erase" } else { "Erased" };
        text += &format!("{done} the values of run {}\n", escape_text(run));
    }
    let (has, before, after) = (if is_trial { "would have" } else { "has" }, *before, *after);
    text += &match runs.is_empty() {
        true => format!("No values of runs to erase: the run store has {}\n", megabytes(after)),
        false => {
            format!("The run store {has} {} instead of {}\n", megabytes(after), megabytes(before))
        }
    };
    if *unfinished > 0 {
        let (word, have) = if *unfinished == 1 { ("run", "has") } else { ("runs", "have") };
        text += &format!(
            "{unfinished} {word} {have} no end, and stay as they are; see `pml runs erase --help`\n"
        );
    }
    text
}

fn megabytes(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{} kB", bytes.div_ceil(1_000)),
        _ => format!("{} MB", bytes.div_ceil(1_000_000)),
    }
}
