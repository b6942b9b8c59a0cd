//! `pml report`: what a recorded run did, for people and for programs.

mod console;
mod html;
mod json;
mod resources;

use std::fs::symlink_metadata;
use std::io::{ErrorKind, IsTerminal as _};
use std::path::Path;
use std::process::ExitCode;

use execution::files::atomic::{self, Existing};
use protocol::{RoutingRules, escape_text};
use rustix::fs::{Mode, OFlags};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use self::resources::Resources;
use super::{LAST, doubt, find, with_stopped};
use crate::analyser::Analyser;
use crate::args::{self, ReportFormat, Settings};
use crate::commands::plan::Style;
use crate::commands::terminal::{note, say, unless_stopped};
use crate::consent::trust::TrustStore;
use crate::diagram::{self, TooLarge};
use crate::error::CliError;
use crate::policy::GivenPolicy;
use crate::processes::environment::Environment;
use crate::run_store::RunStore;
use crate::run_store::reader::{Call, Link, MadeCall, Reader, Run};
use crate::run_store::record::{UNDO, now};
use crate::workspace::Workspace;

/// The version of the JSON form.
const VERSION: &str = "1.0";

/// A run, and what follows from its record.
struct Report<'a> {
    reader: &'a Reader,
    run: &'a Run,
    /// When the report was made.
    generated_at: String,
    /// Why the record may not be what `pml` wrote; `None` if it was verified.
    doubt: Option<String>,
    /// What the run used.
    resources: Resources,
    /// The last record of the run.
    last: Option<&'a Link>,
}

