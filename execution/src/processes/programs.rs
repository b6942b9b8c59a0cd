//! Resolves a program's name to a file, but never to a file in the workspace.
//!
//! Otherwise, anybody who can write to the workspace could choose what runs under the name `npx`. The same holds for
//! the interpreter of `npx`: many programs are scripts, and the kernel resolves their interpreter.

mod script;

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use self::script::{first_line, named_for_env};
use super::links::leads_through;

/// The search path if the user has no usable `PATH`.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The maximum length of a chain of interpreters, one less than the kernel's limit.
const INTERPRETERS_LIMIT: usize = 4;

/// Why a program cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// There is no executable file of that name.
    #[error("the program `{program}` was not found; {how}", program = .0, how = how_to_get(.0))]
    Missing(String),
    /// Only the workspace has it.
    #[error(
        "the program `{program}` was found only in the workspace, where anybody may have put it; to run that one, give its path: `{path}`"
    )]
    InWorkspace {
        /// The program's name.
        program: String,
        /// Its path, relative to the workspace.
        path: String,
    },
    /// The registry's entry names a program in the workspace.
    #[error("the registry's entry names the program `{program}`, which is in the workspace")]
    OfRegistry {
        /// The program as the entry names it.
        program: String,
    },
    /// Its interpreter does not exist, or is in the workspace.
    #[error("the program `{program}` is a script for `{interpreter}`, {why}")]
    Interpreter {
        /// The program's file.
        program: String,
        /// The interpreter in its first line.
        interpreter: String,
        /// The reason.
        why: &'static str,
    },
}

fn how_to_get(program: &str) -> &'static str {
    match program {
        "npx" | "npm" | "node" => "install Node.js 18 or newer, which includes it",
        "uvx" | "uv" => "install uv, which includes it: https://docs.astral.sh/uv/",
        _ => "install it or give its full path",
    }
}

/// A resolved program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The absolute path of its file.
    pub file: PathBuf,
    /// The chain of its interpreters, if it is a script.
    pub interpreters: Vec<PathBuf>,
    /// Whether the file is in the workspace, which only an explicit path may name.
    pub is_of_workspace: bool,
}

/// Resolves programs for one workspace.
#[derive(Debug, Clone)]
pub struct Programs {
    folders: Vec<PathBuf>,
    /// The canonical paths of the workspace's folders, the project's first.
    roots: Vec<PathBuf>,
}

impl Default for Programs {
    fn default() -> Self {
        Self::new(None, &[])
    }
}

impl Programs {
    /// Uses the folders of a `PATH` that are neither in the workspace nor reached through it.
    pub fn new(path: Option<&str>, roots: &[PathBuf]) -> Self {
        let folders = |path: &str| -> Vec<PathBuf> {
            // A relative or empty entry depends on the current folder.
            let absolute = path.split(':').filter(|entry| entry.starts_with('/'));
            let mut folders: Vec<PathBuf> = Vec::new();
            for folder in absolute.map(PathBuf::from) {
                if !leads_through(&folder, roots) && !folders.contains(&folder) {
                    folders.push(folder);
                }
            }
            folders
        };
        let mut found = folders(path.unwrap_or(DEFAULT_PATH));
        if found.is_empty() {
            // An empty `PATH` would mean the current folder.
            found = folders(DEFAULT_PATH);
        }
        Self { folders: found, roots: roots.to_owned() }
    }

    /// Returns the `PATH` for child processes.
    pub fn path(&self) -> String {
        let folders: Vec<_> = self.folders.iter().map(|folder| folder.to_string_lossy()).collect();
        folders.join(":")
    }

    /// Resolves a program: a path relative to `folder`, or a name on the `PATH`.
    ///
    /// # Errors
    /// Returns [`ProgramError`] if there is no executable file, or if the workspace would determine what runs.
    pub fn find(&self, name: &str, folder: &Path) -> Result<Program, ProgramError> {
        let missing = || ProgramError::Missing(name.to_owned());
        if name.contains('/') {
            let file = folder.join(name);
            if !can_run(&file) {
                return Err(missing());
            }
            let is_of_workspace = self.is_inside(&file);
            let interpreters = match self.interpreters(&file, INTERPRETERS_LIMIT) {
                Ok(interpreters) => interpreters,
                // The user named a program in the workspace, so its interpreter may be there too.
                Err(_) if is_of_workspace => Vec::new(),
                Err(error) => return Err(error),
            };
            return Ok(Program { file, interpreters, is_of_workspace });
        }
        // A link into the workspace is skipped: a later folder of the `PATH` may have the real
        // program.
        let mut on_path = self.on_path(name);
        let Some(file) = on_path.find(|file| !self.is_inside(file)) else {
            return Err(self.only_in_workspace(name).unwrap_or_else(missing));
        };
        let interpreters = self.interpreters(&file, INTERPRETERS_LIMIT)?;
        Ok(Program { file, interpreters, is_of_workspace: false })
    }

