//! Capabilities: immutable versions, visibility, and running as part of the calling program.

use serde_json::{Value, json};

use crate::identity::keys::call;
use crate::support::cli::Project;
use crate::support::expect::{failure, success};
use crate::support::http::{HttpMcp, Reply, get};
use crate::support::mcp_client::Era;
use crate::support::server::{Server, Tenant};

pub(crate) const DOUBLE: &str =
    "/** Doubles a number. */\nreturn await mcp.math.eval({ expression: `2 * ${args.n}` })";

/// Creates a tenant that can publish and run.
pub(crate) fn author() -> Tenant {
    Server::shared().tenant_with_rights("execute,read,publish")
}

#[track_caller]
fn publish(tenant: &Tenant, body: Value) -> Reply {
    call(&tenant.key, "POST", &format!("{}/api/v1/capabilities", tenant.url), Some(&body))
}

#[track_caller]
pub(crate) fn published(tenant: &Tenant, name: &str, code: &str) -> Value {
    let reply = publish(tenant, json!({ "name": name, "code": code }));
    assert_eq!(reply.status, 201, "{}", reply.json());
    reply.json()
}

#[track_caller]
fn annotate(tenant: &Tenant, name: &str, what: &str, body: Value) -> u16 {
    let url = format!("{}/api/v1/capabilities/{name}/{what}", tenant.url);
    call(&tenant.key, "POST", &url, Some(&body)).status
}

/// Reads an entry as metadata or as a module, depending on `accept`.
pub(crate) fn entry(tenant: &Tenant, name: &str, accept: &str) -> Reply {
    let authorization = format!("Bearer {}", tenant.key);
    let headers = [("authorization", authorization.as_str()), ("accept", accept)];
    get(&format!("{}/mcp/{name}", tenant.url), &headers)
}

fn run(tenant: &Tenant, code: &str) -> Value {
    HttpMcp::new(tenant, Era::Stateless).execute(code)
}

#[test]
fn a_program_calls_a_published_capability() {
    let author = author();
    let made = published(&author, "maths.double", DOUBLE);
    assert_eq!((&made["version"], &made["routing"]), (&json!("0.1.0"), &json!("server")));
    assert_eq!(made["calls"], json!(["math:eval"]));
    let quadruple = "/** Doubles twice. */ const once = await mcp.maths.double(args); return await mcp.maths.double({ n: once })";
    published(&author, "maths.quadruple", quadruple);

    let done = run(
        &author,
        "return [await mcp.maths.double({ n: 4 }), await mcp.maths.quadruple({ n: 4 })]",
    );
    assert_eq!((success(&done), &done["executed"]), (&json!([8, 16]), &json!("server")));
    let used = &done["tools_used"][1];
    assert_eq!((&used["id"], &used["type"]), (&json!("maths:quadruple"), &json!("capability")));
    assert_eq!(used["tools"], json!(["math:eval", "maths:double"]), "{done:#}");

    let result = HttpMcp::new(&author, Era::Stateless).call("maths__double", json!({ "n": 3 }));
    assert_eq!(result["structuredContent"], json!({ "value": 6 }), "{result:#}");
    let none = "/** Counts. */ return Object.keys(args).length";
    published(&author, "maths.count", none);
    assert_eq!(success(&run(&author, "return await mcp.maths.count()")), 0);
    // An error of a capability is thrown at its call and can be caught there.
    published(&author, "maths.fail", "/** Fails. */\nthrow new RangeError('no such ' + args.what)");
    let caught = run(
        &author,
        "try { await mcp.maths.fail({ what: 'thing' }) } catch (e) { return e.message }",
    );
    let message = success(&caught).as_str().unwrap();
    assert!(message.contains("maths:fail") && message.contains("no such thing"), "{message}");
}

