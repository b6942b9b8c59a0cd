//! `pml runs undo`: puts back what the file tools of a run changed.
//!
//! Each change was recorded before it was made, with the content that it replaced. They are taken back in the reverse
//! order, as a recorded run of its own, which can be undone as well. Nothing is touched if somebody has changed one of
//! the places since.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use protocol::{ErrorBody, ErrorCode, Integrity, escape_text};
use serde_json::json;

use crate::policy::Operation;
use crate::run_store::reader::{Call, Reader, Run};
use crate::run_store::record::{
    CallBegan, CallEnded, Change, Failure, FileChanging, KeptFile, MovedItem, Record, RunBegan,
    RunEnded, Status, UNDO, now,
};
use crate::run_store::{Keeping, RunStore, StoreError};
use crate::tools::NativeError;
use crate::tools::filesystem::restore::{self, Found};
use crate::workspace::Workspace;
use crate::workspace::changes;
use crate::workspace::path_error::shown;
use crate::workspace::protected::Guard;

/// The tool name of its steps in the record.
const TOOL: &str = "pml:undo";

/// How to put back what a run changed.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// The steps, in their order.
    pub(crate) steps: Vec<Planned>,
    /// New folders of the run that stay, because they will not be empty.
    pub(crate) kept_folders: Vec<PathBuf>,
    /// Why nothing can be put back, a sentence for each place.
    pub(crate) conflicts: Vec<String>,
    /// Tools that may have changed something that is not recorded, with their numbers of calls.
    pub(crate) not_covered: Vec<(String, usize)>,
    /// The run that has put everything back already.
    pub(crate) undone_by: Option<String>,
}

/// A step, and what will be at its place before it.
#[derive(Debug)]
pub(crate) struct Planned {
    /// The step.
    pub(crate) step: Step,
    expected: Found,
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
    /// Returns the place that it changes, or moves away.
    fn place(&self) -> &Path {
        match self {
            Self::Restore { path, .. }
            | Self::Remove { path }
            | Self::CreateFolder { path, .. }
            | Self::RemoveFolder { path }
            | Self::Move { from: path, .. } => path,
        }
    }

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

/// Plans how to put back what a run changed. Changes nothing. Without `trusted`, the records may not be this user's, and
/// no protected place is touched.
///
/// # Errors
/// Returns why a place or the store cannot be read.
pub(crate) fn plan(
    workspace: &Workspace,
    reader: &Reader,
    run: &Run,
    trusted: bool,
) -> Result<Plan, NativeError> {
    let undo_runs = reader
        .undo_runs()
        .map_err(|error| NativeError::new(ErrorCode::RunStoreUnavailable, error.to_string()))?;
    let mut plan = Plan { not_covered: not_covered(run), ..Plan::default() };
    plan.undone_by = undone_by(&run.began.run, &undo_runs).map(|run| run.began.run.clone());
    if plan.undone_by.is_some() {
        return Ok(plan);
    }
    let runs = with_unfinished(run, &undo_runs);
    for run in runs.into_iter().rev() {
        for (place, change) in run.changes.iter().enumerate().rev() {
            if is_retried(run, place, change) {
                continue;
            }
            let find = |path: &str| find(workspace, &plan.steps, Path::new(path));
            match step(&find, reader, &change.change)? {
                // The call failed, perhaps because there was something else already.
                Err(_) if has_failed(run, &change.call) => {}
                Ok(Some(step)) => plan.add(workspace, step, trusted)?,
                Ok(None) => {}
                Err(conflict) => plan.conflicts.push(conflict),
            }
        }
    }
    Ok(plan)
}

/// Returns the run that has put back what another one changed, unless that was undone as well.
fn undone_by<'a>(id: &str, undo_runs: &'a [(String, Run)]) -> Option<&'a Run> {
    let undone = undo_runs.iter().rev().filter(|(of, _)| of == id).map(|(_, run)| run);
    let is_done = |run: &&Run| {
        run.ended.as_ref().is_some_and(|ended| ended.status == Status::Success)
            && undone_by(&run.began.run, undo_runs).is_none()
    };
    undone.into_iter().find(is_done)
}

/// Returns a run and those that began to put back what it changed and did not finish: together they led to the present
/// state.
fn with_unfinished<'a>(run: &'a Run, undo_runs: &'a [(String, Run)]) -> Vec<&'a Run> {
    let mut runs = vec![run];
    for (of, undo) in undo_runs {
        if *of == run.began.run && undone_by(&undo.began.run, undo_runs).is_none() {
            runs.extend(with_unfinished(undo, undo_runs));
        }
    }
    runs
}

impl Plan {
    /// Returns the steps as JSON.
    pub(crate) fn to_json(&self) -> Vec<serde_json::Value> {
        self.steps.iter().map(|planned| planned.step.to_json()).collect()
    }

