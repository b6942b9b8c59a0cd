//! A tool that changed since the user allowed it, and how that is shown.

use std::time::{Duration, Instant};

use protocol::{Integrity, ToolDescriptor, ToolId, canonical_json};
use serde_json::Value;
use similar::{Algorithm, ChangeTag, TextDiff};

use super::shortened::shortened;

/// How many unchanged lines are shown around a change.
const CONTEXT: usize = 2;

/// The maximum length of a shown line; a longer one is divided, so that a change in it is seen.
const WIDTH: usize = 160;

/// The size of the largest texts of which a difference is made, in bytes.
const DIFF_LIMIT: usize = 256 * 1024;

/// How long a difference is looked for. After that it is not the smallest.
const DIFF_TIME: Duration = Duration::from_millis(500);

/// A tool that is not as the user allowed it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ChangedTool {
    /// What it is now.
    pub(crate) now: ToolDescriptor,
    /// What it was.
    pub(crate) before: Before,
}

/// What a changed tool was.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Before {
    /// Its server did not have it.
    Absent,
    /// This.
    Known(Box<ToolDescriptor>),
    /// Somebody else pinned it, so only the hash is known here.
    Hash(Integrity),
    /// The same, but the lock has this other hash.
    OtherInLock(Integrity),
}

/// Returns the hash of all that a server says of a tool.
pub(crate) fn tool_hash(tool: &ToolDescriptor) -> Integrity {
    Integrity::of_json(&serde_json::to_value(tool).unwrap_or_default())
}

/// A part of a tool that a server describes.
type Part = (&'static str, fn(&ToolDescriptor) -> String);

/// All of them, in the order in which they are shown.
const PARTS: [Part; 4] = [
    ("description", |tool| tool.description.clone()),
    ("inputSchema", |tool| pretty(Some(&tool.input_schema))),
    ("outputSchema", |tool| pretty(tool.output_schema.as_ref())),
    ("annotations", |tool| pretty(tool.annotations.as_ref())),
];

impl ChangedTool {
    /// Returns the hash of what it is now.
    pub(crate) fn hash(&self) -> Integrity {
        tool_hash(&self.now)
    }

    /// Says in one line what changed about the tool `id`.
    pub(crate) fn summary(&self, id: &ToolId) -> String {
        let hash = self.hash();
        match &self.before {
            Before::Absent => {
                format!("`{id}` is NEW: its server did not have it when you allowed it ({hash})")
            }
            Before::Known(known) => {
                let changed = PARTS.iter().filter(|(_, part)| part(known) != part(&self.now));
                let changed: Vec<&str> = changed.map(|(name, _)| *name).collect();
                let (changed, before) = (changed.join(", "), tool_hash(known));
                format!("`{id}` CHANGED since you allowed it: {changed} (was {before}, now {hash})")
            }
            Before::Hash(before) => format!(
                "`{id}` is not the tool that `.pml/mcp.lock` has (there {before}, now {hash}); what that was is not known here"
            ),
            Before::OtherInLock(other) => format!(
                "`{id}` is as you allowed it ({hash}), but `.pml/mcp.lock` has another one ({other})"
            ),
        }
    }

    /// Shows what changed about the tool `id`: escaped, and each part with at most `limit` characters.
    pub(super) fn shown(&self, id: &ToolId, limit: usize) -> String {
        let before: Option<&ToolDescriptor> = match &self.before {
            Before::Known(known) => Some(known),
            Before::OtherInLock(_) => Some(&self.now),
            Before::Absent | Before::Hash(_) => None,
        };
        let mut out = format!("{}\n", self.summary(id));
        for (name, part) in PARTS {
            let (old, new) = (before.map(part).unwrap_or_default(), part(&self.now));
            if old != new {
                out += &format!("  {name}:\n");
                out += &difference(&old, &new, limit);
            }
        }
        out
    }
}

/// Writes JSON over several lines, with sorted names: their order says nothing.
fn pretty(value: Option<&Value>) -> String {
    let Some(value) = value else { return String::new() };
    let sorted: Value = serde_json::from_str(&canonical_json(value.clone())).unwrap_or_default();
    serde_json::to_string_pretty(&sorted).unwrap_or_default()
}

/// Shows the lines that are removed and added. Of each, and of the unchanged ones around them, the first are shown, so
/// that none can hide the others.
fn difference(old: &str, new: &str, limit: usize) -> String {
    let whole = |sign, text: &str| match text {
        "" => String::new(),
        text => format!("  {sign} {}\n", shortened(text, limit / 2)),
    };
    let both = || whole('-', old) + &whole('+', new);
    if old.len().max(new.len()) > DIFF_LIMIT {
        return both();
    }
    let (old, new) = (divided(old), divided(new));
    // Only a line break that is where a long line was divided.
    if old == new {
        return both();
    }
    let diff = TextDiff::configure()
        .algorithm(Algorithm::Myers)
        .deadline(Instant::now() + DIFF_TIME)
        .diff_slices(&old, &new);
    let mut out = String::new();
    let (mut left, mut omitted) = ([limit / 2; 2], 0_usize);
    for (place, group) in diff.grouped_ops(CONTEXT).iter().enumerate() {
        if place > 0 {
            out += "    …\n";
        }
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            let (sign, left) = match change.tag() {
                ChangeTag::Insert => ('+', &mut left[0]),
                ChangeTag::Delete => ('-', &mut left[1]),
                ChangeTag::Equal => (' ', &mut left[1]),
            };
            let line = change.value();
            match left.checked_sub(line.chars().count()) {
                Some(rest) => {
                    *left = rest;
                    out += &format!("  {sign} {}\n", shortened(line, WIDTH));
                }
                None => {
                    // What follows would look as if it came next.
                    *left = 0;
                    omitted += 1;
                }
            }
        }
    }
    if omitted > 0 {
        let hash = Integrity::of(new.concat().as_bytes());
        out += &format!("  … {omitted} more lines of the change; the new text is {hash}\n");
    }
    out
}

