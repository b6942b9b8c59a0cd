//! Proxies from the environment (`HTTP_PROXY` …) do not receive credentials.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::identity::keys::call;
use crate::support::cli::{Project, text};
use crate::support::expect::success;
use crate::support::gateway_stub::{Answer, GatewayStub};
use crate::support::http::HttpMcp;
use crate::support::issuer::{Issuer, Signer, header};
use crate::support::mcp_client::Era;
use crate::support::server::{Installation, Server, Tenant};
use crate::support::upstream::{Entry, scope_of};

/// A proxy that records all requests and refuses them.
struct Recorder {
    url: String,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Recorder {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let heads = Arc::new(Mutex::new(Vec::new()));
        let keep = Arc::clone(&heads);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let lines = BufReader::new(stream.try_clone().unwrap()).lines();
                let head: Vec<String> =
                    lines.map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
                keep.lock().unwrap().push(head.join("\n"));
                let _ = stream.write_all(
                    b"HTTP/1.1 502 No\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
                );
            }
        });
        Self { url, heads }
    }

    /// Returns every variable that sets a proxy, in upper and lower case.
    fn variables(&self) -> Vec<(String, String)> {
        ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"]
            .into_iter()
            .flat_map(|name| [name.to_owned(), name.to_ascii_lowercase()])
            .map(|name| (name, self.url.clone()))
            // An empty list exempts no host.
            .chain(["NO_PROXY", "no_proxy"].map(|name| (name.to_owned(), String::new())))
            .collect()
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }

    /// Sets the variables for a project.
    fn around(&self, project: Project) -> Project {
        self.variables().iter().fold(project, |project, (name, value)| project.set(name, value))
    }

    /// Starts a gateway with the variables.
    fn gateway(&self, more: &[(&str, &str)]) -> Server {
        let own = self.variables();
        let mut settings: Vec<(&str, &str)> =
            own.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        settings.extend(more);
        Installation::new().start_with(&settings)
    }
}

/// NX-06: `pml` connects to a gateway on this machine without a proxy, which would receive the key.
#[test]
fn a_loopback_gateway_is_reached_without_a_proxy() {
    let recorder = Recorder::start();
    let tenant = Server::shared().tenant_with_rights("execute,read,publish");
    let project = recorder.around(Project::of(&tenant));
    let (envelope, _) = project.exec("return await mcp.json.parse({ data: '1' })");
    assert_eq!(success(&envelope), 1);
    project.write("say.ts", "/** Says. */\nreturn 'x'");
    let published = project.run(&["publish", "say.ts", "--name", "text.say"]);
    assert!(published.status.success(), "{}", text(&published.stderr));
    let listed = project.run(&["keys", "list", "--cloud"]);
    assert!(listed.status.success(), "{}", text(&listed.stderr));
    assert_eq!(recorder.heads(), [""; 0]);
}

/// NX-06: `localhost` and names below it are this machine, so no proxy is used.
#[test]
fn names_below_localhost_are_reached_without_a_proxy() {
    let recorder = Recorder::start();
    let tenant = Server::shared().tenant();
    let port = tenant.url.rsplit(':').next().unwrap();
    for host in ["localhost", "gateway.localhost"] {
        let url = format!("http://{host}:{port}");
        let project = recorder.around(Project::at(&url).set("PML_API_KEY", &tenant.key));
        let listed = project.run(&["keys", "list", "--cloud"]);
        // The gateway may refuse the `Host`; the test only checks which server received the request.
        let stderr = text(&listed.stderr);
        assert!(
            listed.status.success() || !stderr.contains("cannot be reached"),
            "{host}: {stderr}"
        );
    }
    assert_eq!(recorder.heads(), [""; 0]);
}

