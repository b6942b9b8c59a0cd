//! Which of the files that a command names are code.

use std::path::{Path, PathBuf};

use execution::processes::programs::Program;

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
    let (mut has_script, mut is_module) = (!is_interpreter, false);
    for argument in arguments {
        let is_flag = argument.starts_with('-');
        has_script |= NO_SCRIPT.contains(&argument.as_str());
        // As in `--import=./hook.mjs`.
        let named = match argument.split_once('=') {
            Some((_, value)) if is_flag => value,
            _ => argument,
        };
        if is_module {
            is_module = false;
            found.extend(module(folder, named));
            continue;
        }
        is_module = is_interpreter && argument == "-m";
        let path = folder.join(named);
        if named.is_empty() {
            continue;
        }
        if path.is_dir() && !has_script && !is_flag {
            has_script = true;
            found.extend(entry_of(&path));
            continue;
        }
        if !path.is_file() {
            continue;
        }
        if has_code_name(&path) || (!has_script && !is_flag) {
            found.push(path);
        }
        has_script |= !is_flag;
    }
    found
}

/// Returns what an interpreter runs of a folder: that of a package of Node.js or Python.
fn entry_of(folder: &Path) -> Vec<PathBuf> {
    let manifest = folder.join("package.json");
    let text = std::fs::read(&manifest).unwrap_or_default();
    let main = serde_json::from_slice(&text)
        .ok()
        .and_then(|manifest: serde_json::Value| Some(folder.join(manifest.get("main")?.as_str()?)));
    let named = main.into_iter().flat_map(|main| {
        let with_end = main.with_extension("js");
        [main.join("index.js"), with_end, main]
    });
    let usual = ["index.js", "__main__.py"].map(|name| folder.join(name));
    std::iter::once(manifest).chain(named).chain(usual).filter(|path| path.is_file()).collect()
}

/// Returns what `python -m` runs, if it is in the folder that the interpreter starts in.
fn module(folder: &Path, name: &str) -> Vec<PathBuf> {
    let path = folder.join(name.replace('.', "/"));
    let files = [path.with_extension("py"), path.join("__init__.py"), path.join("__main__.py")];
    files.into_iter().filter(|path| path.is_file()).collect()
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
        for (name, text) in [
            ("app/package.json", r#"{ "main": "lib/run" }"#),
            ("app/lib/run.js", ""),
            ("mod/part/__init__.py", ""),
            ("mod/part/__main__.py", ""),
        ] {
            std::fs::create_dir_all(folder.path().join(name).parent().unwrap()).unwrap();
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let absolute = folder.path().join("server.py").display().to_string();
        for (program, arguments, expected) in [
            ("/usr/bin/python3.12", &["-u", "server.py", "data.db"][..], &["server.py"][..]),
            ("/usr/bin/python3", &[&absolute], &["server.py"]),
            ("/usr/bin/python3", &["serve", "data.db"], &["serve"]),
            ("/usr/bin/python3", &["-m", "mcp_server", "--db", "data.db"], &[]),
            ("/usr/bin/node", &["--import", "hook.mjs", "index.JS"], &["hook.mjs", "index.JS"]),
            ("/usr/bin/node", &["--import=./hook.mjs", "serve"], &["./hook.mjs", "serve"]),
            ("/usr/bin/node", &["app", "data.db"], &["app/package.json", "app/lib/run.js"]),
            (
                "/usr/bin/python3",
                &["-m", "mod.part", "data.db"],
                &["mod/part/__init__.py", "mod/part/__main__.py"],
            ),
            ("/usr/bin/python3", &["-m", "server", "data.db"], &["server.py"]),
            ("/opt/tool", &["app", "-m", "server"], &[]),
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
