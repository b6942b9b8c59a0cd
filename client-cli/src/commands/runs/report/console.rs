//! A report as text: a timeline, and what the run used.

use std::fmt::Write as _;

use protocol::escape_text;

use super::resources::Used;
use super::{Counts, Named, PolicyFile, Report, duration, milliseconds, policy_file};
use crate::commands::plan::{Part, Style};
use crate::commands::runs::display::{answer, compared, counted};
use crate::consent::shortened::shortened;
use crate::diagram::display::padded;
use crate::run_store::reader::{Call, Run};
use crate::run_store::record::{Failure, Status};

/// The maximum displayed length of a message or of a name, in characters.
const SHOWN: usize = 400;
/// The maximum number of entries of a list. `--format json` has all of them.
const LISTED: usize = 100;
/// The width of the names of the first lines.
const LABEL: usize = 11;

/// A line of the timeline.
struct Event {
    at: String,
    text: String,
}

/// Returns a report as text. Everything that comes from the record is escaped.
pub(super) fn report(report: &Report<'_>, style: Style) -> String {
    let run = report.run;
    let mut out = String::new();
    opening(report, style, &mut out);
    heading("Timeline", style, &mut out);
    for Event { at, text } in timeline(run, style) {
        let _ = writeln!(out, "  {}  {text}", style.paint(Part::Dim, &offset(run, &at)));
    }
    used(&report.resources.certain, "", style, &mut out);
    let why = ", perhaps: by calls that failed or have no end on record";
    used(&report.resources.possible, why, style, &mut out);
    let not_known = report.resources.not_known.iter();
    let not_known = not_known
        .map(|gap| place(gap.call.as_deref(), gap.tool.as_deref()) + &escape_text(&gap.what));
    list("Not known", not_known, style, &mut out);
    let denials = report.resources.denials.iter().map(|denial| {
        let code = denial.code.as_ref().map_or_else(
            || "connections refused: ".to_owned(),
            |code| format!("{}: ", style.paint(Part::Warning, &escape_text(code))),
        );
        let place = place(denial.call.as_deref(), denial.tool.as_deref());
        format!("{place}{code}{}", shortened(&denial.message, SHOWN))
    });
    list("Denied", denials, style, &mut out);
    out
}

fn opening(report: &Report<'_>, style: Style, out: &mut String) {
    let run = report.run;
    let mut line = |name: &str, text: &str| {
        let _ = writeln!(out, "{} {text}", style.paint(Part::Dim, &padded(name, LABEL)));
    };
    line("run", &escape_text(&run.began.run));
    let status = run.status();
    let shown = style.paint(part(status), status);
    line(
        "status",
        &match run.ended.as_ref().and_then(|ended| ended.error.as_ref()) {
            Some(error) => format!("{shown}, {}", failure(error)),
            None => shown,
        },
    );
    for told in run.compared.iter().flat_map(|compared| self::compared(run, compared)) {
        line("replay", &told);
    }
    line("started", &escape_text(&run.began.at));
    if let Some(ended) = &run.ended {
        line("ended", &escape_text(&ended.at));
        if let Some(took) = milliseconds(&run.began.at, &ended.at) {
            line("duration", &format!("{took} ms"));
        }
    }
    if let Some(PolicyFile { name, hash }) = policy_file(report) {
        let text =
            format!("{} ({}), and the one of the project", escape_text(&name), escape_text(&hash));
        line("policy", &text);
    }
    let Counts { success, error, denied, indeterminate, mocked } = Counts::of(run);
    let calls = counted(i64::try_from(run.calls.len()).unwrap_or(i64::MAX), "call");
    let kinds = [
        (success, "succeeded"),
        (error, "failed"),
        (denied, "denied"),
        (indeterminate, "without an end on record"),
        (mocked, "not made, but mocked"),
    ];
    let kinds: Vec<String> = kinds
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    line("calls", &if kinds.is_empty() { calls } else { format!("{calls}: {}", kinds.join(", ")) });
    line(
        "record",
        &match &report.doubt {
            None => style.paint(Part::Good, "verified"),
            Some(why) => {
                let why = why.trim_end_matches('.');
                style.paint(Part::Warning, &format!("NOT VERIFIED: {}", escape_text(why)))
            }
        },
    );
}

