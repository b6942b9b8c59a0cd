//! A gateway that lies about capabilities: content that does not match its name or hash never runs, and the user is
//! not asked about it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use sha2::Digest as _;

use crate::cli::hostile_gateway::{delegation, hash, result};
use crate::support::cli::Project;
use crate::support::expect::{failure, question, success};
use crate::support::gateway_stub::{Answer, GatewayStub};
use crate::support::terminal::say_yes;
use crate::support::{PATIENCE, poll};

const PROGRAM: &str = "return await mcp.files.make(args)";
const MAKE: &str = "return await mcp.filesystem.write_file({ path: 'made.txt', content: 'x' })";

/// A capability as a gateway serves it, with its hashes.
#[derive(Clone)]
pub(crate) struct Served {
    /// The FQDN with the hash part.
    pub(crate) fqdn: String,
    /// The hash of the entry.
    pub(crate) integrity: String,
    /// The entry and the program.
    pub(crate) module: String,
}

impl Served {
    /// Builds what an honest gateway would serve.
    pub(crate) fn new(fqdn: &str, version: &str, code: &str, calls: &[&str]) -> Self {
        Self::of_entry(
            json!({
                "fqdn": fqdn, "type": "deno", "description": "Makes.", "tools": [], "warnings": [],
                "version": version, "code_hash": hash(code), "calls": calls, "routing": "client",
            }),
            code,
        )
    }

    /// Computes the name and hash of an entry from its content, and serves it with this program.
    pub(crate) fn of_entry(mut entry: Value, code: &str) -> Self {
        let mut content = entry.clone();
        for field in ["integrity", "routing", "deprecated"] {
            content.as_object_mut().unwrap().remove(field);
        }
        content.sort_all_objects();
        let integrity = hash(&content.to_string());
        let digest = sha2::Sha256::digest(content.to_string());
        let fqdn =
            format!("{}.{:02x}{:02x}", entry["fqdn"].as_str().unwrap(), digest[0], digest[1]);
        entry["fqdn"] = json!(fqdn);
        entry["integrity"] = json!(integrity);
        Self { module: format!("// __meta__:{entry}\n{code}"), fqdn, integrity }
    }
}

/// The capabilities that a gateway serves, by id. Everything else that programs call are the gateway's own tools.
type Offered = BTreeMap<&'static str, Served>;