    fn on_path<'a>(&'a self, name: &'a str) -> impl Iterator<Item = PathBuf> + 'a {
        self.folders.iter().map(move |folder| folder.join(name)).filter(|file| can_run(file))
    }

    fn is_inside(&self, path: &Path) -> bool {
        leads_through(path, &self.roots)
    }

    /// Looks for a program in the usual folders of a project, for the error message.
    fn only_in_workspace(&self, name: &str) -> Option<ProgramError> {
        let root = self.roots.first()?;
        let folders = ["bin", "node_modules/.bin", ".venv/bin", "venv/bin"];
        let folder = folders.into_iter().find(|folder| can_run(&root.join(folder).join(name)))?;
        let path = format!("./{folder}/{name}");
        Some(ProgramError::InWorkspace { program: name.to_owned(), path })
    }

    /// Returns the chain of interpreters with which the kernel would run a file; empty if it is not a script.
    fn interpreters(&self, file: &Path, left: usize) -> Result<Vec<PathBuf>, ProgramError> {
        let Some((interpreter, argument)) = first_line(file) else { return Ok(Vec::new()) };
        let refused = |why| ProgramError::Interpreter {
            program: file.display().to_string(),
            interpreter: format!("{interpreter} {argument}").trim_end().to_owned(),
            why,
        };
        let Some(left) = left.checked_sub(1) else {
            return Err(refused("and its chain of interpreters is too long"));
        };
        if !interpreter.starts_with('/') {
            return Err(refused("a path that depends on the current folder"));
        }
        let program = Path::new(&interpreter).to_owned();
        if !can_run(&program) {
            return Err(refused("which does not exist"));
        }
        if self.is_inside(&program) {
            return Err(refused("which is in the workspace, where anybody may have put it"));
        }
        let mut found = Vec::new();
        // The kernel runs `env`, but what `env` finds on the `PATH` interprets the script.
        let next = if program.file_name() == Some(OsStr::new("env")) {
            let Some(name) = named_for_env(&argument) else {
                return Err(refused("which does not clearly name an interpreter"));
            };
            let named = match name.contains('/') {
                true => {
                    Some(PathBuf::from(&name)).filter(|path| path.is_absolute() && can_run(path))
                }
                // `env` uses the first match.
                false => self.on_path(&name).next(),
            };
            let Some(named) = named else { return Err(refused("which is not on the PATH")) };
            if self.is_inside(&named) {
                return Err(refused(
                    "which leads into the workspace, where anybody may have put it",
                ));
            }
            named
        } else {
            program
        };
        let rest = self.interpreters(&next, left)?;
        found.push(next);
        found.extend(rest);
        Ok(found)
    }
}

