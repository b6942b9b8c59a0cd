//! The first line of a script, which names its interpreter.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

/// How many bytes of a script the kernel reads to find its interpreter.
const FIRST_LINE: u64 = 256;

/// Parses the first line of a script as the kernel does; returns the interpreter and its argument.
pub(super) fn first_line(file: &Path) -> Option<(String, String)> {
    let mut start = Vec::new();
    File::open(file).ok()?.take(FIRST_LINE).read_to_end(&mut start).ok()?;
    let line = start.strip_prefix(b"#!")?;
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let line = line.trim_matches([' ', '\t', '\r']);
    let (interpreter, argument) = line.split_once([' ', '\t']).unwrap_or((line, ""));
    Some((interpreter.to_owned(), argument.trim_matches([' ', '\t']).to_owned()))
}

/// Returns the program that `env` would run with this argument.
pub(super) fn named_for_env(argument: &str) -> Option<String> {
    // `env` takes options and assignments before the program; `-S` splits its argument into words.
    let words = argument.split([' ', '\t']).filter(|word| !word.is_empty());
    let mut words = words.map(|word| {
        let split = word.strip_prefix("--split-string=").or_else(|| word.strip_prefix("-S"));
        split.unwrap_or(word)
    });
    let name = words.find(|word| !word.is_empty() && !word.starts_with('-') && !word.contains('='));
    name.map(str::to_owned)
}
