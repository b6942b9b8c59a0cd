//! Sealed MCP servers: what a server can reach, with and without a `network` in its entry.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::support::binaries::built;
use crate::support::cli::{Project, text};
use crate::support::expect::{failure, success};
use crate::support::mcp_client::StdioClient;
use crate::support::mcp_servers::{PYTHON, python};

/// The server that makes attempts.
const REACH: &str = "reach";

/// A web server on this machine, and the number of its connections.
pub(crate) struct Site {
    pub(crate) port: u16,
    connections: Arc<AtomicUsize>,
}

impl Site {
    /// Starts a site that redirects `/away` to `away`.
    pub(crate) fn start(away: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let connections = Arc::new(AtomicUsize::new(0));
        let (count, away) = (Arc::clone(&connections), away.to_owned());
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                count.fetch_add(1, Ordering::SeqCst);
                let mut head = [0; 4096];
                let length = stream.read(&mut head).unwrap_or(0);
                let head = String::from_utf8_lossy(&head[..length]).into_owned();
                let answer = if head.contains(" /away ") {
                    format!("HTTP/1.1 302 Found\r\nLocation: {away}\r\nContent-Length: 0\r\n\r\n")
                } else {
                    let host = head.lines().find(|line| line.to_lowercase().starts_with("host:"));
                    let text = format!("hello {}", host.unwrap_or_default());
                    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len())
                };
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        Self { port, connections }
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// Sockets on this machine to which nothing may be sent: for datagrams, with a path, and with an abstract name.
pub(super) struct Sockets {
    datagrams: UdpSocket,
    named: UnixListener,
    hidden: UnixListener,
    path: PathBuf,
    name: String,
}

impl Sockets {
    /// Opens them; the path is in the workspace.
    pub(super) fn open(project: &Project) -> Self {
        let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
        datagrams.set_nonblocking(true).unwrap();
        let port = datagrams.local_addr().unwrap().port();
        let name = format!("pml-test-{}-{port}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let hidden = UnixListener::bind_addr(&address).unwrap();
        let path = project.path("socket");
        let named = UnixListener::bind(&path).unwrap();
        hidden.set_nonblocking(true).unwrap();
        named.set_nonblocking(true).unwrap();
        Self { datagrams, named, hidden, path, name }
    }

    /// An attempt to send a datagram.
    pub(super) fn datagram(&self) -> (&'static str, Value) {
        ("udp", json!({ "port": self.datagrams.local_addr().unwrap().port() }))
    }

    /// The attempts to connect to the others.
    pub(super) fn connections(&self) -> [(&'static str, Value); 2] {
        [("abstract", json!({ "name": self.name })), ("path", json!({ "path": self.path }))]
    }

    #[track_caller]
    pub(super) fn got_nothing(&self) {
        assert!(self.datagrams.recv(&mut [0; 16]).is_err());
        assert!(self.hidden.accept().is_err() && self.named.accept().is_err());
    }
}

/// Returns a project with a server that tries to leave its confinement; `network` is that of its entry.
fn project(network: &Value) -> Project {
    project_with(&json!({ "network": network }))
}

/// The same with other fields of its entry.
fn project_with(fields: &Value) -> Project {
    let mut entry = json!({ "command": "python3", "args": ["reaches_out.py"] });
    entry.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let project = Project::offline();
    project.write("reaches_out.py", include_str!("../../fixtures/reaches_out.py"));
    std::fs::create_dir_all(project.home().join(".ssh")).unwrap();
    std::fs::write(project.home().join(".ssh/id"), "canary").unwrap();
    project.configure(&json!({
        "permissions": { "allow": ["*"] },
        "mcpServers": { "reach": entry },
    }))
}

/// Makes an attempt with a tool of a server; returns what it answered, or why it failed.
#[track_caller]
pub(super) fn attempt(
    pml: &mut StdioClient,
    server: &str,
    kind: &str,
    arguments: Value,
) -> Result<String, String> {
    let code = format!(
        "try {{ return [true, await mcp.{server}.{kind}({arguments})] }} catch (error) {{ return [false, String(error)] }}"
    );
    let envelope = pml.execute(&code);
    let result = success(&envelope);
    let text = result[1].as_str().map_or_else(|| result[1].to_string(), str::to_owned);
    if result[0] == true { Ok(text) } else { Err(text) }
}

/// Makes attempts of which none may succeed.
#[track_caller]
pub(super) fn all_fail(pml: &mut StdioClient, server: &str, attempts: &[(&str, Value)]) {
    for (kind, arguments) in attempts {
        let tried = attempt(pml, server, kind, arguments.clone());
        assert!(tried.is_err(), "{kind} {arguments}: {tried:?}");
    }
}

/// Attempts on files and processes, which no sealed server may reach.
fn on_this_machine(project: &Project) -> Vec<(&'static str, Value)> {
    let secret = project.home().join(".ssh/id");
    let outside = project.home().join("new.txt");
    let child = format!("print(open({:?}).read())", secret.display().to_string());
    let pid = std::process::id();
    let mut attempts = vec![
        ("read", json!({ "path": secret })),
        ("read", json!({ "path": format!("/proc/self/root{}", secret.display()) })),
        ("list", json!({ "path": project.home() })),
        ("write", json!({ "path": outside })),
        ("write", json!({ "path": "/etc/pml-test" })),
        ("child", json!({ "code": child })),
        ("memory", json!({ "pid": pid })),
        ("trace", json!({ "pid": pid })),
        ("raw", json!({})),
        ("environ", json!({ "pid": pid })),
        ("descriptor", json!({})),
    ];
    // Since Linux 6.12.
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map(|number| number.parse().unwrap_or(0));
    if (numbers.next(), numbers.next()) >= (Some(6), Some(12)) {
        attempts.push(("signal", json!({ "pid": pid })));
    }
    attempts
}

/// With an empty list, a server opens no socket of any kind; it can use the workspace and a home of its own.
#[test]
fn without_hosts_nothing_is_reached() {
    let project = project(&json!([]));
    let site = Site::start("");
    let sockets = Sockets::open(&project);
    let mut pml = project.stdio();

    let port = site.port;
    let child = format!("import socket; socket.create_connection(('127.0.0.1', {port}), 5)");
    let mut attempts = on_this_machine(&project);
    attempts.extend([
        ("tcp", json!({ "port": port })),
        ("dns", json!({})),
        sockets.datagram(),
        ("get", json!({ "url": format!("http://127.0.0.1:{port}/") })),
        ("child", json!({ "code": child })),
    ]);
    attempts.extend(sockets.connections());
    all_fail(&mut pml, REACH, &attempts);
    assert_eq!(site.connections(), 0);
    sockets.got_nothing();
    assert!(!project.home().join("new.txt").exists());

    let inside = json!({ "path": project.path("inside.txt") });
    assert_eq!(attempt(&mut pml, REACH, "write", inside).unwrap(), "7");
    assert_eq!(project.read("inside.txt"), "changed");
    let home = attempt(&mut pml, REACH, "home", json!({})).unwrap();
    assert_ne!(home, project.home().display().to_string());
    let kept = json!({ "path": format!("{home}/kept") });
    assert_eq!(attempt(&mut pml, REACH, "write", kept.clone()).unwrap(), "7");
    drop(pml);
    assert_eq!(attempt(&mut project.stdio(), REACH, "read", kept).unwrap(), "changed");
}

/// With hosts, a server reaches these and nothing else, whatever it asks the proxy for. Its error says what it was refused
/// and how to allow it.
#[test]
fn only_listed_hosts_are_reached() {
    let other = Site::start("");
    let site = Site::start(&format!("http://localhost:{}/", other.port));
    let (port, closed) = (site.port, other.port);
    let project = project(&json!([format!("localhost:{port}")]));
    let mut pml = project.stdio();

    let page = json!({ "url": format!("http://localhost:{port}/page") });
    let host = format!("hello Host: localhost:{port}");
    assert_eq!(attempt(&mut pml, REACH, "get", page).unwrap().to_lowercase(), host.to_lowercase());
    let through =
        attempt(&mut pml, REACH, "tunnel", json!({ "host": format!("localhost:{port}") }));
    assert!(through.as_ref().is_ok_and(|text| text.contains("hello")), "{through:?}");
    // The host that was checked is the one that the site is told.
    let lie = format!("GET http://localhost:{port}/ HTTP/1.1\r\nHost: localhost:{closed}");
    let told = attempt(&mut pml, REACH, "proxy", json!({ "request": lie }));
    assert!(told.as_ref().is_ok_and(|line| line.contains("200")), "{told:?}");

    let refused =
        attempt(&mut pml, REACH, "get", json!({ "url": format!("http://localhost:{closed}/") }));
    let refused = refused.unwrap_err();
    let remedy = format!(
        "its `network` does not list `localhost:{closed}`; to allow it, add \"localhost:{closed}\""
    );
    assert!(refused.contains(&remedy), "{refused}");
    // It is on record, also if the call succeeds.
    let listed = "its `network` does not list";
    let proxied = format!("CONNECT localhost:{closed} HTTP/1.1");
    let answer = attempt(&mut pml, REACH, "proxy", json!({ "request": proxied })).unwrap();
    assert!(answer.contains("403"), "{answer}");
    let shown = project.run(&["runs", "show", "last", "--json"]);
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    let recorded = shown["calls"][0]["refused_connections"].as_str().unwrap();
    assert!(recorded.contains(listed) && recorded.contains(&closed.to_string()), "{shown:#}");
    let shown = text(&project.run(&["runs", "show", "last"]).stdout);
    assert!(shown.contains(&format!("  refused   {recorded}\n")), "{shown}");
    // Only the call during which it happened says so.
    let missing = attempt(&mut pml, REACH, "read", json!({ "path": "nowhere" })).unwrap_err();
    assert!(!missing.contains("network"), "{missing}");

    let before = site.connections();
    for request in [
        format!("CONNECT localhost:{closed} HTTP/1.1"),
        format!("CONNECT 127.0.0.1:{port} HTTP/1.1"),
        format!("CONNECT [::1]:{port} HTTP/1.1"),
        format!("CONNECT 2130706433:{port} HTTP/1.1"),
        format!("CONNECT user@localhost:{port} HTTP/1.1"),
        format!("CONNECT localhost.example:{port} HTTP/1.1"),
        format!("CONNECT localhost:{port}@127.0.0.1:{closed} HTTP/1.1"),
        "CONNECT localhost HTTP/1.1".to_owned(),
        format!("GET http://127.0.0.1:{port}/ HTTP/1.1"),
        format!("GET https://localhost:{port}/ HTTP/1.1"),
        format!("GET ftp://localhost:{port}/ HTTP/1.1"),
        format!("GET / HTTP/1.1\r\nHost: localhost:{port}"),
        format!("GET http://localhost/ HTTP/1.1\r\nHost: localhost:{port}"),
        format!("\0 http://localhost:{port}/ HTTP/1.1"),
    ] {
        let answer = attempt(&mut pml, REACH, "proxy", json!({ "request": request })).unwrap();
        let is_refused = ["HTTP/1.1 400", "HTTP/1.1 403"].iter().any(|one| answer.starts_with(one));
        assert!(is_refused, "{request:?}: {answer}");
    }
    assert_eq!((site.connections(), other.connections()), (before, 0));

    let sockets = Sockets::open(&project);
    let mut attempts = on_this_machine(&project);
    attempts.extend([
        ("tcp", json!({ "port": port })),
        ("dns", json!({})),
        // A redirect is another request.
        ("get", json!({ "url": format!("http://localhost:{port}/away") })),
    ]);
    attempts.extend(sockets.connections());
    all_fail(&mut pml, REACH, &attempts);
    // A datagram without an answer is sent without an error, into its own network.
    let (kind, arguments) = sockets.datagram();
    let _ = attempt(&mut pml, REACH, kind, arguments);
    sockets.got_nothing();
    assert_eq!((site.connections(), other.connections()), (before + 1, 0));
}

/// A server is sealed without any field in its entry. Its error says what it was refused, and how to allow it.
#[test]
fn by_default_a_server_is_sealed() {
    let project = project_with(&json!({}));
    let site = Site::start("");
    let sockets = Sockets::open(&project);
    let mut pml = project.stdio();

    let port = site.port;
    let child = format!("import socket; socket.create_connection(('127.0.0.1', {port}), 5)");
    let mut attempts = on_this_machine(&project);
    attempts.extend([
        ("tcp", json!({ "port": port })),
        ("dns", json!({})),
        ("child", json!({ "code": child })),
    ]);
    attempts.extend(sockets.connections());
    all_fail(&mut pml, REACH, &attempts);
    // A datagram without an answer is sent without an error, into its own network.
    let (kind, arguments) = sockets.datagram();
    let _ = attempt(&mut pml, REACH, kind, arguments);
    let page = json!({ "url": format!("http://localhost:{port}/") });
    let refused = attempt(&mut pml, REACH, "get", page).unwrap_err();
    let remedy = format!("to allow it, add \"network\": [\"localhost:{port}\"]");
    assert!(refused.contains(&remedy), "{refused}");
    assert_eq!(site.connections(), 0);
    sockets.got_nothing();
    let inside = json!({ "path": project.path("inside.txt") });
    assert_eq!(attempt(&mut pml, REACH, "write", inside).unwrap(), "7");
    let report = project.run(&["doctor", "--json"]);
    assert!(
        text(&report.stdout).contains("every server of `.pml.json` that starts here is sealed")
    );
}

/// The attempts of these tests succeed in a server that is not sealed.
#[test]
fn a_server_that_is_not_sealed_reaches_everything() {
    let site = Site::start("");
    let project = project_with(&json!({ "sealed": false }));
    let mut pml = project.stdio();
    let path = project.path("socket");
    let _open = UnixListener::bind(&path).unwrap();
    let secret = project.home().join(".ssh/id");
    let child = format!("print(open({:?}).read())", secret.display().to_string());
    for (kind, arguments) in [
        ("read", json!({ "path": secret })),
        ("read", json!({ "path": format!("/proc/self/root{}", secret.display()) })),
        ("list", json!({ "path": project.home() })),
        ("write", json!({ "path": project.home().join("new.txt") })),
        ("child", json!({ "code": child })),
        ("tcp", json!({ "port": site.port })),
        ("path", json!({ "path": path })),
        ("get", json!({ "url": format!("http://127.0.0.1:{}/", site.port) })),
    ] {
        let tried = attempt(&mut pml, REACH, kind, arguments.clone());
        assert!(tried.is_ok(), "{kind} {arguments}: {tried:?}");
    }
    let report = project.run(&["doctor", "--json"]);
    let report = text(&report.stdout);
    assert!(report.contains("reach any host: `reach`"), "{report}");

    let both = json!({ "command": "x", "sealed": false, "network": [] });
    project.write(".pml.json", json!({ "mcpServers": { "x": both } }).to_string());
    let refused = project.run(&["trust", "--yes"]);
    let said = text(&refused.stderr);
    assert!(refused.status.code() == Some(2) && said.contains("has a `network`, which"), "{said}");
    // No seal reaches what a daemon runs.
    let project = project.configure(&json!({
        "permissions": { "allow": ["*"] },
        "mcpServers": { "x": { "command": "docker", "args": ["run", "-i", "image"] } },
    }));
    let envelope = project.stdio().execute("return await mcp.x.y({})");
    let message = failure(&envelope, "CONFIG_INVALID");
    assert!(message.contains("add \"sealed\": false"), "{message}");
}

/// On a system that allows no network namespace, a server with hosts is not started, and one without has no sockets.
#[test]
fn without_a_namespace_a_server_with_hosts_is_refused() {
    // In a user namespace of its own, this limit can be set.
    let script = "echo 0 > /proc/sys/user/max_net_namespaces && exec \"$0\" exec p.ts --json";
    let pml = built("pml").display().to_string();
    let run = |project: &Project| -> Value {
        let unshare = Command::new("unshare");
        let output = project.wrap(unshare, &["-Ur", "sh", "-c", script, &pml]).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
            panic!("{error}: {} {}", text(&output.stdout), text(&output.stderr))
        })
    };
    let with_hosts = project(&json!(["localhost:1"]));
    with_hosts.write("p.ts", "return await mcp.reach.home({})");
    let envelope = run(&with_hosts);
    let message = failure(&envelope, "TOOL_UNAVAILABLE");
    assert!(message.contains("this system does not allow one"), "{message}");

