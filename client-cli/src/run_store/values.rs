//! The values of records: what they are, how they are removed, and the files that they are in.

use protocol::Integrity;

use super::record::{Change, Content, Failure, Record, UNDO};

/// What stands in place of an erased text.
const ERASED: &str = "erased";

/// Returns the values of a record.
pub(super) fn contents(record: &Record) -> Vec<&Content> {
    match record {
        Record::StoreBegan(_) | Record::StoreAdopted(_) | Record::EndDiffered(_) => Vec::new(),
        Record::ProgramStarted(_) | Record::FileChanging(_) | Record::CallRepeated(_) => Vec::new(),
        Record::ValuesErased(_) => Vec::new(),
        Record::RunResumed(run) => vec![&run.policy],
        Record::RunBegan(run) => vec![&run.code, &run.args, &run.plan, &run.policy],
        Record::CallBegan(call) => vec![&call.args],
        Record::CallRefused(call) => vec![&call.args],
        Record::CallMocked(call) => [&call.args].into_iter().chain(&call.output).collect(),
        Record::CallEnded(call) => call.output.iter().collect(),
        Record::Approval(approval) => vec![&approval.args],
        Record::RunEnded(run) => run.output.iter().collect(),
        Record::ReplayCompared(replay) => {
            replay.left.iter().filter_map(|left| left.args.as_ref()).collect()
        }
    }
}

/// Removes the values from a record. Returns whether there were any.
pub(super) fn erase(record: &mut Record) -> bool {
    match record {
        // Its args are the id of the other run, by which that is known to be undone.
        Record::RunBegan(run) if run.mode == UNDO => false,
        Record::RunBegan(run) => {
            [&mut run.code, &mut run.args, &mut run.plan].map(erase_content).contains(&true)
        }
        Record::CallBegan(call) => erase_content(&mut call.args),
        Record::CallRefused(call) => erase_content(&mut call.args) | erase_failure(&mut call.error),
        Record::CallMocked(call) => {
            erase_content(&mut call.args)
                | call.output.as_mut().is_some_and(erase_content)
                | call.error.as_mut().is_some_and(erase_failure)
        }
        Record::CallEnded(call) => {
            call.output.as_mut().is_some_and(erase_content)
                | call.error.as_mut().is_some_and(erase_failure)
                | call.refused_connections.as_mut().is_some_and(erase_text)
        }
        Record::RunEnded(run) => {
            run.output.as_mut().is_some_and(erase_content)
                | run.error.as_mut().is_some_and(erase_failure)
        }
        Record::ReplayCompared(replay) => {
            let left = replay.left.as_mut().and_then(|left| left.args.as_mut());
            left.is_some_and(erase_content)
        }
        Record::Approval(approval) => {
            erase_content(&mut approval.args) | erase_text(&mut approval.reason)
        }
        Record::FileChanging(changing) => {
            let before = changing.change.before().and_then(|kept| kept.hash);
            let is_new = !matches!(changing.change, Change::Erased { .. });
            if is_new {
                changing.change = Change::Erased { before };
            }
            is_new
        }
        // They have no values of the program.
        Record::StoreBegan(_)
        | Record::ProgramStarted(_)
        | Record::CallRepeated(_)
        | Record::RunResumed(_)
        | Record::StoreAdopted(_)
        | Record::EndDiffered(_)
        | Record::ValuesErased(_) => false,
    }
}

fn erase_content(content: &mut Content) -> bool {
    content.json = None;
    !std::mem::replace(&mut content.erased, true)
}

fn erase_failure(failure: &mut Failure) -> bool {
    ERASED.clone_into(&mut failure.message);
    !std::mem::replace(&mut failure.erased, true)
}

fn erase_text(text: &mut String) -> bool {
    let is_new = text != ERASED;
    ERASED.clone_into(text);
    is_new
}

/// Returns the hashes of the files that a record needs.
pub(super) fn files(record: &Record) -> Vec<Integrity> {
    let values = contents(record).into_iter();
    let values = values.filter(|value| value.json.is_none() && !value.erased);
    let kept = match record {
        Record::FileChanging(changing) => changing.change.before().and_then(|kept| kept.hash),
        _ => None,
    };
    values.map(|value| value.hash).chain(kept).collect()
}

/// Returns the hashes of the files that a record may have needed before it was erased; `None` if it was not.
pub(super) fn erased_files(record: &Record) -> Option<Vec<Integrity>> {
    let values = contents(record).into_iter().filter(|value| value.erased);
    let mut hashes: Vec<Integrity> = values.map(|value| value.hash).collect();
    let mut is_erased = !hashes.is_empty();
    match record {
        Record::FileChanging(changing) => {
            if let Change::Erased { before } = &changing.change {
                hashes.extend(before);
                is_erased = true;
            }
        }
        Record::CallEnded(call) => is_erased |= call.error.as_ref().is_some_and(|e| e.erased),
        Record::RunEnded(run) => is_erased |= run.error.as_ref().is_some_and(|e| e.erased),
        _ => {}
    }
    is_erased.then_some(hashes)
}