/// A capability that uses client tools, even through another capability, runs on the client.
#[test]
fn a_capability_with_client_tools_runs_on_the_client() {
    let author = author();
    let read = "/** Reads a file. */ return await mcp.filesystem.read_file({ path: args.path })";
    let made = published(&author, "files.first", read);
    assert_eq!(made["routing"], "client");
    published(&author, "files.second", "/** Reads, too. */ return await mcp.files.first(args)");
    let refused = run(&author, "return await mcp.files.second({ path: 'a' })");
    failure(&refused, "CLIENT_TOOLS_REQUIRE_PACKAGE");
    let result =
        HttpMcp::new(&author, Era::Stateless).call("files__second", json!({ "path": "a" }));
    assert_eq!(result["isError"], true);
    failure(&result["structuredContent"], "CLIENT_TOOLS_REQUIRE_PACKAGE");
    let package = HttpMcp::new(&author, Era::Stateless).with_package();
    let handed = package.execute("return await mcp.files.second({ path: 'a' })");
    assert_eq!(handed["status"], "execute_locally");
    assert_eq!(handed["tools_used"][0]["tools"], json!(["files:first", "filesystem:read_file"]));
}

/// RG-03: a published version is immutable, and one of several concurrent publishers wins.
#[test]
fn a_published_version_is_immutable() {
    let author = author();
    let body = |code: &str| json!({ "name": "a:b", "code": code, "version": "1.0.0" });
    let first = publish(&author, body(DOUBLE));
    assert_eq!((first.status, first.json()["version"].clone()), (201, json!("1.0.0")));
    let again = publish(&author, body(DOUBLE));
    assert_eq!((again.status, again.json()), (200, first.json()), "the same content");
    let other = publish(&author, body("/** Other. */ return 1"));
    assert_eq!((other.status, &other.json()["code"]), (409, &json!("CONFLICT")));

    let replies: Vec<Reply> = std::thread::scope(|scope| {
        let racers: Vec<_> = (0..50)
            .map(|n| {
                let body = json!({
                    "name": "a:race", "version": "1.0.0", "code": format!("/** Race. */ return {n}"),
                });
                scope.spawn(|| publish(&author, body))
            })
            .collect();
        racers.into_iter().map(|racer| racer.join().unwrap()).collect()
    });
    let count = |status| replies.iter().filter(|reply| reply.status == status).count();
    assert_eq!((count(201), count(409)), (1, 49));
    let winner = replies.iter().find(|reply| reply.status == 201).unwrap().json();
    let kept = entry(&author, "a:race", "application/json").json();
    assert_eq!(kept["integrity"], winner["integrity"]);
}

