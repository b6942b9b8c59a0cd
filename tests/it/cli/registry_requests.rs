//! What registries are asked, and what happens if one does not answer.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use super::plan::plan;
use super::registries::{ADD, Mirror, Two, allowed, is_of, publish, store_keys};
use crate::support::cli::{Project, text};
use crate::support::expect::{failure, question, success};
use crate::support::gateway_stub::{Answer, GatewayStub, forward_request};
use crate::support::terminal::approve;

/// SE-13: a registry that does not answer as one is an error that names it, unless it is optional: then it is skipped, and
/// the result says so. A redirect leads nowhere.
#[test]
fn a_registry_that_does_not_answer_is_an_error_or_skipped() {
    let two = Two::new();
    for name in ["gone", "slow", "moved", "large", "html", "renamed", "forged", "closed", "odd"] {
        publish(&two.second, name, "second-db", "project");
    }
    let real = two.second.url.clone();
    let thief = GatewayStub::start_with_head(|_, _| Answer::Close);
    let elsewhere = format!("{}/mcp/moved", thief.url);
    let hostile = GatewayStub::start_with_head(move |head, body| {
        let path = head.split(' ').nth(1).unwrap_or_default();
        let json = |status, text: String| Answer::Raw(status, "application/json", text.into());
        match path.rsplit('/').next().unwrap_or_default() {
            "slow" => Answer::Never,
            "moved" => Answer::Redirect(elsewhere.clone()),
            "large" => json(200, format!("\"{}\"", "x".repeat(5 * 1024 * 1024))),
            "html" => Answer::Raw(200, "text/html", b"<h1>\x1b[2JWelcome</h1>".to_vec()),
            "renamed" => {
                json(200, forward_request(&real, &head.replace("renamed", "forged"), body))
            }
            "forged" => {
                let answer = forward_request(&real, head, body);
                json(200, answer.replace("second-db", "evil"))
            }
            "closed" => json(401, String::new()),
            "odd" => json(500, String::new()),
            _ => Answer::Close,
        }
    });
    let required = two.project(&json!([hostile.url, two.first.url, two.second.url]));
    // The stub forwards the key.
    store_keys(&required, &[(&two.second.url, &two.second.key), (&hostile.url, &two.second.key)]);
    let optional = json!([{ "url": hostile.url, "optional": true }, two.first.url, two.second.url]);
    let mut pml = required.stdio();
    let mut said = Vec::new();
    for (name, code, words) in [
        ("gone", "GATEWAY_UNREACHABLE", "cannot be reached"),
        ("slow", "GATEWAY_UNREACHABLE", "did not answer within 5 s"),
        ("moved", "GATEWAY_BAD_ANSWER", "a redirect, which is not followed"),
        ("large", "GATEWAY_BAD_ANSWER", "more than 4 MiB"),
        ("html", "GATEWAY_BAD_ANSWER", "sent an invalid answer"),
        ("renamed", "GATEWAY_BAD_ANSWER", "for another name"),
        ("forged", "GATEWAY_BAD_ANSWER", "does not match its hash"),
        ("closed", "UNAUTHORIZED", "does not accept the API key or the sign-in from"),
        ("odd", "GATEWAY_BAD_ANSWER", "HTTP status 500"),
    ] {
        let refused = pml.execute(&format!("return await mcp.{name}.add({{}})"));
        let message = failure(&refused, code);
        let whole = format!("the registry {} of `.pml.json` ", hostile.url);
        assert!(message.starts_with(&whole) && message.contains(words), "{name}: {message}");
        assert!(!message.contains('\u{1b}'), "{message:?}");
        let hint = refused["hint"].as_str().unwrap();
        let write = format!("{{ \"url\": \"{}\", \"optional\": true }}", hostile.url);
        assert!(hint.contains(&write), "{hint}");
        said.push((name, words));
    }
    drop(pml);
    let doctor = required.run(&["doctor"]);
    assert_eq!(doctor.status.code(), Some(4));
    assert!(text(&doctor.stdout).contains(&format!("failed   registry          {}", hostile.url)));
    let planned = text(&required.run_with(&["plan", "-"], b"await mcp.gone.add({})").stdout);
    assert!(planned.contains(&format!("the registry {} of", hostile.url)), "{planned}");

    let project = two.with(required, &optional);
    let doctor = text(&project.run(&["doctor"]).stdout);
    assert!(doctor.contains("it is optional, so it is skipped"), "{doctor}");
    let mut pml = project.stdio();
    for (name, words) in said {
        let pending = pml.execute(&format!("return await mcp.{name}.add({{}})"));
        let description = question(&pending)["description"].as_str().unwrap();
        assert!(description.contains(&format!("of the registry {}", two.second.url)), "{name}");
        if name == "gone" || name == "html" {
            approve(&project, &pending, false);
            let done = pml.resume(&pending, true, false);
            assert!(is_of(success(&done), "second-db"), "{done:#}");
            let warned = done["warnings"].to_string();
            assert!(warned.contains("was skipped: it ") && warned.contains(words), "{done:#}");
        } else {
            pml.resume(&pending, false, false);
        }
    }
    assert_eq!(thief.requests(), 0);
    // Nor is it silent about a program that runs on the gateway, or a name that no other registry has.
    let done = pml.execute("return await mcp.math.eval({ expression: '6 * 7' })");
    assert_eq!((success(&done), &done["executed"]), (&json!(42), &json!("server")), "{done:#}");
    assert!(done["warnings"].to_string().contains("was skipped: it "), "{done:#}");
    let refused = pml.execute("return await mcp.nowhere.add({})");
    let message = failure(&refused, "TOOL_NOT_FOUND");
    assert!(message.contains(&format!("the registry {} was skipped", hostile.url)), "{message}");
}

