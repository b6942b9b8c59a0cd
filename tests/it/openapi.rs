//! `/openapi.json`, and a gateway that keeps to it.

use std::process::Command;

use serde_json::Value;

use crate::support::cli::{finish, text};
use crate::support::http::get;
use crate::support::mcp_servers::{SCHEMATHESIS, python};
use crate::support::server::Server;
use crate::support::{guard, scaled};

fn document() -> Value {
    let reply = get(&format!("{}/openapi.json", Server::shared().url()), &[]);
    assert_eq!((reply.status, reply.header("content-type")), (200, "application/json"));
    reply.json()
}

/// Sends what schemathesis makes of the document, with a key or without.
///
/// It fails on an answer above 499, on a status, type or body that the document does not have, and on a request
/// that is taken although the document forbids it.
fn keeps_to_its_word(key: Option<&str>) {
    // All but the one that serves the document.
    let operations: usize = document()["paths"]
        .as_object()
        .unwrap()
        .iter()
        .filter(|(path, _)| *path != "/openapi.json")
        .map(|(_, item)| item.as_object().unwrap().len())
        .sum();
    let mut command = Command::new(python(SCHEMATHESIS).join("schemathesis"));
    command.arg("run").arg(format!("{}/openapi.json", Server::shared().url()));
    command.args(["--checks", "all", "--phases", "examples,coverage,fuzzing", "--no-color"]);
    // A cursor and a program are texts to the document, and not every text is one.
    command.args(["--exclude-checks", "positive_data_acceptance"]);
    // The same requests each time: a finding is one of the change that is tested.
    command.args(["--generation-deterministic", "-n", &scaled(100).to_string()]);
    if let Some(key) = key {
        command.args(["-H", &format!("Authorization: Bearer {key}")]);
    }
    command.current_dir(guard::folder("schemathesis"));
    let output = finish(command, b"");
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", text(&output.stderr));
    for line in [format!("Tested: {operations}"), " passed".to_owned()] {
        assert!(said.contains(&line), "no `{line}` in\n{said}");
    }
}

#[test]
fn a_gateway_keeps_to_its_description() {
    let tenant = Server::shared().tenant_that_can("execute,read,publish,admin");
    keeps_to_its_word(Some(&tenant.key));
}

#[test]
fn a_gateway_keeps_to_its_description_towards_readers_and_strangers() {
    let reader = Server::shared().tenant_that_can("read");
    keeps_to_its_word(Some(&reader.key));
    keeps_to_its_word(None);
}

/// The commands and the document speak of the same routes.
#[test]
fn every_route_is_described() {
    let printed = Server::shared().installation().run_well(&["routes", "--json"]);
    let routes: Value = serde_json::from_str(&printed).unwrap();
    let document = document();
    let routes = routes.as_array().unwrap();
    assert!(routes.len() >= 22, "{}", routes.len());
    for route in routes {
        let (method, path) = (route["method"].as_str().unwrap(), route["path"].as_str().unwrap());
        let operation = &document["paths"][path][method.to_lowercase()];
        let security = operation["security"].as_array().map_or(0, Vec::len);
        let auth = ["none", "key", "public"][security];
        assert_eq!(route["auth"], auth, "{method} {path}");
        let refused = operation["responses"].as_object().unwrap();
        assert_eq!(refused.contains_key("401"), auth != "none", "{method} {path}");
    }
}