#[test]
fn versions_are_numbered_deprecated_and_yanked() {
    let author = author();
    let version = |body: Value| publish(&author, body).json()["version"].clone();
    assert_eq!(version(json!({ "name": "v:x", "code": "/** One. */ return 1" })), "0.1.0");
    assert_eq!(version(json!({ "name": "v:x", "code": "/** One. */ return 1" })), "0.1.0");
    assert_eq!(version(json!({ "name": "v:x", "code": "/** Two. */ return 2" })), "0.1.1");
    let third = json!({ "name": "v:x", "code": "/** Three. */ return 3", "version": "0.10.0" });
    assert_eq!(version(third), "0.10.0");
    let old = json!({ "name": "v:x", "code": "/** Old. */ return 0", "version": "0.9.9" });
    assert_eq!(version(old), "0.9.9");
    let read = |name: &str| entry(&author, name, "application/json");
    assert_eq!(read("v:x").json()["version"], "0.10.0");
    assert_eq!(read("v:x@latest").json()["version"], "0.10.0");
    assert_eq!(read("v:x@0.1.0").json()["description"], "One.");
    assert_eq!(success(&run(&author, "return await mcp.v.x({})")), 3);

    assert_eq!(
        annotate(&author, "v:x", "deprecate", json!({ "version": "0.9.9", "message": "too old" })),
        200
    );
    assert_eq!(read("v:x@0.9.9").json()["deprecated"], "too old");
    assert!(read("v:x").json().get("deprecated").is_none());
    let before = read("v:x@0.9.9").header("etag").to_owned();
    assert_eq!(
        annotate(&author, "v:x", "deprecate", json!({ "version": "0.9.9", "message": null })),
        200
    );
    assert_eq!(read("v:x@0.9.9").header("etag"), before, "a deprecation changed the `ETag`");

    assert_eq!(annotate(&author, "v:x", "yank", json!({ "version": "0.10.0" })), 200);
    assert_eq!(success(&run(&author, "return await mcp.v.x({})")), 0);
    assert_eq!(read("v:x@0.10.0").status, 200, "an exact version is still served");
    // A yanked version cannot be published again with other content.
    let other = json!({ "name": "v:x", "code": "/** Other. */ return 9", "version": "0.10.0" });
    assert_eq!(publish(&author, other).status, 409);
    for version in ["0.1.0", "0.1.1", "0.9.9"] {
        assert_eq!(annotate(&author, "v:x", "yank", json!({ "version": version })), 200);
    }
    assert_eq!(read("v:x").status, 404);
    failure(&run(&author, "return await mcp.v.x({})"), "TOOL_NOT_FOUND");
    for (name, version) in [("v:x", "7.7.7"), ("v:other", "0.1.0"), ("no name", "0.1.0")] {
        assert_eq!(
            annotate(&author, &name.replace(' ', "%20"), "yank", json!({ "version": version })),
            404
        );
    }
}

/// RG-08: a module is served with headers that keep browsers from executing it.
#[test]
fn an_entry_is_served_as_metadata_or_as_an_inert_module() {
    let author = author();
    let code = "/** Says \u{2028} </script><script>alert(1)</script> */\nreturn 'é'";
    let made = published(&author, "m:x", code);
    let metadata = entry(&author, "m:x", "application/json");
    assert_eq!(metadata.header("content-type"), "application/json");
    let body = metadata.json();
    assert_eq!((&body["type"], &body["calls"]), (&json!("deno"), &json!([])));
    assert_eq!(body["integrity"], made["integrity"]);
    assert_eq!(body["fqdn"], made["fqdn"]);
    let module = entry(&author, "m:x", "*/*");
    assert_eq!(module.header("content-type"), "application/typescript; charset=utf-8");
    assert_eq!(module.header("x-content-type-options"), "nosniff");
    assert!(module.header("content-security-policy").contains("sandbox"));
    assert_eq!(module.header("cache-control"), "private, no-store");
    let text = String::from_utf8(module.body.clone()).unwrap();
    let (first, rest) = text.split_once('\n').unwrap();
    assert_eq!(rest, code);
    assert!(!first.contains('\u{2028}'), "a line separator would end the comment");
    let meta: Value = serde_json::from_str(first.strip_prefix("// __meta__:").unwrap()).unwrap();
    assert_eq!(meta, body);
    // A cached copy of one form never counts as a copy of the other.
    let bearer = format!("Bearer {}", author.key);
    for (accept, current, other) in
        [("application/json", &metadata, &module), ("*/*", &module, &metadata)]
    {
        let status = |etag: &str| {
            let headers =
                [("authorization", bearer.as_str()), ("accept", accept), ("if-none-match", etag)];
            get(&format!("{}/mcp/m:x", author.url), &headers).status
        };
        assert_eq!(status(current.header("etag")), 304, "{accept}");
        assert_eq!(status(other.header("etag")), 200, "{accept}");
    }
}

