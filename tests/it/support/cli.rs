//! The built `pml` in a new project and home folder.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use super::binaries::built;
use super::guard;
use super::mcp_client::{Era, StdioClient};
use super::mcp_servers::server_script;
use super::server::{Server, Tenant};

/// The variables of the test's own environment that the programs inherit: search paths, and network settings.
const INHERITED: &[&str] = &[
    "PATH",
    "LANG",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
    "NODE_EXTRA_CA_CERTS",
];

/// A project folder, a home folder, and the gateway of `pml`.
pub(crate) struct Project {
    folder: PathBuf,
    settings: Vec<(String, String)>,
}

/// Returns a policy that restricts nothing except commands, which must be of these programs.
pub(crate) fn policy_for(programs: &[&str]) -> Value {
    let all = json!({ "allow": ["**"], "hidden": true });
    json!({
        "filesystem": { "read": all, "write": all },
        "shell": { "allow": programs },
        "tools": ["*"],
    })
}

impl Project {
    /// Creates a project of a new tenant on the shared gateway.
    pub(crate) fn new() -> Self {
        Self::of(&Server::shared().tenant())
    }

    /// Creates a project of a tenant.
    pub(crate) fn of(tenant: &Tenant) -> Self {
        Self::at(&tenant.url).set("PML_API_KEY", &tenant.key)
    }

    /// Creates a project without an API key, for a gateway at `url`.
    pub(crate) fn at(url: &str) -> Self {
        let folder = guard::folder("p");
        for name in ["work/.git", "home", "tmp"] {
            std::fs::create_dir_all(folder.join(name)).expect("our own folder takes folders");
        }
        Self { folder, settings: Vec::new() }.set("PML_CLOUD_URL", url)
    }

    /// Creates a project whose gateway is unreachable.
    pub(crate) fn offline() -> Self {
        // A port that was bound and closed again has no listener.
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = free.local_addr().expect("it is bound");
        Self::at(&format!("http://{address}")).set("PML_API_KEY", "")
    }

    /// Sets an environment variable of the programs.
    pub(crate) fn set(mut self, name: &str, value: &str) -> Self {
        self.settings.retain(|(known, _)| known != name);
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Removes an environment variable of the programs.
    pub(crate) fn without(mut self, name: &str) -> Self {
        self.settings.retain(|(known, _)| known != name);
        self
    }

    /// Returns the workspace.
    pub(crate) fn workspace(&self) -> PathBuf {
        self.folder.join("work")
    }

    /// Returns a path in the workspace.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.workspace().join(name)
    }

    /// Returns the home folder.
    pub(crate) fn home(&self) -> PathBuf {
        self.folder.join("home")
    }

