//! Decides which lines of stdin reach the MCP service, and answers the others.

use rmcp::model::{ClientJsonRpcMessage, ClientRequest, GetMeta as _, ProtocolVersion};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

/// The handling of a line.
#[derive(Debug, PartialEq)]
pub(super) enum Verdict {
    /// It is passed to the service.
    Passed,
    /// It is answered here, and not passed to the service.
    Answered(Vec<u8>),
    /// It is dropped without an answer, for this reason.
    Ignored(&'static str),
}

/// Decides about each line, in order.
#[derive(Debug, Default)]
pub(super) struct Gate {
    /// Whether a passed request has begun a session.
    greeted: bool,
}

/// The members of a message. Parsing fails for duplicate members, because two parsers could use different ones.
#[derive(Deserialize)]
struct Members {
    #[serde(rename = "jsonrpc")]
    _jsonrpc: Option<IgnoredAny>,
    #[serde(rename = "id")]
    _id: Option<IgnoredAny>,
    #[serde(rename = "method")]
    _method: Option<IgnoredAny>,
    #[serde(rename = "params")]
    _params: Option<IgnoredAny>,
    #[serde(rename = "result")]
    _result: Option<IgnoredAny>,
    #[serde(rename = "error")]
    _error: Option<IgnoredAny>,
}

/// The id of a message whose other members cannot be parsed.
#[derive(Deserialize)]
struct OnlyId {
    id: Value,
}

impl Gate {
    /// Decides about a line that is not blank.
    pub(super) fn decide(&mut self, line: &[u8]) -> Verdict {
        let message: Value = match serde_json::from_slice(line) {
            Ok(message) => message,
            Err(error) => {
                // The id can often still be read, for example with invalid Unicode or too deep nesting elsewhere in
                // the line.
                let id = serde_json::from_slice::<OnlyId>(line).ok().map(|found| found.id);
                let id = id.filter(is_id).unwrap_or(Value::Null);
                return Verdict::Answered(parse_error(&id, &error.to_string()));
            }
        };
        // More lenient than `is_id`: any JSON-RPC id is repeated, so that the client can match the
        // error to its request.
        let id = message.get("id").filter(|id| id.is_number() || id.is_string());
        let refused = |problem: &str| Verdict::Answered(invalid_request(id, problem));
        let Some(members) = message.as_object() else {
            // MCP has no batches since its version 2025-06-18.
            return refused("a message is one object; batches are not supported");
        };
        // Parsed again, because `Value` has kept only one of two equal members.
        if let Err(error) = serde_json::from_slice::<Members>(line) {
            return refused(&error.to_string());
        }
        if members.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
            return refused("`jsonrpc` is not \"2.0\"");
        }
        let params = members.get("params");
        // JSON-RPC also allows an array; MCP does not.
        let is_well_formed = params.is_none_or(Value::is_object);
        let Some(method) = members.get("method") else {
            let is_answer = members.contains_key("result") || members.contains_key("error");
            // Until a session has begun, the library ends the connection at anything except a
            // request.
            return match (is_answer, self.greeted) {
                (false, _) => refused("`method` is missing"),
                (true, false) => Verdict::Ignored("a response before any request"),
                (true, true) => Verdict::Passed,
            };
        };
        if !method.is_string() {
            return refused("`method` is not a string");
        }
        // JSON-RPC forbids an answer to a notification, even to an invalid one.
        let Some(id) = members.get("id") else {
            return match (is_well_formed, self.greeted) {
                (false, _) => Verdict::Ignored("a notification whose `params` are not an object"),
                (true, false) => Verdict::Ignored("a notification before the first request"),
                (true, true) => Verdict::Passed,
            };
        };
        // JSON-RPC allows more, but MCP forbids `null` and the library reads 64-bit integers only.
        if !is_id(id) {
            return refused("`id` is neither a string nor a 64-bit integer");
        }
        if !is_well_formed {
            return refused("`params` is not an object");
        }
        self.greeted = self.greeted || begins_session(line);
        Verdict::Passed
    }
}

/// Returns whether the library begins a session with a request, as its handshake decides. It answers any other request
/// and then accepts only requests, as before.
fn begins_session(line: &[u8]) -> bool {
    let Ok(ClientJsonRpcMessage::Request(message)) = serde_json::from_slice(line) else {
        return false;
    };
    let meta = message.request.get_meta();
    match &message.request {
        ClientRequest::InitializeRequest(_) => true,
        ClientRequest::PingRequest(_) | ClientRequest::DiscoverRequest(_) => false,
        // Since MCP 2026-07-28, a client need not send `initialize`: each request states the version.
        _ => {
            meta.missing_required_keys(&ProtocolVersion::V_2026_07_28).is_empty()
                && meta
                    .protocol_version()
                    .is_some_and(|v| ProtocolVersion::KNOWN_VERSIONS.contains(&v))
        }
    }
}

fn is_id(id: &Value) -> bool {
    id.is_string() || id.as_i64().is_some()
}

/// Returns the answer to a line that is not JSON (JSON-RPC 2.0, section 5.1).
pub(super) fn parse_error(id: &Value, problem: &str) -> Vec<u8> {
    error(id, -32700, &format!("Parse error: {problem}"))
}

fn invalid_request(id: Option<&Value>, problem: &str) -> Vec<u8> {
    error(id.unwrap_or(&Value::Null), -32600, &format!("Invalid request: {problem}"))
}

