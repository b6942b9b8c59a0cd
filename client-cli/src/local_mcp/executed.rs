//! Which of the files that a command names are code.

use std::path::{Path, PathBuf};

use crate::processes::programs::Program;

/// Programs that run a file that their arguments name, whatever it is called. Names with a version, as `python3.12`, are
/// known by their beginning.
const INTERPRETERS: &[&str] = &[
    "bash", "bun", "dash", "deno", "java", "lua", "node", "perl", "php", "pwsh", "python", "ruby",
    "sh", "tsx", "zsh",
];

/// The ends of the names of files with code.
const CODE: &[&str] = &[
    "bash", "cjs", "cts", "jar", "js", "jsx", "lua", "mjs", "mts", "php", "phar", "pl", "ps1",
    "py", "pyc", "pyz", "rb", "sh", "ts", "tsx", "wasm", "zsh",
];

/// The flags of interpreters after which no argument names a script.
const NO_SCRIPT: &[&str] = &["-c", "-e", "-m", "-p", "--eval", "--print"];

/// Returns the files with code among the arguments of a program that starts in `folder`: those with the name of one, and
/// the script of an interpreter.
///
/// Other files may be data, which changes while the server works.
pub(super) fn code(program: &Program, arguments: &[String], folder: &Path) -> Vec<PathBuf> {
    let is_interpreter =
        std::iter::once(&program.file).chain(&program.interpreters).any(|file| interprets(file));
    let mut found = Vec::new();
    let mut has_script = !is_interpreter;
    for argument in arguments {
        let is_flag = argument.starts_with('-');
        has_script |= NO_SCRIPT.contains(&argument.as_str());
        // As in `--import=./hook.mjs`.
        let named = match argument.split_once('=') {
            Some((_, value)) if is_flag => value,
            _ => argument,
        };
        let path = folder.join(named);
        if named.is_empty() || !path.is_file() {
            continue;
        }
        if has_code_name(&path) || (!has_script && !is_flag) {
            found.push(path);
        }
        has_script |= !is_flag;
    }
    found
}

fn interprets(file: &Path) -> bool {
    let Some(name) = file.file_name().and_then(|name| name.to_str()) else { return false };
    let name =
        name.trim_end_matches(|character: char| character.is_ascii_digit() || character == '.');
    INTERPRETERS.contains(&name)
}

fn has_code_name(file: &Path) -> bool {
    let end = file.extension().and_then(|end| end.to_str());
    end.is_some_and(|end| CODE.contains(&end.to_ascii_lowercase().as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_told_from_data() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["server.py", "serve", "data.db", "hook.mjs", "index.JS", "a b.sh"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        std::fs::create_dir(folder.path().join("dist.js")).unwrap();
        let absolute = folder.path().join("server.py").display().to_string();
        for (program, arguments, expected) in [
            ("/usr/bin/python3.12", &["-u", "server.py", "data.db"][..], &["server.py"][..]),
            ("/usr/bin/python3", &[&absolute], &["server.py"]),
            ("/usr/bin/python3", &["serve", "data.db"], &["serve"]),
            ("/usr/bin/python3", &["-m", "mcp_server", "--db", "data.db"], &[]),
            ("/usr/bin/node", &["--import", "hook.mjs", "index.JS"], &["hook.mjs", "index.JS"]),
            ("/usr/bin/node", &["--import=./hook.mjs", "serve"], &["./hook.mjs", "serve"]),
            ("/opt/tool", &["serve", "data.db", "--db=data.db"], &[]),
            ("/opt/tool", &["run", "server.py", "a b.sh"], &["server.py", "a b.sh"]),
            ("/usr/bin/node", &["dist.js", "", "nowhere.js"], &[]),
        ] {
            let program =
                Program { file: program.into(), interpreters: vec![], is_of_workspace: false };
            let arguments: Vec<String> = arguments.iter().map(|&text| text.to_owned()).collect();
            let found = code(&program, &arguments, folder.path());
            let expected: Vec<PathBuf> =
                expected.iter().map(|name| folder.path().join(name)).collect();
            assert_eq!(found, expected, "{program:?} {arguments:?}");
        }
    }
}
