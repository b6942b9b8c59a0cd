//! The first line of a script, which names its interpreter.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

/// How many bytes of a script the kernel reads to find its interpreter.
const FIRST_LINE: u64 = 256;

/// Options of `env` after which its argument is split into words, up to the first of these words.
const SPLITS: &[&str] = &["--split-string=", "--split-string", "-S", "-iS", "-vS"];

/// Options of `env` with their value in the same word.
const WITH_VALUE: &[&str] = &["-u", "--unset=", "-C", "--chdir="];

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

/// Returns the program that `env` would run with this argument; `None` if that cannot be determined.
pub(super) fn named_for_env(argument: &str) -> Option<String> {
    // `-S` splits its argument into words, and these characters change how.
    let is_plain = |word: &&str| !word.contains(['"', '\'', '\\', '$', '#']);
    let mut words = argument.split([' ', '\t']).filter(|word| !word.is_empty());
    let mut next = || words.next().filter(is_plain);
    while let Some(word) = next() {
        let split = SPLITS.iter().find_map(|option| word.strip_prefix(option));
        match split.unwrap_or(word) {
            "" | "-" | "--" | "-i" | "-v" | "--ignore-environment" | "--debug" => {}
            "-u" | "--unset" | "-C" | "--chdir" => {
                next()?;
            }
            word if WITH_VALUE.iter().any(|option| word.starts_with(option)) => {}
            // `env` would look for the program on this `PATH`.
            word if word.starts_with('-') || word.starts_with("PATH=") => return None,
            word if word.contains('=') => {}
            program => return Some(program.to_owned()),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_of_env_is_found_behind_its_options() {
        for (argument, program) in [
            ("node", Some("node")),
            ("-S node --no-warnings", Some("node")),
            ("-Snode -x", Some("node")),
            ("-vS node", Some("node")),
            ("--split-string=node -x", Some("node")),
            ("--split-string node", Some("node")),
            ("-S A=b node", Some("node")),
            ("-S -i A=b -- node", Some("node")),
            ("-S -u NAME node", Some("node")),
            ("-S --unset NAME node", Some("node")),
            ("-S -uNAME --unset=NAME node", Some("node")),
            ("-S -C dir node", Some("node")),
            ("-S --chdir=dir -Cdir node", Some("node")),
            ("-S node --title='a b'", Some("node")),
            ("", None),
            ("-S -u", None),
            ("-S -u node", None),
            ("-S --unknown node", None),
            ("-S PATH=/tmp node", None),
            ("-S 'PATH=/tmp' node", None),
            (r"-S -u A\_other node", None),
            ("-S ${PROGRAM} node", None),
        ] {
            assert_eq!(named_for_env(argument).as_deref(), program, "{argument}");
        }
    }
}
