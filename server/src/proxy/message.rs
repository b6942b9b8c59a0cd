//! A JSON-RPC message, parsed strictly before its exact bytes are forwarded.
//!
//! The message that the server executes must be the one that was checked. Parsers differ in how they treat members
//! that are duplicated or have a different case, so a message with such a member is refused: the server reads the
//! same method, tool and version that were checked here.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

use super::strict::{Checked, Names, Text, refuse_variant, shown};

/// The code of a body that is not JSON.
pub(super) const PARSE_ERROR: i32 = -32700;
/// The code of JSON that is not a message.
pub(super) const INVALID_REQUEST: i32 = -32600;
/// The code of a method that is not supported.
pub(super) const METHOD_NOT_FOUND: i32 = -32601;
/// The code of headers that contradict the body.
pub(super) const HEADER_MISMATCH: i32 = -32020;

/// The member of `_meta` with the protocol version of a request.
const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// The largest integer id. JavaScript servers would round a larger one.
const LARGEST_ID: i64 = (1 << 53) - 1;
/// Members that are checked here or that servers act on. A parser that ignores case could take a variant for them.
const EXACT_NAMES: [&str; 6] = ["name", "uri", "arguments", "method", "params", "_meta"];

/// A message of a client.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Message {
    /// Its kind.
    pub(super) kind: Kind,
    /// The method of a request or a notification.
    pub(super) method: String,
    /// The parameter `name`.
    pub(super) name: Option<String>,
    /// The parameter `uri`.
    pub(super) uri: Option<String>,
    /// The parameter `taskId`.
    pub(super) task_id: Option<String>,
    /// The protocol version in `_meta`.
    pub(super) version: Option<String>,
}

/// The three kinds of messages.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind {
    /// A request, with its id.
    Request(Value),
    /// A notification, which has no id and no answer.
    Notification,
    /// A response to a request of the server.
    Response,
}

/// Why a body is not a message.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct BadMessage {
    /// The JSON-RPC code.
    pub(super) code: i32,
    /// The reason.
    pub(super) message: String,
}

impl Message {
    /// Parses a body.
    ///
    /// # Errors
    /// Returns the JSON-RPC error for a body that is not JSON or not a message.
    pub(super) fn parse(body: &[u8]) -> Result<Self, BadMessage> {
        let parts: Parts = serde_json::from_slice(body).map_err(|error| {
            // `is_data`: valid JSON of the wrong shape.
            let code = if error.is_data() { INVALID_REQUEST } else { PARSE_ERROR };
            BadMessage { code, message: format!("the body: {error}") }
        })?;
        parts.message().map_err(|what| BadMessage {
            code: INVALID_REQUEST,
            message: format!("the body is not an MCP message: {what}"),
        })
    }

    /// Returns the id of a request.
    pub(super) fn id(&self) -> Option<&Value> {
        match &self.kind {
            Kind::Request(id) => Some(id),
            Kind::Notification | Kind::Response => None,
        }
    }

    /// Returns the value that the header `Mcp-Name` must have.
    pub(super) fn subject(&self) -> Option<&str> {
        match self.method.as_str() {
            "tools/call" | "prompts/get" => self.name.as_deref(),
            "resources/read" => self.uri.as_deref(),
            // Not forwarded, but a header that contradicts the body is refused first.
            "tasks/get" | "tasks/update" | "tasks/cancel" => self.task_id.as_deref(),
            _ => None,
        }
    }
}

/// The members of a message, each at most once.
#[derive(Default)]
struct Parts {
    jsonrpc: Option<String>,
    id: Option<Value>,
    method: Option<String>,
    params: Option<Params>,
    result: bool,
    error: bool,
}

#[derive(Default)]
struct Params {
    name: Option<String>,
    uri: Option<String>,
    task_id: Option<String>,
    version: Option<String>,
}

impl Parts {
    fn message(self) -> Result<Message, &'static str> {
        if self.jsonrpc.as_deref() != Some("2.0") {
            return Err("`jsonrpc` is not \"2.0\"");
        }
        let params = self.params.unwrap_or_default();
        let kind = match (self.id, &self.method, self.result, self.error) {
            (Some(id), Some(_), false, false) => Kind::Request(id),
            // In MCP, only these methods are notifications. Without an id, the error of another method would be lost.
            (None, Some(method), false, false) if method.starts_with("notifications/") => {
                Kind::Notification
            }
            (None, Some(_), false, false) => return Err("a request needs an `id`"),
            // An error response may lack an id, because that of its request may have been invalid.
            (Some(_), None, true, false) | (_, None, false, true) => Kind::Response,
            _ => return Err("it is neither a request, a notification nor a response"),
        };
        let method = self.method.unwrap_or_default();
        if matches!(kind, Kind::Request(_)) && method.starts_with("notifications/") {
            return Err("a notification has no `id`");
        }
        let Params { name, uri, task_id, version } = params;
        Ok(Message { kind, method, name, uri, task_id, version })
    }
}

