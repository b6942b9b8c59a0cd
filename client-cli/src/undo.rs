//! `pml runs undo`: puts back what the file tools of a run changed.
//!
//! Each change was recorded before it was made, with the content that it replaced. They are taken back in the reverse
//! order, as a recorded run of its own, which can be undone as well. Nothing is touched if somebody has changed one of
//! the places since.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use protocol::{ErrorBody, ErrorCode, escape_text};
use serde_json::json;

use crate::run_store::reader::{Call, Reader, Run};
use crate::run_store::record::{
    CallBegan, CallEnded, Change, Failure, FileChanging, KeptFile, Record, RunBegan, RunEnded,
    Status, now,
};
use crate::run_store::{RunStore, StoreError};
use crate::tools::NativeError;
use crate::tools::filesystem::restore::{self, Found};
use crate::workspace::Workspace;
use crate::workspace::path_error::shown;

/// The tool name of its steps in the record.
const TOOL: &str = "pml:undo";

/// How to put back what a run changed.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// The steps, in their order.
    pub(crate) steps: Vec<Step>,
    /// Why nothing can be put back, a sentence for each place.
    pub(crate) conflicts: Vec<String>,
    /// Tools that may have changed something that is not recorded, with their numbers of calls.
    pub(crate) not_covered: Vec<(String, usize)>,
}

/// One step. Paths are relative to the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// A file gets the content and the mode that it had.
    Restore { path: PathBuf, kept: KeptFile },
    /// A file that the run created is removed.
    Remove { path: PathBuf },
    /// A folder is created again.
    CreateFolder { path: PathBuf, mode: u32 },
    /// A folder that the run created is removed, if it is empty.
    RemoveFolder { path: PathBuf },
    /// Something is moved back.
    Move { from: PathBuf, to: PathBuf },
}

impl Step {
    /// Describes it in one line.
    pub(crate) fn describe(&self) -> String {
        let name = |path: &Path| shown(&path.to_string_lossy());
        match self {
            Self::Restore { path, kept } => {
                format!("restore {} ({} bytes)", name(path), kept.bytes)
            }
            Self::Remove { path } => format!("remove {}", name(path)),
            Self::CreateFolder { path, .. } => format!("create the folder {}", name(path)),
            Self::RemoveFolder { path } => format!("remove the folder {}", name(path)),
            Self::Move { from, to } => format!("move {} to {}", name(from), name(to)),
        }
    }

    /// Returns it as JSON.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        match self {
            Self::Restore { path, kept } => {
                json!({ "step": "restore", "path": text(path), "bytes": kept.bytes, "hash": kept.hash, "mode": kept.mode })
            }
            Self::Remove { path } => json!({ "step": "remove", "path": text(path) }),
            Self::CreateFolder { path, mode } => {
                json!({ "step": "create_folder", "path": text(path), "mode": mode })
            }
            Self::RemoveFolder { path } => json!({ "step": "remove_folder", "path": text(path) }),
            Self::Move { from, to } => {
                json!({ "step": "move", "from": text(from), "to": text(to) })
            }
        }
    }
}

/// Plans how to put back what a run changed. Changes nothing.
///
/// # Errors
/// Returns why a place cannot be read.
pub(crate) fn plan(workspace: &Workspace, reader: &Reader, run: &Run) -> Result<Plan, NativeError> {
    let mut plan = Plan { not_covered: not_covered(run), ..Plan::default() };
    for (place, change) in run.changes.iter().enumerate().rev() {
        if is_void(run, place, change) {
            continue;
        }
        let there = |path: &str| find(workspace, &plan.steps, Path::new(path));
        match step(&there, reader, &change.change)? {
            // The call failed, perhaps because there was something else already.
            Err(_) if has_failed(run, &change.call) => {}
            Ok(Some(step)) => plan.steps.push(step),
            Ok(None) => {}
            Err(conflict) => plan.conflicts.push(conflict),
        }
    }
    Ok(plan)
}

/// Returns whether a recorded change was certainly not made.
fn is_void(run: &Run, place: usize, change: &FileChanging) -> bool {
    match &change.change {
        // A call that fails may have created some of its folders.
        Change::CreateFolder { .. } | Change::RemoveFolder { .. } => false,
        _ if has_failed(run, &change.call) => true,
        // A write that raced with another one was announced again.
        Change::Write { path, .. } => run.changes[place + 1..].iter().any(|later| {
            later.call == change.call
                && matches!(&later.change, Change::Write { path: again, .. } if again == path)
        }),
        Change::Remove { .. } | Change::Move { .. } => false,
    }
}

