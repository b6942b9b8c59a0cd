//! Reads and edits the workspace's `.env`, which people and other programs edit too.
//!
//! An edit changes only the lines of the given variable.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Error, ErrorKind, Read as _};

use adotenv::{Edit, InsertPosition, Severity};
use execution::files::atomic::{self, Existing};
use rustix::fs::{AtFlags, FileType, Mode};

use crate::workspace::Workspace;

const NAME: &str = ".env";

/// The maximum file size in bytes.
const FILE_LIMIT: u64 = 256 * 1024;

/// Reads the file; a missing one is empty.
///
/// # Errors
/// Returns an error if it is not a regular file, is too large or is not UTF-8.
pub(crate) fn read(workspace: &Workspace) -> Result<String, Error> {
    let refused = |reason: &str| Err(Error::new(ErrorKind::InvalidInput, reason));
    // A link is refused even if it stays in the workspace: `write` would replace it with a file.
    match rustix::fs::statat(workspace.directory(), NAME, AtFlags::SYMLINK_NOFOLLOW) {
        Err(rustix::io::Errno::NOENT) => return Ok(String::new()),
        Err(errno) => return Err(errno.into()),
        Ok(facts) if FileType::from_raw_mode(facts.st_mode) != FileType::RegularFile => {
            return refused(
                "it is a symbolic link or not a regular file; replace it with a regular file",
            );
        }
        Ok(_) => {}
    }
    let opened = workspace.open_file(NAME).map_err(|error| Error::other(error.to_string()))?;
    let mut text = String::new();
    File::from(opened.fd).take(FILE_LIMIT + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_LIMIT { refused("it has more than 256 KiB") } else { Ok(text) }
}

/// Writes the file atomically, readable by its owner only.
///
/// # Errors
/// Returns the system's error.
pub(crate) fn write(workspace: &Workspace, text: &str) -> Result<(), Error> {
    let mode = Some(Mode::from_raw_mode(0o600));
    atomic::write_durably(workspace.directory(), NAME, text.as_bytes(), mode, Existing::Replaced)
}

/// Returns the text with a variable set: it replaces the last declaration, or is appended. Everything else is
/// preserved, including a comment after the value. `None` if no line can contain the value.
pub(crate) fn set(text: &str, name: &str, value: &str) -> Option<String> {
    // Environment variables cannot contain NUL.
    if value.contains('\0') {
        return None;
    }
    let (document, _) = adotenv::parse(text);
    let last = document.get_all(name).last().map(|entry| entry.id());
    let mut edits = Vec::new();
    for item in document.items() {
        let Some(entry) = item.entry().filter(|entry| entry.key() == name) else { continue };
        edits.push(if Some(entry.id()) == last {
            Edit::Set { entry: entry.id(), value }
        } else {
            // Earlier declarations have no effect, but the old secret would stay readable in them.
            Edit::Remove { item: item.id() }
        });
    }
    if last.is_none() {
        edits.push(Edit::Insert { key: name, value: Some(value), position: InsertPosition::End });
    }
    let mut out = document.edit(&edits).ok()?.into_string();
    // The library keeps the quotes of the old value. Between double quotes, other parsers would
    // expand `$`, so the value is written again in the common form.
    if let Some(token) = quoted(value) {
        let (document, _) = adotenv::parse(&out);
        let place = document.get_entry(name)?.value_span()?;
        out.replace_range(place, &token);
    }
    if !out.ends_with('\n') {
        out.push('\n');
    }
    // Writing and parsing must agree: a value that would be read differently is refused.
    let reads_back = parse(&out).get(name).is_some_and(|read| read == value);
    reads_back.then_some(out)
}

/// Returns the text without a variable, or `None` if it has no such line.
pub(crate) fn unset(text: &str, name: &str) -> Option<String> {
    let (document, _) = adotenv::parse(text);
    // All declarations: without the last one, an earlier one would take effect.
    let is_it = |item: &adotenv::Item<'_>| item.entry().is_some_and(|entry| entry.key() == name);
    let edits: Vec<Edit<'_>> =
        document.items().filter(is_it).map(|item| Edit::Remove { item: item.id() }).collect();
    if edits.is_empty() {
        return None;
    }
    document.edit(&edits).ok().map(|edited| edited.into_string())
}

/// Parses the variables. References such as `$HOME` are not expanded, so that a file in the workspace cannot read other
/// variables. Of several declarations the last one applies. An invalid line is skipped.
pub(crate) fn parse(text: &str) -> BTreeMap<String, String> {
    let (document, _) = adotenv::parse(text);
    let entries = document.effective_entries();
    entries.map(|entry| (entry.key().to_owned(), entry.value().to_owned())).collect()
}

/// Returns the numbers of the lines that cannot be parsed.
pub(crate) fn broken_lines(text: &str) -> Vec<usize> {
    let (_, diagnostics) = adotenv::parse(text);
    let broken = diagnostics.iter().filter(|it| it.severity() == Severity::Error);
    broken.map(|diagnostic| diagnostic.line()).collect()
}

/// Formats a value so that all parsers of `.env` read it in the same way: plain, or in single quotes. `None` for a
/// value that needs escapes, which parsers treat differently.
fn quoted(value: &str) -> Option<String> {
    // Without quotes, a space ends the value for some parsers, and `#` begins a comment.
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-_./:+=@,%".contains(&b);
    if value.bytes().all(is_plain) {
        Some(value.to_owned())
    } else if !value.contains(['\'', '\n', '\r', '\\']) {
        Some(format!("'{value}'"))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn reads(text: &str, expected: &[(&str, &str)]) {
        let read = parse(text);
        let pairs: Vec<(&str, &str)> = read.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        assert_eq!(pairs, expected, "{text}");
    }

    #[test]
    fn env_files_are_read() {
        let text = "# c\nA=1\nexport B = \"two # 2\"\nC='3' \nD=4 # four\nnoise\n";
        reads(text, &[("A", "1"), ("B", "two # 2"), ("C", "3"), ("D", "4")]);
        reads("KEY=\"abc\" # note\n", &[("KEY", "abc")]);
        reads("KEY='abc' # note", &[("KEY", "abc")]);
        reads("A=\"one\ntwo\" # both\nB='x\ny'\n", &[("A", "one\ntwo"), ("B", "x\ny")]);
        reads("A=\"a\\nb\"\nB='a\\nb'\n", &[("A", "a\nb"), ("B", "a\\nb")]);
        reads("A=a#b\r\nB=\r\nC=\"\"\r\n", &[("A", "a#b"), ("B", ""), ("C", "")]);
        reads("\u{feff}A=1\nA=2\n", &[("A", "2")]);
        reads("A=a=b==\nB = c\n", &[("A", "a=b=="), ("B", "c")]);
    }

    /// A file in the workspace cannot read the value of another variable.
    #[test]
    fn nothing_is_substituted() {
        for value in ["$HOME", "${HOME}", "\"$HOME\"", "'$HOME'", "$(id)", "`id`", "a$HOME$b"] {
            let read = &parse(&format!("HERE=1\nA={value}\n"))["A"];
            assert_eq!(read, value.trim_matches(['"', '\'']), "{value}");
        }
    }

    /// An invalid line is skipped and does not affect other lines.
    #[test]
    fn an_invalid_line_is_skipped_and_reported() {
        let text = "A=1\nB=\"open\nC='x'y\nD=4\n= 5\n";
        reads(text, &[("A", "1"), ("D", "4")]);
        assert_eq!(broken_lines(text), [2, 3, 5]);
        assert_eq!(broken_lines("A=1\n# x\n\nB=2"), [0; 0]);
    }

    #[test]
    fn only_the_lines_of_the_variable_change() {
        let before = "# mine\n\nA=1\nKEY = old\nB='x'  # b\nexport KEY=older # note\n#KEY=comment";
        let after = set(before, "KEY", "new").unwrap();
        assert_eq!(after, "# mine\n\nA=1\nB='x'  # b\nexport KEY=new # note\n#KEY=comment\n");
        assert_eq!(set("A=1", "KEY", "x").unwrap(), "A=1\nKEY=x\n");
        assert_eq!(set("", "KEY", "x").unwrap(), "KEY=x\n");
        assert_eq!(set("KEY=\"a\nb\"\nB=1\n", "KEY", "x").unwrap(), "KEY=x\nB=1\n");
        let without = unset(&after, "KEY").unwrap();
        assert_eq!(without, "# mine\n\nA=1\nB='x'  # b\n#KEY=comment\n");
        assert_eq!(unset(&after, "KE"), None);
        assert_eq!(unset("", "KEY"), None);
    }

    #[test]
    fn a_value_reads_back_as_it_was_or_is_refused() {
        for value in [
            "abc",
            "a b",
            " a ",
            "a # b",
            "a\"b",
            "a'b",
            "$x`y`",
            "a\\nb",
            "=",
            "'",
            "\"",
            "ü",
            "#",
            "a\nb",
            "a\rb",
            "a'b\"c",
            "a'b$c",
            "a\\",
            "'\"`$\\n#\n\r\t",
            "-----BEGIN KEY-----\nx\n",
        ] {
            for before in ["", "KEY='old' # note\n", "A=1\nKEY=\"old\"\nB=2"] {
                let text = set(before, "KEY", value).expect(value);
                assert_eq!(parse(&text)["KEY"], value, "{text}");
            }
        }
        assert_eq!(set("", "KEY", "a\0b"), None);
        // Single quotes, so that no other parser expands it.
        assert_eq!(set("", "KEY", "a$b").unwrap(), "KEY='a$b'\n");
    }

    /// Arbitrary text does not cause a panic, and `set` keeps all other variables.
    #[test]
    fn any_text_is_read() {
        let pieces =
            ["A", "=", "\"", "'", "\\", "\n", "\r", " ", "#", "$", "{", "export ", "ü", "\0", "`"];
        // A linear congruential generator, so that a failure can be repeated.
        let mut state = 1_usize;
        for _ in 0..20_000 {
            let mut text = String::new();
            for _ in 0..state % 12 {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                text += pieces[(state >> 33) % pieces.len()];
            }
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let before = parse(&text);
            broken_lines(&text);
            if let Some(after) = set(&text, "KEY", "x y") {
                assert_eq!(parse(&after)["KEY"], "x y", "{text:?}");
                for (name, value) in before {
                    assert!(name == "KEY" || parse(&after)[&name] == value, "{text:?}");
                }
            }
        }
    }
}