/// Returns what happened, in the order of time.
fn timeline(run: &Run, style: Style) -> Vec<Event> {
    let mut events = vec![Event { at: run.began.at.clone(), text: "the run began".to_owned() }];
    events.extend(
        run.resumed.iter().map(|resumed| Event {
            at: resumed.at.clone(),
            text: "the run was resumed".to_owned(),
        }),
    );
    events.extend(run.approvals.iter().map(|approval| {
        let times =
            if approval.count > 1 { format!(", {} times", approval.count) } else { String::new() };
        let text = format!(
            "? asked about {}{times}: {}, after {} ms",
            shortened(&approval.tool, SHOWN),
            answer(approval),
            milliseconds(&approval.asked_at, &approval.at).unwrap_or_default(),
        );
        Event { at: approval.at.clone(), text }
    }));
    let tools = run.calls.iter().map(|call| escape_text(Named::of(call).tool).chars().count());
    let width = tools.max().unwrap_or(0).min(40);
    events.extend(run.calls.iter().map(|call| Event {
        at: Named::of(call).at.to_owned(),
        text: self::call(call, width, style),
    }));
    // Stable: what has the same time stays in this order.
    events.sort_by(|a, b| a.at.cmp(&b.at));
    if let Some(ended) = &run.ended {
        let status = run.status();
        let text = style.paint(
            part(status),
            &format!(
                "the run {}",
                match ended.status {
                    Status::Success => "completed",
                    Status::Error => "failed",
                }
            ),
        );
        events.push(Event { at: ended.at.clone(), text });
    }
    events
}

fn call(call: &Call, width: usize, style: Style) -> String {
    let (name, status) = (Named::of(call), call.status());
    let icon = match status {
        "success" => "✓",
        "error" => "✗",
        "denied" => "⊘",
        _ => "?",
    };
    let tool = padded(&shortened(name.tool, SHOWN), width);
    let mut text = format!(
        "{} {:<5} {tool}  {}",
        style.paint(part(status), icon),
        escape_text(name.call),
        style.paint(part(status), status)
    );
    match call {
        Call::Made(made) => {
            let _ = write!(text, ", on the {}", escape_text(&made.began.routing));
            if let Some(took) = duration(made) {
                let _ = write!(text, ", {took} ms");
            }
            if let Some(error) = made.ended.as_ref().and_then(|ended| ended.error.as_ref()) {
                let _ = write!(text, ", {}", failure(error));
            }
        }
        Call::Refused(refused) => {
            let _ = write!(text, ", {}", failure(&refused.error));
        }
        Call::Mocked(mocked) => {
            let of = escape_text(&format!(", with call {} of run {}", mocked.of_call, mocked.of));
            text += &of;
            if let Some(error) = &mocked.error {
                let _ = write!(text, ", {}", failure(error));
            }
        }
    }
    text
}

fn failure(error: &Failure) -> String {
    format!("{}: {}", escape_text(&error.code), shortened(&error.message, SHOWN))
}

/// Returns the colour of a status.
fn part(status: &str) -> Part {
    match status {
        "success" | "completed" => Part::Good,
        "running" => Part::Client,
        _ => Part::Warning,
    }
}

/// Returns the time since the beginning of a run, right-aligned.
fn offset(run: &Run, at: &str) -> String {
    let Some(ms) = milliseconds(&run.began.at, at) else { return format!("{:>12}", "?") };
    format!("{:>+10.3} s", ms as f64 / 1_000.0)
}

fn used(used: &Used, why: &str, style: Style, out: &mut String) {
    for (name, entries) in used.lists() {
        let mut name = name.to_owned();
        name[..1].make_ascii_uppercase();
        let entries = entries.iter().map(|entry| shortened(entry, SHOWN));
        list(&format!("{name}{why}"), entries, style, out);
    }
}

fn list(
    name: &str,
    entries: impl ExactSizeIterator<Item = String>,
    style: Style,
    out: &mut String,
) {
    let count = entries.len();
    if count == 0 {
        return;
    }
    heading(name, style, out);
    for entry in entries.take(LISTED) {
        let _ = writeln!(out, "  {entry}");
    }
    if count > LISTED {
        let _ = writeln!(out, "  … and {} more; `--format json` has all of them", count - LISTED);
    }
}

fn heading(name: &str, style: Style, out: &mut String) {
    let _ = writeln!(out, "\n{}", style.paint(Part::Heading, name));
}

fn place(call: Option<&str>, tool: Option<&str>) -> String {
    match (call, tool) {
        (Some(call), Some(tool)) => {
            format!("call {}, {}: ", escape_text(call), shortened(tool, SHOWN))
        }
        _ => "the run: ".to_owned(),
    }
}