/// NX-06: a remote gateway is reached through the proxy by a `CONNECT` tunnel, so the proxy sees only the host name.
#[test]
fn a_remote_gateway_is_reached_by_a_connect_tunnel() {
    let recorder = Recorder::start();
    let at = || Project::at("https://gw.company.invalid:8443").set("PML_API_KEY", "pml_canary_77");
    let code = "return await mcp.json.parse({ data: '1' })";
    let (envelope, _) = recorder.around(at()).exec(code);
    assert_eq!(envelope["error_code"], "GATEWAY_UNREACHABLE", "{envelope:#}");
    let heads = recorder.heads();
    assert!(!heads.is_empty());
    for head in &heads {
        assert!(head.starts_with("CONNECT gw.company.invalid:8443 HTTP/1.1"), "{head}");
        assert!(!head.contains("canary"), "{head}");
    }
    for name in ["NO_PROXY", "no_proxy"] {
        let exempt = recorder.around(at());
        // The first one that is set counts, so the other one is removed.
        let other = if name == "NO_PROXY" { "no_proxy" } else { "NO_PROXY" };
        let exempt = exempt.without(other).set(name, "company.invalid");
        exempt.exec(code);
        assert_eq!(recorder.heads().len(), heads.len(), "{name}");
    }
    // Variables for other schemes are ignored, and an invalid proxy URL is an error.
    let others = at().set("ALL_PROXY", &recorder.url).set("HTTP_PROXY", &recorder.url);
    others.without("HTTPS_PROXY").without("https_proxy").exec(code);
    assert_eq!(recorder.heads().len(), heads.len());
    let (envelope, _) = at().set("https_proxy", "ftp://user:canary@x").exec(code);
    assert_eq!(envelope["error_code"], "CONFIG_INVALID", "{envelope:#}");
    assert!(!envelope.to_string().contains("canary"), "{envelope:#}");
}

/// NX-06: the issuer's keys are fetched without a proxy, which could substitute them.
#[test]
fn issuer_keys_are_fetched_without_a_proxy() {
    let recorder = Recorder::start();
    let signer = Signer::ed25519();
    let issuer = Issuer::start(&[("a", &signer)]);
    let variables = recorder.variables();
    let variables: Vec<(&str, &str)> =
        variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let gateway = issuer.gateway(&variables);
    let token = signer.token(&header("EdDSA", "a"), &issuer.claims());
    let url = format!("{}/api/v1/routing", gateway.url());
    assert_eq!(call(&token, "GET", &url, None).status, 200);
    assert_eq!((issuer.fetches(), recorder.heads()), (1, Vec::new()));
}

/// NX-06: upstreams and other registries are reached without a proxy.
#[test]
fn upstreams_and_registries_are_reached_without_a_proxy() {
    let recorder = Recorder::start();
    let gateway = recorder.gateway(&[]);
    let installation = gateway.installation();
    let stub = GatewayStub::start(|body| match body["method"].as_str() {
        Some("initialize") => Answer::Json(json!({ "jsonrpc": "2.0", "id": body["id"], "result": {
            "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
            "serverInfo": { "name": "x", "version": "1" },
        }})),
        Some("tools/call") => Answer::Json(json!({ "jsonrpc": "2.0", "id": body["id"], "result": {
            "content": [{ "type": "text", "text": "direct" }],
        }})),
        Some(_) if body["id"].is_null() => Answer::Raw(202, "text/plain", Vec::new()),
        Some(_) => Answer::Json(json!({ "jsonrpc": "2.0", "id": body["id"], "error": {
            "code": -32601, "message": "no such method",
        }})),
        None => Answer::Json(json!({ "servers": [], "metadata": {} })),
    });
    let tenant = Tenant { key: installation.first_key(), url: gateway.url().to_owned() };
    let scope = scope_of(&tenant);
    let mut entry = Entry::http(&scope, "far", &format!("{}/mcp", stub.url));
    entry.tools = vec![json!({ "name": "say", "inputSchema": { "type": "object" } })];
    entry.publish(installation);
    let ran: Value = HttpMcp::new(&tenant, Era::Stateless).execute("return await mcp.far.say({})");
    assert_eq!(success(&ran), "direct");
    let mut ingest = installation.command(&["catalog", "ingest", &stub.url]);
    ingest.envs(recorder.variables());
    let output = ingest.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(recorder.heads(), [""; 0]);
}
