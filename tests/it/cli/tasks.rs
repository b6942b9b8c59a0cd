//! Runs that wait for the person as MCP tasks: the extension `io.modelcontextprotocol/tasks` (SEP-2663).

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::cli::Project;
use crate::support::expect::{failure, success};
use crate::support::mcp_client::{Era, StdioClient, envelope};
use crate::support::{PATIENCE, poll};

/// Makes two calls that need approval. The second depends on the first, so each is asked about on its own.
const WRITES: &str = "
    await mcp.filesystem.write_file({ path: 'a.txt', content: 'x' });
    const a = await mcp.filesystem.read_text_file({ path: 'a.txt' });
    await mcp.filesystem.write_file({ path: `${a}.txt`, content: a });
    return a;";

fn project() -> Project {
    Project::offline().allow(&["filesystem:read_text_file"])
}

/// Starts `pml stdio` for a client that shows forms and has tasks.
fn client(project: &Project) -> StdioClient {
    let capabilities =
        json!({ "elicitation": {}, "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let command = project.command(&["stdio"]);
    StdioClient::start_with(command, Era::Stateless, &project.log(), capabilities)
}

/// Starts a program; returns the id of its task.
#[track_caller]
fn begin(pml: &mut StdioClient, code: &str) -> String {
    let id = pml.begin(code);
    let handle = pml.answer(id)["result"].clone();
    assert_eq!(
        (&handle["resultType"], &handle["status"]),
        (&json!("task"), &json!("input_required"))
    );
    for absent in ["inputRequests", "result", "error"] {
        assert!(handle.get(absent).is_none(), "{handle}");
    }
    for time in ["createdAt", "lastUpdatedAt"] {
        let time = handle[time].as_str().unwrap();
        assert!(time.starts_with("20") && time.contains('T') && time.ends_with('Z'), "{time}");
    }
    assert!(handle["ttlMs"].is_u64() && handle["pollIntervalMs"].is_u64(), "{handle}");
    handle["taskId"].as_str().expect("a task has an id").to_owned()
}

#[track_caller]
fn get(pml: &mut StdioClient, task: &str) -> Value {
    let result = pml.request("tasks/get", json!({ "taskId": task }))["result"].clone();
    assert_eq!(
        (&result["resultType"], &result["taskId"]),
        (&json!("complete"), &json!(task)),
        "{result}"
    );
    result
}

/// Polls a task until it has another status than `working`.
#[track_caller]
fn wait(pml: &mut StdioClient, task: &str) -> Value {
    poll("the task", PATIENCE, || {
        let state = get(pml, task);
        (state["status"] != "working").then_some(state)
    })
}

/// Returns the key of a task's only question.
#[track_caller]
fn key(state: &Value) -> String {
    assert_eq!(state["status"], "input_required", "{state}");
    let requests = state["inputRequests"].as_object().expect("it has questions");
    assert_eq!(requests.len(), 1, "{state}");
    let (key, request) = requests.iter().next().unwrap();
    assert_eq!(request["method"], "elicitation/create");
    key.clone()
}

#[track_caller]
fn answer(pml: &mut StdioClient, task: &str, key: &str, answer: &Value) {
    let responses = json!({ key: answer });
    let answered =
        pml.request("tasks/update", json!({ "taskId": task, "inputResponses": responses }));
    assert_eq!(answered["result"], json!({ "resultType": "complete" }), "{answered}");
}

fn choose(decision: &str) -> Value {
    json!({ "action": "accept", "content": { "decision": decision } })
}

/// Each question has its own key, and the client can do other things while the person thinks.
#[test]
fn a_run_that_asks_is_a_task() {
    let project = project();
    let mut pml = client(&project);
    let task = begin(&mut pml, WRITES);
    let first = get(&mut pml, &task);
    let first = (key(&first), first["inputRequests"][&key(&first)]["params"].clone());
    assert_eq!(
        first.1["message"],
        "Run `filesystem:write_file` with {\"path\":\"a.txt\",\"content\":\"x\"}"
    );
    assert_eq!(key(&get(&mut pml, &task)), first.0, "the same question has the same key");
    assert!(!project.path("a.txt").exists());
    assert_eq!(success(&pml.execute("return 1")), 1);

    answer(&mut pml, &task, &first.0, &choose("continue"));
    let state = wait(&mut pml, &task);
    let second = key(&state);
    assert_ne!(first.0, second);
    assert!(project.path("a.txt").exists() && !project.path("x.txt").exists());
    // The answer to the first question is none to the second.
    answer(&mut pml, &task, &first.0, &choose("continue"));
    answer(&mut pml, &task, "approval-9", &choose("continue"));
    assert_eq!(key(&get(&mut pml, &task)), second);
    answer(&mut pml, &task, &second, &choose("continue"));
    let state = wait(&mut pml, &task);
    assert_eq!(state["status"], "completed", "{state}");
    assert_eq!(state["result"]["resultType"], "complete");
    assert_eq!(success(&envelope(&state["result"])), "x");
    assert_eq!(project.read("x.txt"), "x");
    // It stays, and another answer changes nothing.
    answer(&mut pml, &task, &second, &choose("abort"));
    assert_eq!(get(&mut pml, &task), state);
}

#[test]
fn a_denied_task_is_completed_with_the_error() {
    let project = project();
    let mut pml = client(&project);
    for denial in [choose("abort"), json!({ "action": "decline" })] {
        let task = begin(&mut pml, WRITES);
        let key = key(&get(&mut pml, &task));
        answer(&mut pml, &task, &key, &denial);
        let state = wait(&mut pml, &task);
        assert_eq!(
            (&state["status"], &state["result"]["isError"]),
            (&json!("completed"), &json!(true))
        );
        failure(&envelope(&state["result"]), "APPROVAL_DENIED");
    }
    assert!(!project.path("a.txt").exists());
}

/// NX-11: a client that answers by itself approves nothing.
#[test]
fn an_answer_without_a_choice_approves_nothing() {
    let project = project();
    let mut pml = client(&project);
    for no_choice in [
        json!({ "action": "cancel" }),
        json!({ "action": "accept" }),
        json!({ "action": "accept", "content": {} }),
        json!({ "action": "accept", "content": { "decision": "yes" } }),
        json!({ "action": "accept", "content": { "approved": true } }),
        json!("continue"),
        json!(null),
    ] {
        let task = begin(&mut pml, WRITES);
        let key = key(&get(&mut pml, &task));
        answer(&mut pml, &task, &key, &no_choice);
        let state = wait(&mut pml, &task);
        // The question is the result, so that another channel can answer it.
        let asked = envelope(&state["result"]);
        assert_eq!(asked["status"], "approval_required", "{no_choice}: {asked}");
        failure(&pml.resume(&asked, false, false), "APPROVAL_DENIED");
    }
    assert!(!project.path("a.txt").exists());
}

#[test]
fn a_cancelled_task_ends_its_run() {
    let project = project();
    let mut pml = client(&project);
    let task = begin(&mut pml, WRITES);
    let key = key(&get(&mut pml, &task));
    let cancelled = pml.request("tasks/cancel", json!({ "taskId": task }));
    assert_eq!(cancelled["result"], json!({ "resultType": "complete" }));
    let state = poll("the task", PATIENCE, || {
        let state = get(&mut pml, &task);
        (state["status"] == "cancelled").then_some(state)
    });
    assert!(state.get("result").is_none() && state.get("inputRequests").is_none(), "{state}");
    answer(&mut pml, &task, &key, &choose("continue"));
    assert_eq!(get(&mut pml, &task)["status"], "cancelled");
    assert!(!project.path("a.txt").exists());
}

#[test]
fn a_task_is_cancelled_while_its_run_works() {
    let project = project();
    let mut pml = client(&project);
    let code = "
        await mcp.filesystem.write_file({ path: 'a.txt', content: 'x' });
        await new Promise(done => setTimeout(done, 200_000));
        await mcp.filesystem.write_file({ path: 'b.txt', content: 'x' });";
    let task = begin(&mut pml, code);
    let state = get(&mut pml, &task);
    answer(&mut pml, &task, &key(&state), &choose("continue"));
    poll("the first effect", PATIENCE, || project.path("a.txt").exists().then_some(()));
    assert_eq!(get(&mut pml, &task)["status"], "working");
    pml.request("tasks/cancel", json!({ "taskId": task }));
    assert_eq!(wait(&mut pml, &task)["status"], "cancelled");
    let run = project.run(&["runs", "show", "--json"]);
    let run: Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!(run["calls"].as_array().unwrap().len(), 1, "{run:#}");
}

/// The user can answer on a terminal, too.
#[test]
fn an_answer_of_another_channel_continues_the_task() {
    let project = project();
    let mut pml = client(&project);
    let task = begin(
        &mut pml,
        "await mcp.filesystem.write_file({ path: 'a.txt', content: 'x' }); return 7",
    );
    let message = get(&mut pml, &task)["statusMessage"].as_str().unwrap().to_owned();
    let id = message.split(['`', ' ']).find(|word| word.starts_with("wl_")).expect("it has the id");
    let denied = project.run(&["deny", id]);
    assert!(denied.status.success(), "{denied:?}");
    let state = wait(&mut pml, &task);
    failure(&envelope(&state["result"]), "APPROVAL_DENIED");
}

/// Only a client that offers tasks gets one, and only for a question that it can show.
#[test]
fn other_clients_get_no_task() {
    let project = project();
    let tasks = json!({ "io.modelcontextprotocol/tasks": {} });
    for (era, capabilities, expected) in [
        (Era::Stateless, json!({ "elicitation": {} }), "input_required"),
        (Era::Stateless, json!({ "extensions": tasks }), "complete"),
        (Era::Handshake, json!({ "extensions": tasks }), "null"),
    ] {
        let command = project.command(&["stdio"]);
        let mut pml = StdioClient::start_with(command, era, &project.log(), capabilities);
        let id = pml.begin(WRITES);
        let result = pml.answer(id)["result"].clone();
        let kind = result["resultType"].as_str().unwrap_or("null");
        assert_eq!(kind, expected, "{result}");
        assert!(result.get("taskId").is_none(), "{result}");
    }
}

#[test]
fn task_methods_are_checked() {
    let project = project();
    let mut pml = client(&project);
    let unknown = pml.request("tasks/get", json!({ "taskId": "none" }));
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    // SEP-2663: acknowledged whatever the id is.
    for (method, params) in [
        ("tasks/cancel", json!({ "taskId": "none" })),
        ("tasks/update", json!({ "taskId": "none", "inputResponses": {} })),
    ] {
        assert_eq!(pml.request(method, params)["result"], json!({ "resultType": "complete" }));
    }
    for (method, params) in [
        ("tasks/get", json!({})),
        ("tasks/get", json!({ "taskId": 7 })),
        ("tasks/update", json!({ "taskId": "none" })),
        ("tasks/update", json!({ "taskId": "none", "inputResponses": 7 })),
    ] {
        let refused = pml.request(method, params.clone());
        assert_eq!(refused["error"]["code"], -32602, "{method} {params}: {refused}");
    }
    let mut other = project.stdio_stateless();
    let refused = other.request("tasks/get", json!({ "taskId": "none" }));
    assert_eq!(refused["error"]["code"], -32021, "{refused}");
    let discovered = other.request("server/discover", json!({}));
    let extensions = &discovered["result"]["capabilities"]["extensions"];
    assert_eq!(extensions["io.modelcontextprotocol/tasks"], json!({}), "{discovered}");
}

/// Many tasks at once keep apart.
#[test]
fn each_answer_is_for_its_task() {
    let project = project();
    let mut pml = client(&project);
    let tasks: Vec<String> = (0..8)
        .map(|n| begin(&mut pml, &format!("await mcp.filesystem.write_file({{ path: '{n}.txt', content: '' }}); return {n}")))
        .collect();
    assert_eq!(tasks.iter().collect::<BTreeSet<_>>().len(), 8);
    for (n, task) in tasks.iter().enumerate().rev() {
        let key = key(&get(&mut pml, task));
        answer(&mut pml, task, &key, &choose(if n % 2 == 0 { "continue" } else { "abort" }));
    }
    for (n, task) in tasks.iter().enumerate() {
        let ended = envelope(&wait(&mut pml, task)["result"]);
        match n % 2 {
            0 => assert_eq!(success(&ended), &json!(n)),
            _ => drop(failure(&ended, "APPROVAL_DENIED")),
        }
        assert_eq!(project.path(&format!("{n}.txt")).exists(), n % 2 == 0, "{n}");
    }
}
