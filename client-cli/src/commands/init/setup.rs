//! The files that `pml init` writes: those of the agents, `.pml.json` and `.gitignore`.

use std::fmt;
use std::path::{Path, PathBuf};

use clap::Parser as _;
use serde_json::Value;

use crate::agents::{Agent, AgentFile, FileError, read, write};
use crate::args::{Cli, Command};
use crate::config::{self, ConfigError};
use crate::consent::trust::TrustStore;
use crate::workspace::Workspace;

/// The files of PML in a project that git should ignore.
const IGNORED: [&str; 3] = [".pml/", ".mcp.json.backup", ".env"];

/// Why an entry cannot name the project.
const NO_TEXT: &str = "the path of this project is not valid UTF-8, so it cannot be written there";

/// Why a project was not set up.
#[derive(Debug, thiserror::Error)]
pub(in super::super) enum InitError {
    /// An existing file cannot be parsed, or a file cannot be written.
    #[error(transparent)]
    File(#[from] FileError),
    /// `.pml.json` cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// The changes, one line for each file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Report {
    lines: Vec<String>,
    /// Whether any file is written.
    pub(super) changes: bool,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lines.join("\n"))
    }
}

/// Where the files of agents are.
#[derive(Debug, Clone)]
pub(super) struct Agents {
    /// Those that are set up.
    pub(super) chosen: Vec<Agent>,
    /// The user's home folder.
    pub(super) home: Option<PathBuf>,
}

/// Returns what [`init`] would do, without doing it.
///
/// # Errors
/// Returns [`InitError`] if an existing file cannot be parsed.
pub(super) fn plan(workspace: &Workspace, agents: &Agents) -> Result<Report, InitError> {
    let plan = Plan::of(workspace, agents)?;
    Ok(Report { lines: plan.lines("would be"), changes: plan.changes() })
}

/// Writes the files of the agents, `.pml.json` and the entries of `.gitignore`. Existing content is kept; a second run
/// changes nothing.
///
/// # Errors
/// Returns [`InitError`] if an existing file cannot be parsed. All files are read before the first is written.
pub(super) fn init(
    workspace: &Workspace,
    store: &TrustStore,
    agents: &Agents,
) -> Result<Report, InitError> {
    // Planned again: a file may have changed while the user was asked.
    let plan = Plan::of(workspace, agents)?;
    for (file, state) in &plan.agents {
        if *state == State::Missing {
            file.write()?;
        }
    }
    // Leaves an existing file as it is, and does not trust it: it may have come with the repository.
    config::create(workspace, store)?;
    if let Some(change) = &plan.ignore {
        write(workspace, ".gitignore", &change.after)?;
    }
    Ok(Report { lines: plan.lines("was"), changes: plan.changes() })
}

struct Change {
    before: Option<Vec<u8>>,
    after: Vec<u8>,
}

/// The entry of PML in an agent's file.
#[derive(Debug, PartialEq, Eq)]
enum State {
    /// It starts `pml stdio`.
    Ready,
    /// It starts `pml stdio` in this other folder, in a file for all projects.
    Elsewhere(String),
    /// It is this entry of a different server.
    Other(String),
    /// It is added.
    Missing,
}

struct Plan {
    /// The files as they will be.
    agents: Vec<(AgentFile, State)>,
    needs_config: bool,
    ignore: Option<Change>,
}

impl Plan {
    fn of(workspace: &Workspace, agents: &Agents) -> Result<Self, InitError> {
        let needs_config = match config::read(workspace)? {
            Some(content) => {
                config::check(&content)?;
                false
            }
            None => true,
        };
        let files = agents.chosen.iter().map(|agent| {
            let mut file = AgentFile::read(*agent, workspace, agents.home.as_deref())?;
            let state = state(&file, workspace);
            if state == State::Missing {
                let entry = agent.entry(workspace).ok_or_else(|| file.refused(NO_TEXT))?;
                file.insert("pml", &entry)?;
            }
            Ok::<_, FileError>((file, state))
        });
        let agents = files.collect::<Result<Vec<_>, _>>()?;
        let backups = agents.iter().filter(|(_, state)| *state == State::Missing);
        let backups = backups.filter_map(|(file, _)| file.backup()).collect();
        Ok(Self { needs_config, ignore: ignore(workspace, backups)?, agents })
    }

