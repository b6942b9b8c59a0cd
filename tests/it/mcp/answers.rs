//! What an answer costs the model that reads it: the result, and what was asked for.

use serde_json::{Value, json};

use crate::support::cli::Project;
use crate::support::expect::{failure, question, success};
use crate::support::http::HttpMcp;
use crate::support::mcp_client::{Era, StdioClient, envelope};
use crate::support::server::{Server, Tenant};

/// A result of 28 bytes.
const SMALL: &str =
    "const a = await mcp.math.eval({ expression: '1+2' }); return { items: a, text: 'twelve' + a }";

fn both(tenant: &Tenant) -> (HttpMcp, StdioClient) {
    let project = Project::of(tenant).allow(&["*"]);
    (HttpMcp::new(tenant, Era::Stateless), project.stdio())
}

/// Returns the whole MCP results of both sides.
fn answers(http: &HttpMcp, pml: &mut StdioClient, arguments: &Value) -> [Value; 2] {
    [http.call("pml_execute", arguments.clone()), pml.call("pml_execute", arguments.clone())]
}

#[test]
fn a_small_result_is_a_small_answer() {
    let tenant = Server::shared().tenant();
    let (http, mut pml) = both(&tenant);
    let local =
        "await mcp.filesystem.list_directory({ path: '.' }); return { items: 3, text: 'twelve3' }";
    for (code, fields) in [(SMALL, 5), (local, 5)] {
        let request = json!({ "code": code });
        let told = if code == SMALL {
            answers(&http, &mut pml, &request).to_vec()
        } else {
            vec![pml.call("pml_execute", request)]
        };
        for answer in told {
            let envelope = envelope(&answer);
            assert_eq!(success(&envelope).to_string().len(), 28, "{envelope:#}");
            assert_eq!(envelope.as_object().unwrap().len(), fields, "{envelope:#}");
            // What a client shows a model; `_meta` is for the client itself.
            let mut shown = answer.clone();
            shown.as_object_mut().unwrap().remove("_meta");
            let size = shown.to_string().len();
            assert!(size <= 450, "{size} bytes: {answer:#}");
            assert!(answer["_meta"].to_string().len() <= 600, "{answer:#}");
            assert!(envelope.to_string().len() <= 180, "{envelope:#}");
        }
    }
}

#[test]
fn an_answer_says_what_was_asked_for() {
    let tenant = Server::shared().tenant();
    let (http, mut pml) = both(&tenant);
    let parts = ["calls", "tools_used", "dag"];
    for include in parts {
        let request = json!({ "code": SMALL, "options": { "include": [include] } });
        for answer in answers(&http, &mut pml, &request) {
            let envelope = envelope(&answer);
            success(&envelope);
            for part in parts {
                assert_eq!(envelope.get(part).is_some(), part == include, "{envelope:#}");
            }
        }
    }
    for options in [json!({ "include": ["hashes"] }), json!({ "include": "calls" })] {
        let request = json!({ "code": SMALL, "options": options });
        for answer in answers(&http, &mut pml, &request) {
            let told = envelope(&answer);
            let message = failure(&told, "INVALID_REQUEST");
            let named = parts.iter().all(|part| message.contains(part));
            assert!(named || options["include"].is_string(), "{message}");
        }
    }
}

/// A client that keeps records finds the run, its tools and its calls in `_meta`, without any word to the model.
#[test]
fn meta_says_what_the_answer_leaves_out() {
    let tenant = Server::shared().tenant();
    let (http, mut pml) = both(&tenant);
    let run = |answer: &Value| answer["_meta"]["ai.casys.pml/run"].clone();
    for answer in answers(&http, &mut pml, &json!({ "code": SMALL })) {
        let told = run(&answer);
        assert_eq!(told["execution_id"], envelope(&answer)["execution_id"], "{answer:#}");
        assert_eq!(told["tools_used"][0]["id"], "math:eval", "{answer:#}");
        assert_eq!(
            (&told["calls"][0]["tool"], &told["calls"][0]["ok"]),
            (&json!("math:eval"), &json!(true))
        );
    }
    let request = json!({ "code": SMALL, "options": { "include": ["calls", "tools_used"] } });
    for answer in answers(&http, &mut pml, &request) {
        let told = run(&answer);
        assert_eq!(told.as_object().unwrap().len(), 1, "said once: {answer:#}");
    }
    let many = "for (let n = 0; n < 60; n++) await mcp.math.eval({ expression: '1' }); throw new Error('end')";
    for answer in answers(&http, &mut pml, &json!({ "code": many })) {
        failure(&envelope(&answer), "PROGRAM_FAILED");
        let told = run(&answer);
        assert_eq!(told["calls"].as_array().unwrap().len(), 50, "{answer:#}");
        assert_eq!(told["left_out"], 10);
    }
    for answer in answers(&http, &mut pml, &json!({ "code": "return await mcp.nobody.knows({})" }))
    {
        assert!(run(&answer).is_null(), "nothing ran: {answer:#}");
    }
}

/// A program may catch what fails; the model is told all the same.
#[test]
fn failed_calls_are_said_without_being_asked_for() {
    let tenant = Server::shared().tenant();
    let (http, mut pml) = both(&tenant);
    let code =
        "for (let n = 0; n < 3; n++) try { await mcp.json.parse({ data: '{' }) } catch {} return 1";
    for answer in answers(&http, &mut pml, &json!({ "code": code })) {
        let envelope = envelope(&answer);
        assert_eq!(success(&envelope), 1);
        let expected = json!([{ "tool": "json:parse", "routing": "server", "count": 3 }]);
        assert_eq!(envelope["failed_calls"], expected, "{envelope:#}");
    }
}

/// What was asked for at first holds for the answer after the question.
#[test]
fn a_run_that_goes_on_says_what_was_asked_for() {
    let mut pml = Project::new().stdio();
    for (include, told) in [(json!([]), false), (json!(["calls"]), true)] {
        let code = "await mcp.filesystem.write_file({ path: 'made.txt', content: 'x' }); return 1";
        let request = json!({ "code": code, "options": { "include": include } });
        let asked = envelope(&pml.call("pml_execute", request));
        assert!(question(&asked).to_string().len() < 600, "{asked:#}");
        let done = pml.resume(&asked, true, false);
        assert_eq!(success(&done), 1);
        assert_eq!(done.get("calls").is_some(), told, "{done:#}");
    }
}

/// Scripts read `pml exec --json`: it says everything, and lists are there also when they are empty.
#[test]
fn the_command_says_everything() {
    let (envelope, code) = Project::new().allow(&["*"]).exec("return 1");
    assert_eq!((success(&envelope), code), (&json!(1), 0));
    for list in ["console", "calls", "tools_used"] {
        assert_eq!(envelope[list], json!([]), "{envelope:#}");
    }
    assert_eq!(envelope["dag"]["tasks"], json!([]));
}
