//! `shell:exec`: runs one program with an argument list, without a shell.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use execution::processes::programs::Program;
use protocol::{ErrorCode, ToolDescriptor};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::command::{
    CommandReach, Commands, DEFAULT_TIMEOUT, Ended, Job, OUTPUT_LIMIT, check_support, judge, permit,
};
use super::{NativeError, arguments};
use crate::policy::{self, CommandAccess, Policy};
use crate::workspace::touched::{Granted, Led, Touched};

/// The maximum size of the arguments and of stdin, in bytes.
const INPUT_LIMIT: usize = 1024 * 1024;

/// The maximum time limit of a program.
const TIMEOUT_LIMIT: Duration = Duration::from_secs(300);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Exec {
    command: Command,
    /// The arguments, if `command` is only the program.
    args: Option<Vec<String>>,
    cwd: Option<String>,
    timeout_ms: Option<u64>,
    stdin: Option<String>,
    #[serde(default)]
    access: CommandAccess,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Command {
    Argv(Vec<String>),
    Line(String),
}

/// Returns the descriptor of `shell:exec`.
pub(super) fn descriptor() -> ToolDescriptor {
    let input = json!({
        "type": "object",
        "properties": {
            "command": {
                "oneOf": [
                    { "type": "array", "items": { "type": "string" }, "minItems": 1 },
                    { "type": "string", "minLength": 1 },
                ],
                "description": "The program and its arguments, one string each; or only the program, with its arguments in `args`. No shell interprets them.",
            },
            "args": {
                "type": "array",
                "items": { "type": "string" },
                "description": "The arguments, if `command` is only the program.",
            },
            "cwd": { "type": "string", "description": "A directory beneath the workspace; the workspace by default." },
            "timeout_ms": { "type": "integer", "minimum": 1, "maximum": 300_000, "description": "60000 by default." },
            "stdin": { "type": "string", "description": "Text for the program's standard input; nothing by default." },
            "access": {
                "enum": ["workspace", "network", "unconfined"],
                "description": "`workspace` by default: it can change only the workspace and its own temporary folder, read these and what is installed, and open no connection. `network`: it can open connections as well. `unconfined`: it can do everything that the user can. Ask for more only if the command needs it.",
            },
        },
        "required": ["command"],
        "additionalProperties": false,
    });
    let output = json!({
        "type": "object",
        "properties": {
            "exit_code": { "type": ["integer", "null"], "description": "128 plus the signal's number if a signal killed it." },
            "stdout": { "type": "string" },
            "stderr": { "type": "string" },
            "truncated": { "type": "boolean", "description": "Whether output beyond 1 MiB per stream was dropped." },
            "duration_ms": { "type": "number" },
            "note": { "type": "string", "description": "Present if the command may have failed because it was confined." },
        },
        "required": ["exit_code", "stdout", "stderr", "truncated", "duration_ms"],
    });
    ToolDescriptor {
        name: "exec".to_owned(),
        description: "Runs one program in the workspace with an argument list, without a shell, and returns its exit code and output. It is confined to the workspace, without network, unless `access` says otherwise. A non-zero exit code is a result, not an error.".to_owned(),
        input_schema: input,
        output_schema: Some(output),
        annotations: Some(json!({ "destructiveHint": true, "openWorldHint": true })),
    }
}

/// Distinguishes the name of a program from the path of a folder.
fn program_key(name: &str) -> String {
    format!("{name} (program)")
}

/// A resolved command.
struct Prepared {
    command: policy::Command,
    /// The program that runs.
    program: Program,
    folder: PathBuf,
    limit: Duration,
    /// Where the folder and the program were found.
    paths: Vec<Led>,
}

/// `shell:exec`, with what it depends on.
pub(super) struct Shell<'a>(pub(super) Commands<'a>);

