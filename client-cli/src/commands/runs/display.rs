//! The text form of runs.

use std::fmt::Write as _;

use protocol::escape_text;

use crate::consent::shortened::shortened;
use crate::run_store::reader::{Call, MadeCall, Reader, Run};
use crate::run_store::record::{
    Answered, ApprovalGiven, Change, Content, Failure, KeptFile, ReplayCompared, ValuesErased,
};
use crate::run_store::{Fault, Verified};

/// The maximum displayed length of a value, in characters.
const SHOWN_VALUE: usize = 400;
/// The maximum displayed length of a program, in characters.
const SHOWN_PROGRAM: usize = 4_000;
/// The maximum displayed length of a list of tools, in characters.
const SHOWN_TOOLS: usize = 60;

/// Returns one line for each run.
pub(super) fn list(runs: &[Run]) -> String {
    let mut out =
        format!("{:36}  {:24}  {:9}  {:>5}  TOOLS\n", "RUN", "STARTED", "STATUS", "CALLS");
    for run in runs {
        let mut tools: String = match &run.began.of {
            Some(of) => escape_text(&format!("({} of {of})", run.began.mode)),
            None => escape_text(&run.tools().join(", ")),
        };
        if tools.chars().count() > SHOWN_TOOLS {
            tools = tools.chars().take(SHOWN_TOOLS - 2).chain(" …".chars()).collect();
        }
        let (id, at) = (escape_text(&run.began.run), escape_text(&run.began.at));
        let calls = run.compared.as_ref().map(|compared| compared.answered.to_string());
        let calls = calls.unwrap_or_else(|| run.calls.len().to_string());
        let line = format!("{id:36}  {at:24}  {:9}  {calls:>5}  {tools}", run.status());
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out
}

/// Returns everything that is recorded of a run; long values in part.
pub(super) fn run(reader: &Reader, run: &Run) -> String {
    let mut out = String::new();
    let mut line = |name: &str, text: &str| {
        let _ = writeln!(out, "{name:<9} {text}");
    };
    line("run", &escape_text(&run.began.run));
    line("started", &escape_text(&run.began.at));
    match &run.ended {
        Some(ended) => line("ended", &escape_text(&ended.at)),
        None => line(
            "ended",
            match run.is_stopped {
                Some(true) => "not recorded: its `pml` was stopped; `pml runs resume` goes on",
                Some(false) => "not yet: it is still running",
                None => "not recorded: it is still running, or its `pml` was stopped",
            },
        ),
    }
    let failed = run.ended.as_ref().and_then(|ended| ended.error.as_ref());
    line(
        "status",
        &failed.map_or_else(|| run.status().to_owned(), |error| failure(run.status(), error)),
    );
    for resumed in &run.resumed {
        line("resumed", &escape_text(&resumed.at));
    }
    for erasure in &run.erasures {
        line("erased", &self::erasure(erasure));
    }
    if let Some(compared) = &run.compared {
        for told in self::compared(run, compared) {
            line("replay", &told);
        }
        if let Some(args) = compared.left.as_ref().and_then(|left| left.args.as_ref()) {
            line("arguments", &value(reader, args));
        }
    }
    line("args", &value(reader, &run.began.args));
    line("rules", &value(reader, &run.began.policy));
    out += "program\n";
    for text in program(reader, &run.began.code).lines() {
        let _ = writeln!(out, "  {}", escape_text(text));
    }
    for call in &run.calls {
        out += &self::call(reader, call);
        if let Call::Made(made) = call {
            for changed in run.changes.iter().filter(|changed| changed.call == made.began.call) {
                // A change is recorded before it is made, and a call that did not succeed may not have made it.
                let word = if call.status() == "success" { "changed " } else { "changed?" };
                let _ = writeln!(out, "  {word}  {}", change(&changed.change));
            }
        }
    }
    for approval in &run.approvals {
        let times =
            if approval.count > 1 { format!(", {} times", approval.count) } else { String::new() };
        let _ = writeln!(
            out,
            "asked     {}{times}: {}\n  because   {}\n  arguments {}\n  asked at  {}, answered at {}",
            escape_text(&approval.tool),
            answer(approval),
            escape_text(&approval.reason),
            value(reader, &approval.args),
            escape_text(&approval.asked_at),
            escape_text(&approval.at),
        );
    }
    if let Some(output) = run.ended.as_ref().and_then(|ended| ended.output.as_ref()) {
        let _ = writeln!(out, "result    {}", value(reader, output));
    }
    out
}

/// Says how a replay compares with the run that it replays, in sentences.
pub(super) fn compared(run: &Run, compared: &ReplayCompared) -> Vec<String> {
    let of = escape_text(run.began.of.as_deref().unwrap_or("(not recorded)"));
    let answered = i64::try_from(compared.answered).unwrap_or(i64::MAX);
    let matches = match compared.matches {
        Some(true) => "it ended as recorded",
        Some(false) => "it did not end as recorded",
        None => "its end could not be compared",
    };
    let mut told = vec![format!(
        "of run {of}: {} answered from the record; {matches}",
        counted(answered, "call")
    )];
    for input in &compared.changed {
        let code = input.code.as_ref().map(|code| format!(" [{code}]")).unwrap_or_default();
        let what = match &input.tool {
            Some(tool) => format!("{} {tool}", input.what),
            None => input.what.clone(),
        };
        let now = input.now.as_deref().unwrap_or("gone");
        told.push(escape_text(&format!("changed: {what}, {} → {now}{code}", input.recorded)));
    }
    if let Some(left) = &compared.left {
        let now = left.tool.as_deref().unwrap_or("not made");
        told.push(escape_text(&format!("first difference: call {}, now {now}", left.call)));
    }
    told
}

fn call(reader: &Reader, call: &Call) -> String {
    let mut out = String::new();
    match call {
        Call::Made(made) => {
            let MadeCall { began, repeated, ended, .. } = &**made;
            let error = ended.as_ref().and_then(|ended| ended.error.as_ref());
            let status = error
                .map_or_else(|| call.status().to_owned(), |error| failure(call.status(), error));
            let _ = writeln!(
                out,
                "call {:<4} {} on the {}: {status}\n  because   {}\n  arguments {}",
                escape_text(&began.call),
                escape_text(&began.tool),
                escape_text(&began.routing),
                escape_text(&began.decision),
                value(reader, &began.args),
            );
            for repetition in repeated {
                let (at, why) = (escape_text(&repetition.at), escape_text(&repetition.decision));
                let _ = writeln!(out, "  again at  {at}\n  because   {why}");
            }
            if let Some(output) = ended.as_ref().and_then(|ended| ended.output.as_ref()) {
                let _ = writeln!(out, "  result    {}", value(reader, output));
            }
            let refused = ended.as_ref().and_then(|ended| ended.refused_connections.as_ref());
            if let Some(refused) = refused {
                let _ = writeln!(out, "  refused   {}", escape_text(refused));
            }
        }
        Call::Mocked(mocked) => {
            let status = match &mocked.error {
                Some(error) => failure(call.status(), error),
                None => call.status().to_owned(),
            };
            let _ = writeln!(
                out,
                "call {:<4} {}: {status}\n  because   the record of run {} has it as call {}\n  arguments {}",
                escape_text(&mocked.call),
                escape_text(&mocked.tool),
                escape_text(&mocked.of),
                escape_text(&mocked.of_call),
                value(reader, &mocked.args),
            );
            if let Some(output) = &mocked.output {
                let _ = writeln!(out, "  result    {}", value(reader, output));
            }
        }
        Call::Refused(refused) => {
            let _ = writeln!(
                out,
                "call {:<4} {}: {}\n  arguments {}",
                escape_text(&refused.call),
                escape_text(&refused.tool),
                failure(call.status(), &refused.error),
                value(reader, &refused.args),
            );
        }
    }
    out
}

/// Describes a change of a file or folder.
pub(super) fn change(change: &Change) -> String {
    let before = |kept: &KeptFile| match &kept.not_kept {
        None => format!("{} bytes before", kept.bytes),
        Some(why) => format!("{} bytes before, not kept: {}", kept.bytes, escape_text(why)),
    };
    match change {
        Change::Write { path, before: None, .. } => format!("{}, new", escape_text(path)),
        Change::Write { path, before: Some(kept), .. } => {
            format!("{}, {}", escape_text(path), before(kept))
        }
        Change::Remove { path, before: kept } => {
            format!("{}, removed, {}", escape_text(path), before(kept))
        }
        Change::CreateFolder { path } => format!("{}, new folder", escape_text(path)),
        Change::RemoveFolder { path, .. } => format!("{}, removed folder", escape_text(path)),
        Change::Erased { .. } => "(erased)".to_owned(),
        Change::Move { from, to, .. } => {
            format!("{}, moved to {}", escape_text(from), escape_text(to))
        }
    }
}

/// Says how a question was answered.
pub(super) fn answer(approval: &ApprovalGiven) -> String {
    let answer = match approval.answer {
        Answered::Once => "allowed",
        Answered::Always => "always allowed",
        Answered::LeftOut => "left out",
        Answered::Abort => "denied",
        Answered::None => "not answered",
    };
    match approval.by.as_deref() {
        Some(channel) => format!("{answer}, through the {}", escape_text(channel)),
        None => answer.to_owned(),
    }
}

fn failure(status: &str, error: &Failure) -> String {
    format!("{status}, {}: {}", escape_text(&error.code), shortened(&error.message, SHOWN_VALUE))
}

fn value(reader: &Reader, content: &Content) -> String {
    match reader.content(content) {
        Some(text) => shortened(&text, SHOWN_VALUE),
        None if content.erased => {
            format!("({} bytes, {}, erased)", content.bytes, content.hash)
        }
        None => format!("({} bytes, {}, missing or changed)", content.bytes, content.hash),
    }
}

/// Returns the text of a program, which is stored as a JSON string.
fn program(reader: &Reader, content: &Content) -> String {
    let text = reader.content(content).and_then(|text| serde_json::from_str::<String>(&text).ok());
    let Some(text) = text else { return value(reader, content) };
    let length = text.chars().count();
    match length > SHOWN_PROGRAM {
        true => {
            let head: String = text.chars().take(SHOWN_PROGRAM).collect();
            format!("{head}\n… ({length} characters in total; `--json` has all of them)")
        }
        false => text,
    }
}

/// Says when which values were erased.
pub(in crate::commands) fn erasure(erasure: &ValuesErased) -> String {
    let ValuesErased { at, call, records, .. } = erasure;
    let what = match call {
        Some(call) => format!("the values of call {}", escape_text(call)),
        None => "all values".to_owned(),
    };
    let records = counted(i64::try_from(records.len()).unwrap_or(i64::MAX), "record");
    format!("{}, {what}, in {records}", escape_text(at))
}

/// Returns the result of a verification.
pub(super) fn verified(verified: &Verified) -> String {
    let mut out = String::new();
    for fault in &verified.faults {
        out += &self::fault(fault);
    }
    let (records, runs) = (verified.records, i64::try_from(verified.runs).unwrap_or(i64::MAX));
    let are = match verified.faults.is_empty() {
        true => "are in order",
        false => "form an unbroken chain",
    };
    let _ = writeln!(out, "{} of {} {are}.", counted(records, "record"), counted(runs, "run"));
    if !verified.is_end_known {
        out += "This user's `pml` has not written to this store before, so records that are missing at its end cannot be noticed.\n";
    }
    for erasure in &verified.erasures {
        let run = escape_text(&erasure.run);
        let _ = writeln!(out, "Erased in run {run}: {}.", self::erasure(erasure));
    }
    for earlier in &verified.earlier {
        let _ = writeln!(
            out,
            "An earlier store was here and is gone; its id and its last record: {}.",
            escape_text(earlier)
        );
    }
    out
}

/// Returns the sentence about a fault of the store.
pub(super) fn fault(fault: &Fault) -> String {
    let reason = escape_text(&fault.reason);
    match fault.seq {
        Some(seq) => format!("Record {seq} {reason}.\n"),
        None => format!("The file {reason}.\n"),
    }
}

/// Returns a count with its noun.
pub(super) fn counted(count: i64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