/// Returns whether a call of a run ended with an error.
fn has_failed(run: &Run, id: &str) -> bool {
    run.calls.iter().any(|call| {
        matches!(call, Call::Made { began, ended: Some(ended) }
            if began.call == id && ended.status == Status::Error)
    })
}

/// Returns the step that takes a change back; `None` if it was not made, and a conflict if somebody has changed the
/// place since. `find` says what is at a place.
fn step(
    find: &dyn Fn(&str) -> Result<Found, NativeError>,
    reader: &Reader,
    change: &Change,
) -> Result<Result<Option<Step>, String>, NativeError> {
    let changed = |path: &str| Err(format!("`{}` was changed since", shown(path)));
    let restored = |path: &str, kept: &KeptFile| {
        let why = match (&kept.hash, &kept.not_kept) {
            (Some(hash), _) if reader.kept(*hash).is_some() => {
                return Ok(Some(Step::Restore { path: path.into(), kept: kept.clone() }));
            }
            (Some(_), _) => "the file with it is missing or was changed".to_owned(),
            (None, why) => escape_text(why.as_deref().unwrap_or("no reason is recorded")),
        };
        Err(format!("the content of `{}` was not kept: {why}", shown(path)))
    };
    Ok(match change {
        Change::Write { path, before, after } => {
            let found = find(path)?;
            let is_before = match before {
                None => found == Found::Nothing,
                Some(kept) => kept.hash.is_some_and(|hash| found == Found::File(hash)),
            };
            match before {
                _ if is_before => Ok(None),
                _ if found != Found::File(*after) => changed(path),
                None => Ok(Some(Step::Remove { path: path.into() })),
                Some(kept) => restored(path, kept),
            }
        }
        Change::Remove { path, before } => match find(path)? {
            Found::Nothing => restored(path, before),
            Found::File(hash) if before.hash == Some(hash) => Ok(None),
            _ => changed(path),
        },
        Change::CreateFolder { path } => match find(path)? {
            Found::Folder => Ok(Some(Step::RemoveFolder { path: path.into() })),
            Found::Nothing => Ok(None),
            _ => changed(path),
        },
        Change::RemoveFolder { path, mode } => match find(path)? {
            Found::Nothing => Ok(Some(Step::CreateFolder { path: path.into(), mode: *mode })),
            Found::Folder => Ok(None),
            _ => changed(path),
        },
        Change::Move { from, to } => {
            let (old, new) = (find(from)?, find(to)?);
            match (old != Found::Nothing, new != Found::Nothing) {
                (false, true) => Ok(Some(Step::Move { from: to.into(), to: from.into() })),
                (true, false) => Ok(None),
                _ => changed(to),
            }
        }
    })
}

/// Finds what will be at a path after these steps: it goes back from the last one to what is there now.
fn find(workspace: &Workspace, steps: &[Step], path: &Path) -> Result<Found, NativeError> {
    let mut path = path.to_owned();
    for step in steps.iter().rev() {
        match step {
            Step::Restore { path: file, kept } if path == *file => {
                return Ok(kept.hash.map_or(Found::Other, Found::File));
            }
            Step::CreateFolder { path: folder, .. } if path == *folder => return Ok(Found::Folder),
            // Where the step puts something, there was nothing beneath it.
            Step::Restore { path: gone, .. }
            | Step::CreateFolder { path: gone, .. }
            | Step::Remove { path: gone }
            | Step::RemoveFolder { path: gone }
                if path.starts_with(gone) =>
            {
                return Ok(Found::Nothing);
            }
            Step::Move { from, to } => {
                if let Ok(rest) = path.strip_prefix(to) {
                    // `join` would add a slash to a path whose rest is empty.
                    path = from.components().chain(rest.components()).collect();
                } else if path.starts_with(from) {
                    return Ok(Found::Nothing);
                }
            }
            _ => {}
        }
    }
    restore::find(workspace, &path)
}