fn offer(
    capabilities: impl IntoIterator<Item = (&'static str, &'static str, Vec<&'static str>)>,
) -> Offered {
    let served = capabilities.into_iter().map(|(id, code, calls)| {
        let name = format!("evil.corp.{}", id.replace(':', "."));
        (id, Served::new(&name, "0.1.0", code, &calls))
    });
    served.collect()
}

/// Returns whether a program, or a question about names, calls a tool.
fn calls(code: &str, id: &str) -> bool {
    let (namespace, action) = id.split_once(':').unwrap();
    code.contains(&format!("mcp.{namespace}.{action}("))
        || code.contains(&format!("mcp[{namespace:?}][{action:?}]("))
}

/// Answers as a gateway with these capabilities would.
fn answer(offered: &Offered, head: &str, request: &Value) -> Answer {
    if request.is_null() {
        let wanted = head.split(' ').nth(1).and_then(|path| path.strip_prefix("/mcp/")).unwrap();
        let found = offered.values().find(|served| served.fqdn == wanted);
        return match found {
            Some(served) => {
                Answer::Raw(200, "application/typescript", served.module.clone().into_bytes())
            }
            None => Answer::Raw(404, "application/json", b"{}".to_vec()),
        };
    }
    let code = request["params"]["arguments"]["code"].as_str().unwrap();
    let known = offered.iter().filter(|(id, _)| calls(code, id));
    let mut tools: Vec<Value> = known
        .map(|(id, served)| {
            json!({ "id": id, "fqdn": served.fqdn, "integrity": served.integrity,
                    "type": "capability", "routing": "client", "tools": [] })
        })
        .collect();
    for id in ["math:eval", "json:parse"] {
        if calls(code, id) {
            tools.push(json!({ "id": id, "type": "tool", "routing": "server" }));
        }
    }
    if request["params"]["arguments"]["options"]["dry_run"] == true {
        return result(
            request,
            json!({
                "status": "success", "result": { "dry_run": true, "routing": "client" },
                "execution_id": "x", "executed": "server", "duration_ms": 0.0,
                "tools_used": tools,
            }),
        );
    }
    let mut answer = delegation(code, &hash(code));
    answer["tools_used"] = json!(tools);
    result(request, answer)
}

fn project(stub: &GatewayStub) -> Project {
    Project::at(&stub.url).set("PML_API_KEY", "pml_test_canary")
}

/// Serves these capabilities, and submits [`PROGRAM`] to a `pml` that allows every tool.
fn run(offered: Offered) -> Value {
    let stub = GatewayStub::start_with_head(move |head, request| answer(&offered, head, request));
    let project = project(&stub).allow(&["*"]);
    let mut pml = project.stdio();
    let envelope = pml.execute(PROGRAM);
    assert!(pml.pid().is_alive());
    failure(&pml.execute("return ("), "PARSE_ERROR");
    assert!(!project.path("made.txt").exists(), "{envelope:#}");
    assert!(!project.path(".pml/mcp.lock").exists(), "{envelope:#}");
    envelope
}

fn make() -> Offered {
    offer([("files:make", MAKE, vec!["filesystem:write_file"])])
}

/// The positive control for the tests below: an honest gateway.
#[test]
fn a_capability_of_an_honest_gateway_runs() {
    let stub = GatewayStub::start_with_head(move |head, request| answer(&make(), head, request));
    let project = project(&stub).allow(&["*"]);
    let mut pml = project.stdio();
    let pending = pml.execute(PROGRAM);
    assert_eq!(question(&pending)["approval_type"], "dependency");
    assert!(!project.path("made.txt").exists());
    success(&say_yes(&project, &mut pml, &pending));
    assert_eq!(project.read("made.txt"), "x");
}

/// CL-10: the content does not match its hashes.
#[test]
fn a_capability_with_a_wrong_hash_does_not_run() {
    let changes: [fn(&mut Served); 3] = [
        |served| served.module = served.module.replace("made.txt", "evil.txt"),
        |served| served.module = served.module.replace("Makes.", "Harmless."),
        |served| served.integrity = hash("another content"),
    ];
    for change in changes {
        let mut offered = make();
        change(offered.get_mut("files:make").unwrap());
        failure(&run(offered), "INTEGRITY_MISMATCH");
    }
}

/// CL-10: an entry that is valid, but of another capability.
#[test]
fn an_entry_under_another_name_does_not_run() {
    let other = Served::new("evil.corp.files.other", "0.1.0", MAKE, &["filesystem:write_file"]);
    let mut offered = make();
    let served = offered.get_mut("files:make").unwrap();
    served.module.clone_from(&other.module);
    failure(&run(offered), "GATEWAY_BAD_ANSWER");
    // The gateway lists it under its true name, but the program calls another.
    let message =
        failure(&run(BTreeMap::from([("files:make", other)])), "GATEWAY_BAD_ANSWER").to_owned();
    assert!(message.contains("files:make"), "{message}");
    let mut server = make();
    let served = server.get_mut("files:make").unwrap();
    served.module = served.module.replace("\"deno\"", "\"stdio\"");
    failure(&run(server), "GATEWAY_BAD_ANSWER");
}

/// P1, P2: `pml` determines the called tools by its own analysis, not from the entry or the list that came with it.
#[test]
fn the_declared_calls_must_match_the_local_analysis() {
    for (code, calls) in [
        (MAKE, vec![]),
        (MAKE, vec!["filesystem:read_file"]),
        (MAKE, vec!["filesystem:write_file", "shell:exec"]),
        ("return await mcp[args.a][args.b]({})", vec![]),
        ("const m = mcp; return await m[args.a].exec({})", vec!["shell:exec"]),
        ("return (", vec![]),
        ("import x from 'x'; return x", vec![]),
        ("return eval(args.code)", vec![]),
    ] {
        failure(&run(offer([("files:make", code, calls)])), "INTEGRITY_MISMATCH");
    }
    let deep = format!("return {}1{}", "(".repeat(32_000), ")".repeat(32_000));
    let deep = Served::new("evil.corp.files.make", "0.1.0", &deep, &[]);
    failure(&run(BTreeMap::from([("files:make", deep)])), "INTEGRITY_MISMATCH");
}

/// A `deny` rule stops the program at any depth, although the gateway does not list the nested call.
#[test]
fn deny_rules_apply_to_nested_capabilities() {
    let offered = offer([
        ("files:make", "return await mcp.files.inner(args)", vec!["files:inner"]),
        ("files:inner", MAKE, vec!["filesystem:write_file"]),
    ]);
    for denied in ["filesystem:*", "files:inner", "files:make", "filesystem:write_file"] {
        let offered = offered.clone();
        let stub =
            GatewayStub::start_with_head(move |head, request| answer(&offered, head, request));
        let rules = json!({ "permissions": { "allow": ["*"], "deny": [denied] } });
        let project = project(&stub).configure(&rules);
        let envelope = project.stdio().execute(PROGRAM);
        let message = failure(&envelope, "PERMISSION_DENIED");
        assert!(message.contains(denied), "{message}");
        assert!(!project.path("made.txt").exists());
    }
}

#[test]
fn recursive_and_deeply_nested_capabilities_are_refused() {
    let itself = offer([("files:make", "return await mcp.files.make({})", vec!["files:make"])]);
    failure(&run(itself), "TOO_COMPLEX");
    let circle = offer([
        ("files:make", "return await mcp.files.b({})", vec!["files:b"]),
        ("files:b", "return await mcp.files.make({})", vec!["files:make"]),
    ]);
    failure(&run(circle), "TOO_COMPLEX");
    let deep = offer([
        ("files:make", "return await mcp.files.b({})", vec!["files:b"]),
        ("files:b", "return await mcp.files.c({})", vec!["files:c"]),
        ("files:c", "return await mcp.files.d({})", vec!["files:d"]),
        ("files:d", "return await mcp.files.e({})", vec!["files:e"]),
        ("files:e", MAKE, vec!["filesystem:write_file"]),
    ]);
    failure(&run(deep), "TOO_COMPLEX");
    // `files:c` is within the depth limit when called directly, and beyond it through `files:z`.
    let found = offer([
        (
            "files:make",
            "await mcp.files.c({}); return await mcp.files.z({})",
            vec!["files:c", "files:z"],
        ),
        ("files:z", "return await mcp.files.c({})", vec!["files:c"]),
        ("files:c", "return await mcp.files.d({})", vec!["files:d"]),
        ("files:d", "return await mcp.files.e({})", vec!["files:e"]),
        ("files:e", MAKE, vec!["filesystem:write_file"]),
    ]);
    failure(&run(found), "TOO_COMPLEX");
}

/// A body over the limit is refused. A body that does not arrive can be cancelled, and does not block other requests.
#[test]
fn large_bodies_are_refused_and_slow_ones_can_be_cancelled() {
    let mut large = make();
    large.get_mut("files:make").unwrap().module += &" ".repeat(10 << 20);
    failure(&run(large), "GATEWAY_BAD_ANSWER");

    let stub = GatewayStub::start_with_head(move |head, request| {
        if request.is_null() { Answer::Never } else { answer(&make(), head, request) }
    });
    let project = project(&stub).allow(&["*"]);
    let mut pml = project.stdio();
    let waiting = pml.begin(PROGRAM);
    poll("the program to be fetched", PATIENCE, || {
        stub.received().iter().any(|received| received.starts_with("GET")).then_some(())
    });
    failure(&pml.execute("return ("), "PARSE_ERROR");
    pml.notify("notifications/cancelled", json!({ "requestId": waiting }));
    pml.answer_within(waiting, Duration::from_millis(500));
    failure(&pml.execute("return ("), "PARSE_ERROR");
    assert!(!project.path("made.txt").exists());
}

/// `pml` does not run a capability for which the gateway states no name or no hash.
#[test]
fn a_capability_without_a_name_or_hash_is_refused() {
    for field in ["fqdn", "integrity"] {
        let stub = GatewayStub::start_with_head(move |head, request| {
            let Answer::Json(mut reply) = answer(&make(), head, request) else { unreachable!() };
            let tool = &mut reply["result"]["structuredContent"]["tools_used"][0];
            tool.as_object_mut().unwrap().remove(field);
            Answer::Json(reply)
        });
        let project = project(&stub).allow(&["*"]);
        failure(&project.stdio().execute(PROGRAM), "TOOL_UNAVAILABLE");
        assert!(!project.path("made.txt").exists());
    }
}
