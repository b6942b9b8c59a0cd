//! The reference MCP filesystem server, started directly, for comparison.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

/// A running reference server for one folder.
pub(crate) struct Reference {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    next_id: u64,
}

impl Reference {
    pub(crate) fn start(folder: &Path) -> Self {
        let mut child = Command::new("node")
            .arg(crate::mcp_servers::server_script("server-filesystem"))
            .arg(folder)
            .env("TZ", "UTC")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("node must be installed for these tests");
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut reference = Self { child, input, output, next_id: 1 };
        reference.ask(
            "initialize",
            json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "test", "version": "0" } }),
        );
        let note = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        writeln!(reference.input, "{note}").unwrap();
        reference
    }

    pub(crate) fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.next_id;
        self.next_id += 1;
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        writeln!(self.input, "{request}").unwrap();
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the reference server ended");
            let message: Value = serde_json::from_str(&line).unwrap();
            if message["id"] == id {
                return message["result"].clone();
            }
        }
    }

    pub(crate) fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        self.ask("tools/call", json!({ "name": tool, "arguments": arguments }))
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