    fn changes(&self) -> bool {
        let adds = self.agents.iter().any(|(_, state)| *state == State::Missing);
        adds || self.needs_config || self.ignore.is_some()
    }

    fn lines(&self, was: &str) -> Vec<String> {
        // Whether each file exists, if it is to be changed.
        let changed = |exists: Option<bool>, file: &str, what: &str| match exists {
            None => format!("`{file}` is complete; left unchanged"),
            Some(false) => format!("`{file}` {was} written: {what}"),
            Some(true) => format!("`{file}` {was} extended: {what}; everything else is unchanged"),
        };
        let agents = self.agents.iter().map(|(file, state)| {
            let agent = file.agent();
            let (shown, name) = (agent.shown(), agent.name());
            match state {
                State::Other(command) => format!(
                    "`{shown}` is left unchanged, but its server `pml` is a different one: it runs `{}`; if you do not recognize it, remove it and run `pml init` again",
                    protocol::escape_text(command)
                ),
                State::Elsewhere(folder) => format!(
                    "`{shown}` is left unchanged: {name} has one file for all projects, and its `pml` is for `{}`; to use {name} here, change the folder there",
                    protocol::escape_text(folder)
                ),
                State::Ready => changed(None, &shown, ""),
                State::Missing => {
                    let here = if agent.has_one_file_for_all() { " for this project" } else { "" };
                    let what = format!("{name} starts `pml stdio`{here}");
                    changed(Some(file.exists()), &shown, &what)
                }
            }
        });
        let config = if self.needs_config {
            format!(
                "`{}` {was} written with default permissions: reading in the workspace and pure computation are allowed; everything else asks",
                config::FILE
            )
        } else {
            format!("`{}` is left unchanged", config::FILE)
        };
        let ignored = changed(
            self.ignore.as_ref().map(|change| change.before.is_some()),
            ".gitignore",
            "`.pml/` contains this machine's records, `.env` contains secrets",
        );
        agents.chain([config, ignored]).collect()
    }
}

/// Returns whether a server's entry in an agent's file starts `pml stdio`, with any of its options.
pub(in super::super) fn starts_stdio(server: &Value) -> bool {
    parsed(server).is_some_and(|cli| matches!(cli.command, Command::Stdio))
}

/// Returns the command line of `pml` that a server's entry starts; `None` if it starts something else.
pub(super) fn parsed(server: &Value) -> Option<Cli> {
    let command = server.get("command").and_then(Value::as_str).unwrap_or_default();
    let args = server.get("args").and_then(Value::as_array).into_iter().flatten();
    let args = args.map(Value::as_str).collect::<Option<Vec<&str>>>()?;
    // Parsed as `pml` itself does: `stdio` may also be the value of an option, or the name of a file.
    let parsed = Cli::try_parse_from(["pml"].into_iter().chain(args)).ok()?;
    Path::new(command).file_name().is_some_and(|name| name == "pml").then_some(parsed)
}

fn state(file: &AgentFile, workspace: &Workspace) -> State {
    let Some(server) = file.servers().get("pml") else { return State::Missing };
    if !starts_stdio(server) {
        // The entry may be any JSON value of any size, so only its start is shown.
        return State::Other(server.to_string().chars().take(200).collect());
    }
    let named = parsed(server).and_then(|cli| cli.settings.workspace);
    match named {
        Some(folder) if file.agent().has_one_file_for_all() && folder != workspace.root() => {
            State::Elsewhere(folder.to_string_lossy().into_owned())
        }
        _ => State::Ready,
    }
}