/// Returns the tools of a run whose changes are not recorded, with their numbers of calls.
fn not_covered(run: &Run) -> Vec<(String, usize)> {
    let mut found: Vec<(String, usize)> = Vec::new();
    for call in &run.calls {
        let Call::Made { began, .. } = call else { continue };
        // The file tools of `pml`, and those of a server that replaces them, have the same names; the latter's changes
        // are not recorded.
        let is_covered = began.tool.starts_with("filesystem:")
            && (run.changes.iter().any(|change| change.call == began.call)
                || !matches!(
                    began.tool.as_str(),
                    "filesystem:write_file"
                        | "filesystem:edit_file"
                        | "filesystem:move_file"
                        | "filesystem:create_directory"
                ));
        if is_covered || began.tool == TOOL {
            continue;
        }
        match found.iter_mut().find(|(tool, _)| *tool == began.tool) {
            Some((_, count)) => *count += 1,
            None => found.push((began.tool.clone(), 1)),
        }
    }
    found
}

/// What an undo has done.
pub(crate) struct Undone {
    /// The id of its run.
    pub(crate) run: String,
    /// Folders that stay, because they are not empty.
    pub(crate) kept_folders: Vec<PathBuf>,
}

/// Takes the steps, and records them as a run.
///
/// # Errors
/// Returns why a step failed. Those before it were made.
pub(crate) fn apply(
    workspace: &Workspace,
    store: &RunStore,
    reader: &Reader,
    of: &str,
    plan: &Plan,
) -> Result<Undone, ErrorBody> {
    let run = uuid::Uuid::now_v7().to_string();
    let recorded = |result: Result<(), Arc<StoreError>>| result.map_err(|error| error.body());
    let content = |value| store.content(&value).map_err(|error| error.body());
    recorded(store.append_blocking(Record::RunBegan(RunBegan {
        at: now(),
        run: run.clone(),
        mode: "undo".to_owned(),
        pml: env!("CARGO_PKG_VERSION").to_owned(),
        code: content(json!(""))?,
        args: content(json!({ "run": of }))?,
        plan: content(json!(plan.steps.iter().map(Step::to_json).collect::<Vec<_>>()))?,
        policy: content(json!({}))?,
    })))?;
    let mut undone = Undone { run: run.clone(), kept_folders: Vec::new() };
    let mut failed = None;
    for (place, step) in plan.steps.iter().enumerate() {
        let call = (place + 1).to_string();
        recorded(store.append_blocking(Record::CallBegan(CallBegan {
            at: now(),
            run: run.clone(),
            call: call.clone(),
            tool: TOOL.to_owned(),
            routing: "client".to_owned(),
            args: content(step.to_json())?,
            decision: format!("`pml runs undo {of}`"),
        })))?;
        let made = make(workspace, store, reader, (&run, &call), step, &mut undone);
        let error = made.err().map(|error| ErrorBody::new(error.code, error.message));
        recorded(store.append_blocking(Record::CallEnded(CallEnded {
            at: now(),
            run: run.clone(),
            call,
            status: if error.is_none() { Status::Success } else { Status::Error },
            output: None,
            error: error.as_ref().map(Failure::of),
        })))?;
        if let Some(error) = error {
            failed = Some((place, error));
            break;
        }
    }
    recorded(store.append_blocking(Record::RunEnded(RunEnded {
        at: now(),
        run: run.clone(),
        status: if failed.is_none() { Status::Success } else { Status::Error },
        output: None,
        error: failed.as_ref().map(|(_, error)| Failure::of(error)),
    })))?;
    match failed {
        None => Ok(undone),
        Some((done, error)) => {
            let message = format!(
                "{}; {done} of {} steps were made before it, as run `{run}`",
                error.message,
                plan.steps.len()
            );
            Err(ErrorBody { message, ..error })
        }
    }
}

fn make(
    workspace: &Workspace,
    store: &RunStore,
    reader: &Reader,
    (run, call): (&str, &str),
    step: &Step,
    undone: &mut Undone,
) -> Result<(), NativeError> {
    let watch = |change: crate::workspace::changes::Change<'_>| store.change(run, call, change);
    match step {
        Step::Restore { path, kept } => {
            let content = kept.hash.and_then(|hash| reader.kept(hash)).ok_or_else(|| {
                let message =
                    format!("the content of `{}` is gone", shown(&path.to_string_lossy()));
                NativeError::new(ErrorCode::RunStoreUnavailable, message)
            })?;
            restore::write(workspace, path, &content, kept.mode, &watch)
        }
        Step::Remove { path } => restore::remove(workspace, path, &watch),
        Step::CreateFolder { path, mode } => restore::create_folder(workspace, path, *mode, &watch),
        Step::RemoveFolder { path } => {
            if !restore::remove_folder(workspace, path, &watch)? {
                undone.kept_folders.push(path.clone());
            }
            Ok(())
        }
        Step::Move { from, to } => restore::rename(workspace, from, to, &watch),
    }
}
