//! `git:*`: the tools of the reference MCP Git server, restricted to the workspace.
//!
//! Names and schemas are those of `mcp-server-git` 2026.10.19; the texts are Git's own. What only reads is safe to allow:
//! Git starts no helper of the repository, changes nothing, and shows only files that the program may read. What changes
//! something is a command, because hooks and filters of the repository run with it.

mod change;
mod read;
mod reader;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use execution::processes::programs::Program;
use protocol::{ErrorCode, ToolDescriptor, escape_text};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::command::{
    CommandReach, Commands, DEFAULT_TIMEOUT, Ended, Job, OUTPUT_LIMIT, check_support,
};
use super::{NativeError, arguments, unknown};
use crate::policy::{self, CommandAccess, Operation, PolicyOfRun};
use crate::workspace::touched::{Granted, Led, Touched};

/// The maximum number of characters of Git's own message in an error.
const MESSAGE_LIMIT: usize = 500;

static DESCRIPTORS: LazyLock<Vec<ToolDescriptor>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("git/tools.json"))
        .expect("the embedded descriptors are checked by a test")
});

/// Returns the descriptors of all `git` tools.
pub(super) fn descriptors() -> &'static [ToolDescriptor] {
    &DESCRIPTORS
}

/// What a call wants.
enum Wanted {
    /// To read.
    Read(read::Read),
    /// To run this command of Git.
    Change(change::Change),
}

impl Wanted {
    /// Parses the arguments of a tool.
    fn parse(action: &str, value: Value) -> Result<Self, NativeError> {
        if let Some(change) = change::Change::parse(action, &value)? {
            return Ok(Self::Change(change));
        }
        read::Read::parse(action, value)?.map(Self::Read).ok_or_else(|| unknown(&name(action)))
    }
}

#[derive(Deserialize)]
struct InRepository {
    repo_path: String,
}

/// A repository in the workspace, and the program that reads it.
struct Repository<'a> {
    commands: Commands<'a>,
    program: Program,
    /// The path of the repository as the call has it.
    given: String,
    /// The path of its working tree in the workspace.
    real: PathBuf,
    paths: Vec<Led>,
}

/// `git:*`, with what it depends on.
pub(super) struct Git<'a>(pub(super) Commands<'a>);

impl<'a> Git<'a> {
    /// Checks that a call can run: its arguments, its repository and the policy. Returns what it touches.
    pub(super) fn check(
        &self,
        action: &str,
        value: Value,
        policy: &Arc<PolicyOfRun>,
    ) -> Result<Touched, NativeError> {
        let repository = self.open(action, &value)?;
        repository.check_listed(policy)?;
        let command = match Wanted::parse(action, value)? {
            Wanted::Read(_) => None,
            Wanted::Change(change) => {
                let command = repository.command(&change);
                super::command::judge(policy.policy(), &command)?;
                Some(command)
            }
        };
        Ok(Touched { paths: repository.paths, command, ..Touched::default() })
    }

    /// Calls a tool. Dropping the future kills Git.
    pub(super) async fn call(
        &self,
        action: &str,
        value: Value,
        granted: &Granted,
        cancel: &CancellationToken,
    ) -> Result<Value, NativeError> {
        // Opened again, because the answer of the user may have taken minutes since `check`.
        let repository = self.open(action, &value)?;
        for led in &repository.paths {
            granted.leads_to(&led.given, &led.real)?;
        }
        repository.check_listed(granted.policy())?;
        let text = match Wanted::parse(action, value)? {
            Wanted::Read(read) => {
                let (repository, policy) = (&repository, granted.policy());
                reader::Reader { repository, policy, cancel }.read(read).await?
            }
            Wanted::Change(change) => {
                super::command::permit(&repository.command(&change), granted)?;
                change.run(&repository, granted.policy(), cancel).await?
            }
        };
        Ok(json!({ "content": [{ "type": "text", "text": text }] }))
    }

    fn open(&self, action: &str, value: &Value) -> Result<Repository<'a>, NativeError> {
        let Self(commands) = *self;
        let InRepository { repo_path: given } = arguments(&name(action), value.clone())?;
        check_support("git")?;
        let relative = commands.workspace.relative(&given)?;
        let real = commands.workspace.open_folder(&given, &relative)?.real;
        let by_link = relative != real;
        let folder = commands.workspace.root().join(&real);
        let found = commands.environment.programs().find("git", &folder);
        let program =
            found.map_err(|error| NativeError::new(ErrorCode::ToolFailed, error.to_string()))?;
        let paths = vec![Led { given: given.clone(), real: real.clone(), by_link }];
        Ok(Repository { commands, program, given, real, paths })
    }
}

