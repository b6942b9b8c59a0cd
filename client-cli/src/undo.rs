//! `pml runs undo`: puts back what the file tools of a run changed.
//!
//! Each change was recorded before it was made, with the content that it replaced. They are taken back in the reverse
//! order, as a recorded run of its own, which can be undone as well. Nothing is touched if somebody has changed one of
//! the places since.

mod ahead;
mod apply;
mod judge;

use std::path::{Path, PathBuf};

use protocol::{ErrorCode, ToolId};
use serde_json::json;

use self::ahead::{find, is_empty};
pub(crate) use self::apply::apply;
use self::judge::step;
use crate::policy::Operation;
use crate::run_store::StoreError;
use crate::run_store::reader::{Call, Reader, Run};
use crate::run_store::record::{Change, FileChanging, KeptFile, Status};
use crate::tools::filesystem::restore::Found;
use crate::tools::{self, NativeError};
use crate::workspace::Workspace;
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

/// Returns the run that has put back what another one changed, or a part of it.
///
/// # Errors
/// Returns that the store cannot be read.
pub(crate) fn put_back_by(reader: &Reader, run: &Run) -> Result<Option<String>, StoreError> {
    let undo_runs = reader.undo_runs()?;
    let by = undone_by(&run.began.run, &undo_runs);
    let begun = || with_unfinished(run, &undo_runs).into_iter().nth(1);
    Ok(by.or_else(begun).map(|run| run.began.run.clone()))
}

/// Returns the run that has put back what another one changed, unless that was undone as well. `later` has the undo
/// runs after the other one: a forged record may say that a run undid itself.
fn undone_by<'a>(id: &str, later: &'a [(String, Run)]) -> Option<&'a Run> {
    later.iter().enumerate().rev().find_map(|(place, (of, undo))| {
        let is_done = of == id
            && undo.ended.as_ref().is_some_and(|ended| ended.status == Status::Success)
            && undone_by(&undo.began.run, &later[place + 1..]).is_none();
        is_done.then_some(undo)
    })
}

/// Returns a run and those that began to put back what it changed and did not finish: together they led to the present
/// state.
fn with_unfinished<'a>(run: &'a Run, later: &'a [(String, Run)]) -> Vec<&'a Run> {
    let mut runs = vec![run];
    for (place, (of, undo)) in later.iter().enumerate() {
        let after = &later[place + 1..];
        if *of == run.began.run && undone_by(&undo.began.run, after).is_none() {
            runs.extend(with_unfinished(undo, after));
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
        if let Some(parent) =
            put.and_then(|path| path.parent()).filter(|parent| !workspace.is_folder_itself(parent))
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
    let attempts = run.attempts(&change.call);
    run.changes.iter().enumerate().skip(place + 1).any(|(later_place, later)| {
        later.call == change.call
            && matches!(&later.change, Change::Write { path: again, .. } if again == path)
            // The call that was made again after `pml` was stopped: the first one may have made its change, too.
            && !attempts.iter().any(|attempt| (place + 1..=later_place).contains(attempt))
    })
}

/// Returns whether a call of a run ended with an error.
fn has_failed(run: &Run, id: &str) -> bool {
    run.calls.iter().any(|call| {
        let Call::Made(made) = call else { return false };
        made.began.call == id
            && made.ended.as_ref().is_some_and(|ended| ended.status == Status::Error)
    })
}

/// Returns the tools of a run whose changes are not recorded, with their numbers of calls.
fn not_covered(run: &Run) -> Vec<(String, usize)> {
    let mut found: Vec<(String, usize)> = Vec::new();
    for call in &run.calls {
        let Call::Made(made) = call else { continue };
        let began = &made.began;
        // The changes of a server that replaces the file tools of `pml` are not recorded, although it has their names.
        let is_recorded = |tool: ToolId| !tools::runs_command(&tool);
        if began.native && began.tool.parse().is_ok_and(is_recorded) {
            continue;
        }
        match found.iter_mut().find(|(tool, _)| *tool == began.tool) {
            Some((_, count)) => *count += 1,
            None => found.push((began.tool.clone(), 1)),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use protocol::Integrity;

    use super::*;
    use crate::run_store::record::{Content, RunBegan, RunEnded, UNDO};

    fn run(id: &str, status: Option<Status>) -> Run {
        let none = || Content {
            hash: Integrity::of(b""),
            bytes: 0,
            json: None,
            redacted: false,
            erased: false,
        };
        let began = RunBegan {
            at: String::new(),
            run: id.to_owned(),
            mode: UNDO.to_owned(),
            of: None,
            pml: String::new(),
            code: none(),
            args: none(),
            plan: none(),
            policy: none(),
            trace: None,
        };
        let ended = status.map(|status| RunEnded {
            at: String::new(),
            run: id.to_owned(),
            status,
            output: None,
            error: None,
            console: None,
        });
        Run { ended, ..Run::of(began) }
    }

    /// A run stays undone until its undo is undone. One that did not finish counts together with the run. Forged records
    /// that refer to themselves or to later ones end the search, too.
    #[test]
    fn undo_runs_are_followed_in_their_order() {
        let (done, failed, killed) = (Some(Status::Success), Some(Status::Error), None);
        for (undo_runs, undone, together) in [
            (&[][..], None, "r"),
            (&[("r", "u", done)], Some("u"), "r u"),
            (&[("r", "u", failed)], None, "r u"),
            (&[("r", "u", killed), ("r", "v", done)], Some("v"), "r u v"),
            (&[("r", "u", done), ("u", "v", done)], None, "r"),
            (&[("r", "u", done), ("u", "v", killed)], Some("u"), "r u v"),
            (&[("r", "u", done), ("u", "v", done), ("v", "w", done)], Some("u"), "r u"),
            (&[("r", "u", killed), ("u", "v", done), ("r", "w", done)], Some("w"), "r w"),
            (&[("x", "u", done)], None, "r"),
            (&[("r", "r", done)], Some("r"), "r r"),
            (&[("u", "v", done), ("r", "u", done), ("v", "r", done)], Some("u"), "r u"),
        ] {
            let undo_runs: Vec<(String, Run)> = undo_runs
                .iter()
                .map(|(of, id, status)| ((*of).to_owned(), run(id, *status)))
                .collect();
            let id = |run: &Run| run.began.run.clone();
            assert_eq!(undone_by("r", &undo_runs).map(id).as_deref(), undone, "{undo_runs:?}");
            let of = run("r", done);
            let found: Vec<String> = with_unfinished(&of, &undo_runs).into_iter().map(id).collect();
            assert_eq!(found.join(" "), together, "{undo_runs:?}");
        }
    }
}