/// A URL with a path is refused, with the line to write. An untrusted file is checked as well, but its registries are not
/// asked.
#[test]
fn a_registry_is_an_origin() {
    let project = Project::offline();
    project.write(".pml.json", r#"{ "registries": ["https://pml.casys.ai/registry"] }"#);
    for arguments in [&["trust", "--yes"][..], &["exec", "-"], &["stdio"]] {
        let refused = project.run_with(arguments, b"return 1");
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{said}");
        assert!(said.contains("write `\"https://pml.casys.ai\"`"), "{said}");
    }
}

/// CL-04: the registries of a file that the user has not trusted are not asked, and start nothing.
#[test]
fn registries_of_an_untrusted_file_are_not_asked() {
    let two = Two::new();
    publish(&two.second, "db", "second-db", "project");
    let mirror = Mirror::of(&two.second.url);
    let project = two.project(&json!([mirror.stub.url]));
    store_keys(&project, &[(&mirror.stub.url, &two.second.key)]);
    allowed(&project, &mut project.stdio(), ADD);
    // Another byte, and it is no longer the file that was trusted.
    project.write(".pml.json", project.read(".pml.json") + "\n");
    let before = mirror.stub.requests();
    let refused = project.run_with(&["exec", "-", "--json"], ADD.as_bytes());
    let envelope: Value = serde_json::from_slice(&refused.stdout).unwrap();
    failure(&envelope, "TOOL_NOT_FOUND");
    assert!(text(&refused.stderr).contains("`registries` in it are ignored"));
    // Nor does it start what was allowed before.
    let project = project.set("PML_CLOUD_URL", "http://127.0.0.1:9");
    let (envelope, _) = project.exec(ADD);
    assert_eq!(envelope["status"], "error", "{envelope:#}");
    assert_eq!(mirror.stub.requests(), before);
}

/// A registry gets names and nothing else: no program, no arguments, and no key except the one that was stored for it.
#[test]
fn a_registry_gets_names_only() {
    let two = Two::new();
    publish(&two.second, "db", "second-db", "project");
    let curious = GatewayStub::start_with_head(|_, _| {
        Answer::Raw(404, "application/json", b"{\"error\":\"not_found\"}".to_vec())
    });
    let mirror = Mirror::of(&two.second.url);
    let project = two.project(&json!([curious.url, two.first.url, mirror.stub.url]));
    store_keys(&project, &[(&mirror.stub.url, &two.second.key), (&two.first.url, &two.first.key)]);
    let mut pml = project.stdio();
    let code = "// canary-text\nconst x = 'canary-literal'; return [x, args.n, await mcp.db.add({ x, n: args.n })]";
    let request = json!({ "code": code, "args": { "n": "canary-args" } });
    let pending = pml.execute_request(request.clone());
    approve(&project, &pending, false);
    success(&pml.resume(&pending, true, false));
    success(&pml.execute_request(request));
    plan(&project, code);
    project.run(&["search", "canary words of a search"]);
    project.run(&["search", "db:add"]);
    project.run(&["doctor"]);
    assert!(curious.requests() > 3);
    for request in curious.received() {
        assert!(!request.to_lowercase().contains("authorization"), "{request}");
        assert!(!request.contains(&two.first.key) && !request.contains("pml_"), "{request}");
    }
    let with_key = mirror.stub.received();
    assert!(with_key.iter().all(|request| request.contains(&two.second.key)), "{with_key:#?}");
    assert!(!with_key.iter().any(|request| request.contains(&two.first.key)));
    for request in curious.received().iter().chain(&with_key) {
        assert!(request.starts_with("GET /mcp/") && !request.contains("canary"), "{request}");
        let path = request.split(' ').nth(1).unwrap();
        assert!(["/mcp/db", "/mcp/db:add", "/mcp/mcp"].contains(&path), "{request}");
    }
}

/// With `analysis` as `local`, the gateway gets names only. Without a gateway, the registries are asked all the same.
#[test]
fn registries_are_asked_without_the_text_and_without_a_gateway() {
    let two = Two::new();
    publish(&two.second, "db", "second-db", "project");
    let gateway = Mirror::of(&two.first.url);
    let project = two.project(&json!([two.second.url]));
    let config = json!({ "analysis": "local", "permissions": { "allow": ["*"] }, "registries": [two.second.url] });
    let project = project.set("PML_CLOUD_URL", &gateway.stub.url).configure(&config);
    let mut pml = project.stdio();
    let code = "// canary\nreturn await mcp.db.add({ from: args.n })";
    let request = json!({ "code": code, "args": { "n": "canary" } });
    let pending = pml.execute_request(request.clone());
    approve(&project, &pending, false);
    assert!(is_of(success(&pml.resume(&pending, true, false)), "second-db"));
    let mut dry = request;
    dry["options"] = json!({ "dry_run": true });
    let dry = pml.execute_request(dry);
    assert_eq!(success(&dry)["tasks"][0]["side"], "client", "{dry:#}");
    drop(pml);
    let received = gateway.stub.received();
    assert!(!received.is_empty() && !received.iter().any(|text| text.contains("canary")));

    // The default gateway is not one that the user has chosen, so it has no place in the order.
    let project = project.without("PML_CLOUD_URL").without("PML_API_KEY");
    let (envelope, _) = project.exec(ADD);
    assert!(is_of(success(&envelope), "second-db"), "{envelope:#}");
    let (planned, _) = plan(&project, ADD);
    assert_eq!(planned["tasks"][0]["routing_source"], "registry", "{planned:#}");
}

/// A server that was allowed starts again without any request that is answered. Other names of that registry fail.
#[test]
fn an_allowed_server_starts_offline() {
    let two = Two::new();
    publish(&two.second, "db", "second-db", "project");
    let mirror = Mirror::of(&two.second.url);
    for registries in [json!([mirror.stub.url]), json!([mirror.stub.url, two.first.url])] {
        mirror.is_down.store(false, Ordering::SeqCst);
        let project = two.project(&registries);
        store_keys(&project, &[(&mirror.stub.url, &two.second.key)]);
        allowed(&project, &mut project.stdio(), ADD);
        mirror.is_down.store(true, Ordering::SeqCst);
        // The gateway still answers.
        let (envelope, _) = project.exec(ADD);
        assert!(is_of(success(&envelope), "second-db"), "{envelope:#}");
        let warned = envelope["warnings"].to_string();
        assert!(warned.contains("is the server that you allowed here before"), "{envelope:#}");
        let (envelope, _) = project.exec("return await mcp.unknown.add({})");
        let message = failure(&envelope, "GATEWAY_UNREACHABLE");
        assert!(message.contains(&mirror.stub.url), "{message}");

        let project = project
            .set("PML_CLOUD_URL", "http://127.0.0.1:9")
            .set("npm_config_registry", "http://127.0.0.1:9");
        let (envelope, _) = project.exec(ADD);
        assert!(is_of(success(&envelope), "second-db"), "{envelope:#}");
        let project = project.set("PML_API_KEY", "");
        let (envelope, _) = project.exec(ADD);
        assert!(is_of(success(&envelope), "second-db"), "{envelope:#}");
        // Not if the registry is no longer listed.
        let project = two.with(project, &json!([two.second.url]));
        let (envelope, _) = project.exec(ADD);
        assert_eq!(envelope["status"], "error", "{envelope:#}");
    }
}
