//! The real gateway, started with what the chart renders: the arguments and variables of each container, in their order.

use std::collections::BTreeMap;
use std::process::Command;

use data_encoding::HEXLOWER;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::chart::{CHART, file, render};
use super::tools::{can_run, helm_ok};
use super::{containers, pod_of};
use crate::skipped::skipped;
use crate::support::PATIENCE;
use crate::support::binaries::built;
use crate::support::cli::text;
use crate::support::expect::success;
use crate::support::guard;
use crate::support::http::{HttpMcp, get, send};
use crate::support::mcp_client::Era;
use crate::support::server::{Installation, Server, Tenant};

/// The secrets that an operator creates, by the variable that gets each.
type Secrets = BTreeMap<&'static str, String>;

/// Prepares a run of `pml-server` as a container's runtime would: with these variables and no others.
fn command(container: &Value, settings: &Value, secrets: &Secrets) -> Command {
    let mut command = Command::new(built("pml-server"));
    // As `deploy/image.py` sets them; every test needs a port of its own.
    command.env_clear().env("PML_LISTEN", "127.0.0.1:0").env("PML_DATA_DIR", "/var/lib/pml-none");
    if container["envFrom"].is_array() {
        for (name, value) in settings.as_object().unwrap() {
            command.env(name, value.as_str().unwrap());
        }
    }
    for variable in container["env"].as_array().into_iter().flatten() {
        let name = variable["name"].as_str().unwrap();
        command.env(name, &secrets[name]);
    }
    for argument in container["args"].as_array().into_iter().flatten() {
        command.arg(argument.as_str().unwrap());
    }
    command
}

fn find<'a>(resources: &'a [Value], kind: &str) -> &'a Value {
    resources.iter().find(|resource| resource["kind"] == kind).unwrap()
}

