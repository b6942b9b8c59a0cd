//! `make try`: starts a gateway on its private Postgres, runs three programs
//! through a real `pml stdio`, and prints how to connect an agent.

#![allow(clippy::print_stdout, reason = "this program's whole purpose is to print")]

use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

type AnyResult<T> = Result<T, Box<dyn Error>>;

/// Their names, the side that each runs on, and their texts.
const PROGRAMS: &[(&str, &str, &str)] = &[
    (
        "server only",
        "server",
        r#"const numbers = [3, 1, 4, 1, 5, 9, 2, 6];
const [stats, hash] = await Promise.all([
  mcp.math.stats({ numbers }),
  mcp.crypto.hash({ data: "pml", algorithm: "sha256" }),
]);
return { mean: stats.mean, hash: hash.slice(0, 12) };"#,
    ),
    (
        "client only",
        "client",
        r#"const listing: string = await mcp.filesystem.list_directory({ path: "." });
const text = await mcp.filesystem.read_text_file({ path: "notes.md" });
return { files: listing.split("\n").length, words: text.split(/\s+/).filter(Boolean).length };"#,
    ),
    (
        "mixed",
        "client",
        r#"const text = await mcp.filesystem.read_text_file({ path: "orders.json" });
const orders: { item: string; price: number }[] = await mcp.json.parse({ data: text });
const total = orders.reduce((sum, order) => sum + order.price, 0);
return { orders: orders.length, total };"#,
    ),
];

fn main() -> AnyResult<()> {
    let bin = binaries()?;
    let base = fresh_folder()?;
    let result = run(&bin, &base);
    // The folder contains only what this program has created.
    let _ = fs::remove_dir_all(&base);
    result
}

