//! The peers: a warm Node process in which `@swc/core` and the TypeScript compiler parse the same programs.

use std::error::Error;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::figures::median;
use crate::pins::installed;

const DRIVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/analyze/peers.mjs");

/// A Node process that waits for requests.
pub(crate) struct Peers {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    /// The versions of the parsers and of Node.
    pub(crate) versions: String,
}

impl Peers {
    /// Installs the pinned parsers, once for each state of the pins, and starts Node.
    pub(crate) fn start() -> Result<Peers, Box<dyn Error>> {
        // Without Node, nothing is installed.
        let found = Command::new("node").arg("--version").stdout(Stdio::null()).status();
        found.map_err(|e| format!("`node` does not run: {e}"))?;
        let folder = installed("node_modules/typescript/lib/typescript.js")?;
        let mut child = Command::new("node")
            .arg(DRIVER)
            .arg(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().ok_or("Node has no stdout")?);
        let mut peers = Peers { child, stdin, stdout, versions: String::new() };
        let answer = peers.order(&json!({ "order": "versions" }))?;
        let version = |of: &str| answer[of].as_str().unwrap_or("?").to_owned();
        peers.versions = format!(
            "@swc/core {} and TypeScript {} in Node {}",
            version("swc"),
            version("typescript"),
            version("node")
        );
        Ok(peers)
    }

    /// Sends a program to Node.
    pub(crate) fn keep(&mut self, name: &str, text: &str) -> Result<(), Box<dyn Error>> {
        self.order(&json!({ "order": "keep", "name": name, "text": text })).map(|_| ())
    }

    /// Lets a parser parse a program several times; returns the median, measured by Node.
    pub(crate) fn parse(
        &mut self,
        parser: &str,
        name: &str,
        times: usize,
    ) -> Result<Duration, Box<dyn Error>> {
        let answer = self.order(&json!({ "order": parser, "name": name, "times": times }))?;
        if answer["statements"].as_u64().unwrap_or(0) == 0 {
            return Err(format!("{parser} found no statements in {name}").into());
        }
        let millis = answer["millis"].as_array().ok_or("Node returned no times")?;
        let seconds = millis.iter().filter_map(Value::as_f64).map(|millis| millis / 1e3);
        Ok(Duration::from_secs_f64(median(seconds)))
    }

    fn order(&mut self, order: &Value) -> Result<Value, Box<dyn Error>> {
        writeln!(self.stdin.as_mut().ok_or("Node's stdin is closed")?, "{order}")?;
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        serde_json::from_str(&line).map_err(|e| format!("Node answered `{line}`: {e}").into())
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        // Node exits when its stdin is closed.
        drop(self.stdin.take());
        let _ = self.child.wait();
    }
}
