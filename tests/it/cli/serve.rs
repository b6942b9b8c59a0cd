//! `pml serve`: MCP over HTTP on 127.0.0.1, for clients that have the token.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::mpsc::channel;
use std::time::Duration;

use serde_json::json;

use crate::support::cli::{Project, finish, text};
use crate::support::expect::{failure, question, success};
use crate::support::http::{Reply, get, send};
use crate::support::processes::Pid;
use crate::support::serve::{Client, Serving, call, event};
use crate::support::server::Server;
use crate::support::terminal::approve;
use crate::support::upstream::{Entry, Everything, scope_of};
use crate::support::{PATIENCE, poll};

const READS: &str = "return await mcp.filesystem.read_text_file({ path: 'a.txt' })";

/// A program that ends only by its time limit, with the file that its command creates first.
const SLEEPS: &str =
    "return await mcp.shell.exec({ command: ['sh', '-c', 'echo $$ > begun; exec sleep 300'] })";

fn project() -> Project {
    let project = Project::offline().allow(&["filesystem:read_text_file"]);
    project.write("a.txt", "hello");
    project
}

/// Story 14.6: local tools are called over HTTP in both protocol generations, and by one client after another.
#[test]
fn programs_run_in_both_protocol_generations() {
    let project = project();
    let serving = Serving::start(&project);
    assert_eq!(success(&serving.execute(READS)), "hello");
    // A direct call of a tool.
    let message = call("filesystem:read_text_file", json!({ "path": "a.txt" }));
    let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call")];
    let reply = serving
        .post(&message, &[&headers[..], &[("mcp-name", "filesystem:read_text_file")]].concat());
    assert_eq!(event(&reply)["result"]["structuredContent"], json!({ "value": "hello" }));

    let message = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call",
        "params": { "name": "pml_execute", "arguments": { "code": READS } } });
    let (one, other) = (serving.begin(), serving.begin());
    assert_ne!(one, other);
    for session in [&one, &other] {
        let reply = serving.post(&message, &[("mcp-session-id", session)]);
        assert_eq!(success(&event(&reply)["result"]["structuredContent"]), "hello");
    }
    // An ended session is unknown, so that its client begins a new one; the other one goes on.
    let bearer = format!("Bearer {}", serving.token);
    let headers = [("authorization", bearer.as_str()), ("mcp-session-id", &one)];
    assert_eq!(send("DELETE", &serving.url, &headers, None).status, 202);
    assert_eq!(serving.post(&message, &[("mcp-session-id", &one)]).status, 404);
    assert_eq!(serving.post(&message, &[("mcp-session-id", &other)]).status, 200);
}

/// Story 14.6: tools of the gateway are called with the user's API key, and without one the error says how to get it.
#[test]
fn tools_of_the_gateway_are_called_through_it() {
    let (everything, server) = (Everything::start(), Server::shared());
    let tenant = server.tenant();
    let scope = scope_of(&tenant);
    let mut entry = Entry::http(&scope, "there", &everything.url);
    entry.tools = vec![json!({ "name": "echo", "inputSchema": { "type": "object" } })];
    entry.publish(server.installation());
    let program = "return await mcp.there.echo({ message: 'there' })";
    let project = Project::of(&tenant).allow(&["*"]);
    let serving = Serving::start(&project);
    let echoed = serving.execute(program);
    assert_eq!(success(&echoed), "there");
    let project = Project::at(&tenant.url).set("PML_API_KEY", "").allow(&["*"]);
    let serving = Serving::start(&project);
    let refused = serving.execute(program);
    assert_eq!(refused["status"], "error", "{refused}");
    assert!(refused.to_string().contains("PML_API_KEY"), "{refused}");
}