fn run(bin: &Path, base: &Path) -> AnyResult<()> {
    println!("Starting pml-server on its private Postgres …");
    let data = base.join("data");
    let mut server = StopOnDrop(
        Command::new(bin.join("pml-server"))
            .env("PML_LISTEN", "127.0.0.1:0")
            .env("PML_DATA_DIR", &data)
            .env("PML_LOG", "warn")
            .env_remove("PML_DATABASE_URL")
            .stdout(Stdio::piped())
            .spawn()?,
    );
    let stdout = server.0.stdout.take().ok_or("the server has no stdout")?;
    let url = first_url(stdout)?;
    let key = fs::read_to_string(data.join("local.key"))?;
    println!("  {url}, scope local.default, key in its data directory\n");

    let workspace = base.join("project");
    fs::create_dir(&workspace)?;
    fs::create_dir(workspace.join(".git"))?;
    fs::write(workspace.join("notes.md"), "# Notes\n\nTry PML on a real project.\n")?;
    fs::write(
        workspace.join("orders.json"),
        json!([{ "item": "tea", "price": 4 }, { "item": "cake", "price": 6 }]).to_string(),
    )?;
    let pml = |arguments: &[&str]| {
        let mut command = Command::new(bin.join("pml"));
        command
            .args(arguments)
            .current_dir(&workspace)
            .env("HOME", base.join("home"))
            .env_remove("XDG_CONFIG_HOME")
            .env_remove("XDG_STATE_HOME")
            .env("PML_WORKSPACE", &workspace)
            .env("PML_CLOUD_URL", &url)
            .env("PML_API_KEY", key.trim())
            .env("PML_LOG", "warn");
        command
    };
    fs::create_dir(base.join("home"))?;
    println!("Connecting a project: pml init --yes");
    let init = pml(&["init", "--yes"]).output()?;
    if !init.status.success() {
        return Err(String::from_utf8_lossy(&init.stderr).into_owned().into());
    }

    let mut agent = Agent::start(pml(&["stdio"]))?;
    println!("Connected to `pml stdio` as an agent would (MCP {}).\n", agent.version);
    for (name, side, program) in PROGRAMS {
        let envelope = agent.execute(program)?;
        show(name, program, &envelope)?;
        if envelope["executed"] != *side {
            return Err(format!("the program should have run on the {side}").into());
        }
    }
    drop(agent);
    println!(
        "\
To use it: keep a gateway running and connect your agent to `pml stdio`.

  {server} &
  export PML_CLOUD_URL=http://127.0.0.1:3001
  export PML_API_KEY=…              # the key that the gateway shows

  In a project, `pml init` connects the agents that it finds. By hand:
    Claude Code  claude mcp add pml -- {pml} stdio
    Cursor       .cursor/mcp.json   {{ \"mcpServers\": {{ \"pml\": {{ \"command\": \"{pml}\", \"args\": [\"stdio\"] }} }} }}
    VS Code      .vscode/mcp.json   {{ \"servers\": {{ \"pml\": {{ \"type\": \"stdio\", \"command\": \"{pml}\", \"args\": [\"stdio\"] }} }} }}",
        server = bin.join("pml-server").display(),
        pml = bin.join("pml").display(),
    );
    Ok(())
}

/// Prints a run: the plan, the side that it ran on, each call with its duration, and the result.
fn show(name: &str, program: &str, envelope: &Value) -> AnyResult<()> {
    println!("── {name}");
    for line in program.lines() {
        println!("   {line}");
    }
    if envelope["status"] != "success" {
        return Err(format!("the program did not succeed: {envelope:#}").into());
    }
    println!("   plan");
    for task in envelope["dag"]["tasks"].as_array().ok_or("no plan in the answer")? {
        let before: Vec<&str> = task["depends_on"]
            .as_array()
            .map(|tasks| tasks.iter().filter_map(Value::as_str).collect())
            .unwrap_or_default();
        let after =
            if before.is_empty() { String::new() } else { format!(" after {}", before.join(", ")) };
        println!(
            "     layer {}  {} {}{after}",
            task["layer"],
            task["id"].as_str().unwrap_or("?"),
            task["tool"].as_str().unwrap_or("?")
        );
    }
    println!(
        "   ran on the {} in {:.1} ms",
        envelope["executed"].as_str().unwrap_or("?"),
        envelope["duration_ms"].as_f64().unwrap_or(0.0)
    );
    for call in envelope["calls"].as_array().ok_or("no calls in the answer")? {
        println!(
            "     {:32} {:7} {:8.2} ms",
            call["tool"].as_str().unwrap_or("?"),
            call["routing"].as_str().unwrap_or("?"),
            call["duration_ms"].as_f64().unwrap_or(0.0)
        );
    }
    println!("   result {}\n", envelope["result"]);
    Ok(())
}

/// A minimal MCP client over a child's stdin and stdout.
struct Agent {
    child: StopOnDrop,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    next_id: u64,
    version: String,
}

impl Agent {
    fn start(mut command: Command) -> AnyResult<Self> {
        let mut child = StopOnDrop(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?);
        let stdin = child.0.stdin.take();
        let stdout = BufReader::new(child.0.stdout.take().ok_or("pml has no stdout")?);
        let mut agent = Self { child, stdin, stdout, next_id: 1, version: String::new() };
        let hello = agent.request(
            "initialize",
            json!({
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": { "name": "try", "version": "1" },
            }),
        )?;
        agent.version = hello["protocolVersion"].as_str().unwrap_or("?").to_owned();
        agent.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))?;
        Ok(agent)
    }

    fn execute(&mut self, code: &str) -> AnyResult<Value> {
        let result = self.request(
            "tools/call",
            json!({ "name": "pml_execute", "arguments": {
                "code": code, "options": { "include": ["calls", "dag"] } } }),
        )?;
        Ok(result["structuredContent"].clone())
    }

    fn request(&mut self, method: &str, params: Value) -> AnyResult<Value> {
        let id = self.next_id;
        self.next_id += 1;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))?;
        loop {
            let mut line = String::new();
            if self.stdout.read_line(&mut line)? == 0 {
                return Err("pml ended without an answer".into());
            }
            let answer: Value = serde_json::from_str(&line)?;
            if answer["id"] != id {
                continue;
            }
            return match answer.get("result") {
                Some(result) => Ok(result.clone()),
                None => Err(format!("pml refused `{method}`: {answer}").into()),
            };
        }
    }

    fn send(&mut self, message: &Value) -> AnyResult<()> {
        let stdin = self.stdin.as_mut().ok_or("pml's stdin is closed")?;
        writeln!(stdin, "{message}")?;
        Ok(stdin.flush()?)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // Closing its stdin stops `pml stdio`.
        self.stdin = None;
        let _ = self.child.0.wait();
    }
}

/// A child that is stopped when it is dropped.
struct StopOnDrop(Child);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(Some(_))) {
            return;
        }
        // `SIGTERM` lets the gateway stop its Postgres.
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

fn first_url(stdout: ChildStdout) -> AnyResult<String> {
    let mut lines = BufReader::new(stdout).lines();
    let mut url = None;
    for line in lines.by_ref() {
        let line = line?;
        if let Some(at) = line.find("http://") {
            url = Some(line[at..].split_whitespace().next().unwrap_or_default().to_owned());
            break;
        }
    }
    // Keep reading, so that the server never blocks on a full pipe.
    std::thread::spawn(move || lines.for_each(drop));
    url.ok_or_else(|| {
        "pml-server exited before it was ready; the reason is in its log above".into()
    })
}

/// Returns the folder of the two programs, which is the build folder of this one.
fn binaries() -> AnyResult<PathBuf> {
    let own = std::env::current_exe()?;
    let folder = own
        .ancestors()
        .find(|folder| folder.join("pml-server").is_file() && folder.join("pml").is_file());
    Ok(folder.ok_or("pml-server and pml are not built; run `make build`")?.to_owned())
}

/// Creates a folder that the account of the private Postgres can access even when this
/// runs as root. Its path is short, because the path of a Unix socket is limited.
fn fresh_folder() -> AnyResult<PathBuf> {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = std::env::temp_dir().join(format!("pml-try-{}", std::process::id()));
    fs::create_dir(&folder)?;
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755))?;
    Ok(folder)
}