    /// Adds a step, unless it cannot be taken.
    fn add(&mut self, workspace: &Workspace, step: Step, trusted: bool) -> Result<(), NativeError> {
        let place = step.place();
        let (other, operation) = match &step {
            Step::Move { to, .. } => (to.as_path(), Operation::Move),
            _ => (place, Operation::Change),
        };
        for path in [place, other] {
            let guard = workspace.protection(path, operation).map(|place| place.guard);
            if guard == Some(Guard::Refused) || (guard.is_some() && !trusted) {
                let name = shown(&path.to_string_lossy());
                self.conflicts.push(format!("`{name}` is a protected place"));
                return Ok(());
            }
        }
        let expected = find(workspace, &self.steps, place)?;
        // The folder in which something is put must be there.
        let put = match &step {
            Step::Restore { path, .. } if expected == Found::Nothing => Some(path),
            Step::CreateFolder { path, .. } => Some(path),
            Step::Move { to, .. } => Some(to),
            _ => None,
        };
        if let Some(parent) = put.and_then(|path| path.parent()).filter(|parent| *parent != "")
            && find(workspace, &self.steps, parent)? != Found::Folder
        {
            let name = shown(&parent.to_string_lossy());
            self.conflicts.push(format!("the folder `{name}` is gone"));
            return Ok(());
        }
        if let Step::RemoveFolder { path } = &step
            && !is_empty(workspace, &self.steps, path)?
        {
            self.kept_folders.push(path.clone());
            return Ok(());
        }
        self.steps.push(Planned { step, expected });
        Ok(())
    }
}

