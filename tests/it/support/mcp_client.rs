//! A raw MCP client on stdio, one JSON text per line, without an SDK.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::PATIENCE;
use super::processes::Pid;

/// The two generations of the MCP protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Era {
    /// 2025-11-25: `initialize` first.
    Handshake,
    /// 2026-07-28: every request is independent.
    Stateless,
}

impl Era {
    /// Returns the protocol version.
    pub(crate) fn version(self) -> &'static str {
        match self {
            Self::Handshake => "2025-11-25",
            Self::Stateless => "2026-07-28",
        }
    }

    /// Builds a request of this generation.
    pub(crate) fn request(self, id: u64, method: &str, mut params: Value) -> Value {
        if self == Self::Stateless {
            let client = json!({ "name": "pml-it", "version": "1" });
            params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!(self.version());
            params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
            params["_meta"]["io.modelcontextprotocol/clientInfo"] = client;
        }
        json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
    }
}

/// An MCP server as a child process, with its pipes.
pub(crate) struct StdioClient {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<Vec<u8>>,
    era: Era,
    /// What the client says that it can do.
    capabilities: Value,
    last_id: u64,
    answers: HashMap<u64, Value>,
    /// Every line that the server wrote.
    pub(crate) raw: Vec<Vec<u8>>,
}

impl StdioClient {
    /// Starts the server; its stderr goes to the file `log`.
    pub(crate) fn start(command: Command, era: Era, log: &Path) -> Self {
        Self::start_with(command, era, log, json!({}))
    }

    /// Starts the server as a client with these capabilities; the server's stderr goes to the file `log`.
    pub(crate) fn start_with(command: Command, era: Era, log: &Path, capabilities: Value) -> Self {
        let mut client = Self::spawn(command, era, log);
        client.capabilities = capabilities.clone();
        if era == Era::Handshake {
            let hello = client.request(
                "initialize",
                json!({
                    "protocolVersion": era.version(),
                    "capabilities": capabilities,
                    "clientInfo": { "name": "pml-it", "version": "1" },
                }),
            );
            assert_eq!(hello["result"]["protocolVersion"], era.version(), "{hello}");
            client.notify("notifications/initialized", json!({}));
        }
        client
    }