/// RG-06, RG-14: a capability is visible according to its visibility only, and changing it needs the right `publish`.
#[test]
fn a_capability_is_seen_only_according_to_its_visibility() {
    let (author, stranger) = (author(), author());
    for (name, visibility) in [("s:private", "private"), ("s:project", "project"), ("s:org", "org")]
    {
        let code = "/** Secret. */ return 1";
        let body = json!({ "name": name, "code": code, "visibility": visibility });
        assert_eq!(publish(&author, body).status, 201);
        let full = publish(&author, json!({ "name": name, "code": code })).json()["fqdn"].clone();
        let full = full.as_str().unwrap();
        assert_eq!(entry(&author, full, "*/*").status, 200);
        let (hidden, nothing) =
            (entry(&stranger, full, "*/*"), entry(&stranger, &full.replace(".s.", ".t."), "*/*"));
        // The tenants of these tests are projects of one organisation.
        let expected = if visibility == "org" { 200 } else { 404 };
        assert_eq!((hidden.status, nothing.status), (expected, 404), "{visibility}");
        assert_eq!(hidden.header("cache-control"), "private, no-store");
        let called = run(&stranger, &format!("return await mcp.{}({{}})", name.replace(':', ".")));
        match visibility {
            "org" => assert_eq!(success(&called), 1),
            _ => assert!(failure(&called, "TOOL_NOT_FOUND").contains("is not registered")),
        }
    }
    let open =
        json!({ "name": "s:public", "code": "/** For all. */ return 1", "visibility": "public" });
    let made = publish(&author, open).json();
    let seen = entry(&stranger, made["fqdn"].as_str().unwrap(), "application/json");
    assert_eq!((seen.status, seen.header("cache-control")), (200, "public, max-age=300"));

    let reader = Server::shared().tenant_with_rights("execute,read,admin");
    let refused = publish(&reader, json!({ "name": "a:b", "code": DOUBLE }));
    assert_eq!((refused.status, &refused.json()["code"]), (403, &json!("FORBIDDEN")));
    assert_eq!(annotate(&reader, "s:public", "yank", json!({ "version": "0.1.0" })), 403);
    assert_eq!(annotate(&stranger, "s:public", "yank", json!({ "version": "0.1.0" })), 404);
    assert_eq!(entry(&author, "s:public", "application/json").json()["version"], "0.1.0");
}

/// RG-05, GW-29: look-alike and reserved names, unsuitable programs and unknown fields are refused.
#[test]
fn invalid_capabilities_are_refused() {
    let author = author();
    let status = |body: Value| publish(&author, body).status;
    let named = |name: &str| json!({ "name": name, "code": "/** Fine. */ return 1" });
    for name in [
        "fi1esystem:x",
        "file-system:x",
        "FILESYSTEM:x",
        "rnath:x",
        "pmI:x",
        "pm1:x",
        "Pml:x",
        "p-m-l:x",
        "memorv:x",
        "she11:x",
        "g1thub:x",
        "ｐｍｌ:x",
        "mеmory:x",
        "pml:x",
        "mcp:x",
        "proxy:x",
        "",
        "a",
        "a:b:c",
        "аbc:x",
        "a/../b:c",
    ] {
        assert_eq!(status(named(name)), 400, "{name}");
    }
    for name in ["memories:x", "sql:x", "gitlab:x"] {
        assert_eq!(status(named(name)), 201, "{name}: similar, but no look-alike");
    }
    assert_eq!(status(named("filesystem:mine")), 201, "an own tool in a namespace of the catalog");
    let hides = publish(&author, named("math:eval"));
    assert_eq!(hides.status, 201);
    assert!(hides.json()["warnings"][0].as_str().unwrap().contains("math:eval"));

    let program = |code: &str| json!({ "name": "p:x", "code": code });
    for (code, expected) in [
        ("/** Syntax. */ return (", "PARSE_ERROR"),
        ("/** Export. */ export default 1", "UNSUPPORTED_SYNTAX"),
        ("/** Import. */ import x from 'y'; return x", "UNSUPPORTED_SYNTAX"),
        ("/** Missing. */ return await mcp.nosuch.tool({})", "INVALID_REQUEST"),
        ("/** Dynamic. */ return await mcp[args.a].b({})", "INVALID_REQUEST"),
        ("return 'it does not say what it does'", "INVALID_REQUEST"),
    ] {
        let refused = publish(&author, program(code));
        let status = if expected == "INVALID_REQUEST" { 400 } else { 422 };
        assert_eq!((refused.status, &refused.json()["code"]), (status, &json!(expected)), "{code}");
    }
    let large = format!("/** Large. */ return '{}'", "x".repeat(65_536));
    assert_eq!(status(program(&large)), 422);
    let fine = || program("/** Fine. */ return 1");
    for (field, value) in [
        ("owner", json!("me")),
        ("org", json!("pml")),
        ("routing", json!("server")),
        ("id", json!(1)),
        ("visibility", json!("everybody")),
        ("version", json!("1")),
        ("input_schema", json!([])),
        ("input_schema", json!({ "type": "string" })),
        ("description", json!("")),
    ] {
        let mut body = fine();
        body[field] = value;
        assert_eq!(status(body), 400, "{field}");
    }
    assert_eq!(entry(&author, "p:x", "*/*").status, 404, "a refused capability was published");
    assert_eq!(status(fine()), 201);
}