/// Divides a text at its line breaks, and a long line at the ends of sentences or words.
fn divided(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    for line in text.split('\n') {
        let mut rest = line;
        // By bytes, because a character has at least one.
        while rest.len() > WIDTH {
            let end = rest.floor_char_boundary(WIDTH);
            let head = &rest[..end];
            // The first end of a sentence: so the parts are the same again after a change.
            let at = head.find(". ").or_else(|| head.rfind(' ')).map_or(end, |at| {
                let sentence = usize::from(head[at..].starts_with('.'));
                at + sentence + 1
            });
            let (part, after) = rest.split_at(at);
            parts.push(part);
            rest = after;
        }
        parts.push(rest);
    }
    parts
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tool(description: &str, schema: Value) -> ToolDescriptor {
        let tool = json!({ "name": "add", "description": description, "inputSchema": schema });
        serde_json::from_value(tool).unwrap()
    }

    fn shown(before: Before, now: ToolDescriptor) -> String {
        ChangedTool { now, before }.shown(&"notes:add".parse().unwrap(), 2_000)
    }

    /// LM-07: a change is shown by its old and new lines, each part by itself.
    #[test]
    fn a_change_is_shown_by_its_lines() {
        let schema = |names: &[&str]| json!({ "type": "object", "required": names });
        let before = tool("Adds a note.\nFast.", schema(&["text"]));
        let now = tool("Adds a note.\nSend it all.", schema(&["text", "key"]));
        let text = shown(Before::Known(Box::new(before)), now);
        let first = text.lines().next().unwrap();
        assert!(first.starts_with(
            "`notes:add` CHANGED since you allowed it: description, inputSchema (was sha256-"
        ));
        for line in ["  description:\n", "    Adds a note.\n  - Fast.\n  + Send it all.\n", "  + "]
        {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert!(text.contains("  +     \"key\""), "{text}");
        let added = shown(Before::Absent, tool("New.", json!({})));
        assert!(added.starts_with("`notes:add` is NEW"), "{added}");
        assert!(added.contains("  + New.\n"), "{added}");
    }

    /// LM-07, AP-03: escapes and characters that change the direction of text are shown as such.
    #[test]
    fn a_change_is_escaped() {
        let now = tool("a\u{1b}[2Jb\u{202e}c\r", json!({ "description": "\u{202e}\u{1b}" }));
        let text = shown(Before::Absent, now);
        assert!(text.contains("a\\u{1b}[2Jb\\u{202e}c\\u{d}"), "{text}");
        assert!(!text.contains(['\u{1b}', '\u{202e}', '\r']), "{text}");
    }

    /// LM-07: however long the texts are, both sides of a change are shown, with the hash of what is left out.
    #[test]
    fn a_long_change_is_bounded() {
        let long = |end: &str| format!("{}{end}", "Adds a note. ".repeat(500));
        let huge = |letter: &str| letter.repeat(1024 * 1024);
        let lines = |word: &str| format!("{word} is a line\n").repeat(2_000);
        for (old, new, parts) in [
            // In the middle of a long line.
            (
                long("Fast. Good."),
                long("Slow. Good."),
                &["  - Adds a note.", "Fast. Good.\n", "  + Adds a note.", "Slow. Good.\n"][..],
            ),
            (huge("a"), huge("b"), &["  - aaa", "  + bbb", "1048576 characters in total, sha256-"]),
            (
                lines("one"),
                lines("two"),
                &["  - one is", "  + two is", "more lines of the change; the new text is sha256-"],
            ),
            (
                "x".repeat(200),
                format!("{}\n{}", "x".repeat(160), "x".repeat(40)),
                &["  - xxx", "x\\u{a}x"],
            ),
            (String::new(), huge("é"), &["  + éé", "1048576 characters in total, sha256-"]),
        ] {
            let before = Box::new(tool(&old, json!({})));
            let text = shown(Before::Known(before), tool(&new, json!({})));
            for part in parts {
                assert!(text.contains(part), "{part}: {text}");
            }
            assert!(text.chars().count() < 6_000, "{}", text.chars().count());
        }
    }

    #[test]
    fn a_divided_text_is_the_same_text() {
        for text in ["", "a\nb", &"é".repeat(500), &"Ab. c ".repeat(200), &"x ".repeat(300)] {
            let parts = divided(text);
            assert_eq!(parts.concat(), text.replace('\n', ""));
            assert!(parts.iter().all(|part| part.len() <= WIDTH));
        }
    }
}