    /// Starts the server without sending anything.
    pub(crate) fn spawn(mut command: Command, era: Era, log: &Path) -> Self {
        let log = std::fs::File::create(log).expect("a log can be made in our own folder");
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| panic!("{:?}: {error}", command.get_program()));
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().expect("stdout is piped");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            let mut stdout = BufReader::new(stdout);
            loop {
                let mut line = Vec::new();
                match stdout.read_until(b'\n', &mut line) {
                    Ok(0) | Err(_) => break,
                    Ok(_) => drop(sender.send(line)),
                }
            }
        });
        let answers = HashMap::new();
        let capabilities = json!({});
        Self { child, stdin, lines, era, capabilities, last_id: 0, answers, raw: Vec::new() }
    }

    /// Returns the server's process.
    pub(crate) fn pid(&self) -> Pid {
        Pid::of(self.child.id())
    }

    /// Writes raw bytes. If the server has exited, they are dropped, and the test notices the missing answer.
    #[track_caller]
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        let stdin = self.stdin.as_mut().expect("stdin is open");
        match stdin.write_all(bytes).and_then(|()| stdin.flush()) {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
                panic!("the server's stdin: {error}")
            }
            _ => {}
        }
    }

    /// Sends a notification.
    pub(crate) fn notify(&mut self, method: &str, params: Value) {
        let message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        self.write(format!("{message}\n").as_bytes());
    }

    /// Sends a request and returns its id.
    #[track_caller]
    pub(crate) fn send(&mut self, method: &str, params: Value) -> u64 {
        self.last_id += 1;
        let mut message = self.era.request(self.last_id, method, params);
        if self.era == Era::Stateless {
            let own = "io.modelcontextprotocol/clientCapabilities";
            message["params"]["_meta"][own] = self.capabilities.clone();
        }
        self.write(format!("{message}\n").as_bytes());
        self.last_id
    }

    /// Returns the next message of any kind, or `None` if none arrives in time.
    pub(crate) fn next_message(&mut self, patience: Duration) -> Option<Value> {
        self.read(Instant::now() + patience)
    }

    fn read(&mut self, deadline: Instant) -> Option<Value> {
        let left = deadline.saturating_duration_since(Instant::now());
        match self.lines.recv_timeout(left) {
            Ok(line) => {
                let message = serde_json::from_slice(&line).unwrap_or_else(|error| {
                    panic!(
                        "a line on stdout is not JSON: {error}: {}",
                        String::from_utf8_lossy(&line)
                    )
                });
                self.raw.push(line);
                Some(message)
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => None,
        }
    }

    /// Waits for the answer to a request.
    #[track_caller]
    pub(crate) fn answer(&mut self, id: u64) -> Value {
        match self.answer_within(id, PATIENCE) {
            Some(answer) => answer,
            None => panic!("no answer to request {id} within {} s", PATIENCE.as_secs()),
        }
    }

    /// Waits for the answer to a request, at most for `patience`.
    pub(crate) fn answer_within(&mut self, id: u64, patience: Duration) -> Option<Value> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(answer) = self.answers.remove(&id) {
                return Some(answer);
            }
            let message = self.read(deadline)?;
            if let (Some(id), None) = (message["id"].as_u64(), message.get("method")) {
                self.answers.insert(id, message);
            }
        }
    }

    /// Waits for a request of the server, such as a form for the person.
    #[track_caller]
    pub(crate) fn server_request(&mut self, method: &str) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let message = self.read(deadline).unwrap_or_else(|| panic!("no `{method}`"));
            match (message.get("method"), message["id"].as_u64()) {
                (Some(name), _) if name == method => return message,
                (None, Some(id)) => drop(self.answers.insert(id, message)),
                _ => {}
            }
        }
    }

    /// Answers a request of the server.
    pub(crate) fn respond(&mut self, request: &Value, result: &Value) {
        let message = json!({ "jsonrpc": "2.0", "id": request["id"], "result": result });
        self.write(format!("{message}\n").as_bytes());
    }

    /// Sends a request and waits for its answer.
    #[track_caller]
    pub(crate) fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        self.answer(id)
    }

    /// Calls a tool and returns its MCP result.
    #[track_caller]
    pub(crate) fn call(&mut self, name: &str, arguments: Value) -> Value {
        let answer = self.request("tools/call", json!({ "name": name, "arguments": arguments }));
        answer.get("result").cloned().unwrap_or_else(|| panic!("`{name}`: {answer}"))
    }

    /// Submits a program without waiting; returns the request's id.
    #[track_caller]
    pub(crate) fn begin(&mut self, code: &str) -> u64 {
        let arguments = with_all_details(json!({ "code": code }));
        self.send("tools/call", json!({ "name": "pml_execute", "arguments": arguments }))
    }

    /// Runs a program and returns its envelope.
    #[track_caller]
    pub(crate) fn execute(&mut self, code: &str) -> Value {
        self.execute_request(json!({ "code": code }))
    }

    /// Runs `pml_execute` with these arguments and returns its whole envelope.
    #[track_caller]
    pub(crate) fn execute_request(&mut self, arguments: Value) -> Value {
        envelope(&self.call("pml_execute", with_all_details(arguments)))
    }

    /// Answers a question; returns the next envelope of the run.
    #[track_caller]
    pub(crate) fn resume(&mut self, approval: &Value, approved: bool, always: bool) -> Value {
        let arguments = json!({ "workflow_id": approval["workflow_id"], "approved": approved, "always": always });
        envelope(&self.call("pml_continue", arguments))
    }

    /// Closes the server's stdin, like a client that disconnects.
    pub(crate) fn hang_up(&mut self) {
        drop(self.stdin.take());
    }

    /// Waits until the server has ended.
    #[track_caller]
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let child = &mut self.child;
        super::poll("the server to end", PATIENCE, || child.try_wait().expect("it is our child"))
    }

    /// Reads everything up to the end of stdout; every line must be JSON.
    pub(crate) fn drain(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        while self.read(deadline).is_some() {}
    }
}

impl Drop for StdioClient {
    fn drop(&mut self) {
        // Gone at the end of the test, also when it failed; what `pml` started goes with it.
        self.hang_up();
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Requests all optional details of the answer of `pml_execute`, unless the arguments already have `include`.
pub(crate) fn with_all_details(mut arguments: Value) -> Value {
    if let Some(fields) = arguments.as_object_mut()
        && let Some(options) = fields.entry("options").or_insert_with(|| json!({})).as_object_mut()
    {
        options.entry("include").or_insert_with(|| json!(["calls", "tools_used", "dag"]));
    }
    arguments
}

/// Returns the envelope in the result of `pml_execute`, which has it as structured content and as text.
#[track_caller]
pub(crate) fn envelope(result: &Value) -> Value {
    let structured = result["structuredContent"].clone();
    let text = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {result}"));
    let parsed: Value = serde_json::from_str(text).expect("the text is the envelope as JSON");
    assert_eq!(parsed, structured, "the text and the structured content differ");
    let failed = structured["status"] == "error";
    assert_eq!(result["isError"].as_bool().unwrap_or(false), failed, "{result}");
    structured
}