    /// Writes a file of the workspace, and creates its folders.
    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        let path = self.path(name);
        let folder = path.parent().expect("it is in the workspace");
        std::fs::create_dir_all(folder).expect("our own folder takes folders");
        std::fs::write(path, text).expect("our own folder takes files");
    }

    /// Reads a file of the workspace.
    #[track_caller]
    pub(crate) fn read(&self, name: &str) -> String {
        let path = self.path(name);
        std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("`{}`: {e}", path.display()))
    }

    /// Writes `.pml.json` and trusts it.
    #[track_caller]
    pub(crate) fn configure(self, config: &Value) -> Self {
        self.write(".pml.json", config.to_string());
        let trusted = self.run(&["trust", "--yes"]);
        assert!(trusted.status.success(), "pml trust: {}", text(&trusted.stderr));
        self
    }

    /// Returns an `mcpServers` entry for a reference server from npm, run by Node.
    pub(crate) fn node_server(&self, name: &str, arguments: &[&str]) -> Value {
        let script = server_script(name).display().to_string();
        let args: Vec<&str> =
            std::iter::once(script.as_str()).chain(arguments.iter().copied()).collect();
        json!({ "command": "node", "args": args, "env": { "MEMORY_FILE_PATH": self.path("memory.jsonl") } })
    }

    /// Allows tools by pattern.
    #[track_caller]
    pub(crate) fn allow(self, patterns: &[&str]) -> Self {
        self.configure(&json!({ "permissions": { "allow": patterns } }))
    }

    /// Allows these programs as commands, next to all other tools: a rule alone allows no command.
    pub(crate) fn allow_commands(self, programs: &[&str]) -> Self {
        let policy = policy_for(programs);
        let allow = json!(["shell:exec"]);
        self.configure(&json!({ "permissions": { "allow": allow }, "policy": policy }))
    }

    /// Prepares a run of `pml` in the workspace.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        self.wrap(Command::new(built("pml")), arguments)
    }

    /// Prepares another program with the working directory and environment of `pml`.
    pub(crate) fn wrap(&self, mut command: Command, arguments: &[&str]) -> Command {
        command.args(arguments).current_dir(self.workspace()).env_clear();
        for name in INHERITED {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command
            .env("HOME", self.home())
            .env("TMPDIR", self.folder.join("tmp"))
            .env("PML_WORKSPACE", self.workspace())
            .env("PML_TRUST_NONINTERACTIVE", "1")
            .envs(self.settings.iter().map(|(name, value)| (name, value)));
        for (name, folder) in [
            ("CONFIG", ".config"),
            ("DATA", ".local/share"),
            ("STATE", ".local/state"),
            ("CACHE", ".cache"),
        ] {
            command.env(format!("XDG_{name}_HOME"), self.home().join(folder));
        }
        command
    }

    /// Runs `pml` with an empty stdin and waits for it.
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.run_with(arguments, b"")
    }

    /// Runs `pml` with `input` on stdin and waits for it.
    pub(crate) fn run_with(&self, arguments: &[&str], input: &[u8]) -> Output {
        finish(self.command(arguments), input)
    }

    /// Runs a program with `pml exec - --json`; returns its envelope and the exit code.
    #[track_caller]
    pub(crate) fn exec(&self, code: &str) -> (Value, i32) {
        let output = self.run_with(&["exec", "-", "--json"], code.as_bytes());
        let envelope = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
            panic!("{error}: `{}`\n{}", text(&output.stdout), text(&output.stderr))
        });
        (envelope, output.status.code().expect("it ends by itself"))
    }

    /// Analyses a program with `pml analyze - --json`; returns the report and the exit code.
    #[track_caller]
    pub(crate) fn analyze(&self, code: impl AsRef<[u8]>) -> (Value, i32) {
        let output = self.run_with(&["analyze", "-", "--json"], code.as_ref());
        let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
            panic!("{error}: `{}`\n{}", text(&output.stdout), text(&output.stderr))
        });
        (report, output.status.code().expect("it ends by itself"))
    }

    /// Starts `pml stdio` and initializes it as a 2025-11-25 client.
    pub(crate) fn stdio(&self) -> StdioClient {
        StdioClient::start(self.command(&["stdio"]), Era::Handshake, &self.log())
    }

    /// Starts `pml stdio` for a 2026-07-28 client.
    pub(crate) fn stdio_stateless(&self) -> StdioClient {
        StdioClient::start(self.command(&["stdio"]), Era::Stateless, &self.log())
    }

    /// Starts `pml stdio` for a client that shows forms to the person.
    pub(crate) fn stdio_with_forms(&self, era: Era) -> StdioClient {
        let capabilities = json!({ "elicitation": {} });
        StdioClient::start_with(self.command(&["stdio"]), era, &self.log(), capabilities)
    }

    /// Returns the log file of `pml stdio`.
    pub(crate) fn log(&self) -> PathBuf {
        self.folder.join("stderr")
    }
}

/// Runs a prepared command with `input` on stdin and waits for it.
pub(crate) fn finish(mut command: Command, input: &[u8]) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{:?}: {error}", command.get_program()));
    let mut stdin = child.stdin.take().expect("stdin is piped");
    let input = input.to_owned();
    // Input is written in a separate thread, because a program may fill its output pipe before it has read all input.
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().expect("the child can be waited for");
    writer.join().expect("the writer does not panic");
    output
}

/// Returns bytes as text, for messages and comparisons.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