/// Nobody without the token gets past the door: no program runs.
#[test]
fn requests_without_the_token_run_nothing() {
    let project = project();
    let serving = Serving::start(&project);
    let message = call("pml_execute", json!({ "code": READS }));
    let body = || Some(message.to_string().into_bytes());
    let origin = serving.url.trim_end_matches("/mcp").to_owned();
    let bearer = format!("Bearer {}", serving.token);
    let common = [
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", "pml_execute"),
    ];
    let post =
        |url: &str, more: &[(&str, &str)]| send("POST", url, &[&common[..], more].concat(), body());
    let with_token = |more: &[(&str, &str)]| {
        post(&serving.url, &[&[("authorization", bearer.as_str())], more].concat())
    };
    let basic = format!("Basic {}", serving.token);
    let longer = format!("{bearer}x");
    let shorter = &bearer[..bearer.len() - 1];
    for authorization in ["Bearer", "Bearer ", "Bearer x", &serving.token, &basic, &longer, shorter]
    {
        let reply = post(&serving.url, &[("authorization", authorization)]);
        assert_eq!(reply.status, 401, "{authorization}");
        assert!(reply.header("www-authenticate").starts_with("Bearer "), "{authorization}");
        assert!(!text(&reply.body).contains(&serving.token));
    }
    assert_eq!(post(&serving.url, &[]).status, 401);
    assert_eq!(with_token(&[("authorization", "Bearer x")]).status, 401);
    assert_eq!(get(&format!("{}?token={}", serving.url, serving.token), &[]).status, 401);
    // Pages of other sites, also those whose name leads here.
    for (name, value) in [
        ("host", "evil.test"),
        ("host", "127.0.0.1.evil.test"),
        ("host", "localhost.evil.test:3003"),
        ("origin", "http://evil.test"),
        ("origin", "https://127.0.0.1.evil.test"),
        ("origin", "null"),
        ("origin", "file://"),
    ] {
        assert_eq!(with_token(&[(name, value)]).status, 403, "{name}: {value}");
    }
    for path in ["", "/", "/mcp/", "/MCP", "/mcp/x", "/.pml/serve-token", "//mcp"] {
        let reply = post(&format!("{origin}{path}"), &[("authorization", &bearer)]);
        assert_eq!(reply.status, 404, "{path}");
    }
    assert_eq!(with_token(&[("content-encoding", "gzip")]).status, 415);
    let preflight = [("origin", "http://evil.test"), ("access-control-request-method", "POST")];
    let reply = send("OPTIONS", &serving.url, &preflight, None);
    assert!(reply.status >= 400 && reply.header("access-control-allow-origin").is_empty());
    let large = vec![b' '; 3 * 1024 * 1024];
    let headers = [&common[..], &[("authorization", bearer.as_str())]].concat();
    assert_eq!(send("POST", &serving.url, &headers, Some(large)).status, 413);

    let listed = project.run(&["runs", "list", "--json"]);
    let listed = format!("{}{}", text(&listed.stdout), text(&listed.stderr));
    assert!(!listed.contains("completed"), "{listed}");
    // The same request with the token runs.
    assert_eq!(success(&event(&with_token(&[]))["result"]["structuredContent"]), "hello");
    assert_eq!(
        success(&event(&with_token(&[("origin", &origin)]))["result"]["structuredContent"]),
        "hello"
    );
}

/// A client that sends nothing, or half a request, does not keep others from being served.
#[test]
fn silent_connections_do_not_block_others() {
    let project = project();
    let serving = Serving::start(&project);
    let address = serving.url.trim_start_matches("http://").trim_end_matches("/mcp").to_owned();
    let connections: Vec<TcpStream> = (0..100)
        .map(|n| {
            let mut stream = TcpStream::connect(&address).unwrap();
            let part = format!(
                "POST /mcp HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {}\r\ncontent-length: 10\r\n\r\n{{",
                serving.token
            );
            stream.write_all(&part.as_bytes()[..part.len() * (n % 3) / 2]).unwrap();
            stream
        })
        .collect();
    assert_eq!(success(&serving.execute(READS)), "hello");
    drop(connections);
}

