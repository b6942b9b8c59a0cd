//! Reads the files of a program and bundles them into one text.
//!
//! A program may import files beneath the workspace, or beneath the folder of the entry file if that is outside the
//! workspace. Their content is untrusted, so it is parsed in a sealed child, like every program.

mod plan_file;

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use analysis::{Bundle, Bundled, Diagnostic, FileDiagnostic, Needed, Sources};
use execution::failure::job_error;
use protocol::{ErrorBody, ErrorCode, escape_text};
use sandbox::{JobLimits, JobPool};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::terminal::{interrupted, note, read_program};
use crate::error::CliError;
use crate::workspace::Workspace;
use crate::workspace::path_error::PathError;

/// The sealed job that bundles files into one text.
pub(crate) const BUNDLE: sandbox::Job = sandbox::Job { name: "bundle", run: analysis::bundle_job };

/// The maximum size of an imported file in bytes, which is the limit for a whole program.
const FILE_BYTES: u64 = 64 * 1024;
/// The maximum total size of the files in bytes. A bundle can be smaller than its files, so the limit is higher.
const TOTAL_BYTES: usize = 4 * FILE_BYTES as usize;

/// Reads a program from a file with all that it imports, or from stdin for `-`. A plan file is turned into a program.
///
/// # Errors
/// Returns the problem with its file and the position of the import.
pub(crate) async fn read(
    file: &Path,
    workspace: Option<&Path>,
    stop: &CancellationToken,
) -> Result<Bundle, CliError> {
    let text = read_program(file, stop).await?;
    if plan_file::is_plan_file(file) {
        return plan_file::program(&text).map(Bundle::of_one).map_err(CliError::from);
    }
    // Most programs are one file and need no child for bundling. The analysis refuses a text that is too large.
    let is_alone = file.as_os_str() == "-" || !text.contains("import");
    if is_alone || text.len() > TOTAL_BYTES {
        return Ok(Bundle::of_one(text));
    }
    let (folder, entry) = root_of(file, workspace)?;
    let folder = Arc::new(folder);
    let child = JobPool::new(BUNDLE, JobLimits::default(), 1)
        .map_err(|error| CliError::from_code(ErrorCode::SandboxUnavailable, error.to_string()))?;
    let mut sources = Sources::new(entry, text);
    loop {
        // The loop ends: each round adds files, and the bundler refuses a program of more than 200.
        let bundled = tokio::select! {
            bundled = bundle(&child, &sources) => bundled?,
            () = stop.cancelled() => return Err(interrupted()),
        };
        match bundled {
            Bundled::Whole(bundle) => return Ok(bundle),
            Bundled::Refused(faults) => return Err(refused(faults)),
            Bundled::Needs(needed) => {
                for needed in needed {
                    let folder = Arc::clone(&folder);
                    let path = needed.path.clone();
                    // A signal must end the command even while the file system blocks.
                    let found = tokio::task::spawn_blocking(move || find(&folder, needed));
                    let (real, text) = tokio::select! {
                        found = found => found
                            .map_err(|error| CliError::failed(error.to_string()))?
                            .map_err(|fault| refused(vec![*fault]))?,
                        () = stop.cancelled() => return Err(interrupted()),
                    };
                    sources.add(path, real, text);
                    // After each file, so that a round with many large files does not fill the
                    // memory.
                    if sources.bytes() > TOTAL_BYTES {
                        let message = format!(
                            "the program's files have more than {TOTAL_BYTES} bytes in total"
                        );
                        return Err(CliError::from_code(ErrorCode::SourceTooLarge, message));
                    }
                }
            }
        }
    }
}

/// Adds the file, and the position in it, to an error of a run.
pub(crate) fn locate(bundle: &Bundle, error: &mut ErrorBody) {
    let number = |name: &str| error.details.get(name)?.as_u64().and_then(|n| u32::try_from(n).ok());
    let (Some(line), Some(column)) = (number("line"), number("column")) else { return };
    if let Some(origin) = origin(bundle, line, column) {
        error.details["origin"] = origin;
    }
}

/// Adds the file, and the position in it, to each diagnostic of a report.
pub(crate) fn locate_diagnostics(bundle: &Bundle, report: &mut Value) {
    let diagnostics = report.get_mut("diagnostics").and_then(Value::as_array_mut);
    for diagnostic in diagnostics.into_iter().flatten() {
        let number = |name: &str| diagnostic[name].as_u64().and_then(|n| u32::try_from(n).ok());
        let (Some(line), Some(column)) = (number("line"), number("column")) else { continue };
        if let Some(origin) = origin(bundle, line, column) {
            diagnostic["origin"] = origin;
        }
    }
}

fn origin(bundle: &Bundle, line: u32, column: u32) -> Option<Value> {
    // In a single file, the position is the same, and the user knows the file.
    let origin = bundle.origin(line, column).filter(|_| bundle.has_imports())?;
    Some(json!({ "file": origin.file, "line": origin.line, "column": origin.column }))
}

/// Returns the file, line and column of a position in a bundle, for display.
pub(crate) fn place_text(bundle: &Bundle, line: u32, column: u32) -> String {
    match bundle.origin(line, column).filter(|_| bundle.has_imports()) {
        Some(origin) => format!(
            "{}, line {}, column {}; line {line} of the whole program",
            escape_text(origin.file),
            origin.line,
            origin.column
        ),
        None => format!("line {line}, column {column}"),
    }
}

