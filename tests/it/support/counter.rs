//! An MCP server that counts what it is asked to do.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use super::gateway_stub::{Answer, GatewayStub};
use super::upstream::Entry;

/// An MCP server whose tool `add` counts its calls.
pub(crate) struct Counter {
    stub: GatewayStub,
    seen: Arc<Mutex<Vec<Value>>>,
}

impl Counter {
    /// Starts it. The argument `then` of `add` is `close`, `fail`, `never`, or the milliseconds until its answer.
    pub(crate) fn start() -> Self {
        let seen: Arc<Mutex<Vec<Value>>> = Arc::default();
        let counted = Arc::clone(&seen);
        let stub = GatewayStub::start(move |message| {
            let (id, arguments) = (&message["id"], &message["params"]["arguments"]);
            let result = match message["method"].as_str().unwrap_or_default() {
                "initialize" => {
                    json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
                        "serverInfo": { "name": "counter", "version": "1" } })
                }
                "tools/list" => json!({ "tools": [tool()] }),
                "tools/call" => {
                    let number = {
                        let mut seen = counted.lock().unwrap();
                        seen.push(arguments.clone());
                        seen.len()
                    };
                    match &arguments["then"] {
                        Value::String(then) if then == "close" => return Answer::Close,
                        Value::String(then) if then == "never" => return Answer::Never,
                        // The time that the server takes.
                        Value::Number(ms) => {
                            let ms = ms.as_u64().expect("a time in milliseconds");
                            std::thread::sleep(Duration::from_millis(ms));
                        }
                        _ => {}
                    }
                    json!({ "content": [{ "type": "text", "text": format!("call {number}") }],
                        "isError": arguments["then"] == "fail" })
                }
                _ if id.is_null() => return Answer::Raw(202, "text/plain", Vec::new()),
                _ => {
                    let error = json!({ "code": -32601, "message": "no such method" });
                    return Answer::Json(json!({ "jsonrpc": "2.0", "id": id, "error": error }));
                }
            };
            Answer::Json(json!({ "jsonrpc": "2.0", "id": id, "result": result }))
        });
        Self { stub, seen }
    }

    /// Returns how often `add` was called.
    pub(crate) fn count(&self) -> usize {
        self.seen.lock().unwrap().len()
    }

    /// Returns the arguments of all calls of `add`.
    pub(crate) fn seen(&self) -> Vec<Value> {
        self.seen.lock().unwrap().clone()
    }

    /// Returns its entry for a scope, in the namespace `counter`.
    pub(crate) fn entry<'a>(&self, scope: &'a str) -> Entry<'a> {
        let mut entry = Entry::http(scope, "counter", &self.stub.url);
        entry.tools = vec![tool()];
        entry
    }
}

fn tool() -> Value {
    json!({ "name": "add", "description": "Counts a call", "inputSchema": { "type": "object" } })
}