/// Returns whether a change was announced a second time: a write that raced with another one.
fn is_retried(run: &Run, place: usize, change: &FileChanging) -> bool {
    let Change::Write { path, .. } = &change.change else { return false };
    run.changes[place + 1..].iter().any(|later| {
        later.call == change.call
            && matches!(&later.change, Change::Write { path: again, .. } if again == path)
    })
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
    let is = |found: Found, content: Integrity, permissions: Option<u32>| match found {
        Found::File { hash, mode, .. } => {
            hash == Some(content) && permissions.is_none_or(|permissions| permissions == mode)
        }
        _ => false,
    };
    let is_kept = |found, kept: &KeptFile| {
        kept.hash.is_some_and(|content| is(found, content, Some(kept.mode)))
    };
    Ok(match change {
        Change::Write { path, before, after, mode } => {
            let found = find(path)?;
            match before {
                None if found == Found::Nothing => Ok(None),
                Some(kept) if is_kept(found, kept) => Ok(None),
                _ if !is(found, *after, *mode) => changed(path),
                None => Ok(Some(Step::Remove { path: path.into() })),
                Some(kept) => restored(path, kept),
            }
        }
        Change::Remove { path, before } => match find(path)? {
            Found::Nothing => restored(path, before),
            found if is_kept(found, before) => Ok(None),
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
        Change::Move { from, to, moved } => {
            let (old, new) = (find(from)?, find(to)?);
            match (old == Found::Nothing, is_moved(new, moved)) {
                (true, true) => Ok(Some(Step::Move { from: to.into(), to: from.into() })),
                (false, _) if new == Found::Nothing && is_moved(old, moved) => Ok(None),
                (true, false) => changed(to),
                (false, _) => changed(from),
            }
        }
    })
}

/// Returns whether something is what was moved.
fn is_moved(found: Found, moved: &MovedItem) -> bool {
    match (found, moved) {
        (Found::Folder, MovedItem::Folder) => true,
        (Found::Link(found), MovedItem::Link { target }) => found == *target,
        (
            Found::File { hash, bytes, mode },
            MovedItem::File { bytes: size, mode: permissions, hash: content },
        ) => {
            // A file that was too large to be compared then is not compared now.
            bytes == *size && mode == *permissions && (content.is_none() || hash == *content)
        }
        _ => false,
    }
}

/// Finds what will be at a path after these steps.
fn find(workspace: &Workspace, steps: &[Planned], path: &Path) -> Result<Found, NativeError> {
    match origin(steps, path) {
        Origin::Found(found) => Ok(found),
        Origin::At(path) => restore::find(workspace, &path),
    }
}

/// Where what will be at a path comes from.
enum Origin {
    /// A step puts it there.
    Found(Found),
    /// It is at this path now.
    At(PathBuf),
}

/// Goes back from the last step to the present state.
fn origin(steps: &[Planned], path: &Path) -> Origin {
    let mut path = path.to_owned();
    for Planned { step, .. } in steps.iter().rev() {
        match step {
            Step::Restore { path: file, kept } if path == *file => {
                let KeptFile { hash, bytes, mode, .. } = *kept;
                return Origin::Found(Found::File { hash, bytes, mode });
            }
            Step::CreateFolder { path: folder, .. } if path == *folder => {
                return Origin::Found(Found::Folder);
            }
            // Where the step puts something, there was nothing beneath it.
            Step::Restore { path: gone, .. }
            | Step::CreateFolder { path: gone, .. }
            | Step::Remove { path: gone }
            | Step::RemoveFolder { path: gone }
                if path.starts_with(gone) =>
            {
                return Origin::Found(Found::Nothing);
            }
            Step::Move { from, to } => {
                if let Ok(rest) = path.strip_prefix(to) {
                    // `join` would add a slash to a path whose rest is empty.
                    path = from.components().chain(rest.components()).collect();
                } else if path.starts_with(from) {
                    return Origin::Found(Found::Nothing);
                }
            }
            _ => {}
        }
    }
    Origin::At(path)
}

/// Returns whether a folder will be empty after these steps.
fn is_empty(workspace: &Workspace, steps: &[Planned], folder: &Path) -> Result<bool, NativeError> {
    let mut names: BTreeSet<OsString> = match origin(steps, folder) {
        Origin::At(path) => restore::names(workspace, &path)?.into_iter().collect(),
        Origin::Found(_) => BTreeSet::new(),
    };
    // The names of everything that steps put somewhere include those that they put here.
    names.extend(steps.iter().filter_map(|Planned { step, .. }| match step {
        Step::Restore { path, .. }
        | Step::CreateFolder { path, .. }
        | Step::Move { to: path, .. } => path.file_name().map(OsStr::to_owned),
        Step::Remove { .. } | Step::RemoveFolder { .. } => None,
    }));
    for name in names {
        if find(workspace, steps, &folder.join(name))? != Found::Nothing {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns the tools of a run whose changes are not recorded, with their numbers of calls.
fn not_covered(run: &Run) -> Vec<(String, usize)> {
    let mut found: Vec<(String, usize)> = Vec::new();
    for call in &run.calls {
        let Call::Made { began, .. } = call else { continue };
        // The changes of a server that replaces the file tools of `pml` are not recorded, although it has their names.
        if began.native && !began.tool.starts_with("shell:") {
            continue;
        }
        match found.iter_mut().find(|(tool, _)| *tool == began.tool) {
            Some((_, count)) => *count += 1,
            None => found.push((began.tool.clone(), 1)),
        }
    }
    found
}

/// Takes the steps, and records them as a run, whose id is returned.
///
/// # Errors
/// Returns why a step failed. Those before it were made, and the message says how to take them back.
pub(crate) fn apply(
    workspace: &Workspace,
    store: &RunStore,
    reader: &Reader,
    of: &str,
    plan: &Plan,
) -> Result<String, ErrorBody> {
    let run = uuid::Uuid::now_v7().to_string();
    let recorded = |result: Result<(), Arc<StoreError>>| result.map_err(|error| error.body());
    let content = |value| store.content(&value).map_err(|error| error.body());
    recorded(store.append_blocking(Record::RunBegan(RunBegan {
        at: now(),
        run: run.clone(),
        mode: UNDO.to_owned(),
        pml: env!("CARGO_PKG_VERSION").to_owned(),
        code: content(json!(""))?,
        args: content(json!({ "run": of }))?,
        plan: content(json!(plan.to_json()))?,
        policy: content(json!({}))?,
    })))?;
    let mut failed = None;
    for (place, Planned { step, expected }) in plan.steps.iter().enumerate() {
        let call = (place + 1).to_string();
        recorded(store.append_blocking(Record::CallBegan(CallBegan {
            at: now(),
            run: run.clone(),
            call: call.clone(),
            tool: TOOL.to_owned(),
            routing: "client".to_owned(),
            native: true,
            args: content(step.to_json())?,
            decision: format!("`pml runs undo {of}`"),
        })))?;
        let made = make(workspace, store, reader, (&run, &call), step, *expected);
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
        None => Ok(run),
        Some((done, error)) => {
            let total = plan.steps.len();
            let message = match done {
                0 => format!("{}; nothing was put back", error.message),
                _ => format!(
                    "{}; {done} of {total} steps were made before, and `pml runs undo {run}` takes them back",
                    error.message
                ),
            };
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
    expected: Found,
) -> Result<(), NativeError> {
    let watch = |change: changes::Change<'_>| store.change(run, call, change, Keeping::Always);
    // Compared again, because the place may have changed since the steps were planned.
    let place = step.place();
    if restore::find(workspace, place)? != expected {
        let name = shown(&place.to_string_lossy());
        let message = format!("`{name}` was changed while files were put back");
        return Err(NativeError::new(ErrorCode::Conflict, message));
    }
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
        Step::RemoveFolder { path } => restore::remove_folder(workspace, path, &watch),
        Step::Move { from, to } => restore::rename(workspace, from, to, &watch),
    }
}