/// The nesting depth of capabilities is limited, cycles are refused, and nested concurrent calls do not deadlock.
#[test]
fn the_nesting_of_capabilities_is_limited() {
    let author = author();
    published(&author, "n:l1", "/** 1 */ return await mcp.math.eval({ expression: '1 + 1' })");
    for level in 2..=4 {
        let below = level - 1;
        let code = format!(
            "/** {level} */ return (await Promise.all([1, 2, 3].map(() => mcp.n.l{below}({{}})))).length"
        );
        published(&author, &format!("n:l{level}"), &code);
    }
    assert_eq!(success(&run(&author, "return await mcp.n.l4({})")), 3);
    published(&author, "n:l5", "/** 5 */ return await mcp.n.l4({})");
    failure(&run(&author, "return await mcp.n.l5({})"), "TOO_COMPLEX");
    // A later version creates a cycle.
    published(&author, "n:ping", "/** Ping. */ return 1");
    published(&author, "n:pong", "/** Pong. */ return await mcp.n.ping({})");
    published(&author, "n:ping", "/** Ping back. */ return await mcp.n.pong({})");
    failure(&run(&author, "return await mcp.n.ping({})"), "TOO_COMPLEX");
}

/// `pml publish` publishes a program from stdin and refuses an invalid one.
#[test]
fn pml_publish_publishes_a_program() {
    let author = author();
    let project = Project::of(&author);
    let made = project.run_with(&["publish", "-", "--name", "cli.double"], DOUBLE.as_bytes());
    let out = String::from_utf8_lossy(&made.stdout);
    assert!(made.status.success() && out.contains("cli.double"), "{made:?}");
    assert!(out.contains("version 0.1.0, runs on the gateway"), "{out}");
    let json = ["publish", "-", "--name", "cli:double", "--version", "2.0.0", "--json"];
    let made = project.run_with(&json, DOUBLE.as_bytes());
    let made: Value = serde_json::from_slice(&made.stdout).unwrap();
    assert_eq!(made["version"], "2.0.0");
    let other = b"/** Other. */ return 1";
    let refused = project.run_with(&json, other);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let refused: Value = serde_json::from_slice(&refused.stdout).unwrap();
    assert_eq!(refused["error_code"], "CONFLICT", "{refused}");
    let broken = project.run_with(&["publish", "-", "--name", "cli.x"], b"/** No. */ return (");
    assert_eq!(broken.status.code(), Some(2), "{broken:?}");
    assert!(String::from_utf8_lossy(&broken.stderr).contains("line 1"), "{broken:?}");
    let ran = project.run_with(&["exec", "-"], b"return await mcp.cli.double({ n: 21 })");
    assert_eq!(String::from_utf8_lossy(&ran.stdout).trim(), "42", "{ran:?}");
}
