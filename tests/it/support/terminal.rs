//! A person at a terminal: runs a command on a pseudo-terminal and answers its prompts.

use std::process::Command;

use serde_json::Value;

use super::cli::{Project, finish};
use super::mcp_client::StdioClient;

/// Runs its arguments on a pseudo-terminal, types an answer after each prompt, and prints what the terminal showed.
///
/// The first argument is a JSON list of pairs: a regular expression for the end of the output so far, and the text to
/// type. `\1` in the text is the first group of the match.
const SCRIPT: &str = r"
import json, os, pty, re, select, signal, sys, time
answers = json.loads(sys.argv[1])
pid, terminal = pty.fork()
if pid == 0:
    os.execvp(sys.argv[2], sys.argv[2:])
shown, deadline = b'', time.monotonic() + 60
while time.monotonic() < deadline:
    if select.select([terminal], [], [], 0.1)[0]:
        try:
            part = os.read(terminal, 65536)
        except OSError:
            break
        if not part:
            break
        shown += part
    if answers:
        match = re.search(answers[0][0] + r'\Z', shown.decode(errors='replace'))
        if match:
            os.write(terminal, (match.expand(answers[0][1]) + '\n').encode())
            answers.pop(0)
            shown += b'\n'
else:
    # It waits for an answer that nobody gives.
    os.kill(pid, signal.SIGKILL)
_, status = os.waitpid(pid, 0)
sys.stdout.write(shown.decode(errors='replace').replace('\r\n', '\n'))
sys.exit(os.waitstatus_to_exitcode(status))
";

/// Approves a question of a waiting run as a person does on a terminal: with a plain answer, or by retyping the code.
#[track_caller]
pub(crate) fn approve(project: &Project, asked: &Value, always: bool) {
    let id = asked["workflow_id"].as_str().expect("the run waits");
    let answer = match asked["context"]["dangerous"].as_bool() {
        Some(true) => {
            (r"Type ([a-z]+) to allow it, .*anything else to leave it unanswered: ", r"\1")
        }
        _ => (r"ot now: ", if always { "a" } else { "y" }),
    };
    let (shown, code) = on_terminal(project, &["approve", id], &[answer]);
    assert_eq!(code, 0, "{shown}");
}

/// Approves a question through the agent, or on a terminal if only a person can; returns the next envelope of the run.
#[track_caller]
pub(crate) fn say_yes(project: &Project, pml: &mut StdioClient, asked: &Value) -> Value {
    if asked["context"].get("needs_person").is_some() {
        approve(project, asked, false);
    }
    pml.resume(asked, true, false)
}

/// Runs `pml` on a terminal; returns what it showed and its exit code.
#[track_caller]
pub(crate) fn on_terminal(
    project: &Project,
    arguments: &[&str],
    answers: &[(&str, &str)],
) -> (String, i32) {
    let answers = serde_json::to_string(answers).expect("texts have a JSON form");
    let pml = super::binaries::built("pml").display().to_string();
    let all = [&["-c", SCRIPT, &answers, &pml], arguments].concat();
    let output = finish(project.wrap(Command::new("python3"), &all), b"");
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    (shown, output.status.code().expect("it ends by itself"))
}
