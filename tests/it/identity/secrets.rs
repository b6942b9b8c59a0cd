//! Secrets that the gateway stores for its users: they are sent to their upstream and nowhere else.

use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

use crate::support::cli::text;
use crate::support::expect::success;
use crate::support::gateway_stub::{Answer, GatewayStub};
use crate::support::http::{HttpMcp, Reply, get, send};
use crate::support::mcp_client::Era;
use crate::support::server::{Installation, Server, Tenant};
use crate::support::{PATIENCE, poll};

const CANARY: &str = "canary-9f/2b+71\"d3e8";
/// Two master keys in the form of `openssl rand -base64 32`.
const KEY: &str = "2Vv6r0ZKqJx1mWc8n3Tq5oYH7uRbLgS4eDfPkA9iXwE=";
const OTHER_KEY: &str = "mJ8sQe2LwYt0Rz5HnVx7KcB3pGdUa1FoTi6XqNy4EvM=";

/// An upstream that repeats the secret it receives in its answer.
struct Upstream {
    stub: GatewayStub,
    received: Arc<Mutex<Vec<String>>>,
}

impl Upstream {
    fn start() -> Self {
        let received = Arc::new(Mutex::new(Vec::new()));
        let record = Arc::clone(&received);
        let stub = GatewayStub::start_with_head(move |head, body| {
            let authorization = head
                .lines()
                .find_map(|line| {
                    line.to_ascii_lowercase().starts_with("authorization:").then_some(&line[14..])
                })
                .unwrap_or_default()
                .trim()
                .to_owned();
            if body["id"].is_null() {
                let status = if body.is_null() { 405 } else { 202 };
                return Answer::Raw(status, "text/plain", Vec::new());
            }
            let answer = match body["method"].as_str() {
                Some("initialize") => json!({ "result": {
                    "protocolVersion": "2025-11-25",
                    "capabilities": { "tools": {} },
                    "serverInfo": { "name": "echo", "version": "1" },
                }}),
                Some("tools/call") => {
                    record.lock().unwrap().push(authorization.clone());
                    if body["params"]["name"] == "fail" {
                        json!({ "error": { "code": -32000, "message": format!("bad: {authorization}") } })
                    } else {
                        let key = authorization.trim_start_matches("Bearer ");
                        let forms =
                            json!({ "head": authorization, key: [key.len()], "hex": hex(key) });
                        json!({ "result": { "content": [{ "type": "text", "text": forms.to_string() }] } })
                    }
                }
                _ => json!({ "error": { "code": -32601, "message": "no such method" } }),
            };
            let mut whole = json!({ "jsonrpc": "2.0", "id": body["id"] });
            for (name, part) in answer.as_object().unwrap() {
                whole[name] = part.clone();
            }
            Answer::Json(whole)
        });
        Self { stub, received }
    }

    /// Adds its tools to the catalog of a gateway.
    fn publish(&self, installation: &Installation) {
        let tool = |name: &str| json!({ "name": name, "description": name, "inputSchema": { "type": "object" } });
        let entry = |fqdn: &str, about: &str, tools: Vec<Value>| {
            let mut entry = json!({
                "fqdn": fqdn, "type": "http", "description": about, "proxy_to": self.stub.url,
                "env_required": ["ECHO_API_KEY"], "tools": tools, "warnings": [],
            });
            entry.sort_all_objects();
            format!("$c${entry}$c$, 'sha256-' || encode(sha256($c${entry}$c$), 'base64')")
        };
        let whole = entry("pml.mcp.echo", "Echoes", vec![tool("say"), tool("fail")]);
        let mut sql = format!(
            "insert into mcp_servers (org, project, namespace, content, integrity, routing, visibility, owner)
            values ('pml', 'mcp', 'echo', {whole}, 'server', 'public', 'test');"
        );
        for name in ["say", "fail"] {
            let one = entry(&format!("pml.mcp.echo.{name}"), name, vec![tool(name)]);
            sql += &format!(
                "insert into tools (org, project, namespace, name, content, integrity, visibility, owner)
                values ('pml', 'mcp', 'echo', '{name}', {one}, 'public', 'test');"
            );
        }
        installation.sql(&sql);
    }