impl Shell<'_> {
    /// Checks that a call can run: its arguments, its folder, its program and the policy. Returns what it touches.
    pub(super) fn check(&self, value: Value, policy: &Policy) -> Result<Touched, NativeError> {
        let input: Exec = arguments("shell:exec", value)?;
        let Prepared { command, paths, .. } = self.prepare(&input)?;
        judge(policy, &command)?;
        Ok(Touched { paths, command: Some(command), ..Touched::default() })
    }

    /// Validates the arguments, and resolves the folder, the program and the time limit.
    fn prepare(&self, input: &Exec) -> Result<Prepared, NativeError> {
        let argv = argv(&input.command, input.args.as_deref())?;
        let given = input.cwd.as_deref().unwrap_or("");
        let folder = self.0.workspace.open_folder(given, &self.0.workspace.relative(given)?)?;
        if input.stdin.as_ref().is_some_and(|stdin| stdin.len() > INPUT_LIMIT) {
            return Err(invalid("`stdin` is longer than 1 MiB"));
        }
        let limit = match input.timeout_ms {
            None => DEFAULT_TIMEOUT,
            Some(0) => return Err(invalid("`timeout_ms` must be at least 1")),
            Some(limit) => Duration::from_millis(limit).min(TIMEOUT_LIMIT),
        };
        let by_link = self.0.workspace.relative(given)? != folder.real;
        let folder_led = Led { given: given.to_owned(), real: folder.real.clone(), by_link };
        let folder = self.0.workspace.root().join(&folder.real);
        let found = self.0.environment.programs().find(&argv[0], &folder);
        let found =
            found.map_err(|error| NativeError::new(ErrorCode::ToolFailed, error.to_string()))?;
        if input.access != CommandAccess::Unconfined {
            check_support(&argv[0]).map_err(|error| {
                let message = format!("{error}; unconfined, it runs with `access` `unconfined`");
                NativeError::new(error.code, message)
            })?;
        }
        let (file, by_link) = match argv[0].contains('/') {
            // Other programs may change where a link in the workspace leads. What was found runs.
            true => {
                let real = found.file.canonicalize().map_err(|error| {
                    let message = format!("cannot find `{}`: {error}", argv[0]);
                    NativeError::new(ErrorCode::ToolFailed, message)
                })?;
                let by_link = real != found.file.components().collect::<PathBuf>();
                (real, by_link)
            }
            false => (found.file.clone(), false),
        };
        // As a place, if it is in the workspace.
        let real = file.strip_prefix(self.0.workspace.root()).unwrap_or(&file).to_owned();
        let program_led = Led { given: program_key(&argv[0]), real, by_link };
        let paths = vec![folder_led, program_led];
        let command = policy::Command {
            argv,
            file: found.file.clone(),
            is_of_workspace: found.is_of_workspace,
            access: input.access,
        };
        let program = Program { file, ..found };
        Ok(Prepared { command, program, folder, limit, paths })
    }

    /// Runs a program. Dropping the future kills it and everything that it started.
    pub(super) async fn exec(
        &self,
        value: Value,
        granted: &Granted,
        cancel: &CancellationToken,
    ) -> Result<Value, NativeError> {
        let input: Exec = arguments("shell:exec", value)?;
        // Resolved again, because the answer of the user may have taken minutes since `check`.
        let Prepared { command, program, folder, limit, paths } = self.prepare(&input)?;
        for led in &paths {
            granted.leads_to(&led.given, &led.real)?;
        }
        permit(&command, granted)?;
        let policy = granted.policy().policy();
        let lower = |ms| Duration::from_millis(ms).min(limit);
        let limit = policy.command_ms().map_or(limit, lower);
        let kept = policy.command_output().and_then(|bytes| usize::try_from(bytes).ok());
        let kept = kept.map_or(OUTPUT_LIMIT, |bytes| bytes.min(OUTPUT_LIMIT));
        let policy::Command { argv, file: found, access, .. } = command;
        let job = Job {
            argv,
            program,
            found,
            folder,
            variables: BTreeMap::new(),
            reach: CommandReach::Changing(access),
            stdin: input.stdin.unwrap_or_default().into_bytes(),
            limit,
            kept,
        };
        let Ended { exit_code, stdout, stderr, took } = self.0.run(job, cancel).await?;
        let (out, err) = (stdout.text(), stderr.text());
        let note = (exit_code != Some(0)).then(|| note(access, &[&out, &err])).flatten();
        let mut result = json!({
            "exit_code": exit_code,
            "stdout": out,
            "stderr": err,
            "truncated": stdout.is_cut || stderr.is_cut,
            "duration_ms": took.as_millis() as u64,
        });
        if let Some(note) = note {
            result["note"] = note.into();
        }
        Ok(json!({
            "content": [{ "type": "text", "text": result.to_string() }],
            "structuredContent": result,
        }))
    }
}

