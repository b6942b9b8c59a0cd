//! The content of an answer of `pml_execute`: the result and the requested details, because a model pays for each byte.

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

/// Returns the complete MCP results of the gateway and of `pml`.
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
        let results = if code == SMALL {
            answers(&http, &mut pml, &request).to_vec()
        } else {
            vec![pml.call("pml_execute", request)]
        };
        for answer in results {
            let envelope = envelope(&answer);
            assert_eq!(success(&envelope).to_string().len(), 28, "{envelope:#}");
            assert_eq!(envelope.as_object().unwrap().len(), fields, "{envelope:#}");
            // Clients do not show `_meta` to the model.
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
fn include_selects_the_details_of_an_answer() {
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
            let refused = envelope(&answer);
            let message = failure(&refused, "INVALID_REQUEST");
            let named = parts.iter().all(|part| message.contains(part));
            assert!(named || options["include"].is_string(), "{message}");
        }
    }
}

/// `_meta` has the run, its tools and its calls for the client, without showing them to the model.
#[test]
fn meta_has_the_details_that_the_answer_omits() {
    let tenant = Server::shared().tenant();
    let (http, mut pml) = both(&tenant);
    let run = |answer: &Value| answer["_meta"]["ai.casys.pml/run"].clone();
    for answer in answers(&http, &mut pml, &json!({ "code": SMALL })) {
        let meta = run(&answer);
        assert_eq!(meta["execution_id"], envelope(&answer)["execution_id"], "{answer:#}");
        assert_eq!(meta["tools_used"][0]["id"], "math:eval", "{answer:#}");
        assert_eq!(
            (&meta["calls"][0]["tool"], &meta["calls"][0]["ok"]),
            (&json!("math:eval"), &json!(true))
        );
    }
    let request = json!({ "code": SMALL, "options": { "include": ["calls", "tools_used"] } });
    for answer in answers(&http, &mut pml, &request) {
        let meta = run(&answer);
        assert_eq!(meta.as_object().unwrap().len(), 1, "repeated: {answer:#}");
    }
    let many = "for (let n = 0; n < 60; n++) await mcp.math.eval({ expression: '1' }); throw new Error('end')";
    for answer in answers(&http, &mut pml, &json!({ "code": many })) {
        failure(&envelope(&answer), "PROGRAM_FAILED");
        let meta = run(&answer);
        assert_eq!(meta["calls"].as_array().unwrap().len(), 50, "{answer:#}");
        assert_eq!(meta["left_out"], 10);
    }
    for answer in answers(&http, &mut pml, &json!({ "code": "return await mcp.nobody.knows({})" }))
    {
        assert!(run(&answer).is_null(), "nothing ran: {answer:#}");
    }
}

/// Failed calls are listed even if the program has caught their errors.
#[test]
fn failed_calls_are_always_listed() {
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

/// `include` of the original request applies to the answer after an approval.
#[test]
fn include_applies_to_the_answer_after_an_approval() {
    let mut pml = Project::new().stdio();
    for (include, has_calls) in [(json!([]), false), (json!(["calls"]), true)] {
        let code = "await mcp.filesystem.write_file({ path: 'made.txt', content: 'x' }); return 1";
        let request = json!({ "code": code, "options": { "include": include } });
        let pending = envelope(&pml.call("pml_execute", request));
        assert!(question(&pending).to_string().len() < 600, "{pending:#}");
        let done = pml.resume(&pending, true, false);
        assert_eq!(success(&done), 1);
        assert_eq!(done.get("calls").is_some(), has_calls, "{done:#}");
    }
}

/// `pml exec --json` is for scripts, so it has all details, with empty lists where there are none.
#[test]
fn exec_json_has_all_details() {
    let (envelope, code) = Project::new().allow(&["*"]).exec("return 1");
    assert_eq!((success(&envelope), code), (&json!(1), 0));
    for list in ["console", "calls", "tools_used"] {
        assert_eq!(envelope[list], json!([]), "{envelope:#}");
    }
    assert_eq!(envelope["dag"]["tasks"], json!([]));
}