fn can_run(file: &Path) -> bool {
    file.metadata()
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    struct Tree {
        _folder: tempfile::TempDir,
        base: PathBuf,
    }

    impl Tree {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let base = folder.path().canonicalize().unwrap();
            for name in ["ws/bin", "ws/node_modules/.bin", "own", "other"] {
                std::fs::create_dir_all(base.join(name)).unwrap();
            }
            Self { _folder: folder, base }
        }

        fn at(&self, name: &str) -> PathBuf {
            self.base.join(name)
        }

        fn script(&self, name: &str, text: &str) -> PathBuf {
            let path = self.at(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
            path
        }

        /// Resolves programs with a `PATH` of these folders. Names that begin with `./` become relative entries.
        fn programs(&self, folders: &[&str]) -> Programs {
            let absolute = |name: &&str| match name.strip_prefix("./") {
                Some(relative) => relative.to_owned(),
                None => self.at(name).display().to_string(),
            };
            let path: Vec<String> = folders.iter().map(absolute).collect();
            Programs::new(Some(&path.join(":")), &[self.at("ws")])
        }

        fn find(&self, folders: &[&str], name: &str) -> Result<Program, ProgramError> {
            self.programs(folders).find(name, &self.at("ws"))
        }
    }

    /// NX-02: entries of `PATH` that lead into or through the workspace are ignored.
    #[test]
    fn path_entries_in_the_workspace_are_ignored() {
        let tree = Tree::new();
        for folder in ["ws/bin", "ws/node_modules/.bin"] {
            tree.script(&format!("{folder}/npx"), "#!/bin/sh\n");
        }
        let own = tree.script("own/npx", "#!/bin/sh\n");
        symlink(tree.at("ws/bin"), tree.at("linked")).unwrap();
        symlink(tree.at("ws"), tree.at("to-ws")).unwrap();
        // This path leads through the workspace, although it ends outside.
        symlink(tree.at("other"), tree.at("ws/out")).unwrap();
        tree.script("other/npx", "#!/bin/sh\n");
        let entries = [
            "ws/bin",
            "ws/node_modules/.bin",
            "linked",
            "to-ws/bin",
            "ws/../ws/bin",
            "own/../to-ws/bin",
            "ws/out",
            "to-ws/out",
            "./bin",
            "./node_modules/.bin",
            "./.",
            "./",
        ];
        for entry in entries {
            let found = tree.find(&[entry, "own"], "npx").unwrap();
            assert_eq!((found.file, found.is_of_workspace), (own.clone(), false), "{entry}");
            let path = tree.programs(&[entry, "own"]).path();
            assert_eq!(path, tree.at("own").display().to_string(), "{entry}");
        }
        tree.script("ws/bin/only-here", "#!/bin/sh\n");
        let error = tree.find(&entries, "only-here").unwrap_err().to_string();
        assert!(error.contains("give its path: `./bin/only-here`"), "{error}");
        // Without usable entries, the default `PATH` is used: an empty one would mean the current folder.
        assert_eq!(tree.programs(&entries).path(), DEFAULT_PATH);
    }

    /// NX-02: a link that leads into the workspace is ignored.
    #[test]
    fn links_into_the_workspace_are_ignored() {
        let tree = Tree::new();
        tree.script("ws/bin/npx", "#!/bin/sh\n");
        let real = tree.script("other/npx", "#!/bin/sh\n");
        symlink("../ws/bin/npx", tree.at("own/npx")).unwrap();
        assert_eq!(tree.find(&["own", "other"], "npx").unwrap().file, real);
        // A link that is stored in the workspace can be changed at any time.
        symlink(&real, tree.at("ws/through")).unwrap();
        symlink("../ws/through", tree.at("own/uvx")).unwrap();
        assert!(tree.find(&["own"], "uvx").is_err());
        symlink("loop", tree.at("own/loop")).unwrap();
        assert!(tree.find(&["own"], "loop").is_err());
    }

    /// NX-02: the interpreter of a script is checked like the script.
    #[test]
    fn interpreters_in_the_workspace_are_refused() {
        let tree = Tree::new();
        tree.script("ws/bin/node", "#!/bin/sh\n");
        let node = tree.script("own/node", "");
        let by = |first: &str| {
            tree.script("own/npx", &format!("#!{first}\n"));
            tree.find(&["ws/bin", "own"], "npx")
        };
        for first in [
            "/usr/bin/env node",
            "/usr/bin/env  -S node --no-warnings",
            "/usr/bin/env -S A=b node",
            " /usr/bin/env -Snode",
        ] {
            assert_eq!(by(first).unwrap().interpreters, std::slice::from_ref(&node), "{first}");
        }
        let inside = tree.at("ws/bin/node").display().to_string();
        for first in
            ["./node", "bin/node", &inside, &format!("/usr/bin/env {inside}"), "/usr/bin/env"]
        {
            let error = by(first).unwrap_err();
            assert!(matches!(error, ProgramError::Interpreter { .. }), "{first}: {error}");
        }
        // `env` would use this link, so it must not be skipped.
        std::fs::remove_file(&node).unwrap();
        symlink(&inside, &node).unwrap();
        tree.script("other/node", "");
        tree.script("own/npx", "#!/usr/bin/env node\n");
        let error = tree.find(&["own", "other"], "npx").unwrap_err().to_string();
        assert!(error.contains("leads into the workspace"), "{error}");
        // An interpreter may be a script itself.
        std::fs::remove_file(&node).unwrap();
        tree.script("own/node", "#!/usr/bin/env deep\n");
        let deep = tree.script("own/deep", "");
        assert_eq!(tree.find(&["own"], "npx").unwrap().interpreters, [node.clone(), deep]);
        tree.script("own/deep", "#!/usr/bin/env node\n");
        assert!(tree.find(&["own"], "npx").is_err());
    }

    /// An explicit path may name a program in the workspace.
    #[test]
    fn an_explicit_path_may_lead_into_the_workspace() {
        let tree = Tree::new();
        let file = tree.script("ws/bin/tool", "#!./bin/run\n");
        let found = tree.find(&["own"], "./bin/tool").unwrap();
        assert_eq!((found.file.canonicalize().unwrap(), found.is_of_workspace), (file, true));
        symlink(tree.at("ws/bin/tool"), tree.at("own/linked")).unwrap();
        let outside = tree.at("own/linked");
        assert!(tree.find(&[], outside.to_str().unwrap()).unwrap().is_of_workspace);
        assert!(matches!(tree.find(&[], "./bin/none"), Err(ProgramError::Missing(_))));
    }
}