/// The token stays the same, so that clients keep working, and Git does not see it.
#[test]
fn the_token_is_private_and_lasts() {
    let project = project();
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command.current_dir(project.workspace()).args(arguments);
        text(&finish(command, b"").stdout)
    };
    git(&["init", "-q"]);
    let first = Serving::start(&project);
    let token = first.token.clone();
    let path = project.path(".pml/serve-token");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!git(&["status", "--porcelain", "-uall"]).contains("serve-token"));
    assert!(first.end("TERM").success());
    assert_eq!(Serving::start(&project).token, token);
    // Programs cannot read it unnoticed: it is in a protected place.
    let read =
        project.exec("return await mcp.filesystem.read_text_file({ path: '.pml/serve-token' })");
    assert!(read.0["status"] != "success" && !read.0.to_string().contains(&token), "{}", read.0);
    for content in ["", "short", &format!("{token}\n{token}\n")] {
        std::fs::write(&path, content).unwrap();
        let refused = project.run(&["serve", "--port", "0"]);
        assert_eq!(refused.status.code(), Some(2), "{content:?}");
        assert!(text(&refused.stderr).contains("delete it"), "{}", text(&refused.stderr));
    }
    std::fs::write(&path, &token).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
    let refused = project.run(&["serve", "--port", "0"]);
    assert!(text(&refused.stderr).contains("others can read it"), "{}", text(&refused.stderr));
}

#[test]
fn a_port_in_use_is_an_error_that_names_it() {
    let project = project();
    let serving = Serving::start(&project);
    let port = serving.url.trim_end_matches("/mcp").rsplit_once(':').unwrap().1;
    let refused = project.run(&["serve", "--port", port]);
    assert_eq!(refused.status.code(), Some(4));
    let error = text(&refused.stderr);
    assert!(error.contains(&format!("127.0.0.1:{port}")) && error.contains("--port"), "{error}");
    assert_eq!(project.run(&["serve", "--port", "70000"]).status.code(), Some(2));
    // The port of `.pml.json` counts if the file is trusted.
    let project = project.configure(&json!({ "server": { "port": port.parse::<u16>().unwrap() } }));
    let refused = text(&project.run(&["serve"]).stderr);
    assert!(refused.contains(&format!("127.0.0.1:{port}")), "{refused}");
}

/// A question is answered on a terminal, and only a person can answer it: the client that holds the token cannot.
#[test]
fn a_client_with_the_token_cannot_approve_for_the_person() {
    let project = Project::offline().allow_commands(&["touch"]).configure(&json!({
        "permissions": { "ask": ["shell:exec"] },
        "policy": crate::support::cli::policy_for(&["touch"]),
    }));
    let serving = Serving::start(&project);
    let program = "return (await mcp.shell.exec({ command: ['touch', 'made.txt'] })).exit_code";
    let asked = serving.execute(program);
    question(&asked);
    let id = &asked["workflow_id"];
    let answered = serving.call("pml_continue", json!({ "workflow_id": id, "approved": true }));
    question(&answered);
    assert!(!project.path("made.txt").exists());
    approve(&project, &asked, false);
    let ended = serving.call("pml_continue", json!({ "workflow_id": id, "approved": true }));
    assert_eq!(success(&ended), 0);
    assert!(project.path("made.txt").exists());
}

/// Story 14.6: calls are handled concurrently.
#[test]
fn a_hundred_calls_at_once_are_all_answered() {
    let project = project();
    let serving = Serving::start(&project);
    let client: &Client = &serving;
    std::thread::scope(|scope| {
        let calls: Vec<_> = (0..100).map(|_| scope.spawn(|| client.execute(READS))).collect();
        for call in calls {
            assert_eq!(success(&call.join().unwrap()), "hello");
        }
    });
}

/// Waits until the command of [`SLEEPS`] has begun; returns its process.
#[track_caller]
fn begun(project: &Project) -> Pid {
    poll("the command to begin", PATIENCE, || {
        let pid = std::fs::read_to_string(project.path("begun")).ok()?;
        pid.trim().parse().ok().map(Pid::of)
    })
}

#[track_caller]
fn ends(pid: Pid) {
    poll("the command to end", PATIENCE, || (!pid.is_alive()).then_some(()));
}