fn error(id: &Value, code: i32, message: &str) -> Vec<u8> {
    let error = json!({ "code": code, "message": message });
    format!("{}\n", json!({ "jsonrpc": "2.0", "id": id, "error": error })).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELLO: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"a","version":"1"}}}"#;

    fn greeted() -> Gate {
        let mut gate = Gate::default();
        assert_eq!(gate.decide(HELLO.as_bytes()), Verdict::Passed);
        gate
    }

    /// The code and the id of the answer to a line.
    fn answer(line: impl AsRef<[u8]>) -> (i64, Value) {
        let Verdict::Answered(answer) = greeted().decide(line.as_ref()) else {
            panic!("`{}` is not answered", String::from_utf8_lossy(line.as_ref()));
        };
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        (answer["error"]["code"].as_i64().unwrap(), answer["id"].clone())
    }

    /// CL-02: a request that cannot be parsed is answered with its id.
    #[test]
    fn an_unparsable_request_is_answered_with_its_id() {
        let deep = format!("{}{}", "[".repeat(5_000), "]".repeat(5_000));
        let request = |params: &str| {
            format!(r#"{{"jsonrpc":"2.0","id":7,"method":"ping","params":{{"a":{params}}}}}"#)
        };
        assert_eq!(greeted().decide(request("1").as_bytes()), Verdict::Passed);
        assert_eq!(answer(request(&deep)), (-32700, json!(7)));
        assert_eq!(answer(request(r#""\ud800""#)), (-32700, json!(7)));
        assert_eq!(answer(request("1e999")), (-32700, json!(7)));
        let mut bytes = request("\"?\"").into_bytes();
        let at = bytes.iter().position(|byte| *byte == b'?').unwrap();
        bytes[at] = 0xff;
        assert_eq!(answer(bytes), (-32700, json!(7)));
        assert_eq!(answer("{"), (-32700, Value::Null));
    }

    #[test]
    fn an_invalid_request_is_answered_with_its_id() {
        for (line, id) in [
            (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, Value::Null),
            ("[]", Value::Null),
            ("42", Value::Null),
            (r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, json!(1)),
            (r#"{"id":"a","method":"ping"}"#, json!("a")),
            (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, json!(1.5)),
            (r#"{"jsonrpc":"2.0","id":18446744073709551615,"method":"ping"}"#, json!(u64::MAX)),
            (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, Value::Null),
            (r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, Value::Null),
            (r#"{"jsonrpc":"2.0","id":3,"method":"ping","params":[1]}"#, json!(3)),
            (r#"{"jsonrpc":"2.0","id":4,"method":"ping","method":"tools/list"}"#, json!(4)),
            (r#"{"jsonrpc":"2.0","id":5,"method":6}"#, json!(5)),
            (r#"{"jsonrpc":"2.0","id":6}"#, json!(6)),
        ] {
            assert_eq!(answer(line), (-32600, id), "{line}");
        }
    }

    #[test]
    fn notifications_and_responses_get_no_answer() {
        let notification = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        let result = r#"{"jsonrpc":"2.0","id":9,"result":{}}"#;
        for line in [notification, result] {
            assert_eq!(greeted().decide(line.as_bytes()), Verdict::Passed);
            let mut gate = Gate::default();
            assert!(matches!(gate.decide(line.as_bytes()), Verdict::Ignored(_)), "{line}");
            assert_eq!(gate.decide(HELLO.as_bytes()), Verdict::Passed);
        }
        let odd = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":"x"}"#;
        assert!(matches!(greeted().decide(odd.as_bytes()), Verdict::Ignored(_)));
    }

    struct Plain;

    impl rmcp::ServerHandler for Plain {}

    /// Until the library has begun a session, it ends the connection at a notification, so none may be passed.
    #[tokio::test]
    async fn a_session_begins_here_and_in_the_library_with_the_same_request() {
        use rmcp::ServiceExt as _;
        use tokio::io::AsyncWriteExt as _;

        let stateless = |method: &str, version: &str| {
            json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": { "_meta": {
                "io.modelcontextprotocol/protocolVersion": version,
                "io.modelcontextprotocol/clientCapabilities": {},
            }}})
        };
        let plain = |method: &str, params: Value| json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let version = "io.modelcontextprotocol/protocolVersion";
        for (line, begins) in [
            (serde_json::from_str(HELLO).unwrap(), true),
            (stateless("tools/list", "2026-07-28"), true),
            (stateless("unknown/method", "2026-07-28"), true),
            (stateless("tools/list", "2099-01-01"), false),
            (stateless("server/discover", "2026-07-28"), false),
            (stateless("ping", "2026-07-28"), false),
            (plain("initialize", json!({})), false),
            (plain("tools/list", json!({})), false),
            (plain("tools/list", json!({ "_meta": { version: "2026-07-28" } })), false),
        ] {
            let line = format!("{line}\n");
            let mut gate = Gate::default();
            assert_eq!(gate.decide(line.as_bytes()), Verdict::Passed, "{line}");
            let (mut agent, stdin) = tokio::io::duplex(64 * 1024);
            agent.write_all(line.as_bytes()).await.unwrap();
            // The end of the input ends the handshake.
            agent.shutdown().await.unwrap();
            let served = Plain.serve(stdin).await;
            assert_eq!((gate.greeted, served.is_ok()), (begins, begins), "{line}");
        }
    }
}
