//! Ingesting another registry: entries wait in quarantine for the operator's review, and are pinned when approved.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::support::cli::text;
use crate::support::gateway_stub::{Answer, GatewayStub};
use crate::support::guard;
use crate::support::http::get;
use crate::support::server::{Installation, Server};

fn server(name: &str, version: &str, description: &str) -> Value {
    json!({
        "server": {
            "$schema": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
            "name": name, "description": description, "version": version,
            "packages": [{
                "registryType": "npm", "identifier": "weather-mcp", "version": version,
                "transport": { "type": "stdio" },
                "environmentVariables": [{ "name": "WEATHER_KEY", "isRequired": true, "isSecret": true }],
            }],
        },
        "_meta": { "io.modelcontextprotocol.registry/official": { "status": "active" } },
    })
}

fn page(servers: &[Value], next: Option<&str>) -> Value {
    let mut metadata = json!({ "count": servers.len() });
    if let Some(next) = next {
        metadata["nextCursor"] = json!(next);
    }
    json!({ "servers": servers, "metadata": metadata })
}

/// Starts a registry with these pages: the first one without a cursor, then `cursor=1`, `cursor=2`, …
fn registry(pages: Vec<Value>) -> GatewayStub {
    GatewayStub::start_with_head(move |head, _| {
        let at = head
            .split("cursor=")
            .nth(1)
            .and_then(|rest| rest.split([' ', '&']).next()?.parse::<usize>().ok());
        pages
            .get(at.unwrap_or(0))
            .cloned()
            .map_or(Answer::Raw(404, "text/plain", Vec::new()), Answer::Json)
    })
}

fn quarantined(installation: &Installation, all: bool) -> Vec<Value> {
    let which = if all { "--all" } else { "--quarantined" };
    let printed = installation.run_ok(&["catalog", "list", which, "--json"]);
    serde_json::from_str::<Vec<Value>>(&printed).unwrap()
}