/// The job migrates an empty database and creates the tenant, the gateway is ready on it, the command in the notes creates
/// a key, and a program runs with that key.
#[test]
fn the_gateway_runs_with_what_the_chart_renders() {
    if !can_run() {
        skipped!("Helm and kubectl are packaged for x86-64 only");
    }
    let values = json!({
        "metrics": { "enabled": true },
        "publicUrl": "https://gw.acme.example",
        "settings": { "PML_DATABASE_CONNECTIONS": 4, "PML_RATE_PER_KEY": false,
                      "PML_CONNECTIONS_PER_ADDRESS": 1_000_000, "PML_ANONYMOUS_READ": false,
                      "PML_TRUSTED_PROXIES": "10.0.0.0/8,fd00::/8" },
    });
    let minimal = file("minimal");
    let resources = render(&["--values", &minimal], &json!({}));
    // The Postgres of another gateway serves as the operator's own: an empty database with both roles.
    let owner = Installation::new();
    let other = owner.start();
    owner.sql("create database fresh owner pml_owner");
    let url = |role: &str| {
        format!(
            "postgres://{role}@localhost:5432/fresh?host={}&sslmode=disable",
            owner.socket_folder()
        )
    };
    let secrets = Secrets::from([
        ("PML_DATABASE_URL", url("pml_app")),
        ("PML_MIGRATE_URL", url("pml_owner")),
        ("PML_MASTER_KEY", HEXLOWER.encode(&Sha256::digest(owner.first_key()))),
    ]);
    let job = pod_of(find(&resources, "Job")).unwrap();
    // A job may be run twice: the pod ends between two containers, or the release is installed again.
    for _ in 0..2 {
        for container in containers(job) {
            let output = command(container, &json!({}), &secrets).output().unwrap();
            assert!(output.status.success(), "{container:#}\n{}", text(&output.stderr));
        }
    }

    let resources = render(&["--values", &minimal], &values);
    let mut settings = find(&resources, "ConfigMap")["data"].clone();
    assert_eq!(settings["PML_METRICS_LISTEN"], "0.0.0.0:9464");
    settings["PML_METRICS_LISTEN"] = json!("127.0.0.1:0");
    let gateway = &pod_of(find(&resources, "Deployment")).unwrap()["containers"][0];
    let server = Installation::new().start_by(&command(gateway, &settings, &secrets));
    // The kubelet and Prometheus name the address of the pod.
    let of_pod = [("host", "10.1.2.3:3001")];
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let path = gateway[probe]["httpGet"]["path"].as_str().unwrap();
        let reply = get(&format!("{}{path}", server.url()), &of_pod);
        assert_eq!(reply.status, 200, "{path}: {}", reply.json());
    }
    let screen = server.start_screen();
    let metrics = screen.lines().find_map(|line| line.trim().strip_prefix("metrics ")).unwrap();
    let metrics = metrics.trim().split(',').next().unwrap();
    assert_eq!(get(metrics, &[("host", "10.1.2.3:9464")]).status, 200);

    // The command in the notes, with the variables of the gateway's container.
    let notes = helm_ok(&[
        "install",
        "pml-server",
        CHART,
        "--dry-run=client",
        "--namespace",
        "pml",
        "--values",
        &minimal,
    ]);
    let (_, notes) = notes.split_once("NOTES:").unwrap();
    let create = "kubectl --namespace pml exec deploy/pml-server -- /usr/bin/pml-server ";
    let create = notes.lines().find_map(|line| line.trim().strip_prefix(create)).unwrap();
    let output = command(gateway, &settings, &secrets).args(create.split(' ')).output().unwrap();
    assert!(output.status.success(), "{create}: {}", text(&output.stderr));
    let key = text(&output.stdout).trim().to_owned();
    let tenant = Tenant { key: key.clone(), url: server.url().to_owned() };
    let envelope = HttpMcp::new(&tenant, Era::Stateless).execute("return 6 * 7");
    assert_eq!(*success(&envelope), json!(42), "{envelope}");
    // The catalog is there, and closed to those without a key.
    let entry = format!("{}/mcp/pml.mcp.json", server.url());
    assert_eq!(get(&entry, &[]).status, 401);
    let bearer = format!("Bearer {key}");
    // The public URL's host is a name of the gateway, and no other is.
    let body = Era::Handshake.request(1, "tools/list", json!({})).to_string();
    for (host, status) in [("gw.acme.example", 200), ("evil.example", 403)] {
        let headers = [
            ("host", host),
            ("authorization", &bearer),
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
            ("mcp-protocol-version", "2025-11-25"),
        ];
        let url = format!("{}/mcp", server.url());
        let reply = send("POST", &url, &headers, Some(body.clone().into_bytes()));
        assert_eq!(reply.status, status, "{host}");
    }
    assert_eq!(server.stop(), Some(0));

    // `helm test` has no secret and no network.
    let test = pod_of(find(&resources, "Pod")).unwrap();
    let container = containers(test).next().unwrap();
    assert!(container["env"].is_null() && container["envFrom"].is_null(), "{container:#}");
    let output = command(container, &json!({}), &Secrets::new()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("seccomp"), "{}", text(&output.stdout));
    assert_eq!(other.stop(), Some(0));
}

