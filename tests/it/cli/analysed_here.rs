//! `analysis: "local"`: the text of a program stays on this machine (P8).

use serde_json::{Value, json};

use super::plan::plan;
use crate::registry::capabilities::{DOUBLE, published};
use crate::support::cli::{Project, text};
use crate::support::expect::{failure, success};
use crate::support::gateway_stub::{Answer, GatewayStub, forward_request};
use crate::support::server::Server;

/// In the text of every program; no program passes it to a tool.
const MARK: &str = "canary-61";

/// Starts a proxy to the gateway, which records every request.
fn recorder(url: &str) -> GatewayStub {
    let url = url.to_owned();
    GatewayStub::start_with_head(move |head, body| {
        let answer = forward_request(&url, head, body);
        Answer::Raw(200, "application/json", answer.into_bytes())
    })
}

/// Programs of each kind run with the right results, and no request contains their text, their `args` or the results of
/// tools of this machine.
#[test]
fn the_text_of_a_program_stays_here() {
    let server = Server::shared();
    let tenant = server.tenant_with_rights("execute,read,publish");
    // A capability that runs here asks about its names, too.
    published(&tenant, "twice.of", &format!("{DOUBLE} // canary-64"));
    let gateway = recorder(server.url());
    let config =
        json!({ "analysis": "local", "permissions": { "allow": ["*"], "deny": ["web:*"] } });
    let project = Project::at(&gateway.url).set("PML_API_KEY", &tenant.key).configure(&config);
    project.write("a.txt", "canary-62");
    let read = "await mcp.filesystem.read_text_file({ path: 'a.txt' })";
    let mut pml = project.stdio();
    for (code, expected, asks) in [
        (format!("const read = {read}; return read.length"), json!(9), false),
        ("return args.n.length".to_owned(), json!(9), false),
        (
            format!("const length = ({read}).length; return [length, await mcp.json.parse({{ data: '[1]' }})]"),
            json!([9, [1]]),
            true,
        ),
        ("return await mcp.math.eval({ expression: '6 * 7' })".to_owned(), json!(42), true),
        ("return await mcp.twice.of({ n: 21 })".to_owned(), json!(42), true),
        (
            "const [space, action] = ['math', 'eval']; return await mcp[space][action]({ expression: '1 + 1' })"
                .to_owned(),
            json!(2),
            true,
        ),
    ] {
        let before = gateway.requests();
        let code = format!("// {MARK}\nconst canary61 = '{MARK}';\n{code}");
        let request = json!({ "code": code, "args": { "n": "canary-63" } });
        let envelope = pml.execute_request(request.clone());
        assert_eq!(*success(&envelope), expected, "{code}");
        assert_eq!(envelope["executed"], "client", "{envelope:#}");
        assert_eq!(gateway.requests() > before, asks, "{code}");
        let mut dry = request;
        dry["options"] = json!({ "dry_run": true });
        let dry = pml.execute_request(dry);
        let dry = success(&dry);
        assert_eq!((&dry["routing"], &dry["text_goes_to"]), (&json!("client"), &Value::Null), "{dry:#}");
        let (planned, _) = plan(&project, &code);
        assert_eq!((&planned["runs_on"], &planned["text_goes_to"]), (&json!("client"), &Value::Null));
    }
    let unknown = pml.execute(&format!("return await mcp.math.evel({{}}) // {MARK}"));
    let message = failure(&unknown, "TOOL_NOT_FOUND");
    assert!(message.contains("math:eval"), "the gateway's suggestion: {message}");
    let denied =
        pml.execute(&format!("return await mcp.web.get({{ url: 'https://a.test' }}) // {MARK}"));
    failure(&denied, "PERMISSION_DENIED");
    project.write("a.ts", format!("return await mcp.math.eval({{ expression: '1' }}) // {MARK}"));
    assert!(project.run(&["lock", "a.ts"]).status.success());
    assert!(project.run(&["exec", "a.ts"]).status.success());

    let sent = gateway.received().join("\n");
    assert!(sent.contains("6 * 7") && sent.contains("evel"), "{sent}");
    for secret in ["canary-6", "canary61"] {
        assert!(!sent.contains(secret), "{sent}");
    }
}

/// The setting holds without trust and for all projects by a variable. Without it, the text is sent.
#[test]
fn the_setting_holds_without_trust() {
    let code = format!(
        "await mcp.filesystem.list_directory({{ path: '.' }}); return await mcp.json.parse({{ data: '1' }}) // {MARK}"
    );
    let untrusted = |project: Project| {
        project.write(".pml.json", r#"{ "analysis": "local" }"#);
        project
    };
    let elsewhere = |project: Project| {
        project.write(".pml.json", r#"{ "analysis": "gateway" }"#);
        project
    };
    let by_variable = |project: Project| project.set("PML_ANALYSIS", "local");
    type Change<'a> = &'a dyn Fn(Project) -> Project;
    for (change, sends) in
        [(&untrusted as Change, false), (&by_variable, false), (&elsewhere, true)]
    {
        let gateway = GatewayStub::start(|_| Answer::Close);
        let project = change(Project::at(&gateway.url).set("PML_API_KEY", "k"));
        project.exec(&code);
        let sent = gateway.received().join("\n");
        assert!(!sent.is_empty(), "the names are sent");
        assert_eq!(sent.contains(MARK), sends, "{sent}");
    }
    let invalid = Project::offline().set("PML_ANALYSIS", "remote").run(&["list"]);
    assert!(text(&invalid.stderr).contains("its only value is `local`"), "{invalid:?}");
}
