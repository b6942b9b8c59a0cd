//! What never stands in a log: keys, programs, arguments, results.

use serde_json::json;

use crate::support::cli::{Project, text};
use crate::support::expect::success;
use crate::support::gateway_stub::{Answer, GatewayStub};
use crate::support::http::HttpMcp;
use crate::support::mcp_client::Era;
use crate::support::server::Installation;

const CANARY: &str = "canary-7f3a91";

/// The first line of a log that holds a needle, cut short.
fn found(log: &str, needle: &str) -> Option<String> {
    let line = log.lines().find(|line| line.contains(needle))?;
    Some(line.chars().take(400).collect())
}

/// SE-01, P4: with everything logged, neither program logs a key, a program, an argument or a result.
#[test]
fn nothing_private_is_logged() {
    let installation = Installation::new();
    let server = installation.start_with(&[("PML_LOG", "trace")]);
    let tenant = server.tenant();
    let code = |canary: &str| {
        format!(
            "console.log('{canary}'); const data = await mcp.json.parse({{ data: JSON.stringify(args.x + '{canary}') }}); return data;"
        )
    };
    HttpMcp::new(&tenant, Era::Stateless).execute(&code(CANARY).replace("args.x", "'y'"));
    let project = Project::of(&tenant).allow(&["*"]).set("PML_LOG", "trace");
    for arguments in [&["keys", "set", "STORED_KEY", "--cloud"][..], &["keys", "set", "LOCAL_KEY"]]
    {
        let stored = project.run_with(arguments, CANARY.as_bytes());
        let said = text(&stored.stdout) + &text(&stored.stderr);
        assert!(stored.status.success() && found(&said, CANARY).is_none(), "{said}");
    }
    project.write("a.txt", format!("in a file: {CANARY}"));
    let mut pml = project.stdio();
    let run = json!({ "code": code(CANARY), "args": { "x": CANARY } });
    assert!(success(&pml.execute_request(run)).as_str().unwrap().contains(CANARY));
    let mixed = "return await mcp.json.parse({ data: JSON.stringify(await mcp.filesystem.read_text_file({ path: 'a.txt' })) })";
    assert!(success(&pml.execute(mixed)).as_str().unwrap().contains(CANARY));
    pml.hang_up();
    pml.wait();
    let log = std::fs::read_to_string(project.log()).unwrap();
    assert!(log.contains("A call ended"), "all that may be logged is");
    assert_eq!(server.stop(), Some(0));
    let first_key = installation.first_key();
    let leaks: Vec<String> = [("pml", log), ("pml-server", installation.log())]
        .iter()
        .flat_map(|(program, log)| {
            let secrets = [CANARY, tenant.key.as_str(), first_key.as_str()];
            secrets.map(|secret| found(log, secret).map(|line| format!("{program}: {line}")))
        })
        .flatten()
        .collect();
    assert!(leaks.is_empty(), "{leaks:#?}");
}

/// P8: arguments leave the machine only with a program that has no local part, and
/// that the gateway has said it runs.
#[test]
fn arguments_of_local_programs_stay_here() {
    let heard = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let hear = std::sync::Arc::clone(&heard);
    let stub = GatewayStub::start(move |request| {
        hear.lock().unwrap().push(request.to_string());
        let asked = &request["params"]["arguments"];
        if asked["options"]["dry_run"] != true {
            return Answer::Close;
        }
        // The tools of `notes` are of the user's machine, those of `json` are not.
        let here = asked["code"].as_str().unwrap().contains("mcp.notes");
        let plan = json!({
            "status": "success", "execution_id": "1", "executed": "server", "duration_ms": 0.0,
            "result": { "dry_run": true, "routing": if here { "client" } else { "server" } },
            "console": [], "calls": [], "tools_used": [], "dag": { "tasks": [] },
        });
        Answer::Json(json!({ "jsonrpc": "2.0", "id": request["id"], "result": {
            "content": [{ "type": "text", "text": plan.to_string() }], "structuredContent": plan,
        }}))
    });
    let project = Project::at(&stub.url).set("PML_API_KEY", "pml_test").allow(&["*"]);
    project.write("a.txt", format!("file {CANARY}"));
    let mut pml = project.stdio();
    for code in [
        "return args.secret + await mcp.filesystem.read_text_file({ path: 'a.txt' })",
        "return args.secret + await mcp.notes.list({})",
        "return await mcp[args.secret].list({})",
    ] {
        pml.execute_request(json!({ "code": code, "args": { "secret": CANARY } }));
    }
    let server = "return await mcp.json.parse({ data: args.x })";
    pml.execute_request(json!({ "code": server, "args": { "x": "other-5b" } }));
    let heard = heard.lock().unwrap();
    assert!(heard.len() >= 5, "{heard:?}");
    assert!(heard.iter().all(|body| !body.contains(CANARY)), "{heard:?}");
    let with_args: Vec<_> = heard.iter().filter(|body| body.contains("other-5b")).collect();
    assert_eq!(with_args.len(), 1, "the twin: server programs need theirs; {heard:?}");
    assert!(!with_args[0].contains("dry_run"), "{with_args:?}");
}

/// CL-04: a repository cannot name the gateway that gets the user's programs and key.
#[test]
fn a_repository_cannot_choose_the_gateway() {
    let stub = GatewayStub::start(|_| Answer::Close);
    // Nothing may reach a real address: whatever is no loopback goes to a closed proxy.
    let project = Project::offline()
        .set("PML_CLOUD_URL", "")
        .set("PML_API_KEY", "pml_test")
        .set("HTTPS_PROXY", "http://127.0.0.1:9")
        .set("https_proxy", "http://127.0.0.1:9");
    project.write(".pml.json", json!({ "cloud": { "url": stub.url } }).to_string());
    let server_program = "return await mcp.json.parse({ data: '1' })";
    let (envelope, _) = project.exec(server_program);
    assert_eq!(envelope["status"], "error", "{envelope:#}");
    assert_eq!(stub.requests(), 0, "an untrusted file names no gateway");
    assert!(project.run(&["trust", "--yes"]).status.success());
    project.exec(server_program);
    assert!(stub.requests() > 0, "a trusted one does");
}

/// GW-08, SE-13: a redirect carries the key nowhere.
#[test]
fn a_redirect_is_not_followed() {
    let other = GatewayStub::start(|_| Answer::Close);
    let target = other.url.clone();
    let stub = GatewayStub::start(move |_| Answer::Redirect(format!("{target}/mcp")));
    let project = Project::at(&stub.url).set("PML_API_KEY", "pml_test");
    let (envelope, code) = project.exec("return await mcp.json.parse({ data: '1' })");
    assert_eq!((envelope["status"].as_str(), code), (Some("error"), 4), "{envelope:#}");
    assert_eq!((stub.requests(), other.requests()), (1, 0));
}

/// The gateway does not answer with what stands in its database or its host.
#[test]
fn errors_show_no_insides() {
    let output = Project::offline().run(&["exec", "/proc/self/mem"]);
    let stderr = text(&output.stderr);
    assert!(!output.status.success() && !stderr.contains("panicked"), "{stderr}");
}