impl Repository<'_> {
    /// Checks that the names in the repository's folder may be shown.
    fn check_listed(&self, policy: &PolicyOfRun) -> Result<(), NativeError> {
        let workspace = self.commands.workspace;
        workspace.guarded(policy.policy(), &self.given, &self.real, Operation::List)?;
        Ok(())
    }

    /// Returns a change as the policy judges it.
    fn command(&self, change: &change::Change) -> policy::Command {
        policy::Command {
            argv: change.argv(),
            file: self.program.file.clone(),
            is_of_workspace: self.program.is_of_workspace,
            access: CommandAccess::Workspace,
        }
    }

    /// Returns the error for a command of Git that failed.
    fn failed(&self, code: Option<i32>, ended: &Ended) -> NativeError {
        let said = [ended.stderr.text(), ended.stdout.text()];
        let said = said.iter().map(|text| text.trim()).find(|text| !text.is_empty()).unwrap_or("");
        let said: String = said.chars().take(MESSAGE_LIMIT).collect();
        let code = code.map_or("without a code".to_owned(), |code| format!("with {code}"));
        let repository = escape_text(&self.given);
        let said = escape_text(&said.replace('\n', " "));
        let message = format!("Git ended {code} in the repository `{repository}`: {said}");
        NativeError::new(ErrorCode::ToolFailed, message)
    }

    /// Runs Git in the repository; `reach` is what it may do there.
    async fn git(
        &self,
        argv: Vec<String>,
        reach: CommandReach,
        policy: &PolicyOfRun,
        cancel: &CancellationToken,
    ) -> Result<Ended, NativeError> {
        let folder = self.commands.workspace.root().join(&self.real);
        let shown = |path: PathBuf| path.to_string_lossy().into_owned();
        // Given explicitly: the settings of a repository could name another working tree, and a folder above the
        // workspace could be a repository.
        let mut variables = BTreeMap::from([
            ("GIT_DIR".to_owned(), shown(folder.join(".git"))),
            ("GIT_WORK_TREE".to_owned(), shown(folder.clone())),
        ]);
        if reach == CommandReach::Reading {
            // Nothing that is read depends on the user's settings, and these could name files and programs out of reach.
            variables.insert("GIT_CONFIG_GLOBAL".to_owned(), "/dev/null".to_owned());
        }
        // What only reads is a read for the policy, and all else a command.
        let policy = policy.policy();
        let (kept, limit) = match reach {
            CommandReach::Reading => (policy.read_limit().map(|limit| limit.value), None),
            CommandReach::Changing(_) => (policy.command_output(), policy.command_ms()),
        };
        let kept = kept.and_then(|bytes| usize::try_from(bytes).ok());
        let job = Job {
            argv,
            program: self.program.clone(),
            found: self.program.file.clone(),
            folder,
            variables,
            reach,
            stdin: Vec::new(),
            limit: limit
                .map_or(DEFAULT_TIMEOUT, |ms| Duration::from_millis(ms).min(DEFAULT_TIMEOUT)),
            kept: kept.map_or(OUTPUT_LIMIT, |bytes| bytes.min(OUTPUT_LIMIT)),
        };
        let ended = self.commands.run(job, cancel).await?;
        match ended.exit_code {
            Some(0) => Ok(ended),
            code => Err(self.failed(code, &ended)),
        }
    }
}

fn name(action: &str) -> String {
    format!("git:{action}")
}

fn invalid(action: &str, reason: &str) -> NativeError {
    let message = format!("invalid arguments for `{}`: {reason}", name(action));
    NativeError::new(ErrorCode::InvalidArguments, message)
}

/// Checks that Git cannot take the name of a branch or commit for an option, or read several from it.
fn check_name(action: &str, field: &str, name: &str) -> Result<(), NativeError> {
    if name.is_empty() || name.starts_with('-') || name.contains(|c: char| c.is_control()) {
        let reason = format!("`{field}` is not the name of a branch or commit");
        return Err(invalid(action, &reason));
    }
    Ok(())
}