    fn received(&self) -> Vec<String> {
        std::mem::take(&mut self.received.lock().unwrap())
    }
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

fn api(tenant: &Tenant, method: &str, path: &str, body: Option<&str>) -> Reply {
    let authorization = format!("Bearer {}", tenant.key);
    let headers = [("authorization", authorization.as_str()), ("content-type", "application/json")];
    let url = format!("{}/api/v1/secrets{path}", tenant.url);
    send(method, &url, &headers, body.map(|body| body.as_bytes().to_vec()))
}

fn put(tenant: &Tenant, name: &str, value: &str, owner: &str) -> Reply {
    let body = json!({ "value": value, "for": owner }).to_string();
    api(tenant, "PUT", &format!("/{name}"), Some(&body))
}

/// Calls the upstream from a program and returns the envelope.
fn say(tenant: &Tenant) -> Value {
    HttpMcp::new(tenant, Era::Stateless).execute("return await mcp.echo.say({})")
}

/// Panics if a text contains the canary in any encoding.
#[track_caller]
fn assert_clean(what: &str, text: &str) {
    for form in
        ["canary-9f", "9f%2F2b", &hex("canary-9f"), "Y2FuYXJ5LTlm", "NhbmFyeS05Z", "jYW5hcnktOW"]
    {
        if let Some(line) = text.lines().find(|line| line.contains(form)) {
            panic!("{what}: {}", line.chars().take(400).collect::<String>());
        }
    }
}

/// SE-01, SE-02, SE-09: a stored secret is sent to its upstream, and no answer or log contains it.
#[test]
fn a_stored_secret_is_sent_to_its_upstream_only() {
    let installation = Installation::new();
    let server = installation.start_with(&[("PML_LOG", "trace")]);
    let upstream = Upstream::start();
    upstream.publish(&installation);
    let tenant = server.tenant_with_rights("execute,read,admin");
    let missing = say(&tenant);
    assert_eq!(missing["error_code"], "API_KEY_REQUIRED", "{missing:#}");
    let message = missing["message"].as_str().unwrap();
    assert!(
        message.contains("pml secrets set ECHO_API_KEY --cloud")
            && message.contains("X-PML-Key-ECHO-API-KEY"),
        "{message}"
    );
    assert_eq!(upstream.received(), [""; 0]);

    let mut answers = Vec::new();
    let made = put(&tenant, "ECHO_API_KEY", CANARY, "project");
    assert_eq!(made.status, 201, "{}", text(&made.body));
    answers.push(text(&made.body));
    let envelope = say(&tenant);
    assert_eq!(upstream.received(), [format!("Bearer {CANARY}")]);
    let echoed = success(&envelope).to_string();
    assert!(echoed.contains("[redacted]"), "{echoed}");
    answers.push(envelope.to_string());
    let mcp = HttpMcp::new(&tenant, Era::Stateless);
    for code in [
        "return await mcp.echo.fail({})",
        "try { await mcp.echo.fail({}) } catch (error) { return String(error) + error.stack }",
        "console.log(await mcp.echo.say({})); throw new Error(JSON.stringify(await mcp.echo.say({})))",
    ] {
        answers.push(mcp.execute(code).to_string());
    }
    answers.push(mcp.call("echo:say", json!({})).to_string());
    answers.push(mcp.call("echo:fail", json!({})).to_string());
    assert_eq!(upstream.received().len(), 6);
    let listed = api(&tenant, "GET", "", None);
    assert_eq!(listed.json()["secrets"][0]["name"], "ECHO_API_KEY");
    assert_eq!(listed.header("cache-control"), "private, no-store");
    answers.push(text(&listed.body));
    let authorization = format!("Bearer {}", tenant.key);
    let audit = get(
        &format!("{}/api/v1/audit?verify=true", tenant.url),
        &[("authorization", &authorization)],
    );
    assert_eq!(audit.json()["chain"]["intact"], true);
    let uses = text(&audit.body).matches("secret.use").count();
    assert_eq!(uses, 7, "{}", text(&audit.body));
    answers.push(text(&audit.body));

    // The caller's own secret takes precedence over the project's, and one in a header over both.
    assert_eq!(put(&tenant, "ECHO_API_KEY", "canary-9f-mine", "me").status, 201);
    answers.push(say(&tenant).to_string());
    assert_eq!(upstream.received(), ["Bearer canary-9f-mine"]);
    let body =
        Era::Stateless.request(1, "tools/call", json!({ "name": "echo:say", "arguments": {} }));
    let headers = [
        ("authorization", authorization.as_str()),
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", Era::Stateless.version()),
        ("mcp-method", "tools/call"),
        ("mcp-name", "echo:say"),
        ("x-pml-key-echo-api-key", "canary-9f-sent"),
    ];
    let sent =
        send("POST", &format!("{}/mcp", tenant.url), &headers, Some(body.to_string().into()));
    assert_eq!(upstream.received(), ["Bearer canary-9f-sent"]);
    answers.push(text(&sent.body));
    for owner in ["me", "project"] {
        let gone = api(&tenant, "DELETE", &format!("/ECHO_API_KEY?for={owner}"), None);
        assert_eq!((gone.status, gone.body.len()), (204, 0));
    }
    assert_eq!(say(&tenant)["error_code"], "API_KEY_REQUIRED");

    // SE-15: a secret is not used if its use cannot be recorded.
    assert_eq!(put(&tenant, "ECHO_API_KEY", CANARY, "me").status, 201);
    installation.sql("revoke insert on audit_log from pml_app");
    assert_eq!(say(&tenant)["status"], "error");
    assert_eq!(upstream.received(), [""; 0]);
    installation.sql("grant insert on audit_log to pml_app");
    success(&say(&tenant));
    assert_eq!(upstream.received().len(), 1);

    assert_eq!(server.stop(), Some(0));
    answers.iter().for_each(|answer| assert_clean("an answer", answer));
    assert_clean("the log", &installation.log());
}

/// SE-09: bodies and names are validated strictly, each owner needs its right, and errors do not repeat the input.
#[test]
fn requests_to_store_a_secret_are_validated_strictly() {
    let server = Server::shared();
    let (admin, member) = (server.tenant_with_rights("execute,admin"), server.tenant());
    let reader = server.tenant_with_rights("read");
    let whole = r#"{"value":"canary-9f","for":"me"}"#;
    for (name, body) in [
        ("A", r#"{"value":"canary-9f"}"#),
        ("A", r#"{"for":"me"}"#),
        ("A", r#"{"value":"canary-9f","for":"canary-9f"}"#),
        ("A", r#"{"value":"canary-9f","for":"me","owner":"x"}"#),
        ("A", r#"{"value":"canary-9f","value":"canary-9f","for":"me"}"#),
        ("A", r#"{"value":["canary-9f"],"for":"me"}"#),
        ("A", r#"{"value":"","for":"me"}"#),
        ("A", r#"canary-9f"#),
        ("A", ""),
        ("a", whole),
        ("canary-9f", whole),
        ("A%20B", whole),
        ("A%00", whole),
    ] {
        let refused = api(&member, "PUT", &format!("/{name}"), Some(body));
        assert_eq!(refused.status, 400, "{name} {body}: {}", text(&refused.body));
        assert_eq!(refused.json()["code"], "INVALID_REQUEST");
        assert_clean(body, &text(&refused.body));
    }
    let long = "\u{1}".repeat(8_192);
    assert_eq!(put(&member, "LONG", &long, "me").status, 201);
    assert_eq!(put(&member, "LONG", &(long + "x"), "me").status, 400);
    assert_eq!(put(&member, "LONG", &"x".repeat(100_000), "me").status, 413);
    assert_eq!(put(&member, "LONG", "x", "me").status, 200);
    // Rights: the caller's own secrets need `execute`, the project's `admin`.
    for refused in [
        put(&member, "A", "x", "project"),
        api(&member, "DELETE", "/LONG?for=project", None),
        put(&reader, "A", "x", "me"),
        api(&reader, "GET", "", None),
    ] {
        assert_eq!(refused.status, 403, "{}", text(&refused.body));
    }
    assert_eq!(put(&admin, "A", "x", "project").status, 201);
    // Another principal's secret gets the same answer as a nonexistent one.
    let foreign = api(&admin, "DELETE", "/LONG?for=me", None);
    let unknown = api(&member, "DELETE", "/NONE?for=me", None);
    assert_eq!((foreign.status, unknown.status), (404, 404));
    let body = |reply: &Reply| text(&reply.body).replace("LONG", "NONE");
    assert_eq!(body(&foreign), body(&unknown));
    assert_eq!(api(&member, "DELETE", "/LONG", None).status, 400);
    assert_eq!(api(&member, "DELETE", "/LONG?for=me", None).status, 204);
    assert_eq!(api(&member, "GET", "/LONG", None).status, 405, "a route returns the value");
}

/// Without a master key the gateway starts and refuses requests for secrets with the reason. With a wrong or weak one
/// it does not start.
#[test]
fn a_wrong_or_weak_master_key_prevents_the_start() {
    let home = Installation::new();
    let private = home.start();
    let tenant = private.tenant();
    assert_eq!(put(&tenant, "A", "x", "me").status, 201);
    let url = format!(
        "postgres://pml_app@localhost:5432/pml?host={}&sslmode=disable",
        home.socket_folder()
    );
    let own = home.data_dir().join("master.key").display().to_string();
    let at = |server: &Server| Tenant { url: server.url().to_owned(), ..tenant.clone() };

    let bare = Installation::new().start_with(&[("PML_DATABASE_URL", &url)]);
    for (method, path, body) in [
        ("GET", "", None),
        ("PUT", "/A", Some(r#"{"value":"x","for":"me"}"#)),
        ("DELETE", "/A?for=me", None),
    ] {
        let refused = api(&at(&bare), method, path, body);
        assert_eq!((refused.status, &refused.json()["code"]), (503, &json!("SECRETS_UNAVAILABLE")));
        assert!(text(&refused.body).contains("PML_MASTER_KEY"), "{}", text(&refused.body));
    }
    let ready = get(&format!("{}/ready", bare.url()), &[]);
    assert_eq!((ready.status, &ready.json()["checks"]["secrets"]["stored"]), (200, &json!(false)));
    bare.stop();

    let given = Installation::new()
        .start_with(&[("PML_DATABASE_URL", &url), ("PML_MASTER_KEY_FILE", &own)]);
    assert_eq!(put(&at(&given), "A", "y", "me").status, 200);
    let ready = get(&format!("{}/ready", given.url()), &[]);
    assert_eq!(ready.json()["checks"]["secrets"], json!({ "ok": true, "stored": true }));
    given.stop();

    let weak = "changemechangemechangemechangeme";
    for (key, reason) in [
        (KEY, "the master key is wrong"),
        ("", "empty"),
        ("changeme", "not 32 bytes"),
        (&"00".repeat(32), "guess"),
        (&hex(weak), "guess"),
    ] {
        let mut command = Installation::new().command(&[]);
        command.env("PML_DATABASE_URL", &url).env("PML_MASTER_KEY", key);
        let output = command.output().unwrap();
        let stderr = text(&output.stderr);
        assert!(!output.status.success() && stderr.contains(reason), "{key}: {stderr}");
        assert!(key.is_empty() || !stderr.contains(key), "{stderr}");
    }
}

/// A private gateway creates its master key at the first start, readable by its user only. Later it does not start
/// without it.
#[test]
fn a_private_gateway_does_not_replace_a_missing_master_key() {
    let installation = Installation::new();
    let file = installation.data_dir().join("master.key");
    let server = installation.start();
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(server.stop(), Some(0));
    let away = file.with_extension("away");
    std::fs::rename(&file, &away).unwrap();
    let refused = installation.run(&[]);
    let stderr = text(&refused.stderr);
    assert!(!refused.status.success() && stderr.contains("is missing: restore `"), "{stderr}");
    assert!(!file.exists(), "a new key was created");
    std::fs::rename(&away, &file).unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
    let refused = installation.run(&[]);
    let stderr = text(&refused.stderr);
    assert!(!refused.status.success() && stderr.contains("chmod 600"), "{stderr}");
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    // After a rotation, the file has the new master key.
    let mut rotate = installation.command(&["secrets", "rotate"]);
    let rotated = rotate.env("PML_MASTER_KEY_NEW", OTHER_KEY).output().unwrap();
    assert!(rotated.status.success(), "{}", text(&rotated.stderr));
    assert!(text(&rotated.stdout).contains("no longer needed"), "{}", text(&rotated.stdout));
    assert_eq!(std::fs::read_to_string(&file).unwrap().trim(), OTHER_KEY);
    assert_eq!(installation.start().stop(), Some(0));
}

/// SE-07: commands that rotate the master key are killed repeatedly. All secrets stay readable throughout, and the
/// next command completes the rotation.
#[test]
fn a_killed_master_key_rotation_can_be_resumed() {
    let installation = Installation::new();
    let mut settings = vec![("PML_MASTER_KEY", KEY), ("PML_MASTER_KEY_NEW", OTHER_KEY)];
    let server = installation.start_with(&settings);
    let upstream = Upstream::start();
    upstream.publish(&installation);
    let tenants: Vec<Tenant> = (0..6)
        .map(|number| {
            let scope = format!("org{number}.web");
            installation.run_ok(&["scope", "create", &scope]);
            let key = installation.run_ok(&["keys", "create", "--scope", &scope]);
            let tenant = Tenant { key: key.trim().to_owned(), url: server.url().to_owned() };
            assert_eq!(put(&tenant, "ECHO_API_KEY", CANARY, "me").status, 201);
            tenant
        })
        .collect();
    let rotate = || {
        let mut command = installation.command(&["secrets", "rotate", "--batch", "1"]);
        command.envs(settings.iter().copied());
        command
    };
    // Each step is slowed down, so that a command can be killed between two of them.
    installation.sql(
        "create function slow() returns trigger language plpgsql as
            $$ begin perform pg_sleep(0.2); return new; end $$;
        create trigger slow before update of master_key on data_keys for each row execute function slow()",
    );
    let stop = Mutex::new(false);
    let reads = thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut reads = 0;
            while !*stop.lock().unwrap() {
                for tenant in &tenants {
                    success(&say(tenant));
                    reads += 1;
                }
            }
            reads
        });
        for rewrapped in 0..5 {
            let mut child = rotate().stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            poll("the rotation to progress", PATIENCE, || {
                let count = installation
                    .sql("select count(*) from data_keys where rewrapped_at is not null");
                (count.trim().parse::<i32>().unwrap() >= rewrapped).then_some(())
            });
            child.kill().unwrap();
            child.wait().unwrap();
            // The next command finds some data keys under the new master key and the others under the old one.
        }
        let left = installation.sql("select count(*) from data_keys where rewrapped_at is null");
        assert_ne!(left.trim(), "0", "the rotation was already complete");
        let output = rotate().output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        *stop.lock().unwrap() = true;
        reader.join().unwrap()
    });
    assert!(reads >= tenants.len(), "{reads}");
    let status: Value =
        serde_json::from_str(&installation.run_ok(&["secrets", "status", "--json"])).unwrap();
    assert_eq!(status.as_array().unwrap().len(), 1, "{status:#}");
    assert_eq!((&status[0]["data_keys"], &status[0]["current"]), (&json!(6), &json!(true)));
    assert_eq!(server.stop(), Some(0));
    // The old master key is no longer sufficient; the new one is.
    let mut old = installation.command(&[]);
    old.env("PML_MASTER_KEY", KEY);
    assert!(!old.output().unwrap().status.success());
    settings = vec![("PML_MASTER_KEY", OTHER_KEY)];
    let server = installation.start_with(&settings);
    let listed =
        api(&Tenant { url: server.url().to_owned(), ..tenants[0].clone() }, "GET", "", None);
    assert_eq!(listed.status, 200);
}

/// Secrets are accepted as `application/json` only: a page of another origin can send a form or plain text without a
/// CORS preflight, but not JSON.
#[test]
fn secrets_are_accepted_as_json_only() {
    let tenant = Server::shared().tenant();
    let authorization = format!("Bearer {}", tenant.key);
    let url = format!("{}/api/v1/secrets/TYPED_KEY", tenant.url);
    let body = br#"{"value":"x","for":"me"}"#;
    for (kind, status) in [
        (Some("text/plain"), 415),
        (Some("application/x-www-form-urlencoded"), 415),
        (Some("application/jsonp"), 415),
        (None, 415),
        (Some("application/json; charset=utf-8"), 201),
        (Some("application/json"), 200),
    ] {
        let mut headers = vec![("authorization", authorization.as_str())];
        headers.extend(kind.map(|kind| ("content-type", kind)));
        let reply = send("PUT", &url, &headers, Some(body.to_vec()));
        assert_eq!(reply.status, status, "{kind:?}: {}", text(&reply.body));
    }
}