/// Returns what may help a command that failed because it was confined. Whatever it was refused, the kernel's error is
/// the same.
fn note(access: CommandAccess, output: &[&str]) -> Option<&'static str> {
    let was_refused = |text: &&str| text.contains("ermission denied") || text.contains("EACCES");
    if !output.iter().any(was_refused) {
        return None;
    }
    match access {
        CommandAccess::Workspace => Some(
            "The command was confined to the workspace, $TMPDIR and what is installed, without network. If it failed for that reason, set `access` to `network` or `unconfined`; the user is asked.",
        ),
        CommandAccess::Network => Some(
            "The command was confined to the workspace, $TMPDIR and what is installed. If it failed for that reason, set `access` to `unconfined`; the user is asked.",
        ),
        CommandAccess::Unconfined => None,
    }
}

fn invalid(reason: &str) -> NativeError {
    let message = format!("invalid arguments for `shell:exec`: {reason}");
    NativeError::new(ErrorCode::InvalidArguments, message)
}

fn argv(command: &Command, args: Option<&[String]>) -> Result<Vec<String>, NativeError> {
    let argv = match (command, args) {
        (Command::Argv(argv), None | Some([])) => argv.clone(),
        (Command::Argv(_), Some(_)) => {
            return Err(invalid("`args` requires a `command` that is only the program"));
        }
        (Command::Line(program), Some(args)) => {
            std::iter::once(program).chain(args).cloned().collect()
        }
        (Command::Line(program), None) if !program.contains(char::is_whitespace) => {
            vec![program.clone()]
        }
        (Command::Line(line), None) => {
            let words: Vec<&str> = line.split_whitespace().take(16).collect();
            let example = json!({ "command": words });
            return Err(invalid(&format!(
                "`command` must be an array, because no shell interprets it; for example `{example}`"
            )));
        }
    };
    if argv.first().is_none_or(String::is_empty) {
        return Err(invalid("`command` must begin with a program"));
    }
    if argv.iter().any(|argument| argument.contains('\0')) {
        return Err(invalid("an argument contains a NUL byte"));
    }
    if argv.iter().map(String::len).sum::<usize>() > INPUT_LIMIT {
        return Err(invalid("`command` is longer than 1 MiB"));
    }
    Ok(argv)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_is_refused_with_the_array_to_write() {
        let error = argv(&Command::Line("git status -s".to_owned()), None).unwrap_err();
        assert!(error.message.contains(r#"{"command":["git","status","-s"]}"#), "{error}");
        assert_eq!(argv(&Command::Argv(vec!["git".to_owned()]), None).unwrap(), ["git"]);
        for bad in [vec![], vec![String::new()], vec!["a".to_owned(), "\0".to_owned()]] {
            argv(&Command::Argv(bad), None).unwrap_err();
        }
    }

    #[test]
    fn the_program_and_its_arguments_may_be_separate() {
        let line = |text: &str| Command::Line(text.to_owned());
        let args = ["-s".to_owned(), "a b".to_owned()];
        assert_eq!(argv(&line("git"), Some(&args)).unwrap(), ["git", "-s", "a b"]);
        assert_eq!(argv(&line("my program"), Some(&[])).unwrap(), ["my program"]);
        assert_eq!(argv(&line("git"), None).unwrap(), ["git"]);
        argv(&line(""), Some(&args)).unwrap_err();
        argv(&Command::Argv(vec!["git".to_owned()]), Some(&args)).unwrap_err();
    }
}