/// The notes say what is not set up, and only then.
#[test]
fn the_notes_say_what_is_missing() {
    if !can_run() {
        skipped!("Helm and kubectl are packaged for x86-64 only");
    }
    let notes = |values: &Value| {
        let given = guard::folder("notes").join("values.json");
        std::fs::write(&given, values.to_string()).unwrap();
        let given = given.to_str().unwrap();
        let shown = helm_ok(&["install", "a", CHART, "--dry-run=client", "--values", given]);
        shown.split_once("NOTES:").unwrap().1.to_owned()
    };
    let peers = json!([{ "podSelector": {} }]);
    let ingress = json!({ "ingress": { "enabled": true }, "publicUrl": "https://a.example" });
    for (values, other, words) in [
        (json!({}), ingress, "port-forward service/a-pml-server 3001:80"),
        (json!({}), json!({ "migrations": { "scopes": ["a.b"] } }), "Set migrations.scopes"),
        (json!({ "masterKey": { "existingSecret": "" } }), json!({}), "no master key"),
        (json!({ "migrations": { "enabled": false } }), json!({}), "does not migrate"),
        (
            json!({ "metrics": { "enabled": true }, "networkPolicy": { "enabled": false } }),
            json!({ "metrics": { "enabled": true }, "networkPolicy": { "metricsFrom": peers } }),
            "Everybody in the cluster can read the metrics",
        ),
        (
            json!({ "metrics": { "enabled": true } }),
            json!({ "metrics": { "enabled": true }, "networkPolicy": { "metricsFrom": peers } }),
            "Nobody can read the metrics",
        ),
    ] {
        assert!(notes(&values).contains(words), "{values}: {words}");
        assert!(!notes(&other).contains(words), "{other}: {words}");
    }
    assert!(notes(&json!({})).contains("The gateway is http://a-pml-server.default.svc\n"));
    let other = json!({ "service": { "port": 8080 } });
    assert!(notes(&other).contains("The gateway is http://a-pml-server.default.svc:8080\n"));
}

/// Answers every GET with an empty page of a registry, over TLS.
const REGISTRY: &str = r#"
import http.server, ssl, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = b'{"servers":[],"metadata":{"count":0}}'
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1], sys.argv[2])
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_address[1], flush=True)
server.serve_forever()
"#;

/// `ca.existingConfigMap` sets `SSL_CERT_FILE`: the gateway trusts the authority in it, and otherwise does not.
#[test]
fn certificates_of_an_own_authority_are_trusted() {
    let folder = guard::folder("tls");
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let openssl = |arguments: &[&str]| {
        let output = Command::new("openssl").args(arguments).current_dir(&folder).output().unwrap();
        assert!(output.status.success(), "openssl {arguments:?}: {}", text(&output.stderr));
    };
    let new = ["req", "-newkey", "rsa:2048", "-noenc", "-keyout"];
    let authority =
        ["ca.key", "-x509", "-days", "1", "-subj", "/CN=Own authority", "-out", "ca.crt"];
    openssl(&[&new[..], &authority].concat());
    openssl(&[&new[..], &["own.key", "-subj", "/CN=localhost", "-out", "own.csr"]].concat());
    std::fs::write(path("names"), "subjectAltName=DNS:localhost\n").unwrap();
    let sign = ["x509", "-req", "-in", "own.csr", "-CA", "ca.crt", "-CAkey", "ca.key"];
    let into = ["-CAcreateserial", "-days", "1", "-extfile", "names", "-out", "own.crt"];
    openssl(&[&sign[..], &into].concat());
    let mut python = Command::new("python3");
    python.args(["-c", REGISTRY]).args([path("own.crt"), path("own.key")]);
    python.env("PATH", std::env::var_os("PATH").unwrap());
    let registry = guard::Guarded::start(&python, &folder.join("log"));
    let port = registry.line(PATIENCE, |line| line.parse::<u16>().is_ok()).unwrap();
    let url = format!("https://localhost:{port}");

    let gateway = Server::shared().installation();
    let ingest = |certificates: Option<&str>| {
        let mut command = gateway.command(&["catalog", "ingest", &url]);
        command.envs(certificates.map(|file| ("SSL_CERT_FILE", file))).output().unwrap()
    };
    let refused = ingest(None);
    assert!(!refused.status.success(), "{}", text(&refused.stdout));
    let trusted = ingest(Some(&path("ca.crt")));
    assert!(trusted.status.success(), "{}", text(&trusted.stderr));
    assert!(text(&trusted.stdout).starts_with("Read 0 servers"), "{}", text(&trusted.stdout));
    registry.stop();
}
