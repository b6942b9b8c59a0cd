//! The peer: one warm Deno from npm, which runs programs in Workers without permissions.

use std::error::Error;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::pins::installed;

const DRIVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/pool/deno.js");

/// A Deno that waits for orders.
pub(crate) struct Deno {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    /// As it names itself.
    pub(crate) version: String,
}

/// What Deno tells of one order.
pub(crate) struct Answer {
    /// The program's result.
    pub(crate) value: Value,
    /// How long it took, by Deno's own clock.
    pub(crate) took: Duration,
}

impl Deno {
    /// Installs the pinned Deno, once for each state of the pins, and starts it.
    pub(crate) fn start() -> Result<Deno, Box<dyn Error>> {
        let folder = installed(&binary())?;
        let program = folder.join(binary());
        let version = Command::new(&program).arg("--version").output()?.stdout;
        let version = String::from_utf8(version)?;
        let mut child = Command::new(&program)
            .args(["run", "--quiet", "--no-config", "--no-remote", "--unstable-worker-options"])
            .arg(DRIVER)
            .env("DENO_DIR", folder.join("deno-dir"))
            .env("DENO_NO_UPDATE_CHECK", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().ok_or("Deno has no stdout")?);
        let version = version.split(" (").next().unwrap_or_default().to_owned();
        Ok(Deno { child, stdin, stdout, version })
    }

    /// Runs a program in a new Worker.
    pub(crate) fn fresh(&mut self, program: &str, args: &Value) -> Result<Answer, Box<dyn Error>> {
        self.order(&json!({ "order": "fresh", "program": program, "args": args }))
    }

    /// Runs a program in a Worker that is already there; only the run is timed.
    pub(crate) fn started(
        &mut self,
        program: &str,
        args: &Value,
    ) -> Result<Answer, Box<dyn Error>> {
        self.order(&json!({ "order": "started", "program": program, "args": args }))
    }

    /// Runs a program over and over, each in a new Worker; the value is how often.
    pub(crate) fn flood(
        &mut self,
        program: &str,
        args: &Value,
        length: Duration,
        side_by_side: usize,
    ) -> Result<Answer, Box<dyn Error>> {
        self.order(&json!({
            "order": "flood", "program": program, "args": args,
            "millis": length.as_millis(), "side_by_side": side_by_side,
        }))
    }

    /// Returns its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn order(&mut self, order: &Value) -> Result<Answer, Box<dyn Error>> {
        writeln!(self.stdin.as_mut().ok_or("Deno's stdin is closed")?, "{order}")?;
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        let answer: Value =
            serde_json::from_str(&line).map_err(|e| format!("Deno answered `{line}`: {e}"))?;
        let millis = answer["millis"].as_f64().ok_or("Deno tells no time")?;
        Ok(Answer {
            value: answer["value"].clone(),
            took: Duration::from_secs_f64(millis / 1000.0),
        })
    }
}

impl Drop for Deno {
    fn drop(&mut self) {
        // It ends with its stdin.
        drop(self.stdin.take());
        let _ = self.child.wait();
    }
}

fn binary() -> String {
    let machine = if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" };
    format!("node_modules/@deno/linux-{machine}-glibc/deno")
}