/// Returns whether the project's `.gitignore` contains an entry.
///
/// # Errors
/// Returns [`InitError`] if the file cannot be read.
pub(in super::super) fn ignores(workspace: &Workspace, entry: &str) -> Result<bool, InitError> {
    let content = read(workspace, ".gitignore")?;
    Ok(content.is_some_and(|content| lists(&content, entry)))
}

/// Returns whether a `.gitignore` has a line for an entry.
fn lists(gitignore: &[u8], entry: &str) -> bool {
    let text = String::from_utf8_lossy(gitignore);
    let covers =
        |line: &str| line == entry || (entry == ".env" && matches!(line, ".env*" | "*.env"));
    // A leading `/` restricts a pattern to the folder of `.gitignore`, where these files are.
    text.lines().any(|line| covers(line.trim().trim_start_matches('/')))
}

/// Returns how `.gitignore` changes, with these files in addition to the usual ones.
fn ignore(workspace: &Workspace, more: Vec<String>) -> Result<Option<Change>, InitError> {
    let before = read(workspace, ".gitignore")?;
    // Changed as bytes: the file need not be UTF-8, and its other lines must stay as they are.
    let mut after = before.clone().unwrap_or_default();
    let more = more.into_iter().filter(|file| !IGNORED.contains(&file.as_str()));
    let all = IGNORED.into_iter().map(str::to_owned).chain(more);
    let missing: Vec<String> = all.filter(|entry| !lists(&after, entry)).collect();
    if missing.is_empty() {
        return Ok(None);
    }
    if !after.is_empty() && !after.ends_with(b"\n") {
        after.push(b'\n');
    }
    for entry in missing {
        after.extend_from_slice(entry.as_bytes());
        after.push(b'\n');
    }
    Ok(Some(Change { before, after }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    use crate::config::{Config, Trust};

    fn claude() -> Agents {
        Agents { chosen: vec![Agent::ClaudeCode], home: None }
    }

    struct Project {
        _folder: tempfile::TempDir,
        workspace: Workspace,
        store: TrustStore,
    }

    impl Project {
        fn new(files: &[(&str, &str)]) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let root = folder.path().join("w");
            std::fs::create_dir(&root).unwrap();
            for (name, content) in files {
                std::fs::write(root.join(name), content).unwrap();
            }
            let store = TrustStore::in_folder(folder.path().join("state"));
            Self { workspace: Workspace::open(&root).unwrap(), store, _folder: folder }
        }

        fn files(&self) -> Vec<(String, String)> {
            let mut files: Vec<(String, String)> = std::fs::read_dir(self.workspace.root())
                .unwrap()
                .map(|entry| entry.unwrap())
                .map(|entry| {
                    (
                        entry.file_name().into_string().unwrap(),
                        std::fs::read_to_string(entry.path()).unwrap(),
                    )
                })
                .collect();
            files.sort();
            files
        }

        fn file(&self, name: &str) -> String {
            self.files().into_iter().find(|(file, _)| file == name).unwrap().1
        }
    }

    #[test]
    fn an_empty_project_is_set_up_once() {
        let project = Project::new(&[]);
        plan(&project.workspace, &claude()).unwrap();
        assert!(project.files().is_empty(), "a plan writes nothing");
        let report = init(&project.workspace, &project.store, &claude()).unwrap().to_string();
        assert!(report.contains("`.mcp.json` was written"), "{report}");
        let names: Vec<String> = project.files().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, [".gitignore", ".mcp.json", ".pml.json"]);
        let config = Config::load(&project.workspace, &project.store).unwrap();
        assert_eq!(config.trust, Trust::Trusted);
        let before = project.files();
        let report = init(&project.workspace, &project.store, &claude()).unwrap().to_string();
        assert_eq!(report.matches("left unchanged").count(), 3, "{report}");
        assert_eq!(project.files(), before);
    }

    #[test]
    fn existing_content_is_kept() {
        let agents = r#"{"z": 1, "mcpServers": {"other": {"command": "x"}}}"#;
        let project =
            Project::new(&[(".mcp.json", agents), (".gitignore", "target\n.pml/"), ("a.txt", "a")]);
        init(&project.workspace, &project.store, &claude()).unwrap();
        assert_eq!(project.file(".mcp.json.backup"), agents);
        let merged: Value = serde_json::from_str(&project.file(".mcp.json")).unwrap();
        assert_eq!(merged["z"], 1);
        assert_eq!(merged["mcpServers"]["other"]["command"], "x");
        assert_eq!(merged["mcpServers"]["pml"]["args"], json!(["stdio"]));
        assert_eq!(project.file(".gitignore"), "target\n.pml/\n.mcp.json.backup\n.env\n");
    }

    #[test]
    fn every_pattern_that_covers_the_secrets_counts() {
        for (line, covers) in [
            (".env", true),
            ("/.env", true),
            (" .env ", true),
            (".env*", true),
            ("*.env", true),
            (".env.local", false),
            ("# .env", false),
        ] {
            let project = Project::new(&[(".gitignore", &format!("target\n{line}\n"))]);
            assert_eq!(ignores(&project.workspace, ".env").unwrap(), covers, "{line}");
            let after = ignore(&project.workspace, Vec::new()).unwrap().unwrap().after;
            assert_eq!(!after.ends_with(b"\n.env\n"), covers, "{line}");
        }
        assert!(!ignores(&Project::new(&[]).workspace, ".env").unwrap());
    }

    /// A repository's own server named `pml` is reported, never mistaken for PML.
    #[test]
    fn another_server_named_pml_is_reported() {
        for (entry, is_ours) in [
            (r#"{"command": "pml", "args": ["stdio"]}"#, true),
            (r#"{"command": "/opt/pml", "args": ["--log", "info", "stdio"]}"#, true),
            (r#"{"command": "pml", "args": ["stdio", "--workspace", "${workspaceFolder}"]}"#, true),
            (r#"{"command": "sh", "args": ["-c", "evil", "stdio"]}"#, false),
            (r#"{"command": "sh", "args": ["stdio"]}"#, false),
            (r#"{"command": "pml", "args": ["exec", "stdio"]}"#, false),
            (r#"{"command": "pml", "args": ["doctor", "--workspace", "stdio"]}"#, false),
            (r#"{"command": "pml", "args": ["stdio", 1]}"#, false),
            (r#"{"command": "pml"}"#, false),
            (r#"{"url": "http://evil.test"}"#, false),
            ("5", false),
        ] {
            let agents = format!(r#"{{"mcpServers": {{"pml": {entry}}}}}"#);
            let project = Project::new(&[(".mcp.json", &agents)]);
            let report = init(&project.workspace, &project.store, &claude()).unwrap().to_string();
            assert_eq!(!report.contains("a different one"), is_ours, "{entry}: {report}");
            assert_eq!(project.file(".mcp.json"), agents);
        }
    }

    /// CL-04: `pml init` does not trust a file that came with the repository.
    #[test]
    fn a_file_of_the_repository_is_not_trusted_by_init() {
        let project = Project::new(&[(".pml.json", r#"{"permissions": {"allow": ["*"]}}"#)]);
        init(&project.workspace, &project.store, &claude()).unwrap();
        let config = Config::load(&project.workspace, &project.store).unwrap();
        assert_eq!(config.trust, Trust::Untrusted);
    }

    #[test]
    fn an_invalid_file_stops_before_anything_is_written() {
        for (name, content) in [
            (".mcp.json", "{"),
            (".mcp.json", "[]"),
            (".mcp.json", r#"{"mcpServers": []}"#),
            (".mcp.json", r#"{"a": 1, "a": 2}"#),
            (".mcp.json", r#"{"mcpServers": {"x": {"command": "a", "command": "b"}}}"#),
            (".pml.json", "{"),
            (".pml.json", r#"{"permisions": {}}"#),
        ] {
            let project = Project::new(&[(name, content)]);
            init(&project.workspace, &project.store, &claude()).expect_err(content);
            assert_eq!(project.files(), [(name.to_owned(), content.to_owned())]);
        }
    }
}
