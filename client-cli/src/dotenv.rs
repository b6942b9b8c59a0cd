//! The workspace's `.env`: lines of `NAME=value` that people and many programs share.
//!
//! PML changes only the lines of the variable that it is told of.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Error, ErrorKind, Read as _};

use rustix::fs::{AtFlags, FileType, Mode};

use crate::workspace::Workspace;
use crate::workspace::atomic::{self, Existing};

const NAME: &str = ".env";

/// The largest file that is read, in bytes.
const FILE_LIMIT: u64 = 256 * 1024;

/// Reads the file; one that is missing is empty.
///
/// # Errors
/// Returns why it cannot be changed: a link, no regular file, too large, not text.
pub(crate) fn read(workspace: &Workspace) -> Result<String, Error> {
    let refused = |reason: &str| Err(Error::new(ErrorKind::InvalidInput, reason));
    match rustix::fs::statat(workspace.directory(), NAME, AtFlags::SYMLINK_NOFOLLOW) {
        Err(rustix::io::Errno::NOENT) => return Ok(String::new()),
        Err(errno) => return Err(errno.into()),
        Ok(facts) if FileType::from_raw_mode(facts.st_mode) != FileType::RegularFile => {
            return refused("it is a link or no file; put the file itself there");
        }
        Ok(_) => {}
    }
    let opened = workspace.open_file(NAME).map_err(|error| Error::other(error.to_string()))?;
    let mut text = String::new();
    File::from(opened.fd).take(FILE_LIMIT + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_LIMIT { refused("it has more than 256 KiB") } else { Ok(text) }
}

/// Writes the file, whole or not at all, for its owner alone.
///
/// # Errors
/// Returns what the system said.
pub(crate) fn write(workspace: &Workspace, text: &str) -> Result<(), Error> {
    let mode = Some(Mode::from_raw_mode(0o600));
    atomic::write(workspace.directory(), NAME, text.as_bytes(), mode, Existing::Replaced)
}

/// Returns the text with a variable set: in the place of its last line, else at the
/// end. `None` when no line can carry the value.
pub(crate) fn set(text: &str, name: &str, value: &str) -> Option<String> {
    let line = format!("{name}={}", quoted(value)?);
    let lines: Vec<&str> = text.lines().collect();
    let last = lines.iter().rposition(|line| variable(line) == Some(name));
    let mut out = String::with_capacity(text.len() + line.len() + 1);
    for (index, old) in lines.iter().enumerate() {
        if Some(index) == last {
            out += &line;
        } else if variable(old) == Some(name) {
            // An earlier value of the same variable counts for nobody, but would stay readable.
            continue;
        } else {
            out += old;
        }
        out.push('\n');
    }
    if last.is_none() {
        out += &line;
        out.push('\n');
    }
    Some(out)
}

/// Returns the text without a variable, or `None` when it has no such line.
pub(crate) fn unset(text: &str, name: &str) -> Option<String> {
    let is_it = |line: &&str| variable(line) == Some(name);
    text.lines().find(is_it)?;
    Some(text.lines().filter(|line| !is_it(line)).flat_map(|line| [line, "\n"]).collect())
}

/// Reads `NAME=value` lines; quotes around a value are taken off.
pub(crate) fn parse(text: &str) -> BTreeMap<String, String> {
    let mut out = BTreeMap::new();
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
        let line = line.strip_prefix("export ").unwrap_or(line);
        let Some((name, value)) = line.split_once('=') else { continue };
        let value = value.trim();
        let quoted = ['"', '\'']
            .iter()
            .find_map(|quote| value.strip_prefix(*quote).and_then(|v| v.strip_suffix(*quote)));
        let plain = quoted.unwrap_or_else(|| value.split(" #").next().unwrap_or("").trim_end());
        out.insert(name.trim().to_owned(), plain.to_owned());
    }
    out
}

/// Returns the variable that a line sets.
fn variable(line: &str) -> Option<&str> {
    let line = line.trim();
    let line = line.strip_prefix("export ").unwrap_or(line);
    let (name, _) = line.split_once('=').filter(|_| !line.starts_with('#'))?;
    Some(name.trim())
}

/// Writes a value so that every reader of such files finds the same one.
fn quoted(value: &str) -> Option<String> {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-_./:+=@,%".contains(&b);
    if value.contains(['\n', '\r', '\0']) {
        None
    } else if value.bytes().all(is_plain) {
        Some(value.to_owned())
    } else if !value.contains('\'') {
        Some(format!("'{value}'"))
    } else if !value.contains(['"', '\\', '$', '`']) {
        Some(format!("\"{value}\""))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn env_files_are_read() {
        let read = parse("# c\nA=1\nexport B = \"two # 2\"\nC='3' \nD=4 # four\nnoise\n");
        let pairs: Vec<(&str, &str)> = read.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        assert_eq!(pairs, [("A", "1"), ("B", "two # 2"), ("C", "3"), ("D", "4")]);
    }

    #[test]
    fn only_the_lines_of_the_variable_change() {
        let before = "# mine\n\nA=1\nexport KEY = old\nB='x'\nKEY=older # note\n#KEY=comment";
        let after = set(before, "KEY", "new").unwrap();
        assert_eq!(after, "# mine\n\nA=1\nB='x'\nKEY=new\n#KEY=comment\n");
        assert_eq!(set("A=1", "KEY", "x").unwrap(), "A=1\nKEY=x\n");
        assert_eq!(set("", "KEY", "x").unwrap(), "KEY=x\n");
        assert_eq!(unset(&after, "KEY").unwrap(), "# mine\n\nA=1\nB='x'\n#KEY=comment\n");
        assert_eq!(unset(&after, "KE"), None);
        assert_eq!(unset("", "KEY"), None);
    }

    #[test]
    fn a_value_reads_back_as_it_was_or_is_refused() {
        for value in
            ["abc", "a b", " a ", "a # b", "a\"b", "a'b", "$x`y`", "a\\nb", "=", "'", "\"", "ü"]
        {
            let text = set("", "KEY", value).expect(value);
            assert_eq!(parse(&text)["KEY"], value, "{text}");
        }
        for value in ["a\nb", "a\rb", "a\0b", "a'b\"c", "a'b$c"] {
            assert_eq!(set("", "KEY", value), None, "{value:?}");
        }
    }
}