impl<'de> Deserialize<'de> for Parts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PartsVisitor;
        impl<'de> Visitor<'de> for PartsVisitor {
            type Value = Parts;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("one JSON-RPC message")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Parts, A::Error> {
                let (mut parts, mut names) = (Parts::default(), Names::default());
                while let Some(name) = names.next(&mut map)? {
                    match name.as_str() {
                        "jsonrpc" => parts.jsonrpc = Some(map.next_value()?),
                        "id" => parts.id = Some(id(map.next_value::<Value>()?)?),
                        "method" => parts.method = Some(map.next_value()?),
                        "params" => parts.params = Some(map.next_value()?),
                        "result" => {
                            map.next_value::<Checked>()?;
                            parts.result = true;
                        }
                        "error" => {
                            map.next_value::<Checked>()?;
                            parts.error = true;
                        }
                        // Unknown members are refused: a server could treat a variant such as `Method` as known.
                        other => {
                            let what = format!("`{}` is not a member of a message", shown(other));
                            return Err(A::Error::custom(what));
                        }
                    }
                }
                Ok(parts)
            }
        }
        deserializer.deserialize_map(PartsVisitor)
    }
}

fn id<E: serde::de::Error>(id: Value) -> Result<Value, E> {
    let is_valid = match &id {
        // Limited, because the gateway repeats the id in its own answers.
        Value::String(text) => text.len() <= 256,
        Value::Number(number) => number.as_i64().is_some_and(|id| id.abs() <= LARGEST_ID),
        _ => false,
    };
    match is_valid {
        true => Ok(id),
        false => Err(E::custom("an `id` must be a string or an integer")),
    }
}

impl<'de> Deserialize<'de> for Params {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ParamsVisitor;
        impl<'de> Visitor<'de> for ParamsVisitor {
            type Value = Params;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of parameters")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Params, A::Error> {
                let (mut params, mut names) = (Params::default(), Names::default());
                while let Some(name) = names.next(&mut map)? {
                    // Within `arguments`, names that differ only in case are the business of the
                    // tool.
                    refuse_variant(&name, &EXACT_NAMES)?;
                    match name.as_str() {
                        "name" => params.name = map.next_value::<Text>()?.0,
                        "uri" => params.uri = map.next_value::<Text>()?.0,
                        "taskId" => params.task_id = map.next_value::<Text>()?.0,
                        "_meta" => params.version = map.next_value::<Meta>()?.0,
                        _ => {
                            map.next_value::<Checked>()?;
                        }
                    }
                }
                Ok(params)
            }
        }
        deserializer.deserialize_map(ParamsVisitor)
    }
}

/// The protocol version in `_meta`.
struct Meta(Option<String>);

impl<'de> Deserialize<'de> for Meta {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MetaVisitor;
        impl<'de> Visitor<'de> for MetaVisitor {
            type Value = Meta;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of `_meta`")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Meta, A::Error> {
                let (mut version, mut names) = (None, Names::default());
                while let Some(name) = names.next(&mut map)? {
                    refuse_variant(&name, &[VERSION])?;
                    match name.as_str() {
                        VERSION => version = map.next_value::<Text>()?.0,
                        _ => {
                            map.next_value::<Checked>()?;
                        }
                    }
                }
                Ok(Meta(version))
            }
        }
        deserializer.deserialize_map(MetaVisitor)
    }
}