    let without = project_with(&json!({}));
    let program = "const home = await mcp.reach.home({});
        try { return await mcp.reach.tcp({ port: 1 }) } catch (error) { return [home, String(error)] }";
    without.write("p.ts", program);
    let envelope = run(&without);
    let result = success(&envelope);
    assert!(result[0].is_string() && result[1].to_string().contains("ermission"), "{result}");
}

/// `all` opens the network, and no files.
#[test]
fn all_hosts_open_no_files() {
    let site = Site::start("");
    let project = project(&json!("all"));
    let mut pml = project.stdio();
    assert_eq!(attempt(&mut pml, REACH, "tcp", json!({ "port": site.port })).unwrap(), "connected");
    all_fail(&mut pml, REACH, &on_this_machine(&project));
}

/// The reference servers of npm and PyPI work sealed, without hosts.
#[test]
fn reference_servers_work_sealed() {
    let project = Project::offline();
    let node = |name: &str, arguments: &[&str]| project.node_server(name, arguments);
    let workspace = project.workspace().display().to_string();
    let time = python(PYTHON).join("mcp-server-time");
    let servers = json!({
        "everything": node("server-everything", &[]),
        "files": node("server-filesystem", &[&workspace]),
        "memory": node("server-memory", &[]),
        "thinking": node("server-sequential-thinking", &[]),
        "time": { "command": time, "args": ["--local-timezone", "UTC"] },
    });
    let project =
        project.configure(&json!({ "permissions": { "allow": ["*"] }, "mcpServers": servers }));
    project.write("a.txt", "hello");
    let envelope = project.stdio().execute(
        "const [echo, file, graph, thought, now] = await Promise.all([
           mcp.everything.echo({ message: 'hi' }),
           mcp.files.read_text_file({ path: 'a.txt' }),
           mcp.memory.create_entities({ entities: [{ name: 'n', entityType: 't', observations: [] }] }),
           mcp.thinking.sequentialthinking({ thought: 'a', nextThoughtNeeded: false, thoughtNumber: 1, totalThoughts: 1 }),
           mcp.time.get_current_time({ timezone: 'UTC' }),
         ]);
         return { echo, file, graph, thought, now }",
    );
    let result = success(&envelope).to_string();
    for part in ["Echo: hi", "hello", "entityType", "thoughtNumber", "UTC"] {
        assert!(result.contains(part), "{part}: {result}");
    }
    assert!(project.read("memory.jsonl").contains("\"n\""));
}
