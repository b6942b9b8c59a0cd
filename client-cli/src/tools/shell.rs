//! `shell:exec`: runs one program with an argument list, without a shell.

mod git;

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use protocol::{ErrorCode, ToolDescriptor};
use sandbox::Confinement;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

use super::{NativeError, arguments};
use crate::policy::{self, CommandAccess, Judged, Policy};
use crate::processes::confinement::confinement;
use crate::processes::environment::Environment;
use crate::processes::programs::Program;
use crate::processes::supervise::{Input, Supervisor};
use crate::workspace::Workspace;
use crate::workspace::touched::{Granted, Led, Touched};

/// The maximum number of bytes kept of each output stream.
const OUTPUT_LIMIT: usize = 1024 * 1024;

/// The maximum size of the arguments and of stdin, in bytes.
const INPUT_LIMIT: usize = 1024 * 1024;

/// The default time limit of a program.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

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

/// The dependencies of `shell:exec`.
pub(super) struct Shell<'a> {
    pub(super) workspace: &'a Workspace,
    pub(super) environment: &'a Environment,
    pub(super) supervisor: &'a Supervisor,
}

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
        let folder = self.workspace.open_folder(given, &self.workspace.relative(given)?)?;
        if input.stdin.as_ref().is_some_and(|stdin| stdin.len() > INPUT_LIMIT) {
            return Err(invalid("`stdin` is longer than 1 MiB"));
        }
        let limit = match input.timeout_ms {
            None => DEFAULT_TIMEOUT,
            Some(0) => return Err(invalid("`timeout_ms` must be at least 1")),
            Some(limit) => Duration::from_millis(limit).min(TIMEOUT_LIMIT),
        };
        let by_link = self.workspace.relative(given)? != folder.real;
        let folder_led = Led { given: given.to_owned(), real: folder.real.clone(), by_link };
        let folder = self.workspace.root().join(&folder.real);
        let found = self.environment.programs().find(&argv[0], &folder);
        let found =
            found.map_err(|error| NativeError::new(ErrorCode::ToolFailed, error.to_string()))?;
        if input.access != CommandAccess::Unconfined {
            CAN_CONFINE.clone().map_err(|reason| {
                let message = format!(
                    "`{}` was not started, because this machine cannot confine it: {reason}; without a confinement it runs with \"access\": \"unconfined\"",
                    argv[0]
                );
                NativeError::new(ErrorCode::PlatformUnsupported, message)
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
        let real = file.strip_prefix(self.workspace.root()).unwrap_or(&file).to_owned();
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
        let policy = granted.policy().policy();
        if let Judged::Beyond(reason) = judge(policy, &command)?
            && !granted.was_asked()
        {
            // Not reached: the user is asked about such a command.
            return Err(NativeError::new(ErrorCode::PolicyDenied, reason));
        }
        let lower = |ms| Duration::from_millis(ms).min(limit);
        let limit = policy.command_ms().map_or(limit, lower);
        let kept = policy.command_output().and_then(|bytes| usize::try_from(bytes).ok());
        let kept = kept.map_or(OUTPUT_LIMIT, |bytes| bytes.min(OUTPUT_LIMIT));
        let policy::Command { mut argv, file: name, access, .. } = command;
        let stdin = input.stdin.unwrap_or_default().into_bytes();
        let mut variables = self.environment.base();
        let temporary = tempfile::Builder::new().prefix("pml-").tempdir().map_err(|error| {
            let message = format!("cannot create a folder for temporary files: {error}");
            NativeError::new(ErrorCode::ToolFailed, message)
        })?;
        let confinement = (access != CommandAccess::Unconfined).then(|| {
            let network = access == CommandAccess::Network;
            let (root, temporary) = (self.workspace.root(), temporary.path());
            confinement(&program, root, temporary, network, &mut variables)
        });
        let file = program.file;
        if git::is_git(&file) || git::is_git(&name) {
            git::restrict(&mut argv, &mut variables, &file, &folder).await?;
        }
        // The resolved file, so that nothing searches the `PATH` or follows a link again. Some files are several
        // programs, and choose by the name.
        let mut full = vec![name.into_os_string()];
        full.extend(argv[1..].iter().map(Into::into));
        let input = Input::Bytes(stdin.len());
        let mut command = self.supervisor.command_as(input, confinement.as_ref(), &file, &full);
        command.envs(variables).current_dir(&folder);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut command = tokio::process::Command::from(command);
        // Without the supervisor, descendants of the program would live on. It kills them itself
        // when its pipe closes.
        command.kill_on_drop(false);
        let cannot = |error: std::io::Error| {
            NativeError::new(ErrorCode::ToolFailed, format!("cannot start `{}`: {error}", argv[0]))
        };
        let started = Instant::now();
        let mut child = command.spawn().map_err(cannot)?;
        // The supervisor kills the program when this end of the pipe closes: when this future is dropped, or when the
        // process exits.
        let mut life_line = child.stdin.take().expect("standard input was piped above");
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let run = async {
            // The pipe stays open after the input, because its end kills the program. The
            // supervisor counts the bytes and then closes the pipe of the program itself.
            let feed = async {
                // A program that exits without reading its input is not an error.
                let _ = life_line.write_all(&stdin).await;
                let _ = life_line.flush().await;
            };
            // Concurrently: a program blocks when one of its pipes is full and nobody reads it.
            let (stdout, stderr, ()) = tokio::join!(capture(out, kept), capture(err, kept), feed);
            (stdout, stderr, child.wait().await)
        };
        let ((stdout, cut_out), (stderr, cut_err), status) = tokio::select! {
            () = cancel.cancelled() => {
                return Err(NativeError::new(ErrorCode::Cancelled, format!("`{}` was cancelled", argv[0])));
            }
            done = tokio::time::timeout(limit, run) => done.map_err(|_| {
                let message = format!("`{}` did not exit within {} ms and was killed", argv[0], limit.as_millis());
                NativeError::new(ErrorCode::ToolTimeout, message)
            })?,
        };
        let mut result = json!({
            "exit_code": status.ok().and_then(|status| status.code()),
            "stdout": stdout,
            "stderr": stderr,
            "truncated": cut_out || cut_err,
            "duration_ms": started.elapsed().as_millis() as u64,
        });
        if result["exit_code"] != 0
            && let Some(note) = note(access, &[&result["stdout"], &result["stderr"]])
        {
            result["note"] = note.into();
        }
        Ok(json!({
            "content": [{ "type": "text", "text": result.to_string() }],
            "structuredContent": result,
        }))
    }
}

/// Whether this machine can confine commands.
static CAN_CONFINE: LazyLock<Result<(), String>> = LazyLock::new(Confinement::check_support);

/// Returns what may help a command that failed because it was confined. Whatever it was refused, the kernel's error is
/// the same.
fn note(access: CommandAccess, output: &[&Value]) -> Option<&'static str> {
    let was_refused = |text: &str| text.contains("ermission denied") || text.contains("EACCES");
    if !output.iter().any(|text| text.as_str().is_some_and(was_refused)) {
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

/// Applies the policy to a command.
fn judge(policy: &Policy, command: &policy::Command) -> Result<Judged, NativeError> {
    match policy.command(command) {
        Judged::Denied(reason) => {
            let name = protocol::escape_text(&command.argv[0]);
            let message = format!("the policy does not allow the command `{name}`: {reason}");
            Err(NativeError::new(ErrorCode::PolicyDenied, message))
        }
        judged => Ok(judged),
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

/// Reads a stream to its end and keeps its beginning.
async fn capture(stream: Option<impl AsyncRead + Unpin>, limit: usize) -> (String, bool) {
    let mut kept = Vec::new();
    let mut truncated = false;
    if let Some(mut stream) = stream {
        let mut chunk = vec![0; 16 * 1024];
        // A read error counts as the end of the stream.
        while let Ok(read @ 1..) = stream.read(&mut chunk).await {
            // Output beyond the limit is read too, because a full pipe would block the program.
            let room = limit - kept.len();
            kept.extend_from_slice(&chunk[..read.min(room)]);
            truncated |= read > room;
        }
    }
    (String::from_utf8_lossy(&kept).into_owned(), truncated)
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
