//! Keys, programs, arguments and results must not leak: not to a log, a gateway or a redirect.

use serde_json::json;

use crate::support::cli::{Project, text};
use crate::support::expect::success;
use crate::support::gateway_stub::{Answer, GatewayStub};
use crate::support::http::HttpMcp;
use crate::support::mcp_client::Era;
use crate::support::server::Installation;

const CANARY: &str = "canary-7f3a91";

/// Returns the first line of a log that contains a needle, shortened.
fn found(log: &str, needle: &str) -> Option<String> {
    let line = log.lines().find(|line| line.contains(needle))?;
    Some(line.chars().take(400).collect())
}

/// SE-01, P4: with everything logged, neither program logs a key, a program, an argument or a result.
#[test]
fn trace_logs_contain_no_keys_programs_arguments_or_results() {
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
        let printed = text(&stored.stdout) + &text(&stored.stderr);
        assert!(stored.status.success() && found(&printed, CANARY).is_none(), "{printed}");
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
    assert!(log.contains("A call ended"), "the call is not logged");
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

/// P8: `args` are sent to the gateway only with a program that has no local tool, and only after the gateway has
/// confirmed in a dry run that it runs the program.
#[test]
fn args_of_local_programs_are_not_sent_to_the_gateway() {
    let received = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let record = std::sync::Arc::clone(&received);
    let stub = GatewayStub::start(move |request| {
        record.lock().unwrap().push(request.to_string());
        let arguments = &request["params"]["arguments"];
        if arguments["options"]["dry_run"] != true {
            return Answer::Close;
        }
        // For this gateway, the tools of `notes` run on the user's machine and those of `json` on the server.
        let here = arguments["code"].as_str().unwrap().contains("mcp.notes");
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
    let received = received.lock().unwrap();
    assert!(received.len() >= 5, "{received:?}");
    assert!(received.iter().all(|body| !body.contains(CANARY)), "{received:?}");
    let with_args: Vec<_> = received.iter().filter(|body| body.contains("other-5b")).collect();
    assert_eq!(with_args.len(), 1, "control: server programs need their args; {received:?}");
    assert!(!with_args[0].contains("dry_run"), "{with_args:?}");
}

/// CL-04: the configuration of a repository cannot select the gateway that receives the user's programs and key.
#[test]
fn a_repository_cannot_choose_the_gateway() {
    let stub = GatewayStub::start(|_| Answer::Close);
    // Nothing may reach a real address, so other hosts than loopback go to a closed proxy.
    let project = Project::offline()
        .set("PML_CLOUD_URL", "")
        .set("PML_API_KEY", "pml_test")
        .set("HTTPS_PROXY", "http://127.0.0.1:9")
        .set("https_proxy", "http://127.0.0.1:9");
    project.write(".pml.json", json!({ "cloud": { "url": stub.url } }).to_string());
    let server_program = "return await mcp.json.parse({ data: '1' })";
    let (envelope, _) = project.exec(server_program);
    assert_eq!(envelope["status"], "error", "{envelope:#}");
    assert_eq!(stub.requests(), 0, "the untrusted file selected the gateway");
    assert!(project.run(&["trust", "--yes"]).status.success());
    project.exec(server_program);
    assert!(stub.requests() > 0, "the trusted file did not select the gateway");
}

/// GW-08, SE-13: `pml` does not follow a redirect of the gateway, which would receive the key.
#[test]
fn redirects_of_the_gateway_are_not_followed() {
    let other = GatewayStub::start(|_| Answer::Close);
    let target = other.url.clone();
    let stub = GatewayStub::start(move |_| Answer::Redirect(format!("{target}/mcp")));
    let project = Project::at(&stub.url).set("PML_API_KEY", "pml_test");
    let (envelope, code) = project.exec("return await mcp.json.parse({ data: '1' })");
    assert_eq!((envelope["status"].as_str(), code), (Some("error"), 4), "{envelope:#}");
    assert_eq!((stub.requests(), other.requests()), (1, 0));
}

/// A program file that cannot be read is an error without a panic.
#[test]
fn an_unreadable_program_file_is_an_error() {
    let output = Project::offline().run(&["exec", "/proc/self/mem"]);
    let stderr = text(&output.stderr);
    assert!(!output.status.success() && !stderr.contains("panicked"), "{stderr}");
}