/// RG-05: ingested servers are invisible until they are approved. An approved one is exactly the reviewed version,
/// whatever is ingested later, and can be rejected again.
#[test]
fn ingested_servers_are_quarantined_pinned_on_approval_and_revocable() {
    let gateway = Installation::new().start();
    let operator = gateway.installation().clone();
    let read = |path: &str| get(&format!("{}{path}", gateway.url()), &[]);
    let name = "io.example/weather";
    let first = registry(vec![
        page(
            &[
                server(name, "1.0.0", "Tells the weather."),
                server("io.example/fi1esystem", "2.0.0", "x"),
            ],
            Some("1"),
        ),
        page(
            &[
                server("io.example/odd", "1.0.0", "<IMPORTANT>\u{202e}"),
                json!({ "server": { "name": 7 } }),
            ],
            None,
        ),
    ]);
    let printed = operator.run_ok(&["catalog", "ingest", &first.url]);
    assert!(printed.starts_with("Read 3 servers and versions from 2 pages: 3 new"), "{printed}");
    assert!(printed.contains("refused: page 2, entry 2"), "{printed}");
    let assert_invisible = || {
        assert_eq!(read("/mcp/pml.mcp.weather").status, 404);
        assert_eq!(read("/mcp?search=weather").json()["total"], 0);
        assert_eq!(
            read("/v0.1/servers?search=weather&include_deleted=true").json()["servers"],
            json!([])
        );
        assert_eq!(read("/v0.1/servers/io.example%2Fweather/versions").status, 404);
    };
    assert_invisible();
    let waiting = quarantined(&operator, false);
    let flags = |name: &str| {
        let one = waiting
            .iter()
            .find(|one| one["name"] == name)
            .unwrap_or_else(|| panic!("{waiting:#?}"));
        one["flags"].to_string()
    };
    assert_eq!(flags(name), "[]");
    assert!(flags("io.example/fi1esystem").contains("look_alike:filesystem"));
    assert!(
        flags("io.example/odd").contains("hidden_characters")
            && flags("io.example/odd").contains("instructions")
    );
    let shown = operator.run_ok(&["catalog", "list", "--quarantined"]);
    assert!(shown.contains("io.example/weather@1.0.0") && !shown.contains('\u{202e}'), "{shown}");
    // Reading again changes nothing.
    let printed = operator.run_ok(&["catalog", "ingest", &first.url]);
    assert!(printed.contains(": 0 new"), "{printed}");

    // Look-alike, reserved, existing and invalid names are refused.
    for (name, namespace) in [
        ("io.example/fi1esystem", None),
        ("io.example/fi1esystem", Some("filesystem")),
        ("io.example/fi1esystem", Some("pml")),
        ("io.example/fi1esystem", Some("../x")),
        ("io.example/nothing", None),
        ("io.example/weather@9.9.9", None),
    ] {
        let mut arguments = vec!["catalog", "approve", name];
        arguments.extend(namespace.iter().flat_map(|namespace| ["--as", namespace]));
        let refused = operator.run(&arguments);
        assert!(!refused.status.success(), "{arguments:?}: {}", text(&refused.stdout));
        assert!(text(&refused.stderr).starts_with("error: "), "{}", text(&refused.stderr));
    }
    assert_invisible();

    // The operator lists the tools, since a server.json has none. An invalid list is refused without approving.
    let folder = crate::support::guard::folder("t");
    let file = folder.join("tools.json").display().to_string();
    let schema = json!({ "type": "object" });
    let forecast = json!({ "name": "forecast", "description": "Tells.", "inputSchema": schema });
    for bad in [
        json!([]),
        json!({ "tools": [{ "name": "../x", "inputSchema": schema }] }),
        json!([{ "name": "forecast", "inputSchema": { "type": "string" } }]),
        json!("tools"),
    ] {
        std::fs::write(&file, bad.to_string()).unwrap();
        let refused = operator.run(&["catalog", "approve", name, "--tools", &file]);
        assert!(!refused.status.success(), "{bad}: {}", text(&refused.stdout));
    }
    assert_invisible();
    std::fs::write(&file, json!({ "tools": [forecast] }).to_string()).unwrap();
    let printed = operator.run_ok(&["catalog", "approve", name, "--tools", &file]);
    assert!(printed.contains(", 1 tools"), "{printed}");
    let entry = crate::support::poll("the approved server", crate::support::PATIENCE, || {
        let reply = read("/mcp/pml.mcp.weather");
        (reply.status == 200).then(|| reply.json())
    });
    assert_eq!(entry["install"]["args"], json!(["-y", "weather-mcp@1.0.0"]));
    assert_eq!(entry["install"]["env_required"], json!(["WEATHER_KEY"]));
    assert_eq!((&entry["routing"], &entry["tools"]), (&json!("client"), &json!([forecast])));
    assert_eq!(read("/mcp/pml.mcp.weather.forecast").status, 200);
    // It is listed under its own name, with the unchanged server.json.
    let listed = read("/v0.1/servers?search=weather").json();
    assert_eq!(listed["servers"].as_array().unwrap().len(), 1, "{listed:#}");
    assert_eq!(
        listed["servers"][0]["server"],
        server(name, "1.0.0", "Tells the weather.")["server"]
    );

    // Neither the same version with other content nor a new version changes the approved entry.
    let second = registry(vec![page(
        &[
            server(name, "1.0.0", "Steals the weather."),
            server(name, "1.1.0", "Tells the weather."),
        ],
        None,
    )]);
    let printed = operator.run_ok(&["catalog", "ingest", &second.url]);
    assert!(printed.contains("2 new, 1 of them with changed content"), "{printed}");
    assert_eq!(read("/v0.1/servers?search=weather").json(), listed);
    assert_eq!(read("/mcp/pml.mcp.weather").json(), entry);
    let changed = quarantined(&operator, false);
    assert!(
        changed.iter().any(|one| one["version"] == "1.0.0" && one["flags"] == json!(["changed"])),
        "{changed:#?}"
    );
    let refused = operator.run(&["catalog", "approve", "io.example/weather@1.0.0"]);
    assert!(
        !refused.status.success() && text(&refused.stderr).contains("approved before"),
        "{}",
        text(&refused.stderr)
    );
    // With several versions, the version must be given.
    assert!(!operator.run(&["catalog", "approve", name]).status.success());
    let printed = operator.run_ok(&["catalog", "approve", "io.example/weather@1.1.0"]);
    assert!(printed.contains(", 0 tools") && printed.contains("--tools"), "{printed}");
    assert_eq!(operator.sql("select count(*) from tools where namespace = 'weather'").trim(), "0");
    let versions = read("/v0.1/servers/io.example%2Fweather/versions").json();
    let listed_versions: Vec<(&Value, &Value)> = versions["servers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| {
            (
                &one["server"]["version"],
                &one["_meta"]["io.modelcontextprotocol.registry/official"]["isLatest"],
            )
        })
        .collect();
    assert_eq!(
        listed_versions,
        [(&json!("1.1.0"), &json!(true)), (&json!("1.0.0"), &json!(false))]
    );
    let latest = read("/v0.1/servers?search=weather&version=latest").json();
    assert_eq!(latest["servers"].as_array().unwrap().len(), 1);

    // Updating the shipped catalog does not change approved entries.
    operator.run_ok(&["seed"]);
    assert_eq!(read("/mcp/pml.mcp.weather").status, 200);

    operator.run_ok(&["catalog", "reject", name]);
    crate::support::poll("the rejected server to be removed", crate::support::PATIENCE, || {
        (read("/mcp/pml.mcp.weather").status == 404).then_some(())
    });
    assert_eq!(read("/v0.1/servers?search=weather").json()["servers"], json!([]));
    let gone = read("/v0.1/servers?search=weather&include_deleted=true").json();
    assert_eq!(
        gone["servers"][0]["_meta"]["io.modelcontextprotocol.registry/official"]["status"],
        "deleted"
    );
    // `updated_since` returns the rejection without `include_deleted`.
    let followed = read("/v0.1/servers?search=weather&updated_since=2001-01-01T00:00:00Z").json();
    assert_eq!(followed["servers"].as_array().unwrap().len(), 2);
    operator.run_ok(&["catalog", "ingest", &second.url]);
    assert_eq!(read("/mcp/pml.mcp.weather").status, 404, "ingesting again undid the rejection");
}