/// Shows diagnostics of a program on stderr, each with its line.
pub(super) fn note_diagnostics<'d>(
    diagnostics: impl IntoIterator<Item = &'d Diagnostic>,
    program: &Bundle,
) {
    for diagnostic in diagnostics {
        note(&format!(
            "{}: {} ({}) [{}]\n{}\n",
            diagnostic.severity.as_str(),
            protocol::escape_text(&diagnostic.message),
            place_text(program, diagnostic.line, diagnostic.column),
            diagnostic.code.as_str(),
            diagnostic.code_frame()
        ));
    }
}

/// Returns the folder that imports cannot leave, and the path of the entry file relative to it.
fn root_of(file: &Path, workspace: Option<&Path>) -> Result<(Workspace, String), CliError> {
    let shown = file.display();
    let cannot = |reason: String| CliError::cannot_run(format!("imports of `{shown}`: {reason}"));
    // The path of a workspace contains no links, so only a path without links can be compared.
    let file = file.canonicalize().map_err(|error| cannot(error.to_string()))?;
    let named = workspace.map(Path::to_owned);
    let found = Workspace::find(named.as_deref()).map_err(|error| cannot(error.to_string()))?;
    let beneath = |folder: &Workspace| file.strip_prefix(folder.root()).map(Path::to_owned).ok();
    let (folder, entry): (Workspace, PathBuf) = match beneath(&found) {
        Some(entry) => (found, entry),
        None => {
            let parent = file.parent().unwrap_or(&file);
            let folder = Workspace::open(parent).map_err(|error| cannot(error.to_string()))?;
            let entry = beneath(&folder).ok_or_else(|| cannot("its folder was moved".into()))?;
            (folder, entry)
        }
    };
    match entry.to_str() {
        Some(entry) => Ok((folder, entry.to_owned())),
        None => Err(cannot("its path is not UTF-8".into())),
    }
}

/// Finds and reads the file that an import names; returns its path beneath the folder.
fn find(folder: &Workspace, needed: Needed) -> Result<(String, String), Box<FileDiagnostic>> {
    let fault = |message: String| {
        let mut import = needed.import.clone();
        import.diagnostic.message = message;
        Box::new(import)
    };
    let candidates = analysis::candidates(&needed.path);
    for candidate in &candidates {
        let opened = match folder.open_file(candidate) {
            Ok(opened) => opened,
            // Only a missing file leads to the next candidate. Any other error is reported, so that
            // no other file takes the place of one that must not be read.
            Err(error) if is_missing(&error) => continue,
            Err(error) => return Err(fault(format!("it cannot be imported: {error}"))),
        };
        // Files are identified by their real paths: two links to one file are one module.
        let real = opened.real.to_str().map(str::to_owned);
        let real = real.ok_or_else(|| fault("the file's real path is not UTF-8".into()))?;
        let mut bytes = Vec::new();
        std::fs::File::from(opened.fd)
            .take(FILE_BYTES + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| fault(format!("`{candidate}` cannot be read: {error}")))?;
        if bytes.len() as u64 > FILE_BYTES {
            let message = format!(
                "`{candidate}` has more than {FILE_BYTES} bytes, the limit for a whole program"
            );
            return Err(fault(message));
        }
        let text = String::from_utf8(bytes).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            fault(format!("`{candidate}` is not UTF-8 text: byte {at} is not valid"))
        })?;
        return Ok((real, text));
    }
    let looked: Vec<String> = candidates.iter().map(|path| format!("`{path}`")).collect();
    let root = folder.root().display();
    Err(fault(format!("there is no such file; looked in `{root}` for {}", looked.join(", "))))
}

fn is_missing(error: &PathError) -> bool {
    // A candidate such as `lib/index.ts` is missing as well if `lib` is a file.
    let not_a_folder = matches!(error, PathError::System { errno: rustix::io::Errno::NOTDIR, .. });
    error.is_missing() || not_a_folder
}

async fn bundle(child: &JobPool, sources: &Sources) -> Result<Bundled, CliError> {
    let input = serde_json::to_vec(sources).map_err(|error| CliError::failed(error.to_string()))?;
    let answer = child.run(input).await;
    let answer = answer.map_err(|failure| job_error(failure, "reading the program's imports"))?;
    serde_json::from_slice(&answer).map_err(|error| {
        CliError::failed(format!("the bundler returned an invalid answer: {error}"))
    })
}

/// Reports the first fault after the others.
fn refused(mut faults: Vec<FileDiagnostic>) -> CliError {
    if faults.is_empty() {
        return CliError::failed("the bundler reported no reason");
    }
    let first = faults.remove(0);
    for FileDiagnostic { file, diagnostic } in faults {
        note(&format!(
            "error: {} ({}, line {}, column {}) [{}]\n{}\n",
            escape_text(&diagnostic.message),
            escape_text(&file),
            diagnostic.line,
            diagnostic.column,
            diagnostic.code.as_str(),
            diagnostic.code_frame(),
        ));
    }
    let FileDiagnostic { file, diagnostic } = first;
    let (line, column) = (diagnostic.line, diagnostic.column);
    let code_frame = diagnostic.code_frame();
    let mut body = ErrorBody::new(diagnostic.error_code(), diagnostic.message.clone());
    body.details = json!({
        "line": line,
        "column": column,
        "origin": { "file": file, "line": line, "column": column },
        "code_frame": code_frame,
    });
    let message = format!("{} ({file}, line {line}, column {column})", diagnostic.message);
    let mut error = ErrorBody::new(diagnostic.error_code(), message);
    error.details = json!({ "code_frame": code_frame });
    CliError::from(error).with_body(body)
}
