//! The calls in which a changed program differs from a record.

use analysis::{Analysis, Bundle};
use protocol::escape_text;
use protocol::redaction::keys_in_use;
use serde_json::{Value, json};

use crate::consent::shortened::shortened;
use crate::run::replay::{Departure, Replayed};
use crate::run_store::reader::{Call, Reader, Run};

/// The maximum length of arguments in a line, in characters.
const SHOWN_ARGUMENTS: usize = 400;
/// The maximum number of places and of calls that are shown.
const SHOWN: usize = 20;

/// How the calls of a changed program differ.
pub(super) struct Calls {
    /// The first call that differs.
    pub(super) departure: Option<Departed>,
    /// The calls of the record that it has not made.
    pub(super) not_made: Vec<Recorded>,
}

/// A call of the record.
pub(super) struct Recorded {
    call: u64,
    tool: String,
    /// The JSON text of its arguments; `None` if it is missing.
    arguments: Option<String>,
}

/// The first call that differs.
pub(super) struct Departed {
    call: u64,
    recorded: Option<Recorded>,
    /// The tool that is called now, with the JSON text of its arguments.
    now: Option<(String, String)>,
    /// Where it is called: one place if that is known, otherwise every call of the tool.
    places: Vec<Place>,
}

/// A place in the program.
struct Place {
    file: Option<String>,
    line: u32,
    column: u32,
}

/// Returns how the calls of a changed program differ.
pub(super) fn report(
    reader: &Reader,
    run: &Run,
    replayed: &Replayed,
    analysis: &Analysis,
    program: &Bundle,
) -> Calls {
    let recorded = |call: u64| recorded(reader, run, call);
    let departure = replayed.left.as_ref().map(|left| {
        let places = places(analysis, left);
        let now = left.now.as_ref().map(|(tool, arguments)| {
            (tool.clone(), keys_in_use().text(&arguments.to_string()).into_owned())
        });
        let places = places.into_iter().map(|(line, column)| place(program, line, column));
        let (call, places) = (left.call, places.collect());
        Departed { call, recorded: recorded(call), now, places }
    });
    Calls {
        departure,
        not_made: replayed.not_made.iter().filter_map(|call| recorded(*call)).collect(),
    }
}

/// Returns where a call is made: its place if that is known, otherwise those of all calls of the tool.
fn places(analysis: &Analysis, left: &Departure) -> Vec<(u32, u32)> {
    let Some((tool, _)) = &left.now else { return Vec::new() };
    let tasks = analysis.structure.tasks().filter(|task| task.tool.as_str() == tool);
    let tasks = tasks.map(|task| (task.line, task.column));
    match left.place {
        // The engine's place is within the call that the analysis has found, if it has.
        Some((line, column)) => {
            let found = tasks.filter(|(other, begin)| *other == line && *begin <= column);
            vec![found.max().unwrap_or((line, column))]
        }
        // The program has caught its error.
        None => {
            let mut places: Vec<_> = tasks.collect();
            places.dedup();
            places
        }
    }
}

fn place(program: &Bundle, line: u32, column: u32) -> Place {
    match program.origin(line, column) {
        Some(origin) => {
            Place { file: Some(origin.file.to_owned()), line: origin.line, column: origin.column }
        }
        None => Place { file: None, line, column },
    }
}

/// Returns a call of the program itself.
fn recorded(reader: &Reader, run: &Run, number: u64) -> Option<Recorded> {
    let name = number.to_string();
    run.calls.iter().find_map(|call| {
        let (call, tool, arguments) = match call {
            Call::Made(made) => (&made.began.call, &made.began.tool, &made.began.args),
            Call::Refused(refused) => (&refused.call, &refused.tool, &refused.args),
            Call::Mocked(mocked) => (&mocked.call, &mocked.tool, &mocked.args),
        };
        (*call == name).then(|| Recorded {
            call: number,
            tool: tool.clone(),
            arguments: reader.content(arguments),
        })
    })
}

impl Calls {
    /// Returns the lines for a person.
    pub(super) fn text(&self) -> String {
        let mut out = String::new();
        if let Some(departed) = &self.departure {
            out += &departed.text();
        }
        for call in self.not_made.iter().take(SHOWN) {
            out += &format!("not made: call {}, {}\n", call.call, call.text());
        }
        if let Some(more) = self.not_made.len().checked_sub(SHOWN).filter(|more| *more > 0) {
            out += &format!("not made: {more} more calls\n");
        }
        out
    }
}

impl Recorded {
    fn text(&self) -> String {
        shown_call(&self.tool, self.arguments.as_deref())
    }

    /// Returns it as JSON.
    pub(super) fn to_json(&self) -> Value {
        json!({ "call": self.call, "tool": self.tool, "arguments": parsed(self.arguments.as_deref()) })
    }
}

impl Departed {
    fn text(&self) -> String {
        let place = |place: &Place| {
            let file = place.file.as_deref().map(|file| format!("{}:", escape_text(file)));
            format!("{}{}:{}", file.unwrap_or_default(), place.line, place.column)
        };
        let places: Vec<String> = self.places.iter().take(SHOWN).map(place).collect();
        let at = match places.len() {
            0 => String::new(),
            1 => format!(", at {}", places[0]),
            _ => format!(", at one of {}", places.join(", ")),
        };
        let was = self.recorded.as_ref().map_or("none".to_owned(), Recorded::text);
        let now = self.now.as_ref();
        let now = now.map_or("none".to_owned(), |(tool, text)| shown_call(tool, Some(text)));
        format!("first difference: call {}{at}\n  recorded  {was}\n  now       {now}\n", self.call)
    }

    /// Returns it as JSON.
    pub(super) fn to_json(&self) -> Value {
        let places = self.places.iter().map(|place| {
            let mut shown = json!({ "line": place.line, "column": place.column });
            if let Some(file) = &place.file {
                shown["file"] = json!(file);
            }
            shown
        });
        json!({
            "call": self.call,
            "recorded": self.recorded.as_ref().map(Recorded::to_json),
            "now": self.now.as_ref().map(|(tool, text)| json!({ "tool": tool, "arguments": parsed(Some(text)) })),
            "places": places.collect::<Vec<_>>(),
        })
    }
}

fn shown_call(tool: &str, arguments: Option<&str>) -> String {
    let arguments = arguments
        .map_or("(arguments not known)".to_owned(), |text| shortened(text, SHOWN_ARGUMENTS));
    format!("{} {arguments}", escape_text(tool))
}

fn parsed(text: Option<&str>) -> Value {
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}