/// A cancelled call ends what it started: by a notification in a session, else by closing the connection.
#[test]
fn cancellation_ends_what_a_call_started() {
    let project = Project::offline().allow_commands(&["sh", "sleep"]);
    let serving = Serving::start(&project);
    let client: &Client = &serving;
    let session = serving.begin();
    let message = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call",
        "params": { "name": "pml_execute", "arguments": { "code": SLEEPS } } });
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| client.post(&message, &[("mcp-session-id", &session)]));
        let pid = begun(&project);
        let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 7 } });
        assert_eq!(serving.post(&cancel, &[("mcp-session-id", &session)]).status, 202);
        ends(pid);
        waiting.join().unwrap();
    });
    std::fs::remove_file(project.path("begun")).unwrap();

    let body = call("pml_execute", json!({ "code": SLEEPS })).to_string();
    let address = serving.url.trim_start_matches("http://").trim_end_matches("/mcp");
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "POST /mcp HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\n\
         mcp-method: tools/call\r\nmcp-name: pml_execute\r\ncontent-length: {}\r\n\r\n{body}",
        serving.token,
        body.len()
    )
    .unwrap();
    let pid = begun(&project);
    drop(stream);
    ends(pid);
}

/// A signal ends the calls, the streams and everything that was started.
#[test]
fn a_signal_ends_everything() {
    for signal in ["TERM", "INT", "HUP"] {
        let project = Project::offline().allow_commands(&["sh", "sleep"]);
        let serving = Serving::start(&project);
        let session = serving.begin();
        let bearer = format!("Bearer {}", serving.token);
        let address = serving.url.trim_start_matches("http://").trim_end_matches("/mcp");
        let mut listening = TcpStream::connect(address).unwrap();
        listening.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(
            listening,
            "GET /mcp HTTP/1.1\r\nhost: {address}\r\nauthorization: {bearer}\r\naccept: text/event-stream\r\n\
             mcp-session-id: {session}\r\nmcp-protocol-version: 2025-11-25\r\n\r\n"
        )
        .unwrap();
        let (url, (sender, ended)) = (serving.url.clone(), channel());
        std::thread::spawn(move || {
            let headers = [
                ("authorization", bearer.as_str()),
                ("content-type", "application/json"),
                ("accept", "application/json, text/event-stream"),
                ("mcp-session-id", &session),
            ];
            let message = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call",
                "params": { "name": "pml_execute", "arguments": { "code": SLEEPS } } });
            // Its connection is closed, so it may fail.
            let reply = std::panic::catch_unwind(|| {
                send("POST", &url, &headers, Some(message.to_string().into()))
            });
            let _ = sender.send(reply.is_ok_and(|reply: Reply| is_success(&reply)));
        });
        let pid = begun(&project);
        assert!(serving.end(signal).success(), "{signal}");
        ends(pid);
        assert!(!ended.recv_timeout(Duration::from_secs(20)).unwrap(), "{signal}");
        let mut rest = Vec::new();
        let _ = listening.read_to_end(&mut rest);
        assert!(text(&rest).starts_with("HTTP/1.1 200"), "{signal}: {}", text(&rest));
    }
}

fn is_success(reply: &Reply) -> bool {
    let body = text(&reply.body);
    body.contains("data: {") && event(reply)["result"]["structuredContent"]["status"] == "success"
}

/// An untrusted file of the project grants nothing here either.
#[test]
fn an_untrusted_project_asks() {
    let project = Project::offline();
    project.write(".pml.json", json!({ "permissions": { "allow": ["*"] } }).to_string());
    project.write("a.txt", "hello");
    let serving = Serving::start(&project);
    let write = "return await mcp.filesystem.write_file({ path: 'b.txt', content: 'x' })";
    question(&serving.execute(write));
    project.write(".pml.json", json!({ "permissions": { "deny": ["*"] } }).to_string());
    failure(&serving.execute(READS), "PERMISSION_DENIED");
}
