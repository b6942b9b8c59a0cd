//! Takes planned steps, as a recorded run.

use std::sync::Arc;

use protocol::{ErrorBody, ErrorCode};
use serde_json::json;

use super::{Plan, Planned, Step, TOOL};
use crate::run_store::reader::Reader;
use crate::run_store::record::{
    CallBegan, CallEnded, Failure, Record, RunBegan, RunEnded, Status, UNDO, now,
};
use crate::run_store::{Keeping, RunStore, StoreError};
use crate::tools::NativeError;
use crate::tools::filesystem::restore::{self, Found};
use crate::workspace::path_error::shown;
use crate::workspace::{Workspace, changes};

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
        of: None,
        pml: env!("CARGO_PKG_VERSION").to_owned(),
        code: content(json!(""))?,
        args: content(json!({ "run": of }))?,
        plan: content(json!(plan.to_json()))?,
        policy: content(json!({}))?,
        trace: None,
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
            epoch_ms: None,
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
            refused_connections: None,
            at_ms: None,
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
        console: None,
    })))?;
    // The process ends soon.
    recorded(store.flush_blocking())?;
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
