//! Claude Code, as people start it, with a model whose answers the test determines.

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::binaries::built;
use crate::support::cli::{Project, finish, text};
use crate::support::gateway_stub::{Answer, GatewayStub};
use crate::support::{has_full_counts, mcp_servers};

/// The name that Claude Code gives `pml_execute`.
const EXECUTE: &str = "mcp__pml__pml_execute";

/// Returns the program of Claude Code.
fn claude() -> PathBuf {
    let machine = if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" };
    let packages = mcp_servers::npm("claude").join("node_modules/@anthropic-ai");
    let program = packages.join(format!("claude-code-linux-{machine}/claude"));
    assert!(program.is_file(), "npm has no Claude Code for this machine: `{}`", program.display());
    program
}

/// Returns Claude Code in a project, with a home of its own and no network but `model`.
fn command(project: &Project, model: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(claude());
    command.args(arguments).current_dir(project.workspace()).env_clear();
    command.env("HOME", project.home()).env("PATH", std::env::var_os("PATH").unwrap());
    command.env("ANTHROPIC_BASE_URL", model).env("ANTHROPIC_API_KEY", "sk-ant-none");
    command.env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1");
    // It would offer its model a search instead of the tools.
    command.env("ENABLE_TOOL_SEARCH", "false");
    command
}

/// Returns the answer of a model, as a stream of events.
fn answer(block: &Value, reason: &str) -> Answer {
    let message = json!({ "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [],
        "stop_reason": null, "stop_sequence": null, "usage": { "input_tokens": 1, "output_tokens": 1 } });
    let (start, delta) = match block["type"].as_str().unwrap() {
        "text" => (
            json!({ "type": "text", "text": "" }),
            json!({ "type": "text_delta", "text": block["text"] }),
        ),
        _ => (
            json!({ "type": "tool_use", "id": "toolu_1", "name": block["name"], "input": {} }),
            json!({ "type": "input_json_delta", "partial_json": block["input"].to_string() }),
        ),
    };
    let end = json!({ "stop_reason": reason, "stop_sequence": null });
    let events = [
        json!({ "type": "message_start", "message": message }),
        json!({ "type": "content_block_start", "index": 0, "content_block": start }),
        json!({ "type": "content_block_delta", "index": 0, "delta": delta }),
        json!({ "type": "content_block_stop", "index": 0 }),
        json!({ "type": "message_delta", "delta": end, "usage": { "output_tokens": 1 } }),
        json!({ "type": "message_stop" }),
    ];
    let stream = events
        .iter()
        .map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap()));
    Answer::Raw(200, "text/event-stream", stream.collect::<String>().into_bytes())
}

/// A model that submits a program, and then repeats what it got.
fn model(program: &'static str) -> GatewayStub {
    GatewayStub::start(move |request| {
        let blocks = request["messages"].as_array().into_iter().flatten();
        let blocks = blocks.filter_map(|message| message["content"].as_array()).flatten();
        let result = blocks.clone().find(|block| block["type"] == "tool_result");
        let tools = request["tools"].as_array().into_iter().flatten();
        let has_pml = tools.clone().any(|tool| tool["name"] == EXECUTE);
        match result {
            None if has_pml => {
                let input = json!({ "code": program });
                let block = json!({ "type": "tool_use", "name": EXECUTE, "input": input });
                answer(&block, "tool_use")
            }
            result => {
                let text = result.map_or(String::new(), |result| result["content"].to_string());
                answer(&json!({ "type": "text", "text": text }), "end_turn")
            }
        }
    })
}

/// Claude Code finds `pml` healthy, offers its tools to the model, and runs the program that the model submits. Its
/// package has 180 MB, so only the full counts install it.
#[test]
fn claude_code_runs_a_program() {
    if !has_full_counts() {
        return;
    }
    let project =
        Project::offline().configure(&json!({ "permissions": { "allow": ["filesystem:*"] } }));
    project.write("a.txt", "hello\n");
    let model = model(
        "const text = await mcp.filesystem.read_text_file({ path: 'a.txt' }); return text.length",
    );
    let start = built("pml").display().to_string();
    let add = ["mcp", "add", "pml", "--env", "PML_ANALYSIS=local", "--", &start, "stdio"];
    let added = finish(command(&project, &model.url, &add), b"");
    assert!(added.status.success(), "{}", text(&added.stderr));
    let listed = finish(command(&project, &model.url, &["mcp", "list"]), b"");
    let said = text(&listed.stdout);
    assert!(said.contains("pml stdio") && said.contains("Connected"), "{said}");

    let ask = ["-p", "How long is a.txt?", "--allowedTools", EXECUTE, "--output-format", "json"];
    let output = finish(command(&project, &model.url, &ask), b"");
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!("{error}: {}\n{}", text(&output.stdout), text(&output.stderr))
    });
    // The envelope as text, in the answer as text.
    let said = answer["result"].as_str().unwrap();
    assert!(said.contains(r#"\"status\":\"success\",\"result\":6"#), "{answer:#}");
}
