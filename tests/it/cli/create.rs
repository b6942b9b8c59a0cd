//! `pml_create`: publishes a program, given as text or by the id of a run. Through `pml`, the user approves it first.

use serde_json::{Value, json};

use crate::support::cli::Project;
use crate::support::expect::{failure, question, success};
use crate::support::http::{HttpMcp, get};
use crate::support::mcp_client::{Era, StdioClient, envelope};
use crate::support::server::{Server, Tenant};
use crate::support::terminal::approve;

const TRIPLE: &str =
    "/** Triples a number. */\nreturn await mcp.math.eval({ expression: `3 * ${args.n}` })";

fn author() -> Tenant {
    Server::shared().tenant_with_rights("execute,read,publish")
}

#[track_caller]
fn create(tenant: &Tenant, arguments: Value) -> Value {
    let result = HttpMcp::new(tenant, Era::Stateless).call("pml_create", arguments);
    result["structuredContent"].clone()
}

#[track_caller]
fn create_by_cli(pml: &mut StdioClient, arguments: Value) -> Value {
    envelope(&pml.call("pml_create", arguments))
}

/// Returns the status of an entry, and the entry.
fn entry(tenant: &Tenant, name: &str) -> (u16, Value) {
    let authorization = format!("Bearer {}", tenant.key);
    let headers = [("authorization", authorization.as_str()), ("accept", "application/json")];
    let reply = get(&format!("{}/mcp/{name}", tenant.url), &headers);
    (reply.status, reply.json())
}

#[test]
fn create_publishes_code_and_infers_its_parameters() {
    let author = author();
    let done = create(&author, json!({ "name": "maths.triple", "code": TRIPLE }));
    let made = success(&done);
    assert_eq!((&made["version"], &made["routing"]), (&json!("0.1.0"), &json!("server")));
    let (status, found) = entry(&author, "maths:triple");
    assert_eq!(
        (status, &found["integrity"], &found["fqdn"]),
        (200, &made["integrity"], &made["fqdn"])
    );
    let schema = &found["tools"][0]["inputSchema"];
    assert_eq!(schema["required"], json!(["n"]));
    assert_eq!(schema["additionalProperties"], json!(false));
    let run =
        HttpMcp::new(&author, Era::Stateless).execute("return await mcp.maths.triple({ n: 5 })");
    assert_eq!(success(&run), 15);

    // A given schema replaces the inferred one, and a published version never changes.
    let given = json!({ "type": "object", "properties": { "n": { "type": "number" } } });
    let again = json!({
        "name": "maths:triple", "code": TRIPLE, "version": "0.1.0", "parameters": given,
    });
    failure(&create(&author, again), "CONFLICT");
    let next = json!({ "name": "maths:triple", "code": TRIPLE, "parameters": given, "visibility": "private" });
    assert_eq!(success(&create(&author, next))["version"], "0.1.1");
    let (_, found) = entry(&author, "maths:triple");
    assert_eq!(found["tools"][0]["inputSchema"], given);

    // The type of a parameter comes from the schema of the tool that receives it.
    let code = "/** Parses. */ return await mcp.json.parse({ data: args.text })";
    success(&create(&author, json!({ "name": "texts.parse", "code": code })));
    let (_, found) = entry(&author, "texts:parse");
    let (_, tool) = entry(&author, "json:parse");
    let types = [
        &found["tools"][0]["inputSchema"]["properties"]["text"]["type"],
        &tool["tools"][0]["inputSchema"]["properties"]["data"]["type"],
    ];
    assert_eq!(types[0], types[1]);
    assert_eq!(found["tools"][0]["inputSchema"]["required"], json!(["text"]), "{tool:#}");
}

/// A given execution id must name a run of the same principal that succeeded with exactly this code.
#[test]
fn an_execution_id_must_be_a_successful_run_of_the_same_code() {
    let author = author();
    let run = |tenant: &Tenant, code: &str, args: Value| {
        let arguments = json!({ "code": code, "args": args });
        envelope(&HttpMcp::new(tenant, Era::Stateless).call("pml_execute", arguments))
    };
    let ran = run(&author, TRIPLE, json!({ "n": 2 }));
    assert_eq!(success(&ran), 6);
    let failed = run(&author, "/** Fails. */ throw new Error('no')", json!({}));
    failure(&failed, "PROGRAM_FAILED");
    let of = |execution: &Value, code: &str| json!({ "name": "maths.ran", "code": code, "execution_id": execution["execution_id"] });

    failure(&create(&author, of(&ran, "/** Other. */ return 1")), "CODE_HASH_MISMATCH");
    failure(&create(&author, of(&failed, "/** Fails. */ throw new Error('no')")), "CONFLICT");
    let unknown = json!({ "execution_id": "019a0000-0000-7000-8000-000000000000" });
    failure(&create(&author, of(&unknown, TRIPLE)), "NOT_FOUND");
    failure(&create(&author, of(&json!({ "execution_id": "../x" }), TRIPLE)), "NOT_FOUND");
    failure(&create(&self::author(), of(&ran, TRIPLE)), "NOT_FOUND");
    let delegated = HttpMcp::new(&author, Era::Stateless)
        .with_package()
        .execute("/** Reads. */ return await mcp.filesystem.read_file({ path: 'a' })");
    let arguments = json!({
        "name": "files.read", "workflow_id": delegated["workflowId"],
        "code": "/** Reads. */ return await mcp.filesystem.read_file({ path: 'a' })",
    });
    failure(&create(&author, arguments), "CONFLICT");
    assert_eq!(entry(&author, "maths:ran").0, 404, "nothing was published");
    success(&create(&author, of(&ran, TRIPLE)));
    assert_eq!(entry(&author, "maths:ran").0, 200);
}