/// Runs the command.
///
/// # Errors
/// Returns that there is no such run, why the store cannot be read, or why the report cannot be written.
pub(in crate::commands) async fn report(
    settings: &Settings,
    options: &args::Report,
    stop: &CancellationToken,
) -> Result<ExitCode, CliError> {
    let workspace = Workspace::find(settings.workspace.as_deref())
        .map_err(|error| CliError::cannot_run(error.to_string()))?;
    let none = || CliError::cannot_run("no run is recorded in this project");
    let records = TrustStore::of_user().map_err(|error| CliError::cannot_run(error.to_string()))?;
    let reader = RunStore::reader(&workspace)?.ok_or_else(none)?;
    let run = find(&reader, options.run.as_deref().unwrap_or(LAST))?;
    let run = with_stopped(vec![run])?.pop().ok_or_else(none)?;
    if options.format == ReportFormat::Html
        && options.output.is_none()
        && std::io::stdout().is_terminal()
    {
        return Err(CliError::cannot_run("a page is not printed on a terminal")
            .with_hint("`--output report.html` writes it to a file."));
    }
    // After the run itself: a run that goes on has more records by now, but none less.
    let links = reader.links(&run.began.run)?;
    let report = Report {
        reader: &reader,
        run: &run,
        generated_at: now(),
        doubt: doubt(&workspace, &reader, &records, &run.began.run)?,
        resources: Resources::of(&reader, &run, &workspace.root_paths()),
        last: links.last(),
    };
    let text = match options.format {
        ReportFormat::Json => format!("{:#}\n", json::report(&report)),
        // A file has no colours, wherever it is made.
        ReportFormat::Console if options.output.is_some() => console::report(&report, Style::PLAIN),
        ReportFormat::Console => console::report(&report, Style::of_stdout()),
        ReportFormat::Html => {
            // A kept content is as it was, with any keys in it.
            Environment::load(&workspace).keep_secrets_out();
            let picture = async { Ok::<_, CliError>(picture(&report).await) };
            let picture = unless_stopped(stop, picture).await?;
            html::report(&report, &links, &picture, workspace.root())
        }
    };
    match &options.output {
        None => say(&text)?,
        Some(path) => {
            let shown = escape_text(&path.to_string_lossy());
            write(path, &text)
                .map_err(|why| CliError::cannot_run(format!("the report `{shown}` {why}")))?;
            note(&format!("Wrote the report of run {} to {shown}.\n", escape_text(&run.began.run)));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Draws the plan of the recorded program, or returns why there is no picture.
async fn picture(report: &Report<'_>) -> Result<String, String> {
    if report.run.began.mode == UNDO {
        return Err("the run had no program".to_owned());
    }
    let code = report.reader.content(&report.run.began.code);
    let code = code.and_then(|text| serde_json::from_str::<String>(&text).ok());
    let code = code.ok_or("the program is missing from the record")?;
    let analyser = Analyser::start().map_err(|error| error.to_string())?;
    let analysis = analyser.analyse(&code).await.map_err(|error| error.message)?;
    if !analysis.can_run() {
        return Err("the program could not run".to_owned());
    }
    let plan = analysis::plan(&analysis, &RoutingRules::shipped());
    diagram::svg(&plan).map_err(|TooLarge { calls, .. }| format!("it would have {calls} calls"))
}

/// Writes a file that only the user can read: the record can contain private data.
fn write(path: &Path, text: &str) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| format!("cannot be written: {error}");
    match symlink_metadata(path) {
        // A link would be replaced by the file, and so would a device.
        Ok(found) if !found.is_file() => {
            return Err("cannot be written: it exists and is not a regular file".to_owned());
        }
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(failed(&error)),
    }
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(failed(&"it is not the name of a file"));
    };
    let name = name.to_str().ok_or_else(|| failed(&"its name is not UTF-8"))?;
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(folder, flags, Mode::empty()).map_err(|errno| failed(&errno))?;
    let mode = Mode::from_raw_mode(0o600);
    atomic::write(folder, name, text.as_bytes(), Some(mode), Existing::Replaced)
        .map_err(|error| failed(&error))
}

/// Returns the milliseconds between two times of records; `None` if one of them is not a time.
fn milliseconds(from: &str, to: &str) -> Option<i64> {
    let time = |at: &str| chrono::DateTime::parse_from_rfc3339(at).ok();
    Some((time(to)? - time(from)?).num_milliseconds())
}

/// Returns how long a call took, in milliseconds.
fn duration(call: &MadeCall) -> Option<i64> {
    milliseconds(&call.began.at, &call.ended.as_ref()?.at)
}

/// The policy that the command of a run was given.
struct PolicyFile {
    name: String,
    hash: String,
}

/// Returns the policy file that a run was given, if it was given one.
fn policy_file(report: &Report<'_>) -> Option<PolicyFile> {
    let rules = report.reader.content(&report.run.began.policy)?;
    let rules: Value = serde_json::from_str(&rules).ok()?;
    let given = rules.get(GivenPolicy::RECORDED)?;
    let text = |name: &str| given[name].as_str().unwrap_or_default().to_owned();
    Some(PolicyFile { name: text("name"), hash: text("hash") })
}

/// The number, tool and start of a call, whether it was made or not.
struct Named<'a> {
    call: &'a str,
    tool: &'a str,
    at: &'a str,
}

impl<'a> Named<'a> {
    fn of(call: &'a Call) -> Self {
        match call {
            Call::Made(made) => {
                Self { call: &made.began.call, tool: &made.began.tool, at: &made.began.at }
            }
            Call::Refused(refused) => {
                Self { call: &refused.call, tool: &refused.tool, at: &refused.at }
            }
            Call::Mocked(mocked) => Self { call: &mocked.call, tool: &mocked.tool, at: &mocked.at },
        }
    }
}

/// The numbers of calls by what became of them.
#[derive(Default)]
struct Counts {
    success: usize,
    error: usize,
    denied: usize,
    indeterminate: usize,
    mocked: usize,
}

impl Counts {
    fn of(run: &Run) -> Self {
        let mut counts = Self::default();
        for call in &run.calls {
            *match call.status() {
                "success" => &mut counts.success,
                "error" => &mut counts.error,
                "denied" => &mut counts.denied,
                "mocked" => &mut counts.mocked,
                _ => &mut counts.indeterminate,
            } += 1;
        }
        counts
    }
}
