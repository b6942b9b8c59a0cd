//! Every form of a call in both protocol generations and on both transports: the answers, and that third-party clients
//! accept them.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::process::Command;

use serde_json::{Value, json};

use super::sdk_clients::{self, Client, environment};
use crate::registry::capabilities::{DOUBLE, author, published};
use crate::support::binaries::built;
use crate::support::cli::{Project, finish, text};
use crate::support::gateway_stub::{GatewayStub, handshaking};
use crate::support::http::HttpMcp;
use crate::support::mcp_client::{Era, StdioClient};
use crate::support::mcp_servers::{node_22, npm};
use crate::support::server::{Server, Tenant};
use crate::support::upstream::{Entry, Everything, scope_of};

/// A form of a call, and how to recognise the correct answer.
struct Form {
    /// Its name in the matrix.
    name: &'static str,
    /// The tool that is called.
    tool: &'static str,
    arguments: fn() -> Value,
    /// A part of the answer over HTTP and on stdio.
    answers: [&'static str; 2],
    fails: bool,
}

const FORMS: &[Form] = &[
    Form {
        name: "meta-tool",
        tool: "pml_execute",
        arguments: || json!({ "code": "return await mcp.math.eval({ expression: '6 * 7' })" }),
        answers: [r#""result":42"#; 2],
        fails: false,
    },
    Form {
        name: "search",
        tool: "pml_discover",
        arguments: || json!({ "name": "math:eval" }),
        answers: [r#""math:eval""#; 2],
        fails: false,
    },
    Form {
        name: "id",
        tool: "math:eval",
        arguments: || json!({ "expression": "6 * 7" }),
        answers: [r#""value":42"#; 2],
        fails: false,
    },
    Form {
        name: "wire name",
        tool: "math__eval",
        arguments: || json!({ "expression": "6 * 7" }),
        answers: [r#""value":42"#; 2],
        fails: false,
    },
    Form {
        name: "capability",
        tool: "maths:double",
        arguments: || json!({ "n": 21 }),
        answers: [r#""value":42"#; 2],
        fails: false,
    },
    Form {
        name: "upstream of 2026",
        tool: "newer:test_simple_text",
        arguments: || json!({}),
        answers: ["simple text response"; 2],
        fails: false,
    },
    Form {
        name: "upstream of 2025",
        tool: "older:list",
        arguments: || json!({}),
        answers: ["two notes"; 2],
        fails: false,
    },
    Form {
        name: "upstream that asks",
        tool: "newer:test_input_required_result_elicitation",
        arguments: || json!({}),
        answers: ["TOOL_FAILED"; 2],
        fails: true,
    },
    Form {
        name: "failed program",
        tool: "pml_execute",
        arguments: || json!({ "code": "throw new Error('as planned')" }),
        answers: ["as planned"; 2],
        fails: true,
    },
    Form {
        name: "failed tool",
        tool: "newer:test_error_handling",
        arguments: || json!({}),
        answers: ["intentionally returns an error"; 2],
        fails: true,
    },
    Form {
        name: "unknown tool",
        tool: "no:such",
        arguments: || json!({}),
        answers: ["TOOL_NOT_FOUND"; 2],
        fails: true,
    },
    // The gateway never pauses a program; it answers that the tool needs the user's machine.
    Form {
        name: "needs a human",
        tool: "pml_execute",
        arguments: || json!({ "code": "return await mcp.shell.exec({ command: ['true'] })" }),
        answers: ["CLIENT_TOOLS_REQUIRE_PACKAGE", "approval_required"],
        fails: false,
    },
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transport {
    Http,
    Stdio,
}

impl Form {
    fn fails(&self, transport: Transport) -> bool {
        self.fails || (self.name == "needs a human" && transport == Transport::Http)
    }

    /// Returns the result if it is wrong.
    fn fault(&self, transport: Transport, result: &Value) -> Option<String> {
        let shown = result.to_string();
        let answer = self.answers[usize::from(transport == Transport::Stdio)];
        // Text blocks contain escaped JSON.
        let found = shown.replace('\\', "").contains(answer);
        let failed = result["isError"].as_bool().unwrap_or(false);
        (!found || failed != self.fails(transport)).then_some(shown)
    }
}

/// A tenant with upstreams of both protocol generations, a capability and a project.
struct World {
    tenant: Tenant,
    project: Project,
    _upstreams: (Everything, GatewayStub),
}

impl World {
    fn new() -> Self {
        let (server, tenant) = (Server::shared(), author());
        let scope = scope_of(&tenant);
        let described = |name: &str| json!({ "name": name, "description": name, "inputSchema": { "type": "object" } });
        let newer = Everything::start();
        let mut entry = Entry::http(&scope, "newer", &newer.url);
        entry.tools =
            ["test_simple_text", "test_error_handling", "test_input_required_result_elicitation"]
                .map(described)
                .into();
        entry.publish(server.installation());
        let older = server_of_2025();
        let mut entry = Entry::http(&scope, "older", &older.url);
        entry.tools = vec![described("list")];
        entry.publish(server.installation());
        published(&tenant, "maths.double", DOUBLE);
        let project = Project::of(&tenant).allow(&["math:*", "maths:*", "newer:*", "older:*"]);
        Self { tenant, project, _upstreams: (newer, older) }
    }
}

/// Starts a server that supports only the 2025 versions, without `resultType`.
fn server_of_2025() -> GatewayStub {
    handshaking("older", |method| {
        let result = json!({ "content": [{ "type": "text", "text": "two notes" }] });
        Ok((method == "tools/call").then_some(result))
    })
}

/// Results have `resultType` in 2026-07-28 and not in earlier versions. Strict clients refuse either mistake.
#[test]
fn results_have_a_result_type_in_2026_07_28_only() {
    let world = World::new();
    let mut wrong = String::new();
    for era in [Era::Handshake, Era::Stateless] {
        let http = HttpMcp::new(&world.tenant, era);
        let mut stdio = match era {
            Era::Handshake => world.project.stdio(),
            Era::Stateless => world.project.stdio_stateless(),
        };
        let expected = match era {
            Era::Handshake => Value::Null,
            Era::Stateless => json!("complete"),
        };
        let mut check = |what: &str, answer: &Value| {
            if answer["result"]["resultType"] != expected {
                let _ = writeln!(wrong, "{era:?} {what}: {answer}");
            }
        };
        for form in FORMS {
            let params = json!({ "name": form.tool, "arguments": (form.arguments)() });
            let over_http = http.request("tools/call", params.clone());
            let on_stdio = StdioClient::request(&mut stdio, "tools/call", params);
            for (transport, answer) in [(Transport::Http, over_http), (Transport::Stdio, on_stdio)]
            {
                check(&format!("{transport:?} {}", form.name), &answer);
                let fault = form.fault(transport, &answer["result"]);
                assert_eq!(fault, None, "{era:?} {transport:?} {}", form.name);
            }
        }
        check("http tools/list", &http.request("tools/list", json!({})));
        check("stdio tools/list", &stdio.request("tools/list", json!({})));
    }
    assert!(wrong.is_empty(), "{wrong}");
}

const THIRD_PARTY_CLIENTS: [(Client, &str); 5] = [
    (Client::PythonSdk, "PyPI mcp"),
    (Client::FastMcp, "PyPI fastmcp"),
    (Client::TypeScriptV1, "npm sdk (v1)"),
    (Client::TypeScriptV2, "npm client (v2)"),
    (Client::Inspector, "inspector --strict"),
];

/// Returns why a client cannot make a call, or `None` if it can.
fn cannot(client: Client, version: &str, form: &Form) -> Option<&'static str> {
    match client {
        Client::TypeScriptV1 if version == "2026-07-28" => Some("does not support this version"),
        Client::Inspector if !form.tool.starts_with("pml_") => Some("calls listed tools only"),
        _ => None,
    }
}

/// The output of a client: the version, its list of tools, and a result or an exception for each call.
struct Output {
    version: String,
    tools: Value,
    calls: Vec<Result<Value, String>>,
}

fn target(world: &World, transport: Transport) -> Value {
    match transport {
        Transport::Http => json!({
            "url": format!("{}/mcp", world.tenant.url),
            "headers": { "Authorization": format!("Bearer {}", world.tenant.key) },
        }),
        Transport::Stdio => sdk_clients::stdio(&world.project),
    }
}

/// Makes the calls with a library, by one of the fixture scripts.
fn by_script(
    world: &World,
    client: Client,
    transport: Transport,
    version: &str,
    forms: &[&Form],
) -> Output {
    let calls: Vec<Value> = forms
        .iter()
        .map(|form| json!({ "name": form.tool, "arguments": (form.arguments)() }))
        .collect();
    let target = target(world, transport);
    let input = json!({ "target": target, "version": version, "calls": calls });
    let mut lines = sdk_clients::run(&world.project, client, &input).into_iter();
    let mut hello = lines.next().unwrap_or_else(|| panic!("{client:?} printed nothing"));
    let calls = lines
        .map(|mut line| match line["exception"].as_str() {
            Some(exception) => Err(exception.to_owned()),
            None => Ok(line["result"].take()),
        })
        .collect();
    let version = hello["version"].as_str().unwrap_or_default().to_owned();
    Output { version, tools: hello["tools"].take(), calls }
}

/// Makes the calls with the inspector's command line, one process for each.
fn by_inspector(world: &World, transport: Transport, version: &str, forms: &[&Form]) -> Output {
    let target = target(world, transport);
    let era = if version == "2026-07-28" { "modern" } else { "legacy" };
    let run = |arguments: &[&str]| -> Result<Value, String> {
        let script = npm("inspector").join("node_modules/.bin/mcp-inspector");
        let mut command = Command::new(node_22());
        command.arg(script).arg("--cli");
        command = world.project.wrap(command, &[]);
        match transport {
            Transport::Http => {
                let key = target["headers"]["Authorization"].as_str().unwrap_or_default();
                command.arg(target["url"].as_str().unwrap_or_default());
                command.args(["--transport", "http", "--header", &format!("Authorization: {key}")]);
            }
            Transport::Stdio => {
                command.arg(built("pml")).arg("stdio");
                for (name, value) in environment(&world.project) {
                    if name.starts_with("PML_") || name.starts_with("XDG_") || name == "HOME" {
                        command.args(["-e", &format!("{name}={value}")]);
                    }
                }
            }
        }
        command.args(["--protocol-era", era, "--format", "json", "--quiet"]).args(arguments);
        let output = finish(command, b"");
        let stdout = text(&output.stdout);
        let printed = serde_json::from_str::<Value>(&stdout).map_err(|error| error.to_string());
        match printed {
            Ok(printed) if output.status.success() || printed["result"]["isError"] == true => {
                Ok(printed["result"].clone())
            }
            _ => Err(format!("{}: {stdout}{}", output.status, text(&output.stderr))),
        }
    };
    let listed = run(&["--method", "tools/list", "--strict"]);
    let listed = listed.unwrap_or_else(|why| panic!("inspector {transport:?} {version}: {why}"));
    let calls = std::thread::scope(|scope| {
        // Two at a time, because each is a separate process.
        let halves: Vec<_> = forms
            .chunks(forms.len().div_ceil(2))
            .map(|forms| {
                scope.spawn(move || {
                    let call = |form: &Form| {
                        let arguments = (form.arguments)().to_string();
                        let of = ["--method", "tools/call", "--tool-name", form.tool];
                        run(&[&of[..], &["--tool-args-json", &arguments]].concat())
                    };
                    forms.iter().map(|form| call(form)).collect::<Vec<_>>()
                })
            })
            .collect();
        halves.into_iter().flat_map(|half| half.join().expect("it does not panic")).collect()
    });
    Output { version: version.to_owned(), tools: listed["tools"].clone(), calls }
}

/// Asserts that the listed tools have titles, output schemas and annotations.
#[track_caller]
fn assert_described(tools: &Value) {
    let tools = tools.as_array().unwrap_or_else(|| panic!("no list of tools: {tools}"));
    assert_eq!(tools.len(), 4, "{tools:?}");
    for tool in tools {
        assert!(tool["title"].as_str().is_some_and(|title| title.len() > 5), "{tool}");
        assert_eq!(tool["outputSchema"]["type"], "object", "{tool}");
        let reads = tool["name"] == "pml_discover";
        assert_eq!(tool["annotations"]["readOnlyHint"], reads, "{tool}");
        let runs = tool["name"] == "pml_execute" || tool["name"] == "pml_continue";
        assert_eq!(tool["annotations"]["destructiveHint"], runs, "{tool}");
        assert_eq!(tool["annotations"]["openWorldHint"], runs, "{tool}");
    }
}

/// Each client accepts the answer to each form of a call, in each version that it supports, on both transports.
/// `--nocapture` shows the matrix.
#[test]
fn third_party_clients_accept_every_form_of_a_call() {
    let world = World::new();
    let names: Vec<&str> = FORMS.iter().map(|form| form.name).collect();
    let mut matrix = format!("| client | transport | version | {} |\n", names.join(" | "));
    matrix += &format!("|{}\n", "---|".repeat(names.len() + 3));
    let (mut wrong, mut reasons) = (String::new(), BTreeSet::new());
    for (client, title) in THIRD_PARTY_CLIENTS {
        for transport in [Transport::Http, Transport::Stdio] {
            for version in ["2025-11-25", "2026-07-28"] {
                let _ = write!(matrix, "| {title} | {transport:?} | {version} |");
                let (possible, others): (Vec<&Form>, Vec<&Form>) =
                    FORMS.iter().partition(|form| cannot(client, version, form).is_none());
                if possible.is_empty() {
                    let why = cannot(client, version, others[0]).unwrap_or_default();
                    reasons.insert(format!("{title}: {why}"));
                    let _ = writeln!(matrix, "{}", " – |".repeat(names.len()));
                    continue;
                }
                let got = match client {
                    Client::Inspector => by_inspector(&world, transport, version, &possible),
                    _ => by_script(&world, client, transport, version, &possible),
                };
                assert_eq!(got.version, version, "{client:?} {transport:?}");
                assert_described(&got.tools);
                assert_eq!(got.calls.len(), possible.len(), "{client:?} {transport:?} {version}");
                let mut answers = got.calls.into_iter();
                for form in FORMS {
                    if let Some(why) = cannot(client, version, form) {
                        reasons.insert(format!("{title}: {why}"));
                        matrix += " – |";
                        continue;
                    }
                    let answer = answers.next().expect("one for each form");
                    let fault = match answer {
                        Ok(result) => form.fault(transport, &result),
                        Err(exception) => Some(exception),
                    };
                    matrix += if fault.is_none() { " ok |" } else { " FAILS |" };
                    if let Some(fault) = fault {
                        let _ = writeln!(
                            wrong,
                            "{title} {transport:?} {version} {}: {fault}",
                            form.name
                        );
                    }
                }
                matrix.push('\n');
            }
        }
    }
    println!("{matrix}\n–: {reasons:?}");
    assert!(wrong.is_empty(), "{matrix}\n{wrong}");
}