#[test]
fn create_needs_the_publish_right() {
    let reader = Server::shared().tenant();
    let arguments = json!({ "name": "a.b", "code": TRIPLE });
    failure(&create(&reader, arguments.clone()), "FORBIDDEN");
    success(&create(&author(), arguments));
    for arguments in [
        json!({ "name": "a.b" }),
        json!({ "code": TRIPLE }),
        json!({ "name": "a.b", "code": TRIPLE, "x": 1 }),
    ] {
        failure(&create(&author(), arguments), "INVALID_REQUEST");
    }
}

/// Publishing sends the program to the gateway. The question shows its text, and a no publishes nothing.
#[test]
fn pml_asks_the_user_before_it_publishes_a_program() {
    let author = author();
    let project = Project::of(&author);
    let mut pml = project.stdio();
    let arguments = json!({ "name": "maths.triple", "code": TRIPLE, "visibility": "org" });
    let pending = create_by_cli(&mut pml, arguments.clone());
    assert_eq!(question(&pending)["context"]["tool"], "pml:create");
    assert_eq!(pending["context"]["arguments"]["code"], TRIPLE);
    assert!(pending.to_string().contains("everybody in your organisation"), "{pending:#}");
    failure(&pml.resume(&pending, false, false), "APPROVAL_DENIED");
    assert_eq!(entry(&author, "maths:triple").0, 404);

    let pending = create_by_cli(&mut pml, arguments);
    approve(&project, &pending, false);
    assert_eq!(success(&pml.resume(&pending, true, false))["version"], "0.1.0");
    assert_eq!(entry(&author, "maths:triple").0, 200);
    // An invalid program is refused without a question.
    let broken = json!({ "name": "maths.broken", "code": "return (" });
    failure(&create_by_cli(&mut pml, broken), "PARSE_ERROR");
}

#[test]
fn an_allow_rule_covers_project_visibility_only() {
    let author = author();
    let project = Project::of(&author).allow(&["pml:create"]);
    let mut pml = project.stdio();
    let near = json!({ "name": "a.near", "code": TRIPLE, "visibility": "project" });
    success(&create_by_cli(&mut pml, near));
    for visibility in [json!("org"), json!("public"), Value::Null] {
        let far = json!({ "name": "a.far", "code": TRIPLE, "visibility": visibility });
        question(&create_by_cli(&mut pml, far));
    }
    let project =
        project.configure(&json!({ "permissions": { "allow": ["*"], "deny": ["pml:create"] } }));
    let mut pml = project.stdio();
    let denied = json!({ "name": "a.denied", "code": TRIPLE, "visibility": "private" });
    failure(&create_by_cli(&mut pml, denied), "PERMISSION_DENIED");
    assert_eq!(entry(&author, "a:denied").0, 404);
    assert_eq!(entry(&author, "a:near").0, 200);
}

/// `pml` remembers the program of each run, whether it ran on the gateway or on this machine.
#[test]
fn a_successful_run_can_be_published_by_its_execution_id() {
    let author = author();
    let project = Project::of(&author).allow(&["*"]);
    project.write("a.txt", "text");
    let mut pml = project.stdio();
    let code = "/** Reads a file. */ return await mcp.filesystem.read_text_file({ path: 'a.txt' })";
    for (name, code) in [("files.a", code), ("maths.one", "/** One. */ return 1")] {
        let ran = pml.execute(code);
        success(&ran);
        let create = |code: Option<&str>| json!({ "name": name, "execution_id": ran["execution_id"], "code": code, "visibility": "private" });
        failure(
            &create_by_cli(&mut pml, create(Some("/** Other. */ return 2"))),
            "CODE_HASH_MISMATCH",
        );
        success(&create_by_cli(&mut pml, create(None)));
        let (status, found) = entry(&author, name.replace('.', ":").as_str());
        assert_eq!((status, found["type"].as_str()), (200, Some("deno")));
    }
    let failed = pml.execute("throw new Error('no')");
    let arguments =
        json!({ "name": "a.b", "execution_id": failed["execution_id"], "visibility": "private" });
    failure(&create_by_cli(&mut pml, arguments), "INVALID_REQUEST");
}