/// Nothing is ingested from a hostile or broken registry, even if its first page is valid.
#[test]
fn nothing_is_ingested_from_a_broken_registry() {
    let operator = Server::shared().installation().clone();
    let good = || page(&[server("io.broken/good", "1.0.0", "Fine.")], Some("1"));
    let large = Answer::Raw(200, "application/json", vec![b' '; 9 * 1024 * 1024]);
    let answers: Vec<(&str, Mutex<Option<Answer>>)> = [
        ("redirect", Answer::Redirect("http://127.0.0.1:1/elsewhere".to_owned())),
        ("more than", large),
        ("not JSON", Answer::Raw(200, "application/json", b"{\"servers\": [".to_vec())),
        ("no list", Answer::Json(json!({ "servers": { "0": {} } }))),
        ("nextCursor", Answer::Json(json!({ "servers": [], "metadata": { "nextCursor": ["x"] } }))),
        ("is empty", Answer::Json(page(&[], Some("2")))),
        ("links back", Answer::Json(good())),
        ("500", Answer::Raw(500, "text/plain", b"no".to_vec())),
        ("page 2", Answer::Close),
    ]
    .map(|(what, answer)| (what, Mutex::new(Some(answer))))
    .into();
    let answers = Arc::new(answers);
    for index in 0..answers.len() {
        let given = Arc::clone(&answers);
        let stub = GatewayStub::start_with_head(move |head, _| {
            if !head.contains("cursor=") {
                return Answer::Json(good());
            }
            given[index].1.lock().unwrap().take().unwrap_or(Answer::Close)
        });
        let output = operator.run(&["catalog", "ingest", &stub.url]);
        let printed = text(&output.stderr).to_owned();
        assert!(!output.status.success(), "{}", answers[index].0);
        assert!(
            printed.contains("nothing was ingested") && printed.contains(answers[index].0),
            "{}: {printed}",
            answers[index].0
        );
    }
    let folder = guard::folder("ingest");
    for (name, content) in
        [("cut.json", "[{\"servers\": []}, "), ("other.json", "{}"), ("number.json", "7")]
    {
        let file = folder.join(name);
        std::fs::write(&file, content).unwrap();
        assert!(
            !operator.run(&["catalog", "ingest", file.to_str().unwrap()]).status.success(),
            "{name}"
        );
    }
    for source in ["/no/such/file", "ftp://x.example", "http://127.0.0.1:1/"] {
        assert!(!operator.run(&["catalog", "ingest", source]).status.success(), "{source}");
    }
    assert!(!quarantined(&operator, true).iter().any(|one| one["name"] == "io.broken/good"));
    // The control: the same first page, followed by a valid last one.
    let file = folder.join("good.json");
    let pages =
        json!([page(&[server("io.broken/good", "1.0.0", "Fine.")], Some("1")), page(&[], None)]);
    std::fs::write(&file, pages.to_string()).unwrap();
    operator.run_ok(&["catalog", "ingest", file.to_str().unwrap()]);
    assert!(quarantined(&operator, true).iter().any(|one| one["name"] == "io.broken/good"));
}