/// Returns the id of a refused body for the answer; null if it has no valid one.
pub(super) fn id_of(body: &[u8]) -> Value {
    #[derive(serde::Deserialize)]
    struct Id {
        #[serde(default)]
        id: Value,
        // Makes serde read only objects: otherwise, `[7]` would be read as the id 7.
        #[serde(flatten)]
        _rest: IgnoredAny,
    }
    let id = serde_json::from_slice::<Id>(body).map(|found| found.id).unwrap_or_default();
    match id {
        Value::String(text) if text.len() <= 256 => Value::String(text),
        Value::Number(number) if number.is_i64() => Value::Number(number),
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> Result<Message, BadMessage> {
        Message::parse(text.as_bytes())
    }

    #[test]
    fn messages_are_parsed() {
        let call = read(
            r#"{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"x","arguments":{"Name":"y","n":[1,{"a":1.5}]},
               "_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","progressToken":1}}}"#,
        )
        .unwrap();
        assert_eq!((call.id(), call.subject()), (Some(&json!("a")), Some("x")));
        assert_eq!(call.version.as_deref(), Some("2026-07-28"));
        let read_one =
            read(r#"{"jsonrpc":"2.0","id":0,"method":"resources/read","params":{"uri":"a:b"}}"#);
        assert_eq!(read_one.unwrap().subject(), Some("a:b"));
        for (text, kind) in [
            (r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, Kind::Notification),
            (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, Kind::Response),
            (r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m"}}"#, Kind::Response),
            (
                r#"{"jsonrpc":"2.0","id":9007199254740991,"method":"ping"}"#,
                Kind::Request(json!(9007199254740991_i64)),
            ),
        ] {
            assert_eq!(read(text).unwrap().kind, kind, "{text}");
        }
    }

    /// GW-13: messages that two parsers could read differently are refused.
    #[test]
    fn ambiguous_messages_are_refused() {
        let call = |params: &str| {
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#)
        };
        read(&call(r#"{"name":"a","arguments":{"Name":1,"NAME":2}}"#)).unwrap();
        for text in [
            r#"{"jsonrpc":"2.0","id":1,"method":"a","method":"b"}"#.to_owned(),
            r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"a"}"#.to_owned(),
            r#"{"jsonrpc":"2.0","id":1,"method":"a","Method":"b"}"#.to_owned(),
            r#"{"jsonrpc":"2.0","id":1,"method":"a","param\u017f":{}}"#.to_owned(),
            r#"{"jsonrpc":"2.0","id":1,"method":"a","extra":1}"#.to_owned(),
            r#"{"jsonrpc":"2.0","id":1,"m\u0065thod":"a","method":"b"}"#.to_owned(),
            r#"{"jsonrpc":"2.0","id":1,"method":"a","result":{}}"#.to_owned(),
            r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{}}"#.to_owned(),
            call(r#"{"name":"a","name":"b"}"#),
            call(r#"{"name":"a","n\u0061me":"b"}"#),
            call(r#"{"name":"a","Name":"b"}"#),
            call(r#"{"name":"a","ARGUMENTS":{}}"#),
            call(r#"{"name":"a","argument\u017f":{}}"#),
            call(r#"{"name":"a","arguments":{"x":1,"x":2}}"#),
            call(r#"{"name":"a","arguments":[{"x":{"y":1,"y":2}}]}"#),
            call(r#"{"name":"a","_meta":{"io.modelcontextprotocol/ProtocolVersion":"1"}}"#),
            call("[]"),
        ] {
            assert_eq!(read(&text).expect_err(&text).code, INVALID_REQUEST, "{text}");
        }
    }

    /// GW-18: an invalid message gets the error that the specification requires.
    #[test]
    fn invalid_messages_get_the_specified_error() {
        for text in [
            "[]",
            "{}",
            "1",
            "null",
            r#""x""#,
            r#"{"id":1,"method":"a"}"#,
            r#"{"jsonrpc":"1.0","id":1,"method":"a"}"#,
            r#"{"jsonrpc":"2.0","id":null,"method":"a"}"#,
            r#"{"jsonrpc":"2.0","id":1.5,"method":"a"}"#,
            r#"{"jsonrpc":"2.0","id":true,"method":"a"}"#,
            r#"{"jsonrpc":"2.0","id":9007199254740993,"method":"a"}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"notifications/initialized"}"#,
            r#"{"jsonrpc":"2.0","method":"a"}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":5}"#,
            r#"{"jsonrpc":"2.0","id":1}"#,
            r#"[{"jsonrpc":"2.0","id":1,"method":"a"}]"#,
        ] {
            assert_eq!(read(text).expect_err(text).code, INVALID_REQUEST, "{text}");
        }
        for text in
            ["", "{", "not json", r#"{"jsonrpc":"2.0","id":1,"method":"\ud800"}"#, "\u{feff}{}"]
        {
            assert_eq!(read(text).expect_err(text).code, PARSE_ERROR, "{text}");
        }
        let deep = "[".repeat(100_000);
        assert_eq!(read(&deep).unwrap_err().code, INVALID_REQUEST);
        let within = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"a","params":{{"x":{deep}"#);
        assert_eq!(read(&within).unwrap_err().code, PARSE_ERROR);
        assert_eq!(Message::parse(b"\xff\xfe").unwrap_err().code, PARSE_ERROR);
        assert_eq!(id_of(br#"{"id":7,"method":[]}"#), json!(7));
        assert_eq!(id_of(br#"{"id":{}}"#), json!(null));
    }
}
